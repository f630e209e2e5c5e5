"""Iterative stratification: draw rows with several labels each so that every label keeps its share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.strategies.label_values import LabelSets
from hf_trainplus.decisions.strategies.subset_value import Subset
from hf_trainplus.results import Float64Array, Int64Array

_LEAST_EXPECTED = 5  # rows with a label, and without it: of fewer, one row more or less is no balance
_ROWS_A_COLUMN = 4  # labels that an interval can take account of: one in so many rows
_MOST_COLUMNS = 100


def draw_label_sets(sets: LabelSets, size: int, *, seed: int, method: str) -> Subset:
    """Draw rows so that each label's count is within about one row of its share.

    Labels that are in conflict (more labels than rows asked for, or always together with others) can miss it. Rows of
    one label set have the same chance, and every row's chance is size / n but for the last repairs, so the weights are
    alike. What the draw held at its share is handed on as the subset's ``balance``, so that an interval leaves only
    that open which the labels do not explain.

    Args:
        sets: the label sets.
        size: rows to draw, 1 to ``sets.n``.
        seed: seed of the draw.
        method: words for the subset's log.

    Returns:
        The subset.

    Source:
        Sechidis, Tsoumakas and Vlahavas 2011 (the rarest label first), with its rows drawn at even steps through their
        other labels from a random start, in place of one by one, so that each row's chance is known.
    """
    sets = _with_none(sets)
    draw = _Draw(sets, size, np.random.default_rng(seed))
    draw.by_rarest_label()
    draw.to_size()
    draw.repair()
    rows = np.flatnonzero(draw.chosen)
    weights, strata = np.full(size, sets.n / size), np.zeros(size, np.int64)
    return Subset(rows, weights, strata, method, balance=_balance(sets, rows))


def _with_none(sets: LabelSets) -> LabelSets:
    """Make "no label" a label of its own: its rows would else be left with what the others' rounding leaves."""
    bare = np.setdiff1d(np.arange(sets.n), sets.rows)
    if not len(bare):
        return sets
    rows = np.concatenate([sets.rows, bare])
    order = np.argsort(rows, kind="stable")
    labels = np.concatenate([sets.labels, np.full(len(bare), sets.count, sets.labels.dtype)])
    return LabelSets(rows[order], labels[order], sets.count + 1, sets.n)


def _balance(sets: LabelSets, rows: Int64Array) -> Float64Array | None:
    """Return flags less shares of the labels that the draw can have held: a label of a few rows is one row off."""
    shares = np.bincount(sets.labels, minlength=sets.count) / sets.n
    expected = len(rows) * np.minimum(shares, 1 - shares)
    labels = np.argsort(-expected, kind="stable")[: min(len(rows) // _ROWS_A_COLUMN, _MOST_COLUMNS)]
    labels = np.sort(labels[expected[labels] >= _LEAST_EXPECTED])
    if not len(labels):
        return None
    column = np.full(sets.count, -1)
    column[labels] = np.arange(len(labels))
    place = np.full(sets.n, -1)
    place[rows] = np.arange(len(rows))
    kept = (place[sets.rows] >= 0) & (column[sets.labels] >= 0)
    flags = np.zeros((len(rows), len(labels)))
    flags[place[sets.rows[kept]], column[sets.labels[kept]]] = 1.0
    return np.asarray(flags - shares[labels], dtype=np.float64)


class _Draw:
    """The rows chosen so far, and how far each label is from its share."""

    def __init__(self, sets: LabelSets, size: int, generator: np.random.Generator) -> None:
        self.size, self.generator, self.sets = size, generator, sets
        self.by_row = np.searchsorted(sets.rows, np.arange(sets.n + 1))
        order = np.argsort(sets.labels, kind="stable")
        self.rows_by_label = sets.rows[order]
        self.by_label = np.searchsorted(sets.labels[order], np.arange(sets.count + 1))
        self.chosen = np.zeros(sets.n, bool)
        self.quota = np.diff(self.by_label) * (size / sets.n)
        self.have = np.zeros(sets.count)
        # rows of one label set share a signature, whatever their order; random ones keep the labels in no order
        signature = generator.random(sets.count)
        self.signature = np.bincount(sets.rows, weights=signature[sets.labels], minlength=sets.n)
        self.tie_break = generator.random(sets.n) * 1e-6

    def by_rarest_label(self) -> None:
        """Decide the rows of the label that has the fewest undecided rows, label after label, then those of none."""
        undecided = np.ones(self.sets.n, bool)
        remaining = np.diff(self.by_label).astype(np.float64)
        while (remaining > 0).any():
            label = int(np.argmin(np.where(remaining > 0, remaining, np.inf)))
            own = self.rows_by_label[self.by_label[label] : self.by_label[label + 1]]
            own = own[undecided[own]]
            self._choose(own, self.quota[label] - self.have[label])
            undecided[own] = False
            remaining -= np.bincount(self._labels_of(own), minlength=self.sets.count)
        self._choose(np.flatnonzero(undecided), self.size - int(self.chosen.sum()))

    def to_size(self) -> None:
        """Add or drop the rows that leave the labels closest to their shares."""
        while int(self.chosen.sum()) != self.size:
            self._move(1 if int(self.chosen.sum()) < self.size else -1)

    def repair(self) -> None:
        """Exchange rows while a label is more than one row from its share and an exchange helps."""
        for _ in range(4 * self.sets.count):
            error = self.have - self.quota
            if not len(error) or float(np.abs(error).max()) <= 1 or self.chosen.all():
                return
            dropped, added = self._move(-1), self._move(1)
            if float(((self.have - self.quota) ** 2).sum()) >= float((error**2).sum()) - 1e-9:
                self._set(added, False)
                self._set(dropped, True)
                return

    def _choose(self, rows: Int64Array, want: float) -> None:
        """Draw the wanted number of rows at even steps through their label sets, rounded up or down by chance."""
        count = int(np.floor(min(max(want, 0.0), len(rows)) + self.generator.random()))
        count = min(count, len(rows))
        if count:
            order = np.lexsort((self.generator.random(len(rows)), self.signature[rows]))
            marks = (np.arange(count) + self.generator.random()) * (len(rows) / count)
            taken = rows[order[marks.astype(np.int64)]]
            self.chosen[taken] = True
            self.have += np.bincount(self._labels_of(taken), minlength=self.sets.count)

    def _labels_of(self, rows: Int64Array) -> Int64Array:
        lengths = self.by_row[rows + 1] - self.by_row[rows]
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if len(ends) else 0
        pairs = np.arange(total) + np.repeat(self.by_row[rows] - (ends - lengths), lengths)
        return np.asarray(self.sets.labels[pairs], dtype=np.int64)

    def _move(self, direction: int) -> int:
        """Add (1) or drop (-1) the row that brings the labels closest to their shares, and return it."""
        error = self.have - self.quota
        change = np.bincount(
            self.sets.rows, weights=(2 * direction * error + 1)[self.sets.labels], minlength=self.sets.n
        )
        allowed: npt.NDArray[np.bool_] = self.chosen if direction < 0 else ~self.chosen
        cost: Float64Array = np.where(allowed, change + self.tie_break, np.inf)
        row = int(np.argmin(cost))
        self._set(row, direction > 0)
        return row

    def _set(self, row: int, chosen: bool) -> None:
        self.chosen[row] = chosen
        labels = self.sets.labels[self.by_row[row] : self.by_row[row + 1]]
        self.have[labels] += 1 if chosen else -1
