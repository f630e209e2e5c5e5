"""The per-example results of a trainer's evaluations, and the trace that they make."""

import json

import numpy as np
import pytest
from transformers import TrainerCallback
from typer.testing import CliRunner

from hf_trainplus import PlusTrainer, PlusTrainingArguments, load_metric
from hf_trainplus.cli import app
from hf_trainplus.decisions.replay import export_trace
from tests.support import tiny
from tests.training.test_race import evaluations, learnable, make


class Records(TrainerCallback):
    """Keeps the table of every evaluation, as a user's callback would."""

    def __init__(self):
        self.trainer, self.tables = None, {}

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        name = next(key for key in metrics if key.endswith("_examples"))
        self.tables[state.global_step, name] = self.trainer.example_results


def recorded(trainer):
    records = Records()
    records.trainer = trainer
    trainer.add_callback(records)
    assert trainer.example_results is None
    trainer.train()
    return records.tables


def test_a_run_is_exported_and_replayed(tmp_path):
    trainer = make(tmp_path, "full", metric="accuracy", rows=600)
    tables = {step: table for (step, _), table in recorded(trainer).items()}
    trace = export_trace(tables, label=np.array([row["labels"] for row in learnable(600)]))
    trace.save(tmp_path / "run.npz")
    logged = {entry["step"]: entry for entry in trainer.state.log_history if "eval_loss" in entry}
    assert trace.step.tolist() == sorted(logged)
    for name, key in (("loss", "eval_loss"), ("error", "eval_accuracy")):
        values = [entry[key] for _, entry in sorted(logged.items())]
        wanted = values if name == "loss" else 1 - np.array(values)
        assert trace.values(name) == pytest.approx(wanted)
    for policy in ("race", "full"):
        answer = CliRunner().invoke(
            app, ["replay", str(tmp_path / "run.npz"), "--policy", policy, "--metric", "error", "--json"]
        )
        assert json.loads(answer.stdout)["best_step"] == trainer.state.best_global_step


def test_a_race_gives_the_rows_that_it_read(tmp_path):
    trainer = make(tmp_path, "race")
    tables = recorded(trainer)
    logged = {entry["step"]: entry["eval_examples"] for entry in evaluations(trainer)}
    assert {step: len(table) for (step, _), table in tables.items()} == logged
    assert min(logged.values()) < 400


def test_several_sets_give_theirs_one_after_the_other(tmp_path):
    options = {"max_steps": 2, "eval_strategy": "steps", "eval_steps": 1}
    trainer = PlusTrainer(
        tiny.bert(),
        PlusTrainingArguments(**tiny.quiet(tmp_path, **options)),
        train_dataset=tiny.rows(16),
        eval_dataset={"a": tiny.rows(6), "b": tiny.rows(9)},
        data_collator=tiny.PaddingCollator(),
        compute_metrics=load_metric("accuracy"),
    )
    tables = recorded(trainer)
    assert {key: len(table) for key, table in tables.items()} == {
        (1, "eval_a_examples"): 6,
        (1, "eval_b_examples"): 9,
        (2, "eval_a_examples"): 6,
        (2, "eval_b_examples"): 9,
    }
