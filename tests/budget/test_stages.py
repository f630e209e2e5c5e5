"""A plan: order, ranges, and what follows after each stage."""

import json

import pytest

import hf_trainplus
from hf_trainplus.budget.plans.problems import PlanError
from hf_trainplus.budget.plans.stage import Stage
from hf_trainplus.budget.plans.stage_history import Evaluation, StageHistory
from hf_trainplus.budget.stages import StageDecision, StagePlan
from hf_trainplus.budget.stops import StopReason


def test_the_public_names():
    assert (hf_trainplus.Stage, hf_trainplus.StagePlan) == (Stage, StagePlan)


def plan(*stages):
    return StagePlan(stages)


LOOK = {"name": "look", "budget": "max_steps=10"}
TUNE = {
    "name": "tune",
    "budget": "gpu_hours=8",
    "advance_when": {"metric": "accuracy", "at_least": 0.9},
    "stop_when": {"metric": "loss", "at_least": 5},
    "fall_back_when": {"metric": "accuracy", "at_most": 0.1},
    "fall_back_to": "look",
}


def seen(accuracy=0.5, loss=1.0, **options):
    return StageHistory((Evaluation(1, {"eval_accuracy": accuracy, "eval_loss": loss}),), **options)


@pytest.mark.parametrize(
    ("stage", "history", "decision"),
    [
        (0, seen(), StageDecision("go_on")),
        (0, seen(budget_spent=True), StageDecision("begin", 1, because="budget spent")),
        (1, seen(0.05), StageDecision("begin", 0, because="accuracy at most 0.1")),
        (1, seen(loss=6), StageDecision("end", reason=StopReason.PATIENCE, because="loss at least 5")),
        (1, seen(0.95), StageDecision("end", reason=StopReason.PLAN_FINISHED, because="accuracy at least 0.9")),
        (1, seen(budget_spent=True), StageDecision("end", reason=StopReason.PLAN_FINISHED, because="budget spent")),
    ],
)
def test_what_follows(stage, history, decision):
    assert plan(LOOK, TUNE).decide(stage, history) == decision


def test_a_gate_that_is_not_passed_ends_the_run():
    gate = {**LOOK, "advance_when": {"metric": "accuracy", "at_least": 0.9}, "on_budget_spent": "stop"}
    decision = plan(gate, TUNE).decide(0, seen(budget_spent=True))
    assert decision == StageDecision("end", reason=StopReason.BUDGET_SPENT, because="budget spent")


def test_stages_are_found_by_name():
    both = plan(LOOK, TUNE)
    assert both.index("tune") == 1
    assert [stage.name for stage in both] == ["look", "tune"]
    assert len(both) == 2
    with pytest.raises(ValueError, match="the plan has no stage 'x'; it has look, tune"):
        both.index("x")


def test_a_plan_is_kept_as_plain_values():
    both = plan(LOOK, {**TUNE, "eval": {"mode": "race"}, "steps": None})
    kept = both.to_dict()
    assert json.loads(json.dumps(kept)) == kept
    assert kept["stages"][0] == {"name": "look", "budget": {"max_steps": 10.0}}
    assert kept["stages"][1]["advance_when"] == "accuracy at least 0.9"
    assert plan(LOOK, TUNE).to_dict() != kept


def ranged(name, *steps, **more):
    return {"name": name, "steps": steps or None, **more}


def test_ranges_that_follow_each_other_are_fine():
    assert len(plan(ranged("a", 0, 10), ranged("b", 10, 30), {"name": "c", "train": False})) == 3


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([], "stages: is empty; give at least one stage"),
        ([LOOK, LOOK], r"stages\[1\].name: is 'look', the name of stage 1 too: .* would overlap"),
        ([ranged("a", 0, 10), ranged("b", 5, 20)], r"stages\[1\].steps: overlaps stage 'a', which ends at step 10"),
        ([ranged("a", 0, 10), ranged("b", 12, 20)], r"leaves steps 10 to 12 out. Write \[10, 20\]"),
        ([ranged("a", 5, 10)], r"leaves steps 0 to 5 out"),
        ([ranged("a", 0, 10), LOOK], r"stages\[1\]: has no steps, and other stages have"),
        ([TUNE], "fall_back_to: is 'look', which is no earlier stage; the first stage has none before it"),
        ([TUNE, LOOK], "fall_back_to: is 'look', which is no earlier stage"),
        ([LOOK, {**TUNE, "fall_back_to": "lok"}], "is 'lok', which is no earlier stage; allowed: look"),
    ],
)
def test_what_is_refused(stages, message):
    with pytest.raises(PlanError, match=message):
        StagePlan(stages)


def test_all_that_does_not_fit_together_is_told_at_once():
    with pytest.raises(PlanError) as caught:
        plan(ranged("a", 0, 10), ranged("a", 5, 20), ranged("c", 25, 30))
    assert len(caught.value.problems) == 3
