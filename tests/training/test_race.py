"""eval_mode="race" takes stock's decisions from fewer rows."""

import json
import os
import shutil

import numpy as np
import pytest
import torch
from transformers import EarlyStoppingCallback, TrainerCallback

from hf_trainplus import PatienceCallback, PlusTrainer, PlusTrainingArguments, load_metric
from hf_trainplus.decisions.racing.costs import Costs
from hf_trainplus.training.racing.session import RaceLimits
from hf_trainplus.training.racing.start import RaceStart
from hf_trainplus.training.racing.weights import referenced_candidates
from tests.support import tiny

SMALL = RaceLimits(min_rows=100, min_seconds=0.0)


def make(
    folder,
    mode,
    *,
    rows=400,
    max_steps=12,
    metric="loss",
    callbacks=(),
    limits=SMALL,
    model=None,
    kind=PlusTrainer,
    **options,
):
    arguments = {
        "max_steps": max_steps,
        "learning_rate": 2e-2,
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 100,
        "eval_strategy": "steps",
        "eval_steps": 1,
        "load_best_model_at_end": True,
        "metric_for_best_model": metric,
        "eval_mode": mode,
        "lr_scheduler_type": "constant",
        **options,
    }
    trainer = kind(
        model or tiny.bert(),
        PlusTrainingArguments(**tiny.quiet(folder, **arguments)),
        train_dataset=learnable(64, seed=1),
        eval_dataset=learnable(rows),
        data_collator=tiny.PaddingCollator(),
        compute_metrics=None if metric == "loss" else load_metric(metric),
        callbacks=list(callbacks),
    )
    trainer._scheduled.race.limits = limits
    return trainer


def learnable(n, seed=0):
    """Rows whose label depends on a token, with noise, so that the loss falls and then rises."""
    rng = np.random.default_rng(seed)
    out = tiny.rows(n, seed=seed)
    for row in out:
        row["labels"] = int((row["input_ids"][0] > 20) != (rng.random() < 0.2))
    return out


def finished(trainer, **options):
    trainer.train(**options)
    return trainer


def evaluations(trainer):
    return [entry for entry in trainer.state.log_history if "eval_loss" in entry and "eval_best_step" not in entry]


@pytest.mark.parametrize("metric", ["loss", "accuracy"])
def test_the_same_best_from_fewer_rows(metric, tmp_path):
    full = finished(make(tmp_path / "full", "full", metric=metric))
    race = finished(make(tmp_path / "race", "race", metric=metric))
    assert race.state.best_global_step == full.state.best_global_step
    assert race.state.best_metric == pytest.approx(full.state.best_metric, abs=1e-6)
    for name, value in full.model.state_dict().items():
        assert torch.equal(value, race.model.state_dict()[name])
    session = race._scheduled.race.session
    assert session.race.state.pairs < 12 * 400
    last = [entry for entry in race.state.log_history if "eval_best_step" in entry]
    assert len(last) == 1
    assert last[0]["eval_best_step"] == full.state.best_global_step
    assert last[0][f"eval_{metric}_exact"] == 1.0


def test_levels_carry_intervals_and_say_what_they_rest_on(tmp_path):
    full = {entry["step"]: entry for entry in evaluations(finished(make(tmp_path / "full", "full", metric="accuracy")))}
    raced = evaluations(finished(make(tmp_path / "race", "race", metric="accuracy")))
    inside = 0
    for entry in raced:
        assert entry["eval_examples_total"] == 400
        assert entry["eval_accuracy_exact"] == float(entry["eval_examples"] == 400)
        assert entry["eval_race_candidates"] >= 1
        low = entry.get("eval_loss_ci_low", -np.inf)
        inside += low <= full[entry["step"]]["eval_loss"] <= entry.get("eval_loss_ci_high", np.inf)
    assert inside >= 0.8 * len(raced)


@pytest.mark.parametrize("ours", [False, True], ids=["EarlyStoppingCallback", "PatienceCallback"])
def test_patience_stops_at_stocks_step(ours, tmp_path):
    def stopper():
        return [PatienceCallback(3) if ours else EarlyStoppingCallback(early_stopping_patience=3)]

    full = finished(make(tmp_path / "full", "full", callbacks=stopper(), max_steps=20))
    race = finished(make(tmp_path / "race", "race", callbacks=stopper(), max_steps=20))
    assert race.state.global_step == full.state.global_step < 20
    assert race.state.best_global_step == full.state.best_global_step


def test_every_comparison_can_be_audited(tmp_path):
    race = finished(make(tmp_path, "race"))
    written = [json.loads(line) for line in (tmp_path / "trainplus_decisions.jsonl").read_text().splitlines()]
    lines = [line for line in written if line["kind"] == "comparison"]
    assert len(lines) >= 11
    wanted = {"step", "first", "second", "loser", "basis", "depth", "rows_hash", "design", "seed", "difference", "se"}
    assert all(wanted <= set(line) for line in lines)
    assert lines[-1]["environment"]["batch_size"] == "100"
    assert race.state.best_global_step not in {line["loser"] for line in lines}
    *verdicts, last = [line for line in written if line["kind"] == "verdict"]
    logged = {entry["step"]: entry for entry in evaluations(race)}
    assert [line["step"] for line in verdicts] == sorted(logged)
    for line in verdicts:
        assert line["value"] == pytest.approx(logged[line["step"]]["eval_loss"])
        assert (line["rows"], line["rows_total"]) == (logged[line["step"]]["eval_examples"], 400)
    assert (last["final"], last["best"], last["exact"]) == (True, race.state.best_global_step, True)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"limits": RaceLimits(min_rows=1000)}, "400 rows"),
        ({"limits": RaceLimits(min_rows=100, min_seconds=1e6)}, "too short for a race"),
        ({"lr_scheduler_type": "greedy"}, "learning rate follows"),
    ],
)
def test_it_goes_to_full_by_itself_and_says_why(options, reason, tmp_path, caplog):
    race = finished(make(tmp_path, "race", max_steps=4, **options))
    said = [record.message for record in caplog.records if "evaluates every row here" in record.message]
    assert len(said) == 1
    assert reason in said[0]
    examples = [entry["eval_examples"] for entry in evaluations(race)]
    # how long a full evaluation takes is measured on the first looks
    assert examples[-1] == 400 if "too short" in reason else examples == [400] * 4
    assert race.state.best_model_checkpoint is not None


def test_a_metric_function_is_not_raced(tmp_path, caplog):
    trainer = make(tmp_path, "race", max_steps=2)
    trainer.compute_metrics = lambda prediction: {"wobble": 0.5}
    trainer.args.metric_for_best_model = "wobble"
    trainer.train()
    assert any("comes from a function" in record.message for record in caplog.records)


def test_a_function_beside_a_raced_loss_is_called_for_the_best_at_the_end(tmp_path, caplog):
    trainer = make(tmp_path, "race", max_steps=4)
    rows = []
    trainer.compute_metrics = lambda prediction: rows.append(len(prediction.label_ids)) or {"own": 0.5}
    trainer.train()
    assert rows == [400]
    assert sum("is called once, for the best checkpoint at the end" in one.message for one in caplog.records) == 1
    assert "compute_metrics is not called" not in caplog.text
    assert [entry["eval_own"] for entry in trainer.state.log_history if "eval_own" in entry] == [0.5]


def test_near_ties_are_told_of_once(tmp_path, caplog):
    finished(make(tmp_path, "race", metric="accuracy", learning_rate=0.0, max_steps=9))  # every comparison is a tie
    assert sum("nearly tie" in record.message for record in caplog.records) == 1
    assert "eval_tolerance=" in caplog.text


def test_a_person_asking_gets_all_rows(tmp_path):
    race = finished(make(tmp_path, "race", max_steps=3))
    metrics = race.evaluate()
    assert metrics["eval_examples"] == 400
    assert metrics["eval_loss_exact"] == 1.0


def test_candidates_files_are_gone_at_the_end(tmp_path):
    race = finished(make(tmp_path, "race"))
    assert not list(tmp_path.glob("trainplus_candidates/*"))
    assert race.state.best_model_checkpoint.startswith(str(tmp_path))


@pytest.mark.parametrize("limit", [1, 2, None])
def test_candidates_go_with_the_checkpoints_that_name_them(limit, tmp_path):
    race = finished(make(tmp_path, "race", save_strategy="steps", save_steps=5, max_steps=11, save_total_limit=limit))
    assert os.path.isdir(race.state.best_model_checkpoint)
    left = {int(file.stem.split("-")[1]) for file in tmp_path.glob("trainplus_candidates/*")}
    assert left == referenced_candidates(str(tmp_path))
    assert bool(left) is (limit != 1)  # of one, upstream keeps the best alone


@pytest.fixture
def unmeasured(monkeypatch):
    """Runs that are timed apart may settle a candidate at another moment; these look at decisions alone."""
    monkeypatch.setattr(Costs, "_with", lambda costs, name, seconds: costs)


@pytest.mark.usefixtures("unmeasured")
def test_resume_takes_the_same_decisions(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 5}
    whole = finished(make(tmp_path / "whole", "race", **options))
    finished(make(tmp_path / "part", "race", **options, max_steps=20))
    resumed = make(tmp_path / "part", "race", **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "part" / "checkpoint-5"))
    assert resumed.state.best_global_step == whole.state.best_global_step
    assert resumed._scheduled.race.session.race.state.pairs == whole._scheduled.race.session.race.state.pairs

    def decisions(folder):
        lines = [json.loads(line) for line in (folder / "trainplus_decisions.jsonl").read_text().splitlines()]
        return [{key: value for key, value in line.items() if "seconds" not in key} for line in lines]

    assert decisions(tmp_path / "part") == decisions(tmp_path / "whole")


def test_a_finished_race_that_is_resumed_has_one_final_verdict(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 6, "max_steps": 6}
    finished(make(tmp_path, "race", **options))
    finished(make(tmp_path, "race", **options), resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    lines = [json.loads(line) for line in (tmp_path / "trainplus_decisions.jsonl").read_text().splitlines()]
    assert sum(line.get("final", False) for line in lines) == 1
    assert len([line for line in lines if line["kind"] == "verdict" and not line["final"]]) == 6


def test_a_new_run_in_a_used_folder_begins_its_log_anew(tmp_path):
    for _ in range(2):
        finished(make(tmp_path, "race", max_steps=3))
    lines = [json.loads(line) for line in (tmp_path / "trainplus_decisions.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "verdict"] == [1, 2, 3, 3]


def test_levels_that_were_asked_for_are_in_the_log(tmp_path):
    stopper = PatienceCallback(None, stopping_threshold=0.1, divergence_threshold=5.0)
    finished(make(tmp_path, "race", callbacks=[stopper], max_steps=4))
    lines = [json.loads(line) for line in (tmp_path / "trainplus_decisions.jsonl").read_text().splitlines()]
    verdicts = [line for line in lines if line["kind"] == "verdict" and not line["final"]]
    assert [[level["level"] for level in line["levels"]] for line in verdicts] == [[0.1, 5.0]] * 4
    assert [[level["reached"] for level in line["levels"]] for line in verdicts] == [[False, True]] * 4


def test_subset_uses_the_same_rows_and_evaluates_the_winner_fully(tmp_path):
    trainer = finished(make(tmp_path, "subset", eval_subset_size=0.2, max_steps=6))
    logged = evaluations(trainer)
    assert {entry["eval_examples"] for entry in logged} == {80}
    assert all(entry["eval_loss_ci_low"] < entry["eval_loss"] < entry["eval_loss_ci_high"] for entry in logged)
    assert all(entry["eval_loss_exact"] == 0.0 for entry in logged)
    last = [entry for entry in trainer.state.log_history if "eval_best_step" in entry]
    assert last[0]["eval_examples"] == 400
    assert last[0]["eval_best_step"] == trainer.state.best_global_step
    again = trainer.evaluate()
    assert again["eval_loss"] == pytest.approx(last[0]["eval_loss"])


@pytest.mark.parametrize(("size", "rows"), [(1.0, 400), (0.5, 200), (7, 7), (9000, 400)])
def test_a_subset_is_a_number_of_rows_or_a_fraction(size, rows, tmp_path):
    trainer = finished(make(tmp_path, "subset", eval_subset_size=size, max_steps=1))
    assert evaluations(trainer)[0]["eval_examples"] == rows


def test_subset_without_a_size_is_refused(tmp_path):
    with pytest.raises(ValueError, match="eval_subset_size=512"):
        make(tmp_path, "subset")


def test_an_object_draws_the_subset(tmp_path):
    from hf_trainplus.decisions.subset import Subset

    class First:
        def select(self, dataset, size, *, seed=0):
            return Subset(np.arange(size), np.full(size, len(dataset) / size), np.zeros(size, int))

    trainer = make(tmp_path, "subset", eval_subset_size=50, max_steps=1)
    trainer.subset_strategy = First()
    trainer.train()
    assert evaluations(trainer)[0]["eval_examples"] == 50


class Removes(TrainerCallback):
    """Removes the best checkpoint before the run ends."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == state.max_steps:
            shutil.rmtree(state.best_model_checkpoint)


@pytest.mark.parametrize("gone", [False, True])
def test_without_reloading_every_new_best_is_written_at_once(gone, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(RaceStart, "_candidate_weights", lambda start: None)
    callbacks = [Removes()] if gone else []
    options = {"save_strategy": "steps", "save_steps": 8, "max_steps": 8, "load_best_model_at_end": not gone}
    raced = finished(make(tmp_path / "race", "race", callbacks=callbacks, **options))
    full = finished(make(tmp_path / "full", "full", **options))
    best = full.state.best_global_step
    assert best not in (0, 8)
    assert raced.state.best_global_step == best
    assert not list((tmp_path / "race").glob("best-checkpoint-*"))
    if gone:  # weights of another step are never called the best
        assert raced.state.best_model_checkpoint is None
        assert f"step {best}, cannot be loaded" in caplog.text
    else:
        assert raced.state.best_model_checkpoint == str(tmp_path / "race" / f"checkpoint-{best}")
        for name, value in full.model.state_dict().items():
            assert torch.equal(value, raced.model.state_dict()[name])
