"""What stages will take, from what is known and not from more."""

import pytest

from hf_trainplus.budget.costs.hardware import Hardware
from hf_trainplus.budget.costs.model_shape import ModelShape
from hf_trainplus.budget.keeping.measured import Measured
from hf_trainplus.budget.plans.plan_cost import later_stages_seconds, predict_plan, predict_stage, total_known
from hf_trainplus.budget.plans.plan_setting import PlanSetting
from hf_trainplus.budget.plans.stage import Stage
from hf_trainplus.budget.stages import StagePlan

# 6·1e9 operations a token; 1e14 a second and device
SETTING = PlanSetting(
    shape=ModelShape.of_count(1e9),
    hardware=Hardware(peak_tflops=100, utilisation=1.0, devices=4),
    devices=4,
    usd_per_device_hour=2.0,
    rows=10_000,
    evaluation_rows=1000,
    length=100,
    per_device_train_batch_size=10,
)
STEP_SECONDS = 6e9 * 4000 / 4e14
EVALUATION_SECONDS = 2e9 * 100_000 / 4e14


def stage(**options):
    return Stage("a", **options)


def test_steps_are_turned_into_time():
    cost = predict_stage(stage(budget="max_steps=100"), SETTING)
    assert (cost.rows_a_step, cost.steps, cost.tokens) == (40, 100, 400_000)
    assert cost.flops == pytest.approx(6e9 * 400_000)
    assert cost.wall_clock_seconds == pytest.approx(100 * STEP_SECONDS)
    assert cost.gpu_hours == pytest.approx(100 * STEP_SECONDS * 4 / 3600)
    assert cost.usd == pytest.approx(cost.gpu_hours * 2)
    assert cost.ends_by == "max_steps"


@pytest.mark.parametrize(
    ("budget", "steps"), [("tokens=40000", 10), ("num_train_epochs=2", 500), ("max_steps=7,num_train_epochs=1", 7)]
)
def test_tokens_and_epochs_are_turned_into_steps(budget, steps):
    assert predict_stage(stage(budget=budget), SETTING).steps == steps


def test_a_share_of_the_data_makes_epochs_shorter():
    assert predict_stage(stage(budget="num_train_epochs=1", data_fraction=0.1), SETTING).steps == 25


@pytest.mark.parametrize(("budget", "seconds"), [("wall_clock=60", 60.0), ("gpu_hours=0.1", 90.0), ("usd=0.1", 45.0)])
def test_time_hours_and_money_need_no_model(budget, seconds):
    cost = predict_stage(stage(budget=budget), PlanSetting(devices=4, usd_per_device_hour=2.0))
    assert cost.wall_clock_seconds == pytest.approx(seconds)
    assert cost.usd == pytest.approx(seconds * 4 / 3600 * 2)
    assert (cost.steps, cost.flops) == (None, None)


def test_the_tightest_limit_counts():
    cost = predict_stage(stage(budget=f"max_steps=1000,wall_clock={10.5 * STEP_SECONDS}"), SETTING)
    assert (cost.ends_by, cost.steps) == ("wall_clock", 10)
    assert predict_stage(stage(budget="max_steps=3,wall_clock=1h"), SETTING).ends_by == "max_steps"


def test_evaluations_on_the_stages_rhythm_are_in_it():
    plain = predict_stage(stage(budget="max_steps=100"), SETTING)
    often = predict_stage(stage(budget="max_steps=100", eval={"strategy": "steps", "every": 25}), SETTING)
    assert often.evaluations == 4
    assert often.wall_clock_seconds == pytest.approx(plain.wall_clock_seconds + 4 * EVALUATION_SECONDS)
    subset = {"mode": "subset", "subset_size": 100, "strategy": "epoch", "every": 1}
    epochs = predict_stage(stage(budget="num_train_epochs=2", eval=subset), SETTING)
    assert epochs.evaluations == 2
    assert epochs.wall_clock_seconds == pytest.approx(500 * STEP_SECONDS + 2 * EVALUATION_SECONDS / 10)


def test_an_adaptive_rhythm_is_not_guessed():
    adaptive = stage(budget="max_steps=100", eval={"strategy": "steps", "every": 5, "schedule": "adaptive"})
    assert predict_stage(adaptive, SETTING).evaluations is None


def test_batch_sizes_and_processes_of_the_stage_count():
    cost = predict_stage(stage(budget="max_steps=1", global_batch_size=64, num_processes=2), SETTING)
    assert (cost.devices, cost.rows_a_step) == (2, 64)
    assert cost.wall_clock_seconds == pytest.approx(6e9 * 6400 / 2e14)


def test_a_stage_without_training_is_one_evaluation():
    cost = predict_stage(Stage("a", preset="production"), SETTING)
    assert (cost.steps, cost.evaluations) == (0, 1)
    assert cost.wall_clock_seconds == pytest.approx(EVALUATION_SECONDS)


def test_a_stage_that_only_a_rule_ends_has_no_prediction():
    cost = predict_stage(stage(advance_when={"plateau": 3}), SETTING)
    assert (cost.steps, cost.wall_clock_seconds, cost.usd, cost.ends_by) == (None, None, None, None)


def test_what_is_missing_stays_unknown():
    cost = predict_stage(stage(budget="num_train_epochs=2"), PlanSetting())
    assert (cost.steps, cost.tokens, cost.wall_clock_seconds) == (None, None, None)
    assert predict_stage(stage(budget="max_steps=5"), PlanSetting()).steps == 5


def test_totals_need_every_stage():
    plan = StagePlan([{"name": "a", "budget": "max_steps=10"}, {"name": "b", "advance_when": "budget_spent"}])
    costs = predict_plan(plan, SETTING)
    assert total_known(costs[:1], "usd") == costs[0].usd
    assert total_known(costs, "usd") is None


def test_later_stages_are_forecast_from_what_this_one_took():
    measured = Measured()
    for _ in range(20):
        measured.add("step", {"seconds": 2.0})
    measured.add("evaluation", {"seconds": 10.0})
    often = {"strategy": "steps", "every": 50}
    plan = StagePlan(
        [
            {"name": "now", "budget": "max_steps=100", "eval": {"mode": "subset", "subset_size": 100}},
            {"name": "next", "budget": "max_steps=100", "global_batch_size": 80, "num_processes": 8, "eval": often},
            {"name": "last", "budget": "wall_clock=60"},
        ]
    )
    setting = PlanSetting(devices=4, evaluation_rows=400).with_measured(measured, plan.stages[0], rows_a_step=40)
    # twice the rows on twice the devices take as long; four times the rows of an evaluation twice as long
    assert later_stages_seconds(plan, 0, setting) == pytest.approx(100 * 2.0 + 2 * 20.0 + 60.0)
    assert later_stages_seconds(plan, 1, setting) == 60.0
    assert later_stages_seconds(plan, 2, setting) == 0.0


def test_later_stages_that_only_a_rule_ends_are_not_known():
    plan = StagePlan([{"name": "now", "budget": "max_steps=5"}, {"name": "next", "advance_when": {"plateau": 3}}])
    assert later_stages_seconds(plan, 0, SETTING) is None
