"""eval_loss is token-exact and every row counts once, whatever the batches look like."""

import random

import numpy as np
import pytest
import torch
from transformers import TrainingArguments

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from tests.support import tiny


def brute_force_loss(model, rows):
    """Sum of per-token losses over all real targets, a row at a time, divided once."""
    total, targets = 0.0, 0
    model.eval()
    for row in rows:
        ids, labels = torch.tensor([row["input_ids"]]), torch.tensor(row["labels"])
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0].double()
        losses = torch.nn.functional.cross_entropy(logits[:-1], labels[1:], reduction="none", ignore_index=-100)
        total, targets = total + float(losses.sum()), targets + int((labels[1:] != -100).sum())
    return total / targets, targets


def evaluate(model, rows, folder, collator=None, trainer=None, **options):
    args = PlusTrainingArguments(**tiny.quiet(folder, **options))
    made = PlusTrainer(
        model, args, eval_dataset=rows, data_collator=collator or tiny.PaddingCollator(), **(trainer or {})
    )
    return made.evaluate(), made


@pytest.mark.parametrize("make", [tiny.llama, tiny.gpt2], ids=["llama", "gpt2"])
@pytest.mark.parametrize("batch", [1, 2, 4, 9])
def test_loss_does_not_depend_on_the_batch_size(make, batch, tmp_path):
    model, rows = make(), tiny.causal_rows(9, masked=(3,))
    expected, targets = brute_force_loss(model, rows)
    metrics, _ = evaluate(model, rows, tmp_path, per_device_eval_batch_size=batch)
    assert metrics["eval_loss"] == pytest.approx(expected, abs=1e-5)
    assert (metrics["eval_targets"], metrics["eval_examples"]) == (targets, 9)


@pytest.mark.parametrize(("side", "extra"), [("left", 0), ("left", 5), ("right", 7)])
def test_loss_does_not_depend_on_padding(side, extra, tmp_path):
    model, rows = tiny.llama(), tiny.causal_rows(7)
    expected, _ = brute_force_loss(model, rows)
    metrics, _ = evaluate(model, rows, tmp_path, tiny.PaddingCollator(side, extra), per_device_eval_batch_size=3)
    assert metrics["eval_loss"] == pytest.approx(expected, abs=1e-5)


def test_loss_does_not_depend_on_row_order(tmp_path):
    model, rows = tiny.llama(), tiny.causal_rows(9)
    expected, _ = evaluate(model, rows, tmp_path)
    shuffled = list(rows)
    random.Random(0).shuffle(shuffled)
    metrics, _ = evaluate(model, shuffled, tmp_path)
    assert metrics["eval_loss"] == pytest.approx(expected["eval_loss"], abs=1e-5)


def test_rows_without_targets_give_no_loss(tmp_path):
    metrics, _ = evaluate(tiny.llama(), tiny.causal_rows(3, masked=(0, 1, 2)), tmp_path)
    assert "eval_loss" not in metrics
    assert metrics["eval_targets"] == 0


def test_nonfinite_rows_are_counted_and_shown(tmp_path):
    model, rows = tiny.bert(), tiny.rows(6)
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[7] = float("nan")
    rows[2]["input_ids"][0] = 7
    for k in (0, 1, 3, 4, 5):
        rows[k]["input_ids"] = [8 if token == 7 else token for token in rows[k]["input_ids"]]
    metrics, _ = evaluate(model, rows, tmp_path, per_device_eval_batch_size=2)
    assert np.isnan(metrics["eval_loss"])
    assert metrics["eval_nonfinite"] == 1


def test_predictions_come_back_in_dataset_order(tmp_path):
    model, rows = tiny.bert(num_labels=3), tiny.rows(10, num_labels=3)
    for strategy in ("random", "group_by_length"):
        _, trainer = evaluate(model, rows, tmp_path, per_device_eval_batch_size=3, train_sampling_strategy=strategy)
        output = trainer.predict(rows)
        assert output.label_ids.tolist() == [row["labels"] for row in rows]
        for row, predicted in zip(rows, output.predictions, strict=True):
            with torch.no_grad():
                alone = model(torch.tensor([row["input_ids"]])).logits[0]
            np.testing.assert_allclose(predicted, alone, atol=1e-5)


def test_predict_without_labels(tmp_path):
    rows = [{key: value for key, value in row.items() if key != "labels"} for row in tiny.rows(5)]
    _, trainer = evaluate(tiny.bert(), tiny.rows(5), tmp_path)
    output = trainer.predict(rows)
    assert output.predictions.shape == (5, 2)
    assert output.label_ids is None
    assert "test_loss" not in output.metrics


def accuracy(prediction):
    return {"accuracy": (prediction.predictions.argmax(-1) == prediction.label_ids).mean()}


def test_metric_functions_see_all_rows_once(tmp_path):
    seen = []

    def metric(prediction):
        seen.append((prediction.predictions.shape, prediction.label_ids.tolist()))
        return accuracy(prediction)

    rows = tiny.rows(11)
    metrics, _ = evaluate(
        tiny.bert(), rows, tmp_path, trainer={"compute_metrics": metric}, per_device_eval_batch_size=4
    )
    assert seen == [((11, 2), [row["labels"] for row in rows])]
    assert type(metrics["eval_accuracy"]) is float


def test_token_predictions_are_padded_with_nothing_that_looks_like_one(tmp_path):
    kept = {}

    def metric(prediction):
        kept["logits"], kept["labels"] = prediction.predictions, prediction.label_ids
        return {}

    rows = tiny.causal_rows(5)
    evaluate(tiny.llama(), rows, tmp_path, trainer={"compute_metrics": metric}, per_device_eval_batch_size=2)
    for k, row in enumerate(rows):
        assert np.isfinite(kept["logits"][k, : len(row["input_ids"])]).all()
        assert kept["labels"][k, : len(row["input_ids"])].tolist() == row["labels"]
    beyond = kept["labels"] == -100
    assert not np.isin(kept["logits"][np.isnan(kept["logits"])], [0.0, -100.0]).any()
    assert beyond.any()


def test_plain_training_arguments_are_accepted(tmp_path):
    args = TrainingArguments(**tiny.quiet(tmp_path))
    trainer = PlusTrainer(tiny.bert(), args, eval_dataset=tiny.rows(5), data_collator=tiny.PaddingCollator())
    assert trainer.evaluate()["eval_examples"] == 5


def test_metric_objects_reduce_a_batch_at_a_time(tmp_path):
    from hf_trainplus import load_metric

    rows, model = tiny.rows(20), tiny.bert()
    by_function, _ = evaluate(model, rows, tmp_path, trainer={"compute_metrics": accuracy})
    metric = [load_metric("accuracy"), load_metric("f1"), load_metric("perplexity")]
    metrics, trainer = evaluate(
        model, rows, tmp_path, trainer={"compute_metrics": metric}, per_device_eval_batch_size=3
    )
    assert metrics["eval_accuracy"] == by_function["eval_accuracy"]
    assert metrics["eval_perplexity"] == pytest.approx(np.exp(metrics["eval_loss"]))
    assert metrics["eval_accuracy_ci_low"] < metrics["eval_accuracy"] < metrics["eval_accuracy_ci_high"]
    assert metrics["eval_accuracy_exact"] == 1.0
    assert trainer._runner.last.predictions is None
    again = trainer.evaluate()
    assert again["eval_f1"] == metrics["eval_f1"]
