"""Metrics that rank all rows are raced by the grouped jackknife, and the log says so."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hf_trainplus import load_metric
from hf_trainplus.decisions.race import Evaluated, Kept, OpaqueMetric, Race, drive
from hf_trainplus.results import ExampleResults
from hf_trainplus.training.racing.watched import race_metric
from tests.training.test_race import evaluations, finished, make


def test_the_area_under_the_curve_finds_the_best_of_full_evaluation(tmp_path, caplog):
    full = finished(make(tmp_path / "full", "full", metric="roc_auc", max_steps=6))
    race = finished(make(tmp_path / "race", "race", metric="roc_auc", max_steps=6))
    said = [record.message for record in caplog.records if "leaving out groups" in record.message]
    assert len(said) == 1
    assert "'roc_auc'" in said[0]
    assert "30 % of the rows" in said[0]
    assert race.state.best_global_step == full.state.best_global_step
    assert race.state.best_metric == pytest.approx(full.state.best_metric, abs=1e-12)
    for name, value in full.model.state_dict().items():
        assert torch.equal(value, race.model.state_dict()[name])
    state = race._scheduled.race.session.race.state
    assert state.pairs < state.observations * state.size
    exact = {entry["step"]: entry["eval_roc_auc"] for entry in evaluations(full)}
    for entry in evaluations(race):
        near = 1e-12 if entry["eval_roc_auc_exact"] else 0.2
        assert entry["eval_roc_auc"] == pytest.approx(exact[entry["step"]], abs=near)


@pytest.mark.parametrize(
    ("metric", "scores", "targets"),
    [
        (load_metric("roc_auc"), (60,), (60,)),
        (load_metric("roc_auc", multilabel=True), (60, 3), (60, 3)),
        (load_metric("roc_auc", multi_class="ovr"), (60, 3), (60,)),
        (load_metric("spearmanr"), (60,), (60,)),
    ],
    ids=["binary", "multilabel", "one against the rest", "spearman"],
)
def test_a_payload_gives_the_metrics_own_value(metric, scores, targets):
    rng = np.random.default_rng(0)
    given = rng.random(scores)
    if len(scores) == 2 and len(targets) == 1:
        given /= given.sum(axis=1, keepdims=True)
    wanted = rng.integers(3 if len(scores) > len(targets) else 2, size=targets)
    parts = [metric.row_payload(given[rows], wanted[rows]) for rows in (slice(0, 25), slice(25, 60))]
    metric.reset()
    metric.update(given, wanted)
    assert metric.from_payload(np.concatenate(parts)) == pytest.approx(metric.compute()[metric.primary], abs=1e-12)


def test_which_metrics_are_raced_how():
    area = race_metric("roc_auc", [load_metric("roc_auc")], greater_is_better=True, rows=1000)
    assert isinstance(area, OpaqueMetric)
    assert area.greater_is_better
    unknown = race_metric("wobble", [load_metric("roc_auc")], greater_is_better=True, rows=1000)
    assert "comes from a function" in unknown.reason


def test_a_value_that_is_not_defined_replaces_nothing():
    """One class alone has no area under the curve."""

    class Driver:
        def evaluate(self, command):
            rows = command.rows
            payload = np.full((len(rows), 1), float(command.checkpoint))
            return Evaluated(ExampleResults(rows, np.ones(len(rows)), np.ones(len(rows)), statistics={"m": payload}))

        def keep(self, command):
            return Kept(None)

        def drop(self, command):
            pass

    def value(rows, payload):
        return 0.5 if payload[0, 0] == 0 else float("nan")

    race = Race(OpaqueMetric("m", value, greater_is_better=True), 600)
    for checkpoint in range(3):
        drive(race.observe(checkpoint), Driver())
    assert drive(race.finish(live=2), Driver()).best == 0
