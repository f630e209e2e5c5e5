"""Small groups of an evaluation's own rows, with their true labels, on which a loss is compared with the model's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from hf_trainplus.evaluation.loss_kinds.base import IGNORED_LABEL, Inputs
from hf_trainplus.evaluation.loss_kinds.head_tap import is_rectangular
from hf_trainplus.evaluation.loss_kinds.projected_cross_entropy import tile_of

_LEAST_TOKENS = 32
_GROUPS = 8
_BATCHES = 3


class RealRows:
    """Cuts groups from batches until they have shown what sets one mean apart from another.

    The first three batches give eight groups together, for losses that weigh tokens differently; a later one gives a
    group only where it is the first with rows of unequal numbers of targets, or the first with positions that are no
    targets: before, a mean over rows, or over all positions, is the mean over targets. Rows with many targets stand
    beside rows with few. Sorted rows can be alike in every batch, or alone in it: a row then stands beside one of an
    earlier batch of another length, with half of its labels ignored, as the padding of the trainer's own batches would
    have it. Long rows are cut, so that the logits of a group stay those of a tile, or of 32 tokens where
    the vocabulary is large. Tokens that no group holds stay unseen.

    Args:
        label_name: key of the labels.
        vocabulary: logits of a token, >= 1.
        tile: tokens, and logits, of a tile; None chooses by device.

    Example:
        >>> rows = RealRows("labels", vocabulary=40)
        >>> batch = {"input_ids": torch.ones(2, 3), "labels": torch.tensor([[5, 6, 7], [8, -100, -100]])}
        >>> [group["labels"].tolist() for group in rows.groups(batch)]
        [[[5, 6, 7], [8, -100, -100]]]
        >>> [len(list(rows.groups(batch))) for _ in range(4)]
        [1, 1, 0, 0]
    """

    def __init__(self, label_name: str, vocabulary: int, tile: tuple[int, int] | None = None) -> None:
        self._label_name, self._vocabulary, self._tile = label_name, vocabulary, tile
        self._batches, self._groups = _BATCHES, _GROUPS
        self._wants_unequal = self._wants_ignored = True
        self._partner: tuple[int, dict[str, torch.Tensor]] | None = None

    def groups(self, inputs: Inputs) -> Iterator[dict[str, torch.Tensor]]:
        """Yield the groups of a batch, mostly none; a batch without labels of (batch, length) gives none."""
        labels = inputs.get(self._label_name)
        if not (self._batches or self._wants_unequal or self._wants_ignored):
            return
        if not isinstance(labels, torch.Tensor) or labels.dim() != 2 or not is_rectangular(inputs, labels.shape):
            return
        targets = (labels != IGNORED_LABEL).cpu()
        targets[:, :1] = False
        unequal, ignored = _shows(targets)
        yield from self._paired(inputs, targets) if self._wants_unequal and not unequal else ()
        shows_new = (unequal and self._wants_unequal) or (ignored and self._wants_ignored)
        groups = max(self._groups if self._batches else 0, int(shows_new))
        self._batches = max(0, self._batches - 1)
        if not groups:
            return
        for rows, window in _cuts(targets, _real_columns(inputs, targets), self._tokens(labels), groups):
            self._groups -= 1
            unequal, ignored = _shows(targets[rows, window])
            self._wants_unequal, self._wants_ignored = (
                self._wants_unequal and not unequal,
                self._wants_ignored and not ignored,
            )
            yield {
                name: value[rows.to(value.device), window]
                for name, value in inputs.items()
                if isinstance(value, torch.Tensor)
            }

    def _paired(self, inputs: Inputs, targets: torch.Tensor) -> Iterator[dict[str, torch.Tensor]]:
        """Put the first row beside one of another length, with fewer targets."""
        places = targets[0].nonzero().squeeze(1)
        if not len(places) or "shift_labels" in inputs:
            return
        start, width = int(places[0]) - 1, max(4, self._tokens(inputs[self._label_name]) // 2)
        tensors = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
        row = {name: value[:1, start : start + width].clone() for name, value in tensors.items()}
        length, other = self._partner or (targets.shape[1], row)
        self._partner = (length, other)
        columns = min(row[self._label_name].shape[1], other[self._label_name].shape[1])
        if length == targets.shape[1] or columns < 4 or row.keys() != other.keys():
            return
        group = {name: torch.cat([other[name][:, :columns], row[name][:, :columns]]) for name in row}
        group[self._label_name][1, columns // 2 :] = IGNORED_LABEL
        if _shows((group[self._label_name] != IGNORED_LABEL).cpu())[0]:
            self._wants_unequal = self._wants_ignored = False
            yield group

    def _tokens(self, labels: torch.Tensor) -> int:
        tokens, logits = self._tile or tile_of(labels.device)
        return max(min(tokens, logits // self._vocabulary), min(tokens, _LEAST_TOKENS), 2)


def _shows(targets: torch.Tensor) -> tuple[bool, bool]:
    """Say whether rows differ in their number of targets, and whether a position behind the first is none."""
    counts = targets[:, 1:].sum(1)
    return bool((counts != counts[0]).any()), not bool(targets[:, 1:].all())


def _real_columns(inputs: Inputs, targets: torch.Tensor) -> torch.Tensor:
    mask: Any = inputs.get("attention_mask")
    if isinstance(mask, torch.Tensor) and mask.shape == targets.shape:
        return mask.cpu().bool()
    return torch.ones_like(targets)


def _cuts(targets: torch.Tensor, real: torch.Tensor, tokens: int, groups: int) -> Iterator[tuple[torch.Tensor, slice]]:
    """Yield (rows, columns) of at most so many tokens each: of each set of rows where targets begin or end, then on."""
    rows = _alternating(targets.sum(1))
    together = min(len(rows), max(2, tokens // max(1, int(real.sum(1).max()))))
    sets = [rows[start : start + together] for start in range(0, len(rows), together)][:groups]
    spans = [_span(real[members]) for members in sets]
    width = max(2, tokens // together)
    for members, (first, last) in zip(sets, spans, strict=True):
        edge = _edge(targets[members[-1]], first, last)
        start = max(first, min(edge - width // 2, last - width))
        yield members, slice(start, min(last, start + width))
    left = groups - len(sets)
    for members, (first, last) in zip(sets, spans, strict=True):
        for start in range(first, last, width) if last - first > width else ():
            if left > 0:
                left -= 1
                yield members, slice(start, min(last, start + width))


def _alternating(counts: torch.Tensor) -> torch.Tensor:
    """Order rows as the one with most targets, the one with fewest, the second of either, and so on."""
    order = counts.argsort(descending=True, stable=True)
    half = (len(order) + 1) // 2
    out = torch.empty_like(order)
    out[::2], out[1::2] = order[:half], order[half:].flip(0)
    return out


def _span(real: torch.Tensor) -> tuple[int, int]:
    columns = real.any(0).nonzero().squeeze(1)
    return (int(columns[0]), int(columns[-1]) + 1) if len(columns) else (0, real.shape[1])


def _edge(targets: torch.Tensor, first: int, last: int) -> int:
    """Find where the row's targets begin or end, position 0 aside; its first column where they do neither."""
    inner = targets[first + 1 : last]
    changes = (inner[1:] != inner[:-1]).nonzero().squeeze(1)
    return first + 2 + int(changes[0]) if len(changes) else first
