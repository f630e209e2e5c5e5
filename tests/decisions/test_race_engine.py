from __future__ import annotations

import json

import numpy as np
import pytest

from hf_trainplus.decisions.race import Evaluated, Race, RaceConfig, ScoreMetric, cannot_race, drive
from hf_trainplus.decisions.replay import ReplayDriver, ReplayTrace
from tests.support.race_traces import recorded, synthetic
from tests.support.races import run_race, stock_stop


@pytest.mark.parametrize("metric", ["loss", "error"])
@pytest.mark.parametrize("seed", range(6))
def test_the_best_checkpoint_is_that_of_full_evaluation(metric, seed):
    trace = synthetic(seed, overfit=0.1 * (seed % 5))
    run = run_race(trace, metric, seed=seed)
    levels = trace.values(metric)
    assert run.final.best == int(levels.argmin())
    assert run.final.exact
    assert run.final.value == pytest.approx(levels.min(), abs=1e-12)
    assert run.race.cost < 0.75


@pytest.mark.parametrize("metric", ["loss", "error"])
@pytest.mark.parametrize("options", [{}, {"reload": False}, {"patience": 4}, {"tolerance": 0.5}, {"full": "asked for"}])
def test_no_pair_is_evaluated_twice_and_the_cost_counts_every_pair(metric, options):
    trace = synthetic(1, evaluations=30, rows=900)
    run = run_race(trace, metric, **options)
    pairs = 0
    for parts in run.driver.pairs.values():
        rows = np.concatenate(parts)
        assert len(np.unique(rows)) == len(rows)
        pairs += len(rows)
    assert pairs == run.race.state.pairs
    assert run.race.cost == pairs / ((run.stopped + 1) * trace.size) <= 1.0


@pytest.mark.parametrize("name", ["trec6_s0", "ag_news_s0", "cola_s0"])
@pytest.mark.parametrize("metric", ["loss", "error"])
def test_recorded_runs_keep_stocks_best(name, metric):
    trace = recorded(name)
    run = run_race(trace, metric, labels=trace.label)
    assert run.final.best == int(trace.values(metric).argmin())


@pytest.mark.parametrize("name", ["trec6_s0", "ag_news_s0", "cola_s0"])
@pytest.mark.parametrize("patience", [5, 10])
def test_recorded_runs_stop_where_stock_stops(name, patience):
    trace = recorded(name)
    levels = trace.values("loss")
    run = run_race(trace, patience=patience, labels=trace.label)
    assert run.stopped == stock_stop(levels, patience)
    assert run.final.best == int(levels[: run.stopped + 1].argmin())


@pytest.mark.parametrize("metric", ["loss", "error"])
@pytest.mark.parametrize("patience", [3, 8])
def test_patience_stops_where_a_counter_over_exact_levels_stops(metric, patience):
    trace = synthetic(2, evaluations=60)
    levels = trace.values(metric)
    run = run_race(trace, metric, patience=patience)
    assert run.stopped == stock_stop(levels, patience)
    assert run.final.best == int(levels[: run.stopped + 1].argmin())


def test_patience_counts_in_the_unit_of_the_positions():
    trace = synthetic(2, evaluations=60)
    levels = trace.values("loss")
    driver, race = ReplayDriver(trace), Race(trace.metric("loss"), trace.size, RaceConfig(patience=45.0))
    for index in range(60):
        if drive(race.observe(index, position=float(trace.step[index])), driver).stop:
            break
    # steps are ten apart: 45 steps without a new best are five evaluations
    assert index == stock_stop(levels, 5)


@pytest.mark.parametrize("threshold", [0.002, 0.02])
@pytest.mark.parametrize("patience", [2, 4])
def test_a_threshold_keeps_stocks_history_dependent_stop(threshold, patience):
    from hf_trainplus.decisions.patience import Patience

    stops = set()
    for seed in range(4):
        trace = synthetic(seed, evaluations=40, rows=800)
        rule, expected = Patience(patience, threshold=threshold), 39
        for index, level in enumerate(trace.values("loss")):
            if rule.update(float(level), step=index).stop:
                expected = index
                break
        run = run_race(trace, patience=patience, threshold=threshold)
        assert run.stopped == expected
        stops.add(expected)
    assert min(stops) < 39


@pytest.mark.parametrize("metric", ["loss", "error"])
def test_without_reloading_only_live_weights_are_read(metric):
    trace = synthetic(3, evaluations=30, rows=900)

    class LiveOnly(ReplayDriver):
        def evaluate(self, command):
            assert command.live
            return super().evaluate(command)

    run = run_race(trace, metric, driver=LiveOnly(trace), reload=False)
    assert run.final.best == int(trace.values(metric).argmin())
    assert run.race.state.reloads == 0
    assert all(record.mode == "live" for record in run.records)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("rows", [slice(None), slice(0, 400)])
def test_a_checkpoint_with_a_nonfinite_row_is_never_best(value, rows):
    trace = synthetic(3)
    loss = trace.loss.copy()
    broken = int(np.argmin(trace.values("loss")))
    loss[broken, rows] = value
    loss[[0, 5], rows] = value
    run = run_race(ReplayTrace(loss, trace.step))
    assert run.final.best == int(np.nanargmin(np.where(np.isfinite(loss.mean(axis=1)), loss.mean(axis=1), np.inf)))
    assert run.verdicts[broken].value is None


@pytest.mark.parametrize("row", range(0, 2000, 97))
def test_a_row_that_only_the_final_reading_shows_is_no_number_either(row):
    generator = np.random.default_rng(0)
    first = generator.gamma(2.0, 0.5, 2000)
    trace = ReplayTrace(np.stack([first, first - 0.1 + 0.4 * generator.normal(size=2000)]), np.array([1, 2]))
    assert run_race(trace).final.best == 1
    loss = trace.loss.copy()
    loss[1, row] = np.inf
    run = run_race(ReplayTrace(loss, trace.step))
    assert (run.final.best, run.final.exact) == (0, True)
    assert run.final.value == pytest.approx(first.mean())


@pytest.mark.parametrize("row", range(7, 3000, 401))
def test_a_best_that_is_no_number_leaves_none_where_the_others_are_gone(row):
    generator = np.random.default_rng(0)
    level = 2 - 1.2 * np.exp(-(((np.arange(20) - 12) / 6.0) ** 2))
    loss = level[:, None] * generator.gamma(2.0, 0.5, (1, 3000)) + 0.1 * generator.normal(size=(20, 3000))
    loss[5:, row] = np.inf
    assert run_race(ReplayTrace(loss, np.arange(1, 21))).final.best in (None, 4)


def test_nothing_finite_leaves_no_best_and_patience_still_counts():
    trace = ReplayTrace(np.full((9, 600), np.nan), np.arange(1, 10))
    run = run_race(trace, patience=3)
    assert (run.final.best, run.final.value, run.stopped) == (None, None, 3)


def test_a_constant_metric_is_won_by_the_first_and_costs_its_error_rate_not_everything():
    rng = np.random.default_rng(0)
    error = np.tile(rng.random(1500) < 0.3, (30, 1)) * 1.0
    trace = ReplayTrace(np.full((30, 1500), 0.6), np.arange(1, 31), 1.0 - error)
    run = run_race(trace, "error")
    assert run.final.best == 0
    assert run.race.cost < 0.5
    # every verdict is a certainty: no standard error can tell a tie
    assert {record.basis for record in run.records if record.loser is not None} <= {"certain", "exact"}


def _shares(seed, kind, evaluations=20, rows=2000):
    """Correctness by share, as of the tokens of a row; without a step between nothing and all right, or with few."""
    generator = np.random.default_rng(seed)
    ability, noise = generator.random((1, rows)), generator.normal(size=(evaluations, rows))
    gap = np.abs(np.arange(evaluations) - 12)[:, None]
    if kind == "shares":
        return np.round(np.clip(0.5 + 0.5 * ability + 0.1 * noise - 0.01 * gap, 0, 1) * 20) / 20
    if kind == "never at an end":
        return np.clip(0.3 + 0.5 * ability + 0.05 * noise - 0.005 * gap, 0.01, 0.99)
    right = (ability < 0.6 - 0.004 * gap + 0.1 * noise).astype(float)
    return np.where(generator.random(right.shape) < 0.05, 0.5, right)


@pytest.mark.parametrize("kind", ["shares", "never at an end", "mostly right or wrong"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("patience", [None, 4])
def test_scores_between_their_bounds_are_raced(kind, seed, patience):
    correct = _shares(seed, kind)
    trace = ReplayTrace(np.ones_like(correct), np.arange(1, 21), correct=correct)
    run = run_race(trace, "error", seed=seed, patience=patience)
    levels = trace.values("error")[: run.stopped + 1]
    assert run.final.best == int(levels.argmin())
    assert run.race.cost <= 1.0
    if patience is not None:
        assert run.stopped == stock_stop(trace.values("error"), patience)


def test_a_checkpoint_without_an_error_is_beaten_by_none():
    generator = np.random.default_rng(0)
    correct = (generator.random((20, 2000)) < 0.998).astype(float)
    correct[8] = 1.0
    trace = ReplayTrace(np.ones_like(correct), np.arange(1, 21), correct=correct)
    for seed in range(4):
        assert run_race(trace, "error", seed=seed).final.best == 8


def test_greater_is_better_takes_the_largest():
    trace = synthetic(4, rows=1000)
    metric = ScoreMetric("accuracy", greater_is_better=True, lower=0.0, upper=1.0)

    class Accuracy(ReplayDriver):
        def evaluate(self, command):
            found = super().evaluate(command).results
            scores = {"accuracy": 1.0 - found.scores["error"]}
            return Evaluated(type(found)(found.index, found.loss_sum, found.target_count, scores=scores))

    run = run_race(trace, metric, driver=Accuracy(trace))
    assert run.final.best == int(trace.correct.mean(axis=1).argmax())
    assert run.final.value == pytest.approx(trace.correct.mean(axis=1).max())
    mirrored = run_race(trace, "error")
    assert mirrored.race.state.pairs == run.race.state.pairs


@pytest.mark.parametrize("most", [2, 3, 6])
def test_candidates_kept_never_exceed_the_limit(most):
    run = run_race(synthetic(4, rows=900), "error", max_candidates=most)
    assert 1 <= run.driver.most_kept <= most
    assert all(len(verdict.candidates) <= most for verdict in run.verdicts)
    assert run.driver.kept == set(run.final.candidates)


@pytest.mark.parametrize("chunk", [8, 64])
def test_looks_are_whole_chunks(chunk):
    trace = synthetic(0, rows=1500)
    run = run_race(trace, "error", chunk=chunk)
    assert run.final.best == int(trace.values("error").argmin())
    milestone = {record.depth for record in run.records if record.basis == "bound"}
    assert milestone
    for parts in run.driver.pairs.values():
        assert len(parts[0]) % chunk == 0 or len(parts[0]) == 1500


def test_two_engines_with_one_seed_take_the_same_decisions():
    trace = synthetic(5, evaluations=25, rows=700)
    first, second = run_race(trace, "error", seed=3), run_race(trace, "error", seed=3)
    assert first.records == second.records
    assert run_race(trace, "error", seed=4).race.state.pairs != first.race.state.pairs


def test_records_hold_what_an_audit_needs():
    trace = synthetic(6, rows=900)
    driver = ReplayDriver(trace)
    race = Race(trace.metric("loss"), 900, RaceConfig(seed=9), environment={"dtype": "float32", "batch": "8x64"})
    records = [record for index in range(40) for record in drive(race.observe(index), driver).records]
    lines = [json.loads(json.dumps(record.to_dict(), allow_nan=False)) for record in records]
    decided = [line for line in lines if line["loser"] is not None]
    assert len(decided) >= 34
    for line in lines:
        assert line["kind"] == "comparison"
        assert line["rows_total"] == 900
        assert sum(line["stratum_rows"]) == line["depth"] or line["basis"] == "nonfinite"
        assert line["first"] < line["second"] <= line["step"]
        assert {line["first"], line["second"]} <= set(line["candidates"])
        assert line["pairs"] <= line["stock_pairs"]
        assert line["environment"] == {"dtype": "float32", "batch": "8x64"}
    for line in decided:
        if line["basis"] == "bound":
            assert abs(line["z"]) > line["bound"] >= 3.5
            assert line["discordant"] >= 8
            assert line["loser"] == (line["second"] if line["difference"] > 0 else line["first"])


def test_strict_judges_at_four():
    run = run_race(synthetic(7, rows=900), strict=True)
    assert min(record.bound for record in run.records) >= 4.0
    assert min(abs(record.z) for record in run.records if record.basis == "bound") > 4.0


def test_early_looks_are_judged_more_strictly_unless_regret_is_tolerated():
    trace = synthetic(7, rows=1500)
    bounds = {record.depth: record.bound for record in run_race(trace).records}
    assert max(bounds.values()) == bounds[min(bounds)] > 3.8
    assert all(bounds[depth] >= 3.5 for depth in bounds)
    tolerant = run_race(trace, tolerance=0.1)
    assert {record.bound for record in tolerant.records} == {3.5}


@pytest.mark.parametrize(
    ("options", "size", "reason"),
    [({}, 400, "too few"), ({"full": "the metric depends on the order of rows"}, 900, "order of rows")],
)
def test_where_racing_cannot_help_every_row_is_read_and_the_verdict_says_why(options, size, reason):
    trace = synthetic(0, evaluations=6, rows=size)
    run = run_race(trace, **options)
    assert run.race.cost == 1.0
    assert all(verdict.exact and reason in verdict.reason for verdict in run.verdicts)
    assert run.final.best == int(trace.values("loss").argmin())
    assert {record.basis for record in run.records} == {"exact"}


def test_a_short_evaluation_is_no_longer_raced_once_it_is_measured():
    trace = synthetic(0, evaluations=8, rows=900)

    class Quick(ReplayDriver):
        def evaluate(self, command):
            return Evaluated(super().evaluate(command).results, evaluate_seconds=1e-3 * len(command.rows))

    run = run_race(trace, driver=Quick(trace))
    assert all(verdict.exact and "takes about 0.9 s" in verdict.reason for verdict in run.verdicts)
    assert run.race.cost == 1.0
    assert run.final.best == int(trace.values("loss").argmin())

    class WarmsUp(Quick):
        def evaluate(self, command):
            slow = 10.0 if command.checkpoint == 0 else 1e-3 * len(command.rows)
            return Evaluated(super().evaluate(command).results, evaluate_seconds=slow)

    late = run_race(trace, driver=WarmsUp(trace))
    assert (late.verdicts[0].exact, late.verdicts[1].exact) == (False, True)
    patient = run_race(trace, driver=Quick(trace), least_seconds=0.5)
    assert patient.final.reason is None


def test_racing_can_be_given_up_in_the_middle():
    trace = synthetic(0, evaluations=20, rows=900)
    driver, race = ReplayDriver(trace), Race(trace.metric("loss"), 900)
    for index in range(20):
        if index == 10:
            race.race_no_more("the batches changed")
        verdict = drive(race.observe(index), driver)
    assert (verdict.reason, verdict.exact) == ("the batches changed", True)
    assert drive(race.finish(), driver).best == int(trace.values("loss").argmin())


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"stable_rows": False, "size": 900}, "stream"),
        ({}, "not known"),
        ({"symmetric": False, "size": 900}, "order of rows"),
        ({"rows_alone": False, "size": 900}, "share its batch"),
    ],
)
def test_what_cannot_be_raced_is_named(facts, reason):
    assert reason in cannot_race(**facts)
    assert cannot_race(size=900) is None


def test_settle_leaves_one_and_leader_is_open():
    trace = synthetic(8, rows=900)
    driver, race = ReplayDriver(trace), Race(trace.metric("error"), 900)
    assert (race.leader, race.cost) == (None, 0.0)
    for index in range(25):
        drive(race.observe(index), driver)
    assert race.leader in race.candidates
    assert set(race.kept) == set(race.candidates) == driver.kept
    verdict = drive(race.settle(live=24), driver)
    assert verdict.best == int(trace.values("error")[:25].argmin())
    assert race.candidates == (verdict.best,)


def test_rows_that_were_not_asked_for_are_refused():
    trace = synthetic(5)
    race = Race(trace.metric("loss"), trace.size)
    steps = race.observe(0)
    command = next(steps)
    with pytest.raises(ValueError, match="answer exactly the rows asked for"):
        steps.send(Evaluated(trace.results(0, command.rows[:-1])))
    assert race.candidates == ()


def test_an_answer_of_another_kind_is_refused():
    trace = synthetic(5)
    steps = Race(trace.metric("loss"), trace.size).observe(0)
    next(steps)
    with pytest.raises(TypeError, match="allowed is Evaluated"):
        steps.send(None)


def test_checkpoints_must_rise():
    trace = synthetic(5)
    race = Race(trace.metric("loss"), trace.size)
    drive(race.observe(3), ReplayDriver(trace))
    with pytest.raises(ValueError, match="rising order"):
        race.observe(3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patience": -1}, "patience=-1"),
        ({"threshold": -0.1}, "threshold=-0.1"),
        ({"tolerance": float("nan")}, "tolerance=nan"),
        ({"max_candidates": 1}, "max_candidates=1"),
        ({"chunk": 0}, "chunk=0"),
        ({"looks": (0.5, 0.1, 1.0)}, "rising shares"),
        ({"looks": (0.5,)}, "the last one 1.0"),
        ({"looks": ()}, "rising shares"),
    ],
)
def test_bad_numbers_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        RaceConfig(**options)
