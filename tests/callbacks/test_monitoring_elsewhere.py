"""The monitoring callbacks on trainers other than transformers' own."""

import gc

import pytest
import torch

from hf_trainplus import GPUMonitorCallback, MemoryLeakCallback, PlusTrainer, PlusTrainingArguments, StepClockCallback
from tests.support import tiny


@pytest.fixture(autouse=True, scope="module")
def few_objects():
    """The test session's own million objects would make every collection slow."""
    gc.freeze()
    yield
    gc.unfreeze()


def watch(trainer):
    clock = StepClockCallback().attach(trainer)
    GPUMonitorCallback(0.05).attach(trainer)
    trainer.add_callback(MemoryLeakCallback(every_steps=2, time_share=None))
    return clock


def plus(folder, watched):
    args = PlusTrainingArguments(
        **tiny.quiet(folder, max_steps=6, logging_steps=2, eval_strategy="steps", eval_steps=3, save_steps=3)
    )
    trainer = PlusTrainer(
        tiny.bert(dropout=0.1),
        args,
        train_dataset=tiny.rows(24),
        eval_dataset=tiny.rows(8),
        data_collator=tiny.PaddingCollator(),
    )
    clock = watch(trainer) if watched else None
    trainer.train()
    return trainer, clock


def test_plus_trainer_is_watched_and_trains_the_same_bits(tmp_path):
    plain, _ = plus(tmp_path / "plain", watched=False)
    watched, clock = plus(tmp_path / "watched", watched=True)
    ours = watched.model.state_dict()
    assert [name for name, value in plain.model.state_dict().items() if not torch.equal(value, ours[name])] == []
    summary = clock.summary()
    assert sum(summary["seconds"].values()) == pytest.approx(summary["total_seconds"], rel=0.01)
    assert summary["seconds"]["evaluation"] > 0
    logged = [entry for entry in watched.state.log_history if "time/step_seconds" in entry]
    assert [entry["step"] for entry in logged] == [2, 4, 6]
    for name in ("step_clock", "devices", "memory"):
        assert (tmp_path / f"watched/trainplus/{name}.json").is_file()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")
def test_a_trainer_of_trl_is_watched(tmp_path):
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")

    args = trl.SFTConfig(
        **tiny.quiet(
            tmp_path,
            max_steps=4,
            logging_steps=2,
            per_device_train_batch_size=2,
            bf16=False,
            remove_unused_columns=False,
        ),
        dataset_kwargs={"skip_prepare_dataset": True},
    )
    trainer = trl.SFTTrainer(
        tiny.llama(),
        args,
        train_dataset=datasets.Dataset.from_list(tiny.causal_rows(12, low=4)),
        data_collator=tiny.PaddingCollator(),
        processing_class=_Tokenizer(),
    )
    clock = watch(trainer)
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert all(entry["time/forward_backward_percent"] > 0 for entry in logged)
    assert clock.report.steps == 4


def _Tokenizer():
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    vocabulary = {f"t{index}": index for index in range(tiny.VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="t0"))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="t0", eos_token="t2", unk_token="t0")
