"""Label smoothing against the loss that Trainer itself computes."""

import pytest
import torch
from torch.nn import functional
from transformers import Trainer, TrainingArguments

from hf_trainplus.evaluation.losses import batch_loss, count_targets, find_loss_kind, reproduces
from tests.support import loss_models as models

SMOOTHED = [
    "gpt2",
    "llama",
    "bert_decoder",
    "bart_decoder",
    "masked_lm",
    "xlnet",
    "tagger",
    "single_label",
    "images",
    "choices",
]


def trainer_loss(model, inputs, folder, epsilon):
    args = TrainingArguments(str(folder), label_smoothing_factor=epsilon, report_to=[], use_cpu=True)
    with torch.no_grad():
        return Trainer(model, args).compute_loss(model, dict(inputs), return_outputs=True)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("case", SMOOTHED)
def test_smoothed_losses_are_those_of_the_trainer(case, rows, tmp_path):
    _, make, batch, _ = models.CASES[case]
    model, inputs = make(), batch(rows)
    kind = find_loss_kind(model, label_smoothing=0.2)
    own_loss, outputs = trainer_loss(model, inputs, tmp_path, 0.2)
    losses = kind.example_losses(outputs, inputs)
    assert kind.name == "label_smoothing"
    assert reproduces(losses, own_loss, tolerance=1e-6)
    assert count_targets(kind, inputs, ["labels"]).tolist() == losses.target_count.tolist()
    plain = find_loss_kind(model).example_losses(outputs, inputs)
    assert abs(batch_loss(plain) - batch_loss(losses)) > 1e-3


@pytest.mark.parametrize("case", ["t5", "bart", "encoder_decoder"])
def test_smoothed_losses_of_encoder_decoders_are_not_shifted(case, tmp_path):
    _, make, batch, _ = models.CASES[case]
    model, inputs = make(), batch(3)
    # Trainer takes the labels away, so that the collator must give the decoder its inputs.
    start = torch.ones(3, 1, dtype=torch.long)
    inputs["decoder_input_ids"] = torch.cat([start, inputs["input_ids"][:, :-1]], dim=1)
    own_loss, outputs = trainer_loss(model, inputs, tmp_path, 0.1)
    losses = find_loss_kind(model, label_smoothing=0.1).example_losses(outputs, inputs)
    assert reproduces(losses, own_loss, tolerance=1e-6)


def test_a_masked_row_has_no_smoothed_loss(tmp_path):
    model, inputs = models.llama(), models.token_batch(3)
    inputs["labels"][1] = -100
    own_loss, outputs = trainer_loss(model, inputs, tmp_path, 0.1)
    losses = find_loss_kind(model, label_smoothing=0.1).example_losses(outputs, inputs)
    assert losses.loss_sum[1] == 0.0
    assert losses.target_count[1] == 0
    assert reproduces(losses, own_loss, tolerance=1e-6)


def test_what_the_trainer_does_not_smooth_keeps_its_own_loss():
    spans = models.CASES["spans"][1]()
    assert find_loss_kind(spans, label_smoothing=0.1).name == "question_answering"
    several = models.bert(models.SEQUENCE, num_labels=3, problem_type="multi_label_classification")
    assert find_loss_kind(several, label_smoothing=0.1).name == "sequence_classification"


def test_smoothing_needs_class_indices():
    kind = find_loss_kind(models.llama(), label_smoothing=0.1)
    assert kind.example_losses(torch.zeros(2, 3, 5), {"labels": torch.rand(2, 3)}) is None
    assert kind.example_losses(torch.zeros(2, 3, 5), {"labels": torch.zeros(2, 4, dtype=torch.long)}) is None
    assert kind.example_losses({"hidden": torch.zeros(2)}, {"labels": torch.zeros(2, 3, dtype=torch.long)}) is None


def test_full_smoothing_is_the_mean_over_all_classes():
    logits = torch.randn(1, 2, 6, generator=torch.Generator().manual_seed(0))
    kind = find_loss_kind(models.llama(), label_smoothing=1.0)
    losses = kind.example_losses(logits, {"labels": torch.tensor([[0, 3]])})
    expected = -functional.log_softmax(logits[0, 0], dim=0).mean().item()
    assert losses.loss_sum.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("epsilon", [-0.1, 1.5])
def test_smoothing_outside_its_range_is_refused(epsilon):
    with pytest.raises(ValueError, match=rf"label_smoothing is {epsilon}; allowed are values from 0 to 1"):
        find_loss_kind(models.llama(), label_smoothing=epsilon)
