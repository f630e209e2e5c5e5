from __future__ import annotations

import numpy as np
import pytest

from hf_trainplus.decisions.estimate import loss_interval
from hf_trainplus.decisions.race import Drop, Evaluate, Keep
from hf_trainplus.decisions.replay import (
    POLICIES,
    ReplayDriver,
    ReplayOptions,
    ReplayTrace,
    export_trace,
    replay,
)
from hf_trainplus.results import ExampleResults
from tests.support.race_traces import recorded, synthetic


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("metric", ["loss", "error"])
def test_every_policy_reports_what_it_chose(policy, metric):
    trace = synthetic(0)
    levels = trace.values(metric)
    result = replay(trace, policy, metric=metric)
    assert result.stock_best_index == int(levels.argmin())
    assert result.best_step == trace.step[result.best_index]
    spread = trace.row_values(metric)[result.stock_best_index].std() / np.sqrt(trace.size)
    assert result.regret_se == pytest.approx((levels[result.best_index] - levels.min()) / spread)
    assert 0 < result.cost <= 1.0
    assert result.stop_index == result.stock_stop_index == len(trace.step) - 1
    assert result.seconds >= 0


def test_full_is_stock():
    result = replay(synthetic(1), "full", options=ReplayOptions(patience=4))
    assert (result.cost, result.regret_se, result.false_new_best) == (1.0, 0.0, 0)
    assert result.stop_index == result.stock_stop_index


@pytest.mark.parametrize("seed", range(3))
def test_the_race_is_cheaper_than_full_and_chooses_the_same(seed):
    result = replay(synthetic(seed), "race", options=ReplayOptions(seed=seed))
    assert result.best_index == result.stock_best_index
    assert result.cost < 0.6
    assert result.false_new_best == 0


def test_a_subset_costs_its_fraction_and_the_winners_full_evaluation():
    trace = synthetic(0)
    evaluations, rows = len(trace.step), trace.size
    result = replay(trace, "subset", options=ReplayOptions(fraction=0.2))
    assert result.cost == pytest.approx(0.2 + 0.8 / evaluations, abs=1 / rows)


def test_a_subset_calls_false_new_bests_and_another_seed_another_choice():
    trace = synthetic(0, overfit=0.05)
    results = [replay(trace, "subset", options=ReplayOptions(fraction=0.05, seed=seed)) for seed in range(8)]
    assert sum(result.false_new_best for result in results) > 0
    assert len({result.best_index for result in results}) > 1


def test_the_adaptive_interval_skips_evaluations_of_the_grid():
    result = replay(synthetic(2), "adaptive")
    assert result.cost < 0.8
    assert result.regret_se >= 0


@pytest.mark.parametrize("patience", [3, 6])
def test_policies_stop_on_their_own_values(patience):
    trace = synthetic(2, evaluations=60)
    levels = trace.values("loss")
    expected = next(t for t in range(60) if t - int(levels[: t + 1].argmin()) >= patience)
    for policy in ("race", "full"):
        assert replay(trace, policy, options=ReplayOptions(patience=patience)).stop_index == expected


def test_the_clock_is_passed_in():
    times = iter([10.0, 12.5])
    assert replay(synthetic(0), "subset", clock=lambda: next(times)).seconds == 2.5


def test_a_race_of_nothing_finite_says_so():
    trace = ReplayTrace(np.full((3, 600), np.nan), np.array([1, 2, 3]))
    with pytest.raises(ValueError, match="no evaluation of the trace is finite"):
        replay(trace, "race")


@pytest.mark.parametrize(
    ("options", "message"),
    [({"patience": 0}, "whole numbers >= 1"), ({"fraction": 0.0}, "shares in"), ({"seed": -1}, "seed=-1; allowed are")],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ReplayOptions(**options)


def test_unknown_policies_and_metrics_are_refused():
    trace = synthetic(0)
    with pytest.raises(ValueError, match="race, full, subset, adaptive"):
        replay(trace, "guess")
    with pytest.raises(ValueError, match="this trace allows loss, error"):
        replay(trace, metric="f1")
    with pytest.raises(ValueError, match=r"this trace allows loss\."):
        replay(ReplayTrace(trace.loss, trace.step), metric="error")


def test_traces_survive_a_file(tmp_path):
    trace = synthetic(0, evaluations=4, rows=20)
    trace.save(tmp_path / "run.npz")
    again = ReplayTrace.load(tmp_path / "run.npz")
    for name in ("loss", "step", "correct", "label"):
        np.testing.assert_array_equal(getattr(again, name), getattr(trace, name))
    assert again.target_count is None


def test_half_precision_traces_are_widened_before_means(tmp_path):
    np.savez(tmp_path / "run.npz", loss=np.full((2, 4000), 0.1, np.float16), step=np.array([1, 2]))
    assert ReplayTrace.load(tmp_path / "run.npz").values("loss")[0] == float(np.float16(0.1))


@pytest.mark.parametrize("name", ["loss", "step"])
def test_a_trace_without_an_array_is_refused(tmp_path, name):
    arrays = {"loss": np.zeros((2, 3)), "step": np.array([1, 2])}
    del arrays[name]
    np.savez(tmp_path / "run.npz", **arrays)
    with pytest.raises(ValueError, match=f"no array '{name}'"):
        ReplayTrace.load(tmp_path / "run.npz")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"loss": np.zeros(3), "step": np.arange(3)}, "give loss"),
        ({"loss": np.zeros((2, 3)), "step": np.arange(3)}, "give loss"),
        ({"loss": np.zeros((2, 3)), "step": np.array([2, 1])}, "do not rise"),
        ({"loss": np.zeros((2, 3)), "step": np.array([[1], [2]])}, r"step \(2, 1\); give loss"),
        ({"loss": np.zeros((2, 3)), "step": np.array(1)}, r"step \(\); give loss"),
        ({"loss": np.zeros((2, 0)), "step": np.arange(2)}, "N at least 1"),
        ({"loss": np.zeros((2, 3)), "step": np.arange(2), "target_count": np.zeros(3)}, "target_count holds no target"),
        ({"loss": np.zeros((2, 3)), "step": np.arange(2), "correct": np.zeros((2, 2))}, "equal shapes"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(arrays, message):
    with pytest.raises(ValueError, match=message):
        ReplayTrace(**arrays)


def test_real_evaluations_are_exported_as_a_trace():
    rng = np.random.default_rng(0)
    tables = {}
    for step in (20, 10):
        order = rng.permutation(6)
        tables[step] = ExampleResults(
            order, order + step * 1.0, order % 3 + 1, scores={"accuracy": (order % 2 == 0) * 1.0}
        )
    trace = export_trace(tables, label=np.arange(6))
    assert trace.step.tolist() == [10, 20]
    np.testing.assert_array_equal(trace.loss[1], np.arange(6) + 20.0)
    np.testing.assert_array_equal(trace.correct[0], [1, 0, 1, 0, 1, 0])
    # token-exact: the metric of the trace is the loss of the table
    assert trace.values("loss")[0] == pytest.approx(tables[10].loss)


def test_export_without_scores_holds_losses_only():
    tables = {1: ExampleResults([0, 1], [1.0, 2.0], [1, 1])}
    assert export_trace(tables).correct is None


def test_export_refuses_partial_evaluations():
    tables = {1: ExampleResults([0, 1], [1.0, 2.0], [1, 1]), 2: ExampleResults([0], [1.0], [1])}
    with pytest.raises(ValueError, match="whole set only"):
        export_trace(tables)
    with pytest.raises(ValueError, match="no evaluation"):
        export_trace({})


def test_the_driver_refuses_what_a_live_run_could_not_do():
    driver = ReplayDriver(synthetic(0, evaluations=3, rows=10))
    driver.evaluate(Evaluate(0, np.arange(5), True, "first look"))
    with pytest.raises(RuntimeError, match="after its weights were dropped"):
        driver.evaluate(Evaluate(0, np.arange(5, 10), False, "deeper"))
    driver.keep(Keep(0))
    driver.evaluate(Evaluate(0, np.arange(5, 10), False, "deeper"))
    driver.drop(Drop(0))
    with pytest.raises(RuntimeError, match="after its weights were dropped"):
        driver.evaluate(Evaluate(0, np.arange(1), False, "again"))


def test_a_recorded_run_replays_below_its_reach():
    result = replay(recorded("ag_news_s0"), "race")
    assert result.best_index == result.stock_best_index == 15
    assert result.cost <= 0.11


def test_correctness_is_between_zero_and_one():
    with pytest.raises(ValueError, match="outside 0 to 1"):
        ReplayTrace(np.ones((2, 3)), np.arange(2), np.full((2, 3), 7.0))


@pytest.mark.parametrize("policy", POLICIES)
def test_an_evaluation_that_is_no_number_is_no_best_and_makes_no_other_false(policy):
    trace = synthetic(0, evaluations=20, rows=800)
    without = replay(trace, policy)
    loss = trace.loss.copy()
    loss[1] = np.nan
    broken = replay(ReplayTrace(loss, trace.step), policy)
    assert broken.stock_best_index == without.stock_best_index
    if policy in ("full", "race"):
        assert (broken.best_index, broken.false_new_best) == (broken.stock_best_index, 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_finite_is_an_error_of_every_policy(policy):
    trace = ReplayTrace(np.full((3, 600), np.nan), np.array([1, 2, 3]))
    with pytest.raises(ValueError, match="no evaluation of the trace is finite"):
        replay(trace, policy)


def test_rows_without_targets_have_no_loss():
    trace = synthetic(2, evaluations=20, rows=800)
    counts = np.where(np.arange(800) % 5 == 0, 0.0, 2.0)
    plain = ReplayTrace(trace.loss * counts, trace.step, target_count=counts)
    loss = np.where(counts > 0, trace.loss * counts, np.nan)
    masked = ReplayTrace(loss, trace.step, target_count=counts)
    np.testing.assert_array_equal(plain.values("loss"), masked.values("loss"))
    assert replay(masked, "race").best_index == replay(masked, "full").best_index == int(plain.values("loss").argmin())


@pytest.mark.parametrize("name", ["label", "target_count"])
def test_columns_of_rows_have_one_value_a_row(name):
    with pytest.raises(ValueError, match=rf"{name} \(3,\) and loss \(2, 4\); give {name} \(N,\)"):
        ReplayTrace(np.ones((2, 4)), np.array([1, 2]), **{name: np.ones(3, int)})


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"step": np.array([1.0, 1.5])}, "step holds float64 values that are no whole numbers"),
        ({"label": np.array(["a", "b", "a"])}, "label holds <U1 values that are no whole numbers"),
        ({"label": np.array([0.0, np.nan, 1.0])}, "label holds float64 values that are no whole numbers"),
        ({"loss": np.ones((2, 3)) * 1j}, "loss holds complex128 values"),
    ],
)
def test_arrays_that_would_be_cut_to_numbers_are_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "run.npz", **({"loss": np.ones((2, 3)), "step": np.array([1, 2])} | arrays))
    with pytest.raises(ValueError, match=message):
        ReplayTrace.load(tmp_path / "run.npz")


def test_the_regret_of_a_token_weighted_loss_is_told_in_standard_errors_of_that_loss():
    generator = np.random.default_rng(0)
    counts = generator.integers(1, 100, 900).astype(float)  # lengths vary far more than the loss of a token
    a_token = np.array([1.0, 0.5, 0.501])[:, None] + generator.normal(0, 0.05, (3, 900))
    trace = ReplayTrace(a_token * counts, np.array([1, 2, 3]), target_count=counts)
    found = replay(trace, "subset", options=ReplayOptions(fraction=0.02))
    assert (found.best_index, found.stock_best_index) == (1, 2)
    gap = trace.values("loss")[1] - trace.values("loss")[2]
    error = loss_interval(trace.loss[2], counts).population_standard_error
    assert found.regret_se == pytest.approx(gap / error, rel=0.01)
