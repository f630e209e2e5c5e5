"""Each loss kind against the model's own loss: of the batch, and of each row run alone."""

import pytest
import torch
import transformers as tf
from torch.nn import functional

from hf_trainplus.evaluation.loss_kinds.base import ExampleLosses
from hf_trainplus.evaluation.losses import batch_loss, count_targets, find_loss_kind, reproduces
from tests.support import loss_models as models

CASES = models.CASES


# EncoderDecoderModel warns at every loss that it once was computed in another way.
pytestmark = pytest.mark.filterwarnings("ignore:Version v4.12.0 introduces:FutureWarning")


def run(model, inputs):
    with torch.no_grad():
        return model(**inputs)


def select(inputs, row):
    return {name: value[row : row + 1] for name, value in inputs.items()}


def label_names(inputs):
    return [name for name in inputs if name in ("labels", "start_positions", "end_positions")]


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("case", CASES)
def test_rows_reproduce_the_loss_of_the_batch(case, rows):
    name, make, batch, targets = CASES[case]
    model, inputs = make(), batch(rows)
    kind = find_loss_kind(model)
    assert kind.name == name
    outputs = run(model, inputs)
    losses = kind.example_losses(outputs, inputs)
    assert batch_loss(losses).item() == pytest.approx(outputs.loss.item(), abs=1e-6, rel=1e-6)
    assert reproduces(losses, outputs.loss)
    assert losses.loss_sum.shape == losses.target_count.shape == (rows,)
    assert losses.loss_sum.dtype == torch.float64
    assert losses.target_count.dtype == torch.int64
    assert not losses.loss_sum.requires_grad
    if targets is not None:
        assert losses.target_count.tolist() == [targets] * rows


@pytest.mark.parametrize("case", CASES)
def test_each_row_has_the_loss_it_has_alone(case):
    _, make, batch, _ = CASES[case]
    model, inputs = make(), batch(4)
    losses = find_loss_kind(model).example_losses(run(model, inputs), inputs)
    alone = [run(model, select(inputs, row)).loss.item() for row in range(4)]
    assert (losses.loss_sum / losses.target_count).tolist() == pytest.approx(alone, abs=1e-5)
    assert max(alone) - min(alone) > 1e-3


@pytest.mark.parametrize("case", CASES)
def test_targets_are_counted_without_outputs(case):
    _, make, batch, _ = CASES[case]
    model, inputs = make(), batch(4)
    kind = find_loss_kind(model)
    losses = kind.example_losses(run(model, inputs), inputs)
    counts = count_targets(kind, inputs, label_names(inputs))
    assert counts.tolist() == losses.target_count.tolist()
    assert counts.dtype == torch.int64


@pytest.mark.parametrize("case", CASES)
def test_tuples_of_outputs_are_read_like_dictionaries(case):
    _, make, batch, _ = CASES[case]
    model, inputs = make(), batch(3)
    kind, outputs = find_loss_kind(model), run(model, inputs)
    as_tuple = kind.example_losses(outputs.to_tuple(), inputs)
    assert as_tuple.loss_sum.tolist() == kind.example_losses(outputs, inputs).loss_sum.tolist()
    without_loss = {name: value for name, value in inputs.items() if name not in label_names(inputs)}
    if case not in ("bart", "t5", "encoder_decoder"):  # these make the decoder's inputs from the labels
        logits_first = kind.example_losses(run(model, without_loss).to_tuple(), inputs)
        assert logits_first.loss_sum.tolist() == pytest.approx(as_tuple.loss_sum.tolist())


@pytest.mark.parametrize("case", CASES)
def test_what_does_not_fit_gives_no_losses(case):
    _, make, batch, _ = CASES[case]
    model, inputs = make(), batch(3)
    kind, outputs = find_loss_kind(model), run(model, inputs)
    unlabelled = {name: value for name, value in inputs.items() if name not in label_names(inputs)}
    assert kind.example_losses(outputs, unlabelled) is None
    assert kind.count_targets(unlabelled) is None
    assert kind.example_losses({"hidden": torch.zeros(3, 2)}, inputs) is None
    fewer = {**inputs, **{name: inputs[name][:2] for name in label_names(inputs)}}
    assert kind.example_losses(outputs, fewer) is None


@pytest.mark.parametrize("case", ["gpt2", "llama", "masked_lm", "t5", "bart", "tagger", "xlnet", "bart_decoder"])
def test_a_fully_masked_row_has_no_target_and_no_loss(case):
    _, make, batch, _ = CASES[case]
    model, inputs = make(), batch(3)
    inputs["labels"][1] = -100
    outputs = run(model, inputs)
    losses = find_loss_kind(model).example_losses(outputs, inputs)
    assert losses.target_count[1] == 0
    assert losses.loss_sum[1] == 0.0
    assert reproduces(losses, outputs.loss)


def test_a_batch_without_targets_agrees_with_the_nan_of_the_model():
    model, inputs = models.llama(), models.token_batch(2)
    inputs["labels"][:] = -100
    outputs = run(model, inputs)
    losses = find_loss_kind(model).example_losses(outputs, inputs)
    assert outputs.loss.isnan()
    assert batch_loss(losses).isnan()
    assert reproduces(losses, outputs.loss)
    assert losses.loss_sum.tolist() == [0.0, 0.0]


def test_a_row_of_a_single_label_head_can_be_masked():
    model, inputs = models.bert(models.SEQUENCE, num_labels=3), models.row_batch(models.classes)(3)
    inputs["labels"][2] = -100
    outputs = run(model, inputs)
    losses = find_loss_kind(model).example_losses(outputs, inputs)
    assert losses.target_count.tolist() == [1, 1, 0]
    assert reproduces(losses, outputs.loss)


@pytest.mark.parametrize(("case", "sides"), [("llama", "lr"), ("gpt2", "r"), ("masked_lm", "r"), ("tagger", "r")])
def test_padding_changes_no_row(case, sides):
    _, make, batch, _ = CASES[case]
    model, inputs = make(), batch(3)
    if "l" in sides:
        # Behind left padding the first token has a predecessor, and the model makes it a target.
        inputs["labels"][:, 0] = -100
    kind = find_loss_kind(model)
    plain = kind.example_losses(run(model, inputs), inputs)
    fills = {"input_ids": 0, "attention_mask": 0, "labels": -100}
    for side in sides:
        amount = (5, 0) if side == "l" else (0, 5)
        padded = {name: functional.pad(value, amount, value=fills[name]) for name, value in inputs.items()}
        losses = kind.example_losses(run(model, padded), padded)
        assert losses.loss_sum.tolist() == pytest.approx(plain.loss_sum.tolist(), abs=1e-5)
        assert losses.target_count.tolist() == plain.target_count.tolist()


def test_left_padding_counts_the_first_token_which_then_has_a_predecessor():
    inputs = {"labels": torch.tensor([[-100, -100, 5, 6], [5, 6, 7, 8]])}
    assert count_targets(find_loss_kind(models.llama()), inputs, ["labels"]).tolist() == [2, 3]


def test_padded_labels_of_a_sequence_to_sequence_model_change_no_row():
    model, inputs = models.t5(), models.token_batch(3)
    kind = find_loss_kind(model)
    plain = kind.example_losses(run(model, inputs), inputs)
    padded = {**inputs, "labels": functional.pad(inputs["labels"], (0, 4), value=-100)}
    losses = kind.example_losses(run(model, padded), padded)
    assert losses.loss_sum.tolist() == pytest.approx(plain.loss_sum.tolist(), abs=1e-5)
    assert losses.target_count.tolist() == plain.target_count.tolist()


def test_shifted_labels_of_a_padding_free_batch_are_used_as_they_are():
    model, inputs = models.llama(), models.token_batch(2)
    shifted = functional.pad(inputs["labels"], (0, 1), value=-100)[:, 1:]
    kind, outputs = find_loss_kind(model), run(model, inputs)
    losses = kind.example_losses(outputs, {"shift_labels": shifted})
    assert losses.loss_sum.tolist() == kind.example_losses(outputs, inputs).loss_sum.tolist()
    assert kind.count_targets({"shift_labels": shifted}).tolist() == losses.target_count.tolist()


def test_positions_outside_the_row_are_no_targets():
    model = models.bert(tf.BertForQuestionAnswering)
    inputs = models.span_batch(3)
    inputs["start_positions"], inputs["end_positions"] = torch.tensor([2, 9, -1]), torch.tensor([3, 40, 1])
    outputs = run(model, inputs)
    losses = find_loss_kind(model).example_losses(outputs, inputs)
    assert losses.target_count.tolist() == [2, 0, 2]
    assert reproduces(losses, outputs.loss, tolerance=1e-6)
    assert count_targets(find_loss_kind(model), inputs, label_names(inputs)).tolist() == [2, 0, 2]


def test_unequal_numbers_of_starts_and_ends_are_told_by_the_check():
    model = models.bert(tf.BertForQuestionAnswering)
    inputs = models.span_batch(3)
    inputs["end_positions"] = torch.tensor([3, 40, 40])
    outputs = run(model, inputs)
    losses = find_loss_kind(model).example_losses(outputs, inputs)
    assert losses.target_count.tolist() == [2, 1, 1]
    assert not reproduces(losses, outputs.loss)


def test_positions_may_be_columns():
    model, inputs = models.bert(tf.BertForQuestionAnswering), models.span_batch(3)
    columns = {**inputs, **{name: inputs[name][:, None] for name in label_names(inputs)}}
    kind, outputs = find_loss_kind(model), run(model, inputs)
    assert torch.equal(kind.example_losses(outputs, columns).loss_sum, kind.example_losses(outputs, inputs).loss_sum)


def test_an_unset_problem_type_is_read_from_the_labels_and_left_unset():
    model = models.bert(models.SEQUENCE, num_labels=3)
    kind = find_loss_kind(model)
    single = {"labels": torch.tensor([0, 2])}
    assert kind.count_targets(single).tolist() == [1, 1]
    assert kind.count_targets({"labels": torch.rand(2, 3)}).tolist() == [3, 3]
    logits = torch.randn(2, 3)
    expected = functional.cross_entropy(logits, single["labels"], reduction="none").tolist()
    assert kind.example_losses(logits, single).loss_sum.tolist() == pytest.approx(expected)
    assert model.config.problem_type is None


def test_labels_may_have_another_name():
    kind = find_loss_kind(models.llama(), label_names=["targets"])
    assert kind.count_targets({"targets": torch.tensor([[3, 4, -100]])}).tolist() == [1]
    kind = find_loss_kind(models.bert(tf.BertForQuestionAnswering), label_names=["first", "last"])
    assert kind.count_targets({"first": torch.tensor([1]), "last": torch.tensor([2])}).tolist() == [2]


def test_sums_are_exact_over_many_losses():
    logits = torch.tensor([1.0, -1.0]).repeat(1, 200_000, 1)
    labels = torch.zeros(1, 200_000, dtype=torch.long)
    kind = find_loss_kind(models.bert(tf.BertForTokenClassification, num_labels=2))
    losses = kind.example_losses({"logits": logits}, {"labels": labels})
    each = functional.cross_entropy(logits[0, :1], labels[0, :1]).item()
    assert losses.loss_sum.item() == pytest.approx(200_000 * each, rel=1e-12)
    # what a sum in the precision of the losses would have lost
    assert functional.cross_entropy(logits[0], labels[0], reduction="sum").item() != losses.loss_sum.item()


@pytest.mark.parametrize(
    ("ours", "own", "same"),
    [
        ((2.0, 2), 1.00005, True),
        ((2.0, 2), 1.0002, False),
        ((200.0, 2), 100.005, True),
        ((200.0, 2), 100.02, False),
        ((0.0, 0), float("nan"), True),
        ((2.0, 2), float("nan"), False),
        ((float("nan"), 2), 1.0, False),
        ((float("inf"), 2), float("inf"), True),
        ((float("inf"), 2), float("-inf"), False),
    ],
)
def test_reproduces(ours, own, same):
    losses = ExampleLosses(torch.tensor([ours[0]]), torch.tensor([ours[1]]))
    assert reproduces(losses, own) is same
    assert reproduces(losses, torch.tensor(own)) is same


def test_a_loss_in_half_precision_is_compared_to_its_own_rounding():
    losses = ExampleLosses(torch.tensor([3.003]), torch.tensor([1]))
    assert reproduces(losses, torch.tensor(3.0, dtype=torch.bfloat16))
    assert not reproduces(losses, torch.tensor(3.0))
    assert not reproduces(losses, torch.tensor(3.2, dtype=torch.bfloat16))


def test_losses_of_several_devices_are_averaged_as_trainer_does():
    losses = ExampleLosses(torch.tensor([1.0, 3.0]), torch.tensor([1, 1]))
    assert reproduces(losses, torch.tensor([1.0, 3.0]))


@pytest.mark.parametrize(
    ("inputs", "names", "counts"),
    [
        ({"labels": torch.tensor([[1, -100], [2, 3]])}, ["labels"], [1, 2]),
        ({"labels": torch.tensor([4, -100])}, ["labels"], [1, 0]),
        ({"labels": torch.rand(2, 3)}, ["labels"], [3, 3]),
        ({"labels": [{"boxes": 1}, {"boxes": 2}, {"boxes": 3}]}, ["labels"], [1, 1, 1]),
        ({"a": torch.tensor([1, -100]), "b": torch.tensor([[1, 2], [3, -100]])}, ["a", "b"], [3, 1]),
        ({"a": torch.tensor([1, 2]), "b": None}, ["a", "b"], [1, 1]),
        ({"input_ids": torch.zeros(2, 5)}, ["labels"], [1, 1]),
    ],
)
def test_targets_of_an_unknown_loss(inputs, names, counts):
    assert count_targets(None, inputs, names).tolist() == counts


def test_a_batch_that_tells_no_number_of_rows_is_an_error():
    with pytest.raises(ValueError, match=r"keys \['size'\].*label_names="):
        count_targets(None, {"size": 3}, ["labels"])
