"""BudgetCallback under trainers of other libraries, as they are: TRL's and sentence-transformers'."""

import pytest
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from hf_trainplus.budget.stops import StopReason
from hf_trainplus.callbacks.budget import BudgetCallback
from tests.callbacks.budget_runs import Clock, Slow
from tests.support import tiny

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")]

COSTS = {"step": 1.0, "evaluation": 2.0, "save": 1.0}
OPTIONS = {
    "max_steps": 40,
    "per_device_train_batch_size": 2,
    "eval_strategy": "steps",
    "eval_steps": 10,
    "save_strategy": "steps",
    "save_steps": 10,
}


def tokenizer():
    words = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[UNK]": 3, **{f"w{place}": place for place in range(4, 40)}}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", eos_token="[SEP]", unk_token="[UNK]", model_max_length=32
    )


def fine_tuner(folder, callbacks):
    trl = pytest.importorskip("trl")
    data = Dataset.from_list(
        [{"text": " ".join(f"w{4 + (row + word) % 30}" for word in range(6))} for row in range(16)]
    )
    args = trl.SFTConfig(**tiny.quiet(folder, **OPTIONS), bf16=False, gradient_checkpointing=False)
    return trl.SFTTrainer(
        model=tiny.llama(),
        args=args,
        train_dataset=data,
        eval_dataset=data,
        processing_class=tokenizer(),
        callbacks=callbacks,
    )


def embedder(folder, callbacks):
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers.models import Pooling, Transformer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    source = folder.parent / "encoder"
    config = BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    BertModel(config).save_pretrained(source)
    tokenizer().save_pretrained(source)
    layers = Transformer(str(source), max_seq_length=16)
    model = library.SentenceTransformer(modules=[layers, Pooling(16)], device="cpu")
    rows = [{"anchor": f"w{4 + row} w{5 + row}", "positive": f"w{6 + row} w{7 + row}"} for row in range(16)]
    args = library.SentenceTransformerTrainingArguments(**tiny.quiet(folder, **OPTIONS))
    data = Dataset.from_list(rows)
    return library.SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=data,
        eval_dataset=data,
        loss=MultipleNegativesRankingLoss(model),
        callbacks=callbacks,
    )


class Run:
    """One call of train() on a clock of its own."""

    def __init__(self, make, folder, limit, resume=None):
        self.clock = Clock()
        self.slow = Slow(self.clock, **COSTS)
        self.callback = BudgetCallback(
            f"wall_clock={limit}", margin_seconds=0, count_from_process_start=False, clock=self.clock
        )
        self.trainer = make(folder, [self.slow, self.callback])
        self.trainer.train(resume_from_checkpoint=resume)
        self.end = self.trainer.state.global_step


@pytest.mark.parametrize("make", [fine_tuner, embedder])
def test_a_run_ends_inside_its_limit_and_a_resumed_one_counts_on(make, tmp_path):
    first = Run(make, tmp_path / "run", 30)
    assert first.callback.stop_reason is StopReason.BUDGET_SPENT
    assert 25 <= first.clock.now <= 30
    assert first.slow.steps_of("evaluation")[-1] == first.slow.steps_of("save")[-1] == first.end
    assert (tmp_path / "run" / f"checkpoint-{first.end}" / "trainer_state.json").is_file()
    evaluated = [entry for entry in first.trainer.state.log_history if "eval_loss" in entry]
    assert evaluated[-1]["step"] == first.end

    same = Run(make, tmp_path / "run", 30, resume=True)
    assert same.slow.events == []
    assert same.end == first.end

    second = Run(make, tmp_path / "run", 45, resume=True)
    assert second.callback.stop_reason is StopReason.BUDGET_SPENT
    assert first.end < second.end < 40
    assert 40 <= first.clock.now + second.clock.now <= 45
    assert second.slow.steps_of("evaluation")[-1] == second.slow.steps_of("save")[-1] == second.end
