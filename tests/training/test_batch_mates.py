"""Losses that depend on batch mates, and losses of a model's own: the trainer's own batches and numbers are kept."""

import pytest
import torch
from torch.nn import functional
from transformers import BertForSequenceClassification, LlamaForCausalLM, Trainer, TrainingArguments

from hf_trainplus import PlusTrainer, PlusTrainingArguments, load_metric
from tests.support import tiny


class Mates(BertForSequenceClassification):
    """Adds the spread of the batch's logits to the loss."""

    def forward(self, input_ids=None, attention_mask=None, labels=None, **options):
        out = super().forward(input_ids=input_ids, attention_mask=attention_mask, labels=labels)
        out.loss = out.loss + out.logits.std(0).sum()
        return out


def mates():
    torch.manual_seed(0)
    model = Mates(tiny.bert().config)
    torch.nn.init.normal_(model.classifier.weight)
    return model


def plus(model, rows, folder, **options):
    metric = options.pop("compute_metrics", None)
    args = PlusTrainingArguments(**tiny.quiet(folder, **options))
    collator = tiny.PaddingCollator()
    return PlusTrainer(model, args, data_collator=collator, eval_dataset=rows, compute_metrics=metric)


def stock(model, rows, folder, **options):
    args = TrainingArguments(**tiny.quiet(folder, **options))
    return Trainer(model, args, data_collator=tiny.PaddingCollator(), eval_dataset=rows)


@pytest.mark.parametrize("tokens", ["auto", "80", "none"])
@pytest.mark.parametrize("metric", [None, "accuracy"])
def test_a_loss_that_depends_on_batch_mates_keeps_the_trainers_batches(tokens, metric, tmp_path, caplog):
    rows, shapes = tiny.rows(60, low=3, high=40), []
    want = stock(mates(), rows, tmp_path, per_device_eval_batch_size=6).evaluate()["eval_loss"]
    model = mates()
    named = None if metric is None else load_metric(metric)
    options = {"per_device_eval_batch_size": 6, "eval_tokens_per_batch": tokens, "compute_metrics": named}
    trainer = plus(model, rows, tmp_path, **options)
    found = trainer.evaluate()
    assert found["eval_loss"] == pytest.approx(want, abs=1e-6)
    if metric is not None:  # nothing of the batches that were given up is left in it
        assert found["eval_examples"] == 60
        right = (trainer.predict(rows).predictions.argmax(-1) == [row["labels"] for row in rows]).mean()
        assert found["eval_accuracy"] == pytest.approx(right)
    model.register_forward_pre_hook(
        lambda module, args, options: shapes.append(len(options["input_ids"])), with_kwargs=True
    )
    assert trainer.evaluate()["eval_loss"] == pytest.approx(want, abs=1e-6)
    assert shapes == [6] * 10  # what one evaluation has found out, the next one knows
    assert sum("the losses of single rows are not known here" in text for text in caplog.messages) <= 1


class RowMeans(LlamaForCausalLM):
    """Takes the mean of the rows' means."""

    def forward(self, input_ids=None, attention_mask=None, labels=None, **options):
        out = super().forward(input_ids=input_ids, attention_mask=attention_mask, **options)
        if labels is not None:
            losses, targets = token_losses(out.logits, labels)
            out.loss = self.mean(losses, targets)
        return out

    def mean(self, losses, targets):
        is_target = targets != -100
        return (losses.sum(1) / is_target.sum(1).clamp(min=1)).mean()


class AllPositions(RowMeans):
    """Takes the mean over all positions, targets or not."""

    def mean(self, losses, targets):
        return losses.mean()


class Weighted(RowMeans):
    """Counts one token five times."""

    def mean(self, losses, targets):
        weight = (targets != -100) * torch.where(targets == 7, 5.0, 1.0)
        return (losses * weight).sum() / weight.sum()


def token_losses(logits, labels):
    targets = labels[:, 1:]
    losses = functional.cross_entropy(logits[:, :-1].transpose(1, 2), targets, reduction="none", ignore_index=-100)
    return losses, targets


def causal_rows():
    """Rows of which every second has ignored labels; token 7 is only in the shortest."""
    rows = tiny.causal_rows(20, low=4, high=30)
    for at, row in enumerate(rows):
        ids = [8 if token == 7 else token for token in row["input_ids"]]
        half = len(ids) // 2 if at % 2 else 0
        row.update(input_ids=ids, labels=[-100] * half + ids[half:])
    rows[0] = {"input_ids": [7] * 3, "attention_mask": [1] * 3, "labels": [7] * 3}
    return rows


@pytest.mark.parametrize("kind", [RowMeans, AllPositions, Weighted])
@pytest.mark.parametrize("tokens", ["auto", "none"])
def test_a_loss_of_the_models_own_is_the_trainers(kind, tokens, tmp_path, caplog):
    model, rows = kind(tiny.llama(initializer_range=0.8).config), causal_rows()
    options = {"per_device_eval_batch_size": 20, "prediction_loss_only": True}
    want = stock(model, rows, tmp_path, **options).evaluate()["eval_loss"]
    trainer = plus(model, rows, tmp_path, eval_tokens_per_batch=tokens, **options)
    with caplog.at_level("WARNING"):
        losses = [trainer.evaluate()["eval_loss"] for _ in range(2)]
    assert losses == pytest.approx([want, want], abs=1e-5)
    assert sum("computed from full logits" in text for text in caplog.messages) == 1


@pytest.mark.parametrize("kind", [RowMeans, AllPositions])
def test_a_loss_of_its_own_that_shows_late_is_found_out(kind, tmp_path):
    """The longest rows are alike; only later batches tell one mean from another."""
    ids = torch.randint(3, tiny.VOCABULARY, (40,), generator=torch.Generator().manual_seed(0)).tolist()
    rows = [{"input_ids": ids, "attention_mask": [1] * 40, "labels": ids} for _ in range(8)]
    rows += causal_rows()[1:9]
    model = kind(tiny.llama(initializer_range=0.8).config)
    options = {"per_device_eval_batch_size": 4, "prediction_loss_only": True}
    trainer = plus(model, rows, tmp_path, eval_tokens_per_batch="160", **options)
    want = own_batches(model, rows, 4)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(want, abs=1e-5)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(want, abs=1e-5)


@pytest.mark.parametrize("kind", [RowMeans, AllPositions])
def test_a_loss_of_its_own_is_found_out_where_every_row_is_a_batch(kind, tmp_path):
    rows = tiny.causal_rows(12, low=8, high=40)
    model = kind(tiny.llama(initializer_range=0.8).config)
    options = {"per_device_eval_batch_size": 4, "prediction_loss_only": True}
    trainer = plus(model, rows, tmp_path, eval_tokens_per_batch="8", **options)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(own_batches(model, rows, 4), abs=1e-5)


def own_batches(model, rows, size):
    """Weigh the loss of each of the trainer's batches by its targets."""
    total = count = 0
    model.eval()
    for start in range(0, len(rows), size):
        batch = tiny.PaddingCollator()(rows[start : start + size])
        targets = int((batch["labels"][:, 1:] != -100).sum())
        with torch.no_grad():
            total += float(model(**batch).loss) * targets
        count += targets
    return total / count
