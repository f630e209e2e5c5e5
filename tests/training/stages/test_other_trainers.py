"""A plan under somebody else's trainer: TRL's, with PlusTrainer as the last base."""

import shutil
from dataclasses import dataclass

import pytest
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from tests.support import stages, tiny

trl = pytest.importorskip("trl")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")]

PLAN = {
    "stages": [
        {"name": "half", "budget": "max_steps=2", "data_fraction": 0.5},
        {"name": "all", "budget": "max_steps=3", "global_batch_size": 4, "freeze": ["*embed*"]},
    ]
}


@dataclass
class Arguments(trl.SFTConfig, PlusTrainingArguments):
    """TRL's arguments with ours."""


class FineTuner(trl.SFTTrainer, PlusTrainer):
    """TRL's trainer with ours below it."""


def make(folder):
    words = models.WordLevel({f"w{place}": place for place in range(tiny.VOCABULARY)}, unk_token="w0")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), pad_token="w0", eos_token="w2")
    rows = Dataset.from_list([{"input_ids": row["input_ids"]} for row in tiny.causal_rows(16, low=4)])
    options = {"save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 2}
    args = Arguments(
        **tiny.quiet(folder, plan=PLAN, per_device_train_batch_size=2, **options),
        dataset_kwargs={"skip_prepare_dataset": True},
    )
    return FineTuner(tiny.llama(), args, train_dataset=rows, eval_dataset=rows, processing_class=tokenizer)


def test_supervised_fine_tuning_in_stages_is_resumed_bit_for_bit(tmp_path):
    whole = make(tmp_path)
    whole.train()
    assert whole.state.global_step == 5
    for step in (5, 4):
        shutil.rmtree(tmp_path / f"checkpoint-{step}")
    again = make(tmp_path)
    again.train(resume_from_checkpoint=True)
    # TRL counts the tokens of a session, not of the run
    found = stages.differences({**stages.outcome(whole), "logs": []}, {**stages.outcome(again), "logs": []})
    assert found == []
