"""One stage: what it accepts, what it refuses, batch sizes, and what follows."""

import pickle

import pytest
from transformers import SchedulerType, TrainingArguments

from hf_trainplus.budget.advance import BudgetShare, MetricAtLeast
from hf_trainplus.budget.budget import Budget
from hf_trainplus.budget.plans.problems import PlanError
from hf_trainplus.budget.plans.stage import Stage
from hf_trainplus.budget.plans.stage_evaluation import StageEvaluation
from hf_trainplus.budget.plans.stage_history import Evaluation, StageHistory
from hf_trainplus.budget.plans.stage_reading import READERS, SCHEDULERS
from hf_trainplus.budget.presets import PRESETS


def test_plain_values_become_objects():
    stage = Stage(
        "warmup",
        budget={"gpu_hours": 100},
        learning_rate="1e-4",
        eval={"mode": "subset", "subset_size": 512, "schedule": "adaptive"},
        advance_when={"metric": "accuracy", "at_least": 0.7},
        freeze="*.embeddings.*",
    )
    assert stage.budget == Budget(gpu_hours=100)
    assert stage.learning_rate == 1e-4
    assert stage.eval == StageEvaluation(mode="subset", subset_size=512, schedule="adaptive")
    assert stage.advance_when == MetricAtLeast("accuracy", 0.7)
    assert stage.freeze == ("*.embeddings.*",)
    assert stage.trains


def test_a_stage_of_objects_is_the_same_stage():
    plain = Stage("a", budget="max_steps=5", advance_when="budget_spent")
    assert Stage("a", budget=Budget(max_steps=5), advance_when=BudgetShare()) == plain
    assert pickle.loads(pickle.dumps(plain)) == plain


def test_what_it_sets_are_fields_of_training_arguments(tmp_path):
    stage = Stage(
        "a",
        budget="max_steps=5",
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=1e-3,
        lr_scheduler_type="cosine_with_min_lr",
        lr_scheduler_kwargs={"min_lr": 1e-5},
        warmup_steps=0.1,
        weight_decay=0.01,
        max_grad_norm=0.5,
    )
    args = TrainingArguments(str(tmp_path), use_cpu=True, **stage.training_arguments())
    assert args.per_device_train_batch_size == 4
    assert args.lr_scheduler_kwargs == {"min_lr": 1e-5}
    assert Stage("a", budget="max_steps=5").training_arguments() == {}


def test_schedulers_are_those_of_transformers():
    assert set(SCHEDULERS) == {kind.value for kind in SchedulerType}


def test_every_field_has_a_reader():
    assert set(READERS) == {name for name in Stage.__dataclass_fields__}


@pytest.mark.parametrize(
    ("stage", "world_size", "accumulation", "rows"),
    [
        ({"global_batch_size": 256, "per_device_train_batch_size": 16}, 4, 4, 16),
        ({"global_batch_size": 256, "gradient_accumulation_steps": 4}, 8, 4, 8),
        ({"global_batch_size": 64}, 2, 4, 8),
        ({"gradient_accumulation_steps": 3}, 2, 3, 8),
        ({}, 2, 1, 8),
    ],
)
def test_accumulation_follows_from_the_batch_sizes(stage, world_size, accumulation, rows):
    stage = Stage("a", budget="max_steps=5", **stage)
    assert stage.accumulation(world_size, per_device_train_batch_size=8) == accumulation
    assert stage.rows_a_device(world_size, default=8) == rows


def test_a_batch_size_that_ranks_cannot_make_up_names_the_next_one():
    stage = Stage("a", budget="max_steps=5", global_batch_size=96, per_device_train_batch_size=16)
    with pytest.raises(ValueError, match="global_batch_size=96 is no multiple of 64, .*16 rows a device on 4 devices"):
        stage.accumulation(4)


def test_a_range_of_steps_is_a_budget_in_steps():
    assert Stage("a", steps=[100, 400]).limits() == Budget(max_steps=300)
    assert Stage("a", steps=[100, 400], budget="max_steps=10,usd=5").limits() == Budget(max_steps=10, usd=5)


def good(accuracy, **options):
    return StageHistory((Evaluation(1, {"eval_accuracy": accuracy, "eval_loss": 1 - accuracy}),), **options)


GATED = {
    "budget": "max_steps=5",
    "advance_when": {"metric": "accuracy", "at_least": 0.7},
    "stop_when": {"metric": "loss", "at_least": 5},
    "fall_back_when": {"metric": "accuracy", "at_most": 0.1},
    "fall_back_to": "before",
}


@pytest.mark.parametrize(
    ("history", "action"),
    [
        (good(0.5), "go_on"),
        (good(0.8), "advance"),
        (good(0.05), "fall_back"),
        (good(0.05, falls=1), "go_on"),
        (good(-4.5), "stop"),
        (good(0.5, budget_spent=True), "advance"),
        (StageHistory(), "go_on"),
    ],
)
def test_what_follows(history, action):
    assert Stage("a", **GATED).decide(history) == action


def test_a_spent_budget_can_end_the_run():
    gate = Stage("a", budget="max_steps=5", advance_when=GATED["advance_when"], on_budget_spent="stop")
    assert gate.decide(good(0.5, budget_spent=True)) == "stop"
    assert gate.decide(good(0.8, budget_spent=True)) == "advance"


def test_it_may_fall_back_more_than_once():
    stage = Stage("a", **GATED, fall_back_at_most=3)
    assert [stage.decide(good(0.05, falls=falls)) for falls in (2, 3)] == ["fall_back", "go_on"]


@pytest.mark.parametrize("preset", PRESETS)
def test_presets(preset):
    budget = {} if preset == "production" else {"budget": "max_steps=5"}
    stage = Stage("a", preset=preset, **budget)
    expected = {
        "exploration": (True, StageEvaluation(mode="subset", subset_size=512, strategy="epoch", every=1)),
        "tuning": (True, StageEvaluation(mode="full", strategy="epoch", every=2)),
        "production": (False, StageEvaluation(mode="full", extra_datasets=("*",))),
    }[preset]
    assert (stage.trains, stage.eval) == expected


def test_what_a_stage_says_wins_over_its_preset():
    stage = Stage("a", preset="exploration", budget="max_steps=5", eval={"subset_size": 100})
    assert stage.eval == StageEvaluation(mode="subset", subset_size=100, strategy="epoch", every=1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "a b"}, "name: is 'a b'; allowed are letters, digits"),
        ({"name": ""}, "name: is missing; every stage has a name"),
        ({"budget": None}, "is empty: nothing says when it ends. Add a budget, steps or advance_when"),
        ({"budget": {}}, "budget: is {}; allowed is a mapping with at least one limit"),
        ({"budget": "gpu_hours=2h"}, "gpu_hours is '2h', which is no number"),
        ({"budget": {"wall_clock": "2x"}}, "budget.wall_clock: wall_clock is '2x', which is no duration"),
        ({"preset": "explore"}, "preset: is 'explore'; allowed: exploration, tuning, production"),
        ({"per_device_train_batch_size": 0}, "per_device_train_batch_size: is 0; allowed is a whole number"),
        ({"global_batch_size": 2.5}, "global_batch_size: is 2.5; allowed is a whole number of at least 1"),
        ({"learning_rate": 0}, "learning_rate: is 0; allowed is a number above 0"),
        ({"learning_rate": "fast"}, "learning_rate: is 'fast'; allowed is a number"),
        ({"lr_scheduler_type": "cosin"}, "lr_scheduler_type: is 'cosin'; allowed: linear, cosine"),
        ({"lr_scheduler_kwargs": 3}, "lr_scheduler_kwargs: is 3; allowed is a mapping"),
        ({"warmup_steps": -1}, "warmup_steps: is -1; allowed is a number, at least 0"),
        ({"data_fraction": 10}, "data_fraction: is 10; allowed is a share above 0 and at most 1"),
        ({"data_fraction": 0}, "data_fraction: is 0; allowed is a number above 0"),
        ({"train_dataset": 3}, "train_dataset: is 3; allowed is a name"),
        ({"freeze": [3]}, "freeze: is .*allowed is a list of parameter names or patterns"),
        ({"train": "no"}, "train: is 'no'; allowed: true, false"),
        ({"train": False}, "budget: stands in a stage with train: false, which takes no step; leave budget out"),
        (
            {"train": False, "budget": None, "weight_decay": 0.1, "train_dataset": "noisy"},
            r"(?s)weight_decay: stands in a stage with train: false.*train_dataset: stands in",
        ),
        ({"eval": 3}, "eval: is 3; allowed is a mapping with mode"),
        ({"eval": {"mode": "some"}}, "eval.mode: is 'some'; allowed: full, subset, race"),
        ({"eval": {"mode": "subset"}}, "eval.mode: is subset without subset_size"),
        ({"eval": {"subset_size": 2.5}}, "eval.subset_size: is 2.5; allowed is a number of rows, or a share"),
        ({"eval": {"every": 0}}, "eval.every: is 0"),
        ({"eval": {"time_share": 5}}, "eval.time_share: is 5; allowed is a number, at least 0 and at most 1"),
        ({"eval": {"extra_datasets": [1]}}, "eval.extra_datasets: is .1.; allowed is a list of names"),
        ({"steps": [10, 10]}, r"steps: is \[10, 10\], which holds no step"),
        ({"steps": [10]}, "steps: is .10.; allowed: .first, end."),
        ({"steps": [-1, 10]}, r"steps\[0\]: is -1; allowed is a whole number of at least 0"),
        ({"advance_when": "soon"}, "advance_when: is 'soon', which is no rule"),
        ({"fall_back_to": "x"}, "has one of fall_back_when and fall_back_to; give both"),
        ({"fall_back_at_most": 2}, "fall_back_at_most: stands without fall_back_when"),
        ({"on_budget_spent": "wait"}, "on_budget_spent: is 'wait'; allowed: advance, stop"),
        ({"num_processes": 0}, "num_processes: is 0"),
        ({"global_batch_size": 100, "per_device_train_batch_size": 32}, "is no multiple of 32. Write 96"),
        ({"global_batch_size": 100, "num_processes": 8}, "on 8 devices cannot make up: it is no multiple of 8"),
        ({"global_batch_size": 4, "gradient_accumulation_steps": 8}, "no multiple of 8. Write 8"),
        (
            {"global_batch_size": 4, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2},
            "gradient_accumulation_steps: follows from the other two batch sizes; leave it out",
        ),
    ],
)
def test_what_is_refused(wrong, message):
    with pytest.raises(PlanError, match=message):
        Stage(**{"name": "a", "budget": "max_steps=5", **wrong})


def test_a_bare_no_in_yaml_is_a_strategy():
    assert Stage("a", budget="max_steps=5", eval={"strategy": False}).eval.strategy == "no"


def test_everything_wrong_with_a_stage_is_told_at_once():
    with pytest.raises(PlanError) as caught:
        Stage("a", budget="usd=x", learning_rate=-1, data_fraction=2, steps=[3, 1])
    assert len(caught.value.problems) == 4
