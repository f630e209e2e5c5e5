"""The groups of real rows on which the loss without logits is compared."""

import pytest
import torch

from hf_trainplus.evaluation.loss_kinds.real_rows import RealRows


def batch(targets, length=None, left=False):
    """Rows whose last so many positions are targets; padded where ``length`` is longer than the row."""
    length = length or max(targets)
    rows, mask = torch.full((len(targets), length), -100), torch.zeros(len(targets), length, dtype=torch.int64)
    for row, count in enumerate(targets):
        where = slice(length - count, None) if left else slice(0, count)
        rows[row, where], mask[row, where] = torch.arange(count) + 5, 1
    return {"input_ids": rows.clamp(min=0), "attention_mask": mask, "labels": rows}


def sizes(groups):
    return [tuple(group["labels"].shape) for group in groups]


def shown(group):
    counts = (group["labels"][:, 1:] != -100).sum(1)
    return bool((counts != counts[0]).any()), bool((group["labels"][:, 1:] == -100).any())


def test_a_small_batch_is_compared_whole():
    (group,) = RealRows("labels", vocabulary=40).groups(batch([9, 4, 7]))
    assert group["labels"][:, 1].tolist() == [6, 6, 6]
    assert (group["labels"] != -100).sum(1).tolist() == [9, 4, 7]  # most beside fewest
    assert group["attention_mask"].sum(1).tolist() == [9, 4, 7]


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("counts", [[500, 480, 300, 20], [500, 500, 500, 250, 10, 400]])
def test_groups_of_long_rows_hold_few_tokens_and_still_show_what_sets_means_apart(counts, left):
    groups = list(RealRows("labels", vocabulary=50_000).groups(batch(counts, left=left)))
    assert 2 <= len(groups) <= 8
    assert all(rows * columns <= 32 and rows >= 2 for rows, columns in sizes(groups))
    assert shown(groups[0]) == (True, True)


def test_padding_of_all_rows_of_a_group_is_left_out():
    (group,) = RealRows("labels", vocabulary=40).groups(batch([9, 4], length=30))
    assert group["labels"].shape == (2, 9)


def test_three_batches_share_eight_groups():
    rows = RealRows("labels", vocabulary=50_000)
    counts = [len(list(rows.groups(batch([40, 30])))) for _ in range(5)]
    assert sum(counts) <= 8
    assert counts[0] > 1
    assert counts[3:] == [0, 0]


def test_a_later_batch_is_compared_where_it_shows_what_no_earlier_one_did():
    rows = RealRows("labels", vocabulary=40)
    alike = batch([12, 12])
    assert [len(list(rows.groups(alike))) for _ in range(5)] == [1, 1, 1, 0, 0]
    ignored = batch([6, 6], length=12) | {"attention_mask": torch.ones(2, 12, dtype=torch.int64)}
    assert [shown(group) for group in rows.groups(ignored)] == [(False, True)]
    assert list(rows.groups(ignored)) == []
    assert [shown(group) for group in rows.groups(batch([12, 6]))] == [(True, True)]
    assert list(rows.groups(batch([12, 6]))) == []


def test_rows_that_are_alone_in_their_batches_stand_beside_each_other():
    rows = RealRows("labels", vocabulary=40)
    assert [sizes(rows.groups(batch([30]))) for _ in range(4)] == [[(1, 30)]] * 3 + [[]]
    (pair,) = rows.groups(batch([20]))
    assert (pair["labels"] != -100).sum(1).tolist() == [20, 10]
    assert pair["attention_mask"].shape == (2, 20)
    assert list(rows.groups(batch([10]))) == []


def test_batches_without_labels_or_of_other_shapes_give_none():
    rows = RealRows("labels", vocabulary=40)
    assert list(rows.groups({"input_ids": torch.ones(2, 3)})) == []
    assert list(rows.groups(batch([3, 2]) | {"pixels": torch.ones(2, 3, 4)})) == []
    assert sizes(rows.groups(batch([3, 2]))) == [(2, 3)]
