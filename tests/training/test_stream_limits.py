"""A beginning of a stream is never reported as the whole, and the best checkpoint gets the whole."""

import itertools

import pytest
import torch

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from tests.support import tiny
from tests.training.test_race import evaluations, learnable

ROWS = learnable(90)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(ROWS)


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        return itertools.cycle(iter(ROWS))


def make(folder, stream, **options):
    arguments = {
        "max_steps": 3,
        "learning_rate": 2e-2,
        "eval_strategy": "steps",
        "eval_steps": 1,
        "save_strategy": "steps",
        "save_steps": 1,
        "load_best_model_at_end": True,
        "metric_for_best_model": "loss",
        **options,
    }
    return PlusTrainer(
        tiny.bert(),
        PlusTrainingArguments(**tiny.quiet(folder, **arguments)),
        train_dataset=learnable(64, seed=1),
        eval_dataset=stream,
        data_collator=tiny.PaddingCollator(),
    )


def rows_of(entry):
    return entry["eval_examples"], entry.get("eval_examples_total"), entry["eval_loss_exact"]


def test_of_a_subset_the_best_gets_the_whole_stream(tmp_path, caplog):
    trainer = make(tmp_path, Stream(), eval_mode="subset", eval_subset_size=40)
    trainer.train()
    assert {rows_of(entry) for entry in evaluations(trainer)} == {(40, None, 0.0)}
    last = [entry for entry in trainer.state.log_history if "eval_best_step" in entry]
    assert [rows_of(entry) for entry in last] == [(90, 90, 1.0)]
    assert last[0]["eval_best_step"] == trainer.state.best_global_step
    assert "evaluated on the whole stream" in caplog.text
    whole = make(tmp_path / "list", ROWS)
    whole.model.load_state_dict(trainer.model.state_dict())
    assert last[0]["eval_loss"] == pytest.approx(whole.evaluate()["eval_loss"], rel=1e-5)
    assert rows_of(trainer.evaluate()) == (90, 90, 1.0)


def test_of_an_endless_stream_there_is_no_whole(tmp_path):
    trainer = make(tmp_path, Endless(), eval_mode="subset", eval_subset_size=40)
    trainer.train()
    last = [entry for entry in trainer.state.log_history if "eval_best_step" in entry]
    assert [rows_of(entry) for entry in last] == [(40, None, 0.0)]
    assert rows_of(trainer.evaluate()) == (40, None, 0.0)


@pytest.mark.parametrize(
    ("size", "found"), [(40, (40, None, 0.0)), (90, (90, None, 0.0)), (91, (90, 90, 1.0)), (None, (90, 90, 1.0))]
)
def test_a_stream_that_ends_before_the_limit_was_read_whole(size, found, tmp_path):
    assert rows_of(make(tmp_path, Stream(), eval_subset_size=size).evaluate()) == found


def test_a_set_beside_a_raced_one_is_read_up_to_the_limit(tmp_path):
    sets = {"a": ROWS, "b": Stream()}
    trainer = make(tmp_path, sets, eval_mode="race", eval_subset_size=40, metric_for_best_model="a_loss")
    trainer.train()
    beside = [entry for entry in trainer.state.log_history if "eval_b_loss" in entry]
    assert {(entry["eval_b_examples"], entry["eval_b_loss_exact"]) for entry in beside} == {(40, 0.0)}
