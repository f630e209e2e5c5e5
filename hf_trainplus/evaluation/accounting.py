"""From the losses of batches to one loss a row, where the rows' losses reproduce the batch's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hf_trainplus.evaluation.fused_head import fused_head_losses
from hf_trainplus.evaluation.losses import ExampleLosses, LossKind, count_targets, reproduces
from hf_trainplus.evaluation.ranks import Ranks

Array = npt.NDArray[Any]

CHECKED_BATCHES = 3


@dataclass(frozen=True)
class LossColumns:
    """The loss columns of one evaluation, gathered over ranks and in arrival order.

    Args:
        index: (n,) positions of the rows.
        loss_sum: (n,) summed loss of each row.
        target_count: (n,) targets of each row.
        per_row: True where the rows' own losses are known; False where each batch's loss was spread over its targets.
        has_loss: False where no batch had a loss.
        batch: (n,) number of the batch in which each row was run, its own on every rank.
    """

    index: Array
    loss_sum: Array
    target_count: Array
    per_row: bool
    has_loss: bool
    batch: Array


@dataclass(frozen=True)
class BatchLosses:
    """What is known of one batch's losses.

    Args:
        own_loss: the batch's loss as the trainer computed it, or None.
        rows: losses of the rows, or None where they are not known.
        targets: (rows,) number of targets of each row.
        follows: whether the batch's loss is the mean over its targets, so that it does not depend on batch mates; true
            also of packed batches, whose examples' losses are not known.
        compared: whether that was found by comparison with a loss that the trainer computed.
    """

    own_loss: torch.Tensor | None
    rows: ExampleLosses | None
    targets: torch.Tensor
    follows: bool = True
    compared: bool = False


class LossAccount:
    """Takes one batch after another and decides at the end, for all ranks alike, which losses count.

    The rows' losses count only while they reproduce the batch's own loss to ``tolerance``; this is checked on the
    first batches of each evaluation. Otherwise every batch's own loss is weighted by its number of targets, which is
    what the trainer itself reports, made independent of the number of rows in a batch. ``depends_on_mates`` says that a
    batch's loss so far was not the mean over its targets, so that rows must stay in the trainer's own batches.

    Args:
        kind: the loss formula of the model, or None when it is not known.
        label_names: keys of the labels in a batch.
        tolerance: difference allowed between the rows' losses and the batch's own.
        checked_batches: how many batches of an evaluation are checked.
    """

    def __init__(
        self,
        kind: LossKind | None,
        label_names: Sequence[str],
        *,
        tolerance: float = 1e-4,
        checked_batches: int = CHECKED_BATCHES,
    ) -> None:
        self._kind = kind
        self._label_names = list(label_names)
        self._tolerance = tolerance
        self._checked_batches = checked_batches
        self._batches: list[tuple[Array, Array, BatchLosses]] = []
        self._reproduced = True
        self._compared = 0
        self.depends_on_mates = False

    def measure(self, own_loss: torch.Tensor | None, outputs: Sequence[Any], inputs: Any, rows: int) -> BatchLosses:
        """Find the losses of a batch's rows; nothing is kept, so that a batch can be run again.

        Args:
            own_loss: the batch's loss as the trainer computed it, or None.
            outputs: what the model returned in it; the newest that fits counts.
            inputs: the batch.
            rows: number of its rows.
        """
        found, follows = None, not self.depends_on_mates
        checking = self._compared < self._checked_batches
        if own_loss is not None and follows and (self._reproduced or checking):
            found, follows = self._row_losses(own_loss, outputs, inputs, rows)
        targets = found.target_count if found is not None else self._targets(inputs, rows, own_loss is not None)
        return BatchLosses(own_loss, found, targets, follows, compared=own_loss is not None)

    @property
    def knows_rows(self) -> bool:
        """Whether every checked batch's loss was reproduced by its rows', so that no further one is compared."""
        return self._compared >= self._checked_batches and self._reproduced and not self.depends_on_mates

    def measure_rows(self, outputs: Sequence[Any], inputs: Any, rows: int) -> BatchLosses | None:
        """Find the losses of a batch's rows from the logits alone, or None where its own loss is needed.

        Args:
            outputs: what the model returned; the newest that fits counts.
            inputs: the batch.
            rows: number of its rows.
        """
        if self._kind is None:
            return None
        for candidate in reversed(outputs):
            losses = self._kind.example_losses(candidate, inputs)
            if losses is not None and len(losses.loss_sum) == rows:
                return of_rows(self._without_padding(candidate, inputs) or losses, rows)
        return None

    def add(self, positions: Array, real: Array, losses: BatchLosses) -> None:
        """Keep the losses of a batch."""
        if losses.own_loss is not None and losses.rows is None:
            self._reproduced = False
        self._compared += losses.compared
        self.depends_on_mates |= not losses.follows
        self._batches.append((positions, real, losses))

    def _row_losses(
        self, own_loss: torch.Tensor, outputs: Sequence[Any], inputs: Any, rows: int
    ) -> tuple[ExampleLosses | None, bool]:
        """Return the rows' losses where they are known, and whether they are what the batch's loss is made of."""
        follows = False
        for candidate in reversed(outputs):
            losses = fused_head_losses(candidate)
            if losses is None and self._kind is not None:
                losses = self._kind.example_losses(candidate, inputs)
            if losses is None:
                continue
            if self._compared >= self._checked_batches or reproduces(losses, own_loss, tolerance=self._tolerance):
                if len(losses.loss_sum) == rows and self._reproduced:
                    return self._without_padding(candidate, inputs) or losses, True
                follows = True
        return None, follows

    def _without_padding(self, outputs: Any, inputs: Any) -> ExampleLosses | None:
        """Take padding out of the losses of kinds whose softmax runs over it, once the formula is known to hold."""
        remove = getattr(self._kind, "without_padding", None)
        return remove(outputs, inputs) if remove is not None else None

    def _targets(self, inputs: Any, rows: int, has_loss: bool) -> torch.Tensor:
        if not has_loss:
            return torch.zeros(rows, dtype=torch.int64)
        counts = count_targets(self._kind, inputs, self._label_names)
        if len(counts) != rows:
            # packed batches: the examples of one long row share its targets evenly, their sum stays exact
            return torch.full((rows,), float(counts.sum()) / rows, dtype=torch.float64)
        return counts

    def columns(self, ranks: Ranks) -> LossColumns:
        """Gather the columns of all ranks; fillers are left out."""
        reproduced = not ranks.any(not self._reproduced)
        has_loss = any(losses.own_loss is not None for _, _, losses in self._batches)
        parts = ranks.gather((*self._local_columns(reproduced), has_loss))
        index, loss_sum, target_count = (np.concatenate([part[k] for part in parts]) for k in range(3))
        batch = np.concatenate([part[3] * len(parts) + rank for rank, part in enumerate(parts)])
        return LossColumns(index, loss_sum, target_count, reproduced, any(part[4] for part in parts), batch)

    def _local_columns(self, reproduced: bool) -> tuple[Array, Array, Array, Array]:
        columns: list[tuple[Array, Array, Array, Array]] = []
        for number, (positions, real, losses) in enumerate(self._batches):
            counts = _floats(losses.targets)
            if losses.own_loss is None:
                sums = np.zeros(len(counts))
            elif reproduced and losses.rows is not None:
                sums = _floats(losses.rows.loss_sum)
            else:
                sums = np.where(counts > 0, float(losses.own_loss) * counts, 0.0)
            own = positions[real]
            columns.append((own, sums[real], counts[real], np.full(len(own), number)))
        if not columns:
            return np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0, np.int64)
        return tuple(np.concatenate(column) for column in zip(*columns, strict=True))  # type: ignore[return-value]


def of_rows(found: ExampleLosses, rows: int) -> BatchLosses:
    """Return the losses of a batch that were computed a row at a time, with no batch's loss to compare.

    Args:
        found: losses of the batch's rows.
        rows: number of examples in the batch; more than its rows where they are packed end to end.
    """
    total = found.target_count.sum()
    own = found.loss_sum.sum() / total.clamp(min=1)
    if len(found.loss_sum) == rows:
        return BatchLosses(own, found, found.target_count)
    return BatchLosses(own, None, torch.full((rows,), float(total) / rows, dtype=torch.float64))


def _floats(values: torch.Tensor) -> Array:
    return values.detach().to("cpu").double().numpy()
