"""Where the values themselves are compared, every row is evaluated, and the log says why."""

from __future__ import annotations

import pytest

from hf_trainplus import load_metric
from tests.training.test_race import evaluations, make


def reasons(caplog):
    return [record.message for record in caplog.records if "evaluates every row here" in record.message]


def test_a_trial_of_a_search_reports_exact_values(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(
        "transformers.integrations.hp_params", lambda trial: trial
    )  # it knows four libraries' trials only
    trainer = make(tmp_path, "race", max_steps=3)
    trainer.train(trial={"learning_rate": 2e-2})
    assert [entry["eval_loss_exact"] for entry in evaluations(trainer)] == [1.0] * 3
    assert len(reasons(caplog)) == 1
    assert "hyperparameter search compares every value" in reasons(caplog)[0]


@pytest.mark.parametrize("watched", ["accuracy", "loss"])
def test_a_function_beside_a_raced_loss_is_no_reason(watched, tmp_path, caplog):
    trainer = make(tmp_path, "race", max_steps=3)
    trainer.compute_metrics = lambda prediction: {"accuracy": 0.5}
    trainer.args.metric_for_best_model = watched
    trainer.args.greater_is_better = watched == "accuracy"
    trainer.train()
    if watched == "loss":
        assert reasons(caplog) == []
        assert any(entry["eval_loss_exact"] == 0.0 for entry in evaluations(trainer))
    else:
        assert len(reasons(caplog)) == 1
        assert "comes from a function that says nothing of single rows" in reasons(caplog)[0]


def test_an_object_says_nothing(tmp_path, caplog):
    trainer = make(tmp_path, "race", max_steps=2, metric="accuracy")
    assert trainer.compute_metrics.primary == load_metric("accuracy").primary
    trainer.train()
    assert reasons(caplog) == []
