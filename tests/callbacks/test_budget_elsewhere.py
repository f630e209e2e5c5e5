"""BudgetCallback on other people's trainers, which know nothing of it: TRL's SFTTrainer and sentence-transformers'."""

import pytest
import torch

from hf_trainplus import BudgetCallback
from hf_trainplus.budget.stops import StopReason
from tests.callbacks.budget_runs import Clock, Slow
from tests.support import tiny
from tests.training.test_other_trainers import make_loss, small_sentence_model, texts, word_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")]

SETTINGS = {
    "max_steps": 40,
    "eval_strategy": "steps",
    "eval_steps": 10,
    "save_strategy": "steps",
    "save_steps": 10,
    "per_device_train_batch_size": 2,
    "per_device_eval_batch_size": 3,
}


def sft(folder, callbacks, **options):
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    args = SFTConfig(**tiny.quiet(folder, bf16=False, gradient_checkpointing=False, **{**SETTINGS, **options}))
    data = Dataset.from_list(texts())
    return SFTTrainer(
        model=tiny.llama(),
        args=args,
        train_dataset=data,
        eval_dataset=data,
        processing_class=word_tokenizer(),
        callbacks=callbacks,
    )


def sentences(folder, callbacks, **options):
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )

    rows = [row["text"] for row in texts()]
    data = Dataset.from_dict({"anchor": rows, "positive": rows[::-1]})
    model = small_sentence_model(folder, SentenceTransformer)
    return SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(**tiny.quiet(folder, **{**SETTINGS, **options})),
        train_dataset=data,
        eval_dataset=data,
        loss=make_loss("in-batch", model),
        callbacks=callbacks,
    )


@pytest.mark.parametrize("make", [sft, sentences])
def test_the_run_ends_inside_its_limit_and_a_resume_counts_on(make, tmp_path):
    clock = Clock()
    slow = Slow(clock, step=1.0, evaluation=2.0, save=1.0)
    options = {"margin_seconds": 0, "count_from_process_start": False, "clock": clock}
    first = BudgetCallback("wall_clock=22", **options)
    trainer = make(tmp_path, [slow, first])
    trainer.train()
    end = trainer.state.global_step
    assert (first.stop_reason, first.stop_limit) == (StopReason.BUDGET_SPENT, "wall_clock")
    assert 22 - 5 <= clock.now <= 22
    assert 10 < end < 40
    assert slow.steps_of("evaluation")[-1] == slow.steps_of("save")[-1] == end
    assert (tmp_path / f"checkpoint-{end}").is_dir()
    before = clock.now

    second = BudgetCallback("wall_clock=34", **options)
    resumed = make(tmp_path, [Slow(clock, step=1.0, evaluation=2.0, save=1.0), second])
    resumed.train(resume_from_checkpoint=True)
    spent = second.saved["keeper"]["meter"]["wall_clock_seconds"]
    assert spent == pytest.approx(clock.now)
    assert before < clock.now <= 34
    assert resumed.state.global_step > end
    assert second.stop_reason is StopReason.BUDGET_SPENT


@pytest.mark.parametrize("make", [sft, sentences])
def test_a_budget_that_is_wide_enough_changes_no_weight(make, tmp_path):
    found = {}
    for name, callbacks in (("plain", []), ("kept", [BudgetCallback("wall_clock=1h,max_steps=1000")])):
        trainer = make(tmp_path / name, callbacks, max_steps=3)
        trainer.train()
        found[name] = trainer.model.state_dict()
    for name, value in found["plain"].items():
        assert torch.equal(value, found["kept"][name])
