"""Labels behind wrappers, models with many outputs, labels of every form, streams, foreign loaders, bad input."""

import itertools

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch import nn
from transformers import BertConfig, BertForQuestionAnswering, T5Config, T5ForConditionalGeneration
from transformers.modeling_outputs import ModelOutput

from hf_trainplus import PlusSeq2SeqTrainer, PlusSeq2SeqTrainingArguments, PlusTrainer, PlusTrainingArguments
from tests.support import tiny


def evaluate(model, rows, folder, collator=None, metric=None, trainer_class=PlusTrainer, **options):
    args = PlusTrainingArguments(**tiny.quiet(folder, **{"per_device_eval_batch_size": 3, **options}))
    collator = collator or tiny.PaddingCollator()
    trainer = trainer_class(model, args, eval_dataset=rows, data_collator=collator, compute_metrics=metric)
    return trainer.evaluate(), trainer


class Wrapper(nn.Module):
    """Hides the signature of what it wraps."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs)


def test_labels_are_found_behind_a_wrapper(tmp_path):
    rows = tiny.rows(5)
    expected, _ = evaluate(tiny.bert(), rows, tmp_path)
    metrics, trainer = evaluate(Wrapper(tiny.bert()), rows, tmp_path, remove_unused_columns=False)
    assert trainer.label_names == ["labels"]
    assert metrics["eval_loss"] == pytest.approx(expected["eval_loss"], abs=1e-5)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_labels_are_found_under_peft(tmp_path):
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(tiny.llama(), LoraConfig(target_modules=["q_proj"], r=2))
    expected, _ = evaluate(tiny.llama(), tiny.causal_rows(5), tmp_path)
    metrics, trainer = evaluate(model, tiny.causal_rows(5), tmp_path)
    assert metrics["eval_loss"] == pytest.approx(expected["eval_loss"], abs=1e-5)
    assert trainer._runner.last.per_row


class ActionModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x, actions=None):
        logits = self.layer(x)
        output = {"logits": logits}
        if actions is not None:
            output = {"loss": nn.functional.cross_entropy(logits, actions), **output}
        return output


def action_rows(n=7):
    generator = torch.Generator().manual_seed(0)
    return [{"x": torch.randn(4, generator=generator), "actions": k % 3} for k in range(n)]


def stack(features):
    return {key: torch.stack([torch.as_tensor(feature[key]) for feature in features]) for key in features[0]}


def test_other_label_names_work_when_named(tmp_path):
    metrics, trainer = evaluate(ActionModel(), action_rows(), tmp_path, stack, label_names=["actions"])
    expected = nn.functional.cross_entropy(*_logits_and_actions(trainer.model))
    assert metrics["eval_loss"] == pytest.approx(float(expected), abs=1e-5)


def _logits_and_actions(model):
    batch = stack(action_rows())
    with torch.no_grad():
        return model(batch["x"])["logits"], batch["actions"]


def test_the_missing_loss_names_the_fix(tmp_path):
    options = {"max_steps": 1, "eval_strategy": "steps", "eval_steps": 1, "load_best_model_at_end": True}
    args = PlusTrainingArguments(**tiny.quiet(tmp_path, **options))
    trainer = PlusTrainer(
        ActionModel(),
        args,
        train_dataset=action_rows(),
        eval_dataset=[{"x": row["x"]} for row in action_rows()],
        data_collator=stack,
    )
    with pytest.raises(ValueError, match=r"no 'eval_loss'.*label_names=\["):
        trainer.train()


class ManyOutputs(ActionModel):
    """Returns a cache object and hidden states beside the logits."""

    def forward(self, x, labels=None):
        output = super().forward(x, labels)
        return ModelOutput(**output, hidden_states=(x, x), cache=object(), scale=torch.ones(()))


def labelled(rows):
    return [{"x": row["x"], "labels": row["actions"]} for row in rows]


def test_the_main_logits_reach_the_metric_function(tmp_path):
    seen = []

    def metric(prediction):
        seen.append(prediction.predictions)
        return {}

    evaluate(ManyOutputs(), labelled(action_rows()), tmp_path, stack, metric)
    assert isinstance(seen[0], np.ndarray)
    assert seen[0].shape == (7, 3)


def test_further_outputs_come_when_named(tmp_path):
    seen = []

    def metric(prediction):
        seen.append(prediction)
        return {}

    options = {"include_for_metrics": ["hidden_states", "loss", "inputs"]}
    evaluate(ManyOutputs(), labelled(action_rows()), tmp_path, stack, metric, **options)
    logits, hidden = seen[0].predictions
    assert logits.shape == (7, 3)
    assert [state.shape for state in hidden] == [(7, 4), (7, 4)]
    assert seen[0].losses.shape == (7,)


class Detector(nn.Module):
    """Takes labels as a list with one dictionary a row."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x, labels=None):
        logits = self.layer(x)
        loss = torch.stack([(logits[k].sum() - label["boxes"].sum()) ** 2 for k, label in enumerate(labels)]).mean()
        return {"loss": loss, "logits": logits}


def test_lists_of_label_dictionaries_stay_one_item_a_row(tmp_path):
    seen = []

    def metric(prediction):
        seen.extend(prediction.label_ids)
        return {}

    rows = [{"x": row["x"], "labels": {"boxes": torch.ones(1 + k % 3, 4) * k}} for k, row in enumerate(action_rows(10))]

    def collate(features):
        return {"x": torch.stack([row["x"] for row in features]), "labels": [row["labels"] for row in features]}

    metrics, _ = evaluate(Detector(), rows, tmp_path, collate, metric)
    assert [label["boxes"].max() if k else 0 for k, label in enumerate(seen)] == list(range(10))
    assert metrics["eval_examples"] == 10


def test_question_answering_has_two_heads(tmp_path):
    torch.manual_seed(0)
    config = BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    rows = [
        {**{k: v for k, v in row.items() if k != "labels"}, "start_positions": 1, "end_positions": 2}
        for row in tiny.rows(7, low=4)
    ]
    seen = []

    def metric(prediction):
        seen.append(prediction)
        return {}

    metrics, trainer = evaluate(BertForQuestionAnswering(config), rows, tmp_path, metric=metric)
    start, end = seen[0].predictions
    assert start.shape == end.shape
    assert trainer._runner.last.per_row
    assert metrics["eval_targets"] == 14
    single, _ = evaluate(trainer.model, rows, tmp_path, per_device_eval_batch_size=1)
    assert metrics["eval_loss"] == pytest.approx(single["eval_loss"], abs=1e-5)


def t5():
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=40, d_model=16, d_ff=32, d_kv=8, num_layers=1, num_heads=2, decoder_start_token_id=0, pad_token_id=0
    )
    return T5ForConditionalGeneration(config)


def sequence_rows(n=7):
    return [{**row, "labels": row["input_ids"][::-1][: 2 + k]} for k, row in enumerate(tiny.causal_rows(n, low=10))]


class SequenceCollator(tiny.PaddingCollator):
    def __call__(self, features):
        labels = [feature["labels"] for feature in features]
        batch = super().__call__([{k: v for k, v in feature.items() if k != "labels"} for feature in features])
        width = max(map(len, labels))
        batch["labels"] = torch.tensor([label + [-100] * (width - len(label)) for label in labels])
        return batch


def test_sequence_to_sequence_loss_and_generation(tmp_path):
    seen = []

    def metric(prediction):
        seen.append(prediction)
        return {"accuracy": 0.5}

    rows = sequence_rows()
    losses = []
    for batch in (1, 3):
        args = PlusSeq2SeqTrainingArguments(
            **tiny.quiet(
                tmp_path, per_device_eval_batch_size=batch, generation_max_length=6, predict_with_generate=True
            )
        )
        trainer = PlusSeq2SeqTrainer(
            t5(), args, eval_dataset=rows, data_collator=SequenceCollator(), compute_metrics=metric
        )
        losses.append(trainer.evaluate()["eval_loss"])
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert trainer._runner.last.per_row
    for row, label in zip(rows, seen[-1].label_ids, strict=True):
        assert label[: len(row["labels"])].tolist() == row["labels"]
    assert (seen[-1].predictions[:, 6:] == 0).all()
    assert (seen[-1].predictions[:, :6] != 0).any()


def test_unknown_models_fall_back_and_say_so_once(tmp_path, caplog):
    _, trainer = evaluate(ActionModel(), action_rows(), tmp_path, stack, label_names=["actions"])
    trainer.evaluate()
    said = [record for record in caplog.records if "weighted by its number of targets" in record.message]
    assert len(said) == 1


def test_a_custom_loss_function_is_token_weighted(tmp_path):
    def halved(outputs, labels, num_items_in_batch=None):
        logits = outputs["logits"]
        flat = nn.functional.cross_entropy(
            logits[:, :-1].reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1), reduction="sum"
        )
        return 0.5 * flat / (labels[:, 1:] != -100).sum()

    rows = tiny.causal_rows(9)
    expected, _ = evaluate(tiny.llama(), rows, tmp_path)
    for batch in (1, 2, 9):
        args = PlusTrainingArguments(**tiny.quiet(tmp_path, per_device_eval_batch_size=batch))
        trainer = PlusTrainer(
            tiny.llama(), args, eval_dataset=rows, data_collator=tiny.PaddingCollator(), compute_loss_func=halved
        )
        assert trainer.evaluate()["eval_loss"] == pytest.approx(expected["eval_loss"] / 2, abs=1e-5)


class EndlessStream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return itertools.cycle(iter(tiny.rows(5)))


def test_streams_count_every_row_once(tmp_path):
    expected, _ = evaluate(tiny.bert(), tiny.rows(11), tmp_path)
    stream = Dataset.from_list(tiny.rows(11)).to_iterable_dataset()
    metrics, _ = evaluate(tiny.bert(), stream, tmp_path)
    assert metrics["eval_examples"] == 11
    assert metrics["eval_loss"] == pytest.approx(expected["eval_loss"], abs=1e-5)


def test_an_endless_stream_needs_a_limit(tmp_path):
    metrics, _ = evaluate(tiny.bert(), EndlessStream(), tmp_path, eval_subset_size=24)
    assert metrics["eval_examples"] == 24
    endless = Dataset.from_list(tiny.rows(5)).to_iterable_dataset().repeat(None)
    with pytest.raises(ValueError, match="eval_subset_size|limit"):
        evaluate(tiny.bert(), endless, tmp_path)


def test_an_overridden_loader_is_used_in_arrival_order(tmp_path):
    class Own(PlusTrainer):
        def get_eval_dataloader(self, eval_dataset=None):
            order = torch.utils.data.DataLoader(
                self.eval_dataset, 2, sampler=[4, 2, 0], collate_fn=tiny.PaddingCollator()
            )
            return self.accelerator.prepare(order)

    seen = []

    def metric(prediction):
        seen.append(prediction.label_ids.tolist())
        return {}

    rows = tiny.rows(5)
    metrics, _ = evaluate(tiny.bert(), rows, tmp_path, metric=metric, trainer_class=Own)
    assert metrics["eval_examples"] == 3
    assert seen == [[rows[4]["labels"], rows[2]["labels"], rows[0]["labels"]]]


def test_arrays_and_strings_stay_out_of_the_logs_and_are_named_once(tmp_path, caplog):
    def metric(prediction):
        return {
            "accuracy": np.float32(0.5),
            "count": torch.tensor(3),
            "nested": {"f1": 0.25},
            "matrix": np.eye(2),
            "note": "text",
        }

    metrics, trainer = evaluate(tiny.bert(), tiny.rows(5), tmp_path, metric=metric)
    trainer.evaluate()
    assert (metrics["eval_accuracy"], metrics["eval_count"], metrics["eval_nested_f1"]) == (0.5, 3, 0.25)
    assert all(type(value) in (int, float) for value in metrics.values())
    said = [record.message for record in caplog.records if "no single numbers" in record.message]
    assert len(said) == 1
    assert "eval_matrix" in said[0]
    assert "eval_note" in said[0]
