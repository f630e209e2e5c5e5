"""Evaluations answered from disk: the same values as without, and no forward pass."""

import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from transformers import HfArgumentParser

from hf_trainplus import PlusTrainingArguments, load_metric
from hf_trainplus.evaluation.cache import ResultCache
from hf_trainplus.evaluation.loop import EvaluationLeft
from hf_trainplus.identity import Identity
from hf_trainplus.training.cached import FOLDER, cache_folder, plain_metrics
from tests.support import tiny
from tests.support.cached_runs import Logs, evaluated, files, function, make, with_config, without_times


@pytest.fixture
def logs(monkeypatch):
    return Logs(monkeypatch)


METRICS = {
    "none": lambda: None,
    "function": lambda: function,
    "accuracy": lambda: load_metric("accuracy"),
    "macro f1": lambda: load_metric("f1", average="macro"),
    "ranks": lambda: load_metric("roc_auc"),
    "losses": lambda: load_metric("perplexity"),
    "several": lambda: [load_metric("accuracy"), load_metric("mcc"), function],
}


@pytest.mark.parametrize("name", METRICS)
def test_every_logged_value_is_that_of_an_evaluation_without_cache(tmp_path, name, logs):
    plain, ran = evaluated(make(tmp_path, metric=METRICS[name](), eval_cache=None))
    assert ran
    assert files(tmp_path) == []
    trainer = make(tmp_path, metric=METRICS[name]())
    first, ran = evaluated(trainer)
    assert ran
    second, ran_again = evaluated(trainer)
    assert not ran_again
    for found in (first, second):
        assert list(found) == list(plain)
        assert repr(found) == repr(plain)
    in_a_new_trainer, ran = evaluated(make(tmp_path, metric=METRICS[name]()))
    assert not ran
    assert repr(in_a_new_trainer) == repr(plain)
    assert logs.about_the_cache == []


@pytest.mark.parametrize("causal", [tiny.gpt2, tiny.llama])
def test_language_models_and_rows_without_targets(tmp_path, causal):
    options = {"model": causal(), "rows": tiny.causal_rows(9, masked=(2,)), "metric": load_metric("perplexity")}
    plain, _ = evaluated(make(tmp_path, **{**options, "eval_cache": None}))
    first, _ = evaluated(make(tmp_path, **options))
    second, ran = evaluated(make(tmp_path, **options))
    assert (first, second, ran) == (plain, plain, False)


def test_the_table_of_rows_comes_back(tmp_path):
    trainer = make(tmp_path, metric=load_metric("accuracy"))
    trainer.evaluate()
    first = trainer._runner.last.results
    trainer.evaluate()
    second = trainer._runner.last.results
    for name in ("index", "loss_sum", "target_count"):
        assert np.array_equal(getattr(first, name), getattr(second, name))
    assert np.array_equal(first.scores["accuracy"], second.scores["accuracy"])
    assert trainer._runner.last.per_row


def test_the_function_is_not_called_again(tmp_path):
    class Scored:
        calls = []

        def __call__(self, prediction):
            self.calls.append(1)
            return {"x": 1.0}

    trainer = make(tmp_path, metric=Scored(), model=with_config(problem_type="single_label_classification"))
    trainer.evaluate()
    assert Scored.calls == [1]
    Scored.calls.clear()  # what a class holds is part of what it is
    trainer.evaluate()
    assert Scored.calls == []


def test_prefixes_share_an_entry_and_datasets_do_not(tmp_path):
    trainer = make(tmp_path, rows={"a": tiny.rows(7), "b": tiny.rows(7, seed=1)})
    first, ran = evaluated(trainer)
    assert ran
    assert first["eval_a_loss"] != first["eval_b_loss"]
    second, ran = evaluated(trainer)
    assert (second, ran) == (first, False)
    third, ran = evaluated(trainer, trainer.eval_dataset["a"], metric_key_prefix="again")
    assert not ran
    assert third["again_loss"] == first["eval_a_loss"]


def test_batch_sizes_share_an_entry(tmp_path):
    make(tmp_path, per_device_eval_batch_size=2).evaluate()
    for options in (
        {"per_device_eval_batch_size": 5},
        {"eval_tokens_per_batch": 64},
        {"eval_tokens_per_batch": "auto"},
    ):
        _, ran = evaluated(make(tmp_path, **options))
        assert not ran


# ---- training ----
def trained(folder, **options):
    options = {"max_steps": 6, "eval_strategy": "steps", "eval_steps": 2, "learning_rate": 1e-2} | options
    trainer = make(folder, model=tiny.bert(dropout=0.1), metric=load_metric("accuracy"), **options)
    trainer.train()
    logs = [without_times(entry) for entry in trainer.state.log_history if "eval_loss" in entry]
    return trainer, logs


def test_a_run_that_is_repeated_evaluates_nothing_again(tmp_path):
    plain, logs = trained(tmp_path, eval_cache=None)
    first, first_logs = trained(tmp_path)
    second, second_logs = trained(tmp_path)
    assert plain.counter.batches == first.counter.batches > 0
    assert second.counter.batches == 0
    assert logs == first_logs == second_logs
    for name, value in plain.model.state_dict().items():
        assert torch.equal(value, first.model.state_dict()[name]), name
        assert torch.equal(value, second.model.state_dict()[name]), name


def test_every_step_of_training_is_another_model(tmp_path):
    trainer, logs = trained(tmp_path, learning_rate=1e-6)
    assert len({entry["eval_loss"] for entry in logs}) == 3
    _, ran = evaluated(trainer)
    assert not ran  # the weights of the last step
    assert len(files(tmp_path)) == 3


@pytest.mark.parametrize("options", [{"bf16": True}, {"fp16_full_eval": False, "bf16_full_eval": True}], ids=str)
def test_precisions_of_training_are_known_again(tmp_path, options, logs):
    trained(tmp_path, **options)
    second, _ = trained(tmp_path, **options)
    assert second.counter.batches == 0
    assert logs.about_the_cache == []


def test_weights_swapped_for_an_evaluation_are_those_that_count(tmp_path):
    trainer = make(tmp_path)
    weights, average = trainer.model.classifier.weight, tiny.bert(seed=3).classifier.weight.detach().clone()
    live = weights.detach().clone()
    expected = {}
    for name, values in (("live", live), ("average", average)):
        weights.data.copy_(values)
        expected[name], _ = evaluated(make(tmp_path, model=trainer.model, eval_cache=None))
    for name, values in (("live", live), ("average", average)) * 2:
        weights.data.copy_(values)
        assert evaluated(trainer)[0] == expected[name]
    assert trainer.counter.batches == 4


def test_a_subset_is_known_by_its_rows(tmp_path):
    options = {"eval_mode": "subset", "eval_subset_size": 5}
    first, first_logs = trained(tmp_path, **options)
    second, second_logs = trained(tmp_path, **options)
    assert second.counter.batches == 0 < first.counter.batches
    assert first_logs == second_logs
    assert first_logs[0]["eval_examples"] == 5
    _, ran = evaluated(second)
    assert ran  # all rows, of which only some are known


def test_rows_of_several_evaluations_make_a_whole_one(tmp_path):
    plain, _ = evaluated(make(tmp_path, metric=load_metric("accuracy"), eval_cache=None))
    trainer = make(
        tmp_path, metric=load_metric("accuracy"), model=with_config(problem_type="single_label_classification")
    )
    trainer.evaluate()
    (path,) = (tmp_path / "cache").glob("*.parquet")
    identity = Identity(**json.loads(pq.read_schema(path).metadata[b"trainplus"])["identity"])
    results = trainer._runner.last.results
    path.unlink()
    cache = ResultCache(str(tmp_path / "cache"))
    cache.store(identity, results.take(np.arange(4, 11)))
    assert evaluated(trainer)[1]
    path.unlink()
    for rows in (np.arange(4, 11), np.arange(4)):
        cache.store(identity, results.take(rows))
    assert evaluated(trainer) == (plain, False)


def test_rows_alone_do_not_answer_for_a_function(tmp_path):
    trainer = make(tmp_path, metric=function, model=with_config(problem_type="single_label_classification"))
    trainer.evaluate()
    (path,) = (tmp_path / "cache").glob("*.parquet")
    identity = Identity(**json.loads(pq.read_schema(path).metadata[b"trainplus"])["identity"])
    path.unlink()
    ResultCache(str(tmp_path / "cache")).store(identity, trainer._runner.last.results)
    assert evaluated(trainer)[1]


# ---- files ----
def test_a_damaged_file_is_computed_again_and_said_once(tmp_path, logs):
    trainer = make(tmp_path)
    evaluated(trainer)
    first, _ = evaluated(trainer)
    for name in files(tmp_path):
        path = tmp_path / "cache" / name
        path.write_bytes(path.read_bytes()[:-20])
    again, ran = evaluated(trainer)
    assert (again, ran) == (first, True)
    assert len(logs.about_the_cache) == 1
    assert "is damaged" in logs.about_the_cache[0]
    assert evaluated(trainer) == (first, False)


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path, logs):
    (tmp_path / "cache").write_text("no folder")
    trainer = make(tmp_path)
    assert [evaluated(trainer)[1] for _ in range(2)] == [True, True]
    assert len(logs.about_the_cache) == 1
    assert "could not be written" in logs.about_the_cache[0]


@pytest.mark.parametrize("method", ["read", "store"])
def test_a_failure_of_the_cache_itself_stops_nothing(tmp_path, logs, monkeypatch, method):
    def fail(*args):
        raise RuntimeError("broken")

    monkeypatch.setattr(ResultCache, method, fail)
    trainer = make(tmp_path)
    assert [evaluated(trainer)[1] for _ in range(2)] == [True, True]
    assert any("RuntimeError('broken')" in message for message in logs.about_the_cache)


def test_an_evaluation_that_is_left_keeps_nothing(tmp_path):
    trainer = make(tmp_path, per_device_eval_batch_size=2)
    trainer._runner.should_leave = lambda: trainer.counter.batches == 2
    with pytest.raises(EvaluationLeft, match="left after 2 batches"):
        trainer.evaluate()
    assert files(tmp_path) == []


def test_the_folder_follows_from_the_output_folder(tmp_path):
    trainer = make(tmp_path, eval_cache=True)
    trainer.evaluate()
    assert len(list((tmp_path / "out" / FOLDER).glob("*.parquet"))) > 0


# ---- arguments ----
@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("true", f"out/{FOLDER}"),
        ("True", f"out/{FOLDER}"),
        ("false", None),
        ("none", None),
        ("a/b", "a/b"),
        ("./true", "./true"),
    ],
)
def test_the_command_line_names_it(text, folder):
    (args,) = HfArgumentParser(PlusTrainingArguments).parse_args_into_dataclasses(
        ["--output_dir", "out", "--use_cpu", "true", "--report_to", "none", "--eval_cache", text]
    )
    assert cache_folder(args) == folder


@pytest.mark.parametrize(("value", "folder"), [(True, f"out/{FOLDER}"), (False, None), (None, None)])
def test_python_names_it(value, folder, tmp_path):
    args = PlusTrainingArguments("out", use_cpu=True, report_to="none", eval_cache=value)
    assert cache_folder(args) == folder
    assert cache_folder(PlusTrainingArguments("out", use_cpu=True, report_to="none", eval_cache=tmp_path)) == str(
        tmp_path
    )
    (parsed,) = HfArgumentParser(PlusTrainingArguments).parse_dict(
        {"output_dir": "out", "use_cpu": True, "eval_cache": value}
    )
    assert cache_folder(parsed) == folder


@pytest.mark.parametrize("value", ["", " ", 3, ["a"]])
def test_what_is_no_folder_is_refused(value):
    with pytest.raises(ValueError, match=r"eval_cache=.*allowed are True, False, None and a folder's name, e\.g\."):
        PlusTrainingArguments("out", use_cpu=True, report_to="none", eval_cache=value)


def test_plain_metrics_are_logged_as_the_given_ones(tmp_path):
    given = {
        "a": np.float32(0.1),
        "b": torch.tensor(2),
        "c": {"d": True, "e": [1]},
        "f": None,
        "g": "text",
        "h": math.inf,
    }
    plain = plain_metrics(given)
    assert plain == {"a": float(np.float32(0.1)), "b": 2, "c": {"d": 1, "e": None}, "f": None, "g": None, "h": math.inf}
    kept, _ = evaluated(make(tmp_path, metric=lambda prediction: given))
    assert kept["eval_h"] == math.inf
