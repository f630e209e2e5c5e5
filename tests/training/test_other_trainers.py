"""PlusTrainer as the last base under other people's trainers."""

from dataclasses import dataclass

import pytest
import torch
from transformers import PreTrainedTokenizerFast, TrainingArguments

from hf_trainplus import PlusSeq2SeqTrainer, PlusTrainer, PlusTrainingArguments
from tests.support import tiny
from tests.support.launch import ROOT, torchrun

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def word_tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"[PAD]": 0, "[BOS]": 1, "[EOS]": 2, "[UNK]": 3, **{f"w{k}": k for k in range(4, tiny.VOCABULARY)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", bos_token="[BOS]", eos_token="[EOS]", unk_token="[UNK]"
    )


def texts(n=7):
    return [{"text": " ".join(f"w{4 + (k * 7 + j) % 30}" for j in range(3 + 2 * k))} for k in range(n)]


def sft_trainer(folder, **options):
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    class PlusSFTTrainer(SFTTrainer, PlusTrainer):
        pass

    @dataclass
    class Args(SFTConfig, PlusTrainingArguments):
        pass

    arguments = {"per_device_eval_batch_size": 2, "max_steps": 2, "bf16": False, "gradient_checkpointing": False}
    args = Args(**tiny.quiet(folder, **{**arguments, **options}))
    data = Dataset.from_list(texts())
    return PlusSFTTrainer(
        model=tiny.llama(), args=args, train_dataset=data, eval_dataset=data, processing_class=word_tokenizer()
    )


def brute_force(trainer):
    total, targets, model = 0.0, 0, trainer.model
    model.eval()
    for row in trainer.eval_dataset:
        ids = torch.tensor([row["input_ids"]])
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0]
        total += float(torch.nn.functional.cross_entropy(logits[:-1], ids[0, 1:], reduction="sum"))
        targets += ids.shape[1] - 1
    return total / targets


@pytest.mark.slow
def test_sft_trainer_on_one_rank(tmp_path):
    trainer = sft_trainer(tmp_path, eval_strategy="steps", eval_steps=1)
    trainer.train()
    metrics = trainer.evaluate()
    assert metrics["eval_loss"] == pytest.approx(brute_force(trainer), abs=1e-5)
    assert metrics["eval_examples"] == 7
    assert trainer._runner.last.per_row
    logged = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    assert all("eval_mean_token_accuracy" in entry and "eval_entropy" in entry for entry in logged)


@pytest.mark.slow
@pytest.mark.distributed
def test_sft_trainer_on_two_ranks(tmp_path):
    done = torchrun(ROOT / "tests/support/sft_two_ranks.py", tmp_path)
    assert "equal 7" in done.stdout, done.stdout[-2000:]


@pytest.mark.slow
def test_plain_plus_arguments_get_the_right_error(tmp_path):
    from trl import SFTTrainer

    class PlusSFTTrainer(SFTTrainer, PlusTrainer):
        pass

    with pytest.raises(TypeError, match=r"class Args\(SFTConfig, PlusTrainingArguments\)"):
        PlusSFTTrainer(model=tiny.llama(), args=PlusTrainingArguments(**tiny.quiet(tmp_path)), train_dataset=[])


@pytest.mark.parametrize("kind", [TrainingArguments, PlusTrainingArguments])
def test_a_sequence_to_sequence_trainer_names_the_arguments_that_it_needs(kind, tmp_path):
    with pytest.raises(TypeError, match=rf"given {kind.__name__}; .* args=PlusSeq2SeqTrainingArguments\(\.\.\.\)"):
        PlusSeq2SeqTrainer(tiny.bert(), kind(**tiny.quiet(tmp_path / "never")))
    assert not (tmp_path / "never").exists()


def test_the_wrong_order_is_refused():
    from transformers import Trainer

    class Other(Trainer):
        pass

    with pytest.raises(TypeError, match=r"class Wrong\(Other, PlusTrainer\)"):

        class Wrong(PlusTrainer, Other):
            pass

    @dataclass
    class OtherArguments(TrainingArguments):
        pass

    with pytest.raises(TypeError, match=r"class WrongArguments\(OtherArguments, PlusTrainingArguments\)"):

        @dataclass
        class WrongArguments(PlusTrainingArguments, OtherArguments):
            pass


def sentence_trainer(folder, loss, evaluator=None, n=7, **options):
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )

    class PlusSentenceTrainer(SentenceTransformerTrainer, PlusTrainer):
        pass

    @dataclass
    class Args(SentenceTransformerTrainingArguments, PlusTrainingArguments):
        pass

    model = small_sentence_model(folder, SentenceTransformer)
    rows = texts(n)
    columns = {"anchor": [row["text"] for row in rows], "positive": [row["text"] for row in reversed(rows)]}
    if loss == "cosine":
        columns["score"] = [k / n for k in range(n)]
    data = Dataset.from_dict(columns)
    args = Args(**tiny.quiet(folder, max_steps=2, per_device_eval_batch_size=3, **options))
    return PlusSentenceTrainer(
        model=model, args=args, train_dataset=data, eval_dataset=data, loss=make_loss(loss, model), evaluator=evaluator
    )


def make_loss(name, model):
    from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss, MultipleNegativesRankingLoss

    return CosineSimilarityLoss(model) if name == "cosine" else MultipleNegativesRankingLoss(model)


def small_sentence_model(folder, model_class):
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel

    path = folder / "encoder"
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=tiny.VOCABULARY,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(path)
    word_tokenizer().save_pretrained(path)
    encoder = Transformer(str(path))
    return model_class(modules=[encoder, Pooling(16)], device="cpu")


@pytest.mark.slow
def test_sentence_trainer_with_an_evaluator(tmp_path):
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    rows = texts(6)
    evaluator = EmbeddingSimilarityEvaluator(
        [row["text"] for row in rows], [row["text"] for row in reversed(rows)], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], name="x"
    )
    trainer = sentence_trainer(tmp_path, "cosine", evaluator, eval_strategy="steps", eval_steps=1)
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    assert all("eval_x_spearman_cosine" in entry for entry in logged)
    assert all(entry["eval_examples"] == 7 for entry in logged)


@pytest.mark.slow
def test_in_batch_negatives_keep_the_trainers_batches(tmp_path):
    trainer = sentence_trainer(tmp_path, "in_batch", batch_sampler="batch_sampler")
    seen = []
    original = trainer.compute_loss

    def compute_loss(model, inputs, **kwargs):
        seen.append(len(next(iter(inputs.values()))))
        return original(model, inputs, **kwargs)

    trainer.compute_loss = compute_loss
    metrics = trainer.evaluate()
    batches = [[k for k in group if k < 7] for group in ([0, 1, 2], [3, 4, 5], [6])]
    assert seen == [len(batch) for batch in batches]
    assert metrics["eval_examples"] == 7
    assert not trainer._runner.last.per_row
    assert metrics["eval_loss"] > 0
