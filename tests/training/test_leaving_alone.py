"""Outside training a stop leaves evaluate() or predict() between two batches, by an exception, and reports nothing."""

import json
import threading

import pytest
from transformers import TrainerCallback

import hf_trainplus
from hf_trainplus import EvaluationLeft, PlusTrainer, PlusTrainingArguments
from hf_trainplus.callbacks.evaluation_progress import EvaluationProgressCallback
from tests.support import tiny
from tests.support.generation import completion_rows
from tests.support.launch import ROOT, torchrun


class Watch(TrainerCallback):
    """Acts once, in the second batch, and notes what is reported."""

    def __init__(self, act):
        self.act, self.batches, self.reports = act, 0, []

    def on_prediction_step(self, args, state, control, **kwargs):
        self.batches += 1
        if self.batches == 2:
            self.act()

    def on_evaluate(self, args, state, control, **kwargs):
        self.reports.append("evaluate")

    def on_predict(self, args, state, control, metrics, **kwargs):
        self.reports.append("predict")

    def on_log(self, args, state, control, **kwargs):
        self.reports.append("log")


def make(folder, rows=None, **options):
    options = {"per_device_eval_batch_size": 1, "eval_tokens_per_batch": None, **options}
    trainer = PlusTrainer(
        tiny.bert(),
        PlusTrainingArguments(**tiny.quiet(folder, **options)),
        train_dataset=tiny.rows(8),
        eval_dataset=tiny.rows(8) if rows is None else rows,
        data_collator=tiny.PaddingCollator(),
    )
    watch = Watch(trainer.request_stop)
    trainer.add_callback(watch)
    return trainer, watch


CALLS = {"evaluate": lambda trainer: trainer.evaluate(), "predict": lambda trainer: trainer.predict(tiny.rows(8))}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("cache", [False, True])
def test_a_call_is_left_and_reports_nothing_and_the_next_one_runs(tmp_path, call, cache):
    trainer, watch = make(tmp_path, eval_cache=str(tmp_path / "cache") if cache else None)
    with pytest.raises(EvaluationLeft, match="left after 2 batches: a stop was asked for, nothing is reported"):
        CALLS[call](trainer)
    assert (watch.batches, watch.reports, trainer.state.log_history) == (2, [], [])
    CALLS[call](trainer)
    assert watch.batches == 10
    assert call in watch.reports


def test_another_thread_may_ask(tmp_path):
    def ask():
        thread = threading.Thread(target=trainer.request_stop)
        thread.start()
        thread.join()

    trainer, watch = make(tmp_path)
    watch.act = ask
    with pytest.raises(EvaluationLeft, match="after 2 batches"):
        trainer.evaluate()


@pytest.mark.parametrize("call", CALLS)
def test_a_request_before_it_leaves_the_next_one_though_the_cache_would_answer(tmp_path, call):
    trainer, watch = make(tmp_path, eval_cache=str(tmp_path / "cache"))
    watch.act = lambda: None
    trainer.evaluate()
    trainer.request_stop()
    before = watch.batches
    with pytest.raises(EvaluationLeft, match="after 0 batches"):
        CALLS[call](trainer)
    assert watch.batches == before
    CALLS[call](trainer)


def test_the_sets_that_follow_are_left_too(tmp_path):
    trainer, watch = make(tmp_path, {"one": tiny.rows(2), "two": tiny.rows(3)})
    with pytest.raises(EvaluationLeft, match="after 0 batches"):  # asked for in the last batch of the first set
        trainer.evaluate()
    assert watch.batches == 2


def test_a_request_in_the_last_batch_comes_too_late_for_this_one_and_the_next(tmp_path):
    trainer, watch = make(tmp_path, tiny.rows(2))
    assert trainer.evaluate()["eval_examples"] == 2
    assert trainer.evaluate()["eval_examples"] == 2
    assert watch.batches == 4


def test_a_training_run_that_was_stopped_leaves_no_request_behind(tmp_path):
    trainer, watch = make(tmp_path, max_steps=4, eval_strategy="steps", eval_steps=2)
    trainer.train()
    assert trainer.state.global_step == 2
    assert watch.batches == 2
    assert trainer.evaluate()["eval_examples"] == 8


def test_a_request_before_training_is_forgotten(tmp_path):
    trainer, watch = make(tmp_path, max_steps=2, eval_strategy="steps", eval_steps=2)
    watch.act = lambda: None
    trainer.request_stop()
    trainer.train()
    assert trainer.evaluate()["eval_examples"] == 8


def test_generation_is_left_too(tmp_path):
    model = tiny.gpt2()
    model.generation_config.max_length = 20
    watch = Watch(None)
    trainer = PlusTrainer(
        model,
        PlusTrainingArguments(**tiny.quiet(tmp_path, per_device_eval_batch_size=1, predict_with_generate=True)),
        eval_dataset=completion_rows(4),
        data_collator=tiny.PaddingCollator(),
        compute_metrics=lambda prediction: {"x": 1.0},
        callbacks=[watch],
    )
    watch.act = lambda: None
    trainer.evaluate()
    losses = sum(report == "log" for report in watch.reports)
    forward = trainer._runner.last.batches
    watch.batches, watch.act = 1 - forward, trainer.request_stop  # in the first batch that is generated
    with pytest.raises(EvaluationLeft, match="left after 1 batches of generation"):
        trainer.evaluate()
    assert sum(report == "log" for report in watch.reports) == losses


def test_the_bar_is_closed(tmp_path):
    trainer, watch = make(tmp_path, disable_tqdm=False)
    callback = next(one for one in trainer.callback_handler.callbacks if isinstance(one, EvaluationProgressCallback))
    bars = []

    def act():
        bars.append(callback.prediction_bar)
        trainer.request_stop()

    watch.act = act
    with pytest.raises(EvaluationLeft, match="after 2 batches"):
        trainer.evaluate()
    assert bars[0] is not None
    assert bars[0].disable  # what tqdm sets when a bar is closed
    assert callback.prediction_bar is None


def test_the_exception_is_public():
    assert "EvaluationLeft" in hf_trainplus.__all__


@pytest.mark.slow
@pytest.mark.distributed
def test_one_rank_is_enough(tmp_path):
    done = torchrun(ROOT / "tests/support/left_two_ranks.py", tmp_path)
    line = next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    assert json.loads(line[len("FOUND ") :]) == [{"left": True, "batches": 2, "examples_after": 8}] * 2
