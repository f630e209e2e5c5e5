"""The evaluation's bar: what it shows, whose place it takes, and who keeps their own."""

import pytest
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerControl, TrainerState

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from hf_trainplus.callbacks.evaluation_progress import EvaluationProgressCallback, draw_examples
from hf_trainplus.training.progress import EvaluationProgress
from tests.support import tiny


def trainer_of(folder, cls=PlusTrainer, **options):
    args = PlusTrainingArguments(**tiny.quiet(folder, **{"disable_tqdm": False, **options}))
    return cls(
        tiny.bert(),
        args,
        train_dataset=tiny.rows(4),
        eval_dataset=tiny.rows(7),
        data_collator=tiny.PaddingCollator(),
    )


def lines_of(capsys):
    return capsys.readouterr().err.replace("\r", "\n").split("\n")


def test_the_bar_counts_examples_tokens_and_time(tmp_path, capsys):
    trainer_of(tmp_path, per_device_eval_batch_size=2).evaluate()
    last = [line for line in lines_of(capsys) if line.startswith("Evaluating")][-1]
    assert "100%" in last
    assert "7/7 examples" in last
    assert "tokens/s, 00:00 left" in last


def test_training_keeps_its_bar_and_its_log(tmp_path, capsys):
    trainer = trainer_of(tmp_path, max_steps=2, eval_strategy="steps", eval_steps=1)
    trainer.train()
    printed = capsys.readouterr()
    assert "2/2 [" in printed.err
    assert "'eval_loss'" in printed.out
    callback = next(one for one in trainer.callback_handler.callbacks if isinstance(one, ProgressCallback))
    assert callback.prediction_bar is None
    assert callback.training_bar is None


def kinds(trainer):
    return [type(one) for one in trainer.callback_handler.callbacks]


def test_it_takes_the_place_of_the_stock_bar_alone(tmp_path):
    stock, ours = trainer_of(tmp_path, Trainer), trainer_of(tmp_path)
    expected = [EvaluationProgressCallback if kind is ProgressCallback else kind for kind in kinds(stock)]
    assert [kind for kind in kinds(ours) if kind in expected] == expected
    assert ProgressCallback not in kinds(ours)
    ours.remove_callback(ProgressCallback)
    assert EvaluationProgressCallback not in kinds(ours)


def test_no_bar_where_tqdm_is_disabled(tmp_path, capsys):
    trainer = trainer_of(tmp_path, disable_tqdm=True)
    assert PrinterCallback in kinds(trainer)
    assert EvaluationProgressCallback not in kinds(trainer)
    trainer.evaluate()
    assert "examples" not in capsys.readouterr().err


def test_a_subclass_of_somebody_else_keeps_its_bar(tmp_path):
    class Own(ProgressCallback):
        pass

    trainer = trainer_of(tmp_path, Trainer)
    trainer.remove_callback(ProgressCallback)
    trainer.add_callback(Own)
    before = kinds(trainer)
    draw_examples(trainer, lambda: None)
    assert kinds(trainer) == before


@pytest.fixture
def step():
    def draw(callback, main=True, loader=None):
        state = TrainerState(is_world_process_zero=main)
        callback.on_prediction_step(None, state, TrainerControl(), eval_dataloader=loader)
        return callback.prediction_bar

    return draw


def test_a_new_pass_begins_a_new_bar(step):
    passes = [EvaluationProgress("Evaluating", 4), EvaluationProgress("Generating", 2)]
    callback = EvaluationProgressCallback(lambda: passes[0])
    passes[0].load(3, tokens=3)
    passes[0].done(3)
    first = step(callback)
    assert (first.n, first.total, first.desc.strip(": ")) == (3, 4, "Evaluating")
    assert step(callback) is first
    passes.pop(0)
    second = step(callback)
    assert (second.n, second.total, second.desc.strip(": ")) == (0, 2, "Generating")
    assert first.disable, "the first is closed"
    second.close()


def test_a_stream_shows_its_count_alone(step, capsys):
    progress = EvaluationProgress("Evaluating", None)
    progress.load(5, tokens=0)
    progress.done(5)
    step(EvaluationProgressCallback(lambda: progress)).close()
    assert "Evaluating: 5 examples [00:00]" in capsys.readouterr().err


def test_other_ranks_draw_nothing(step):
    assert step(EvaluationProgressCallback(lambda: EvaluationProgress("Evaluating", 4)), main=False) is None


def test_without_a_pass_upstream_draws(step):
    bar = step(EvaluationProgressCallback(lambda: None), loader=[1, 2, 3])
    assert (bar.n, bar.total) == (1, 3)
    bar.close()
