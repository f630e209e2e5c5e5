"""A recorded run: per-example results of the whole evaluation set at every evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.race import LossMetric, RaceMetric, ScoreMetric
from hf_trainplus.results import ExampleResults, Float64Array, Int64Array

METRICS = ("loss", "error")


@dataclass(frozen=True)
class ReplayTrace:
    """Per-example results of a whole evaluation set at every evaluation of one run.

    Args:
        loss: (T, N) summed loss of each row at each evaluation.
        step: (T,) training steps of the evaluations, rising.
        correct: (T, N) 1.0 where the prediction was right, or None when not recorded.
        label: (N,) class of each row, or None.
        target_count: (N,) targets of each row; None for one each.

    Raises:
        ValueError: shapes that do not fit, correctness outside 0 to 1, or steps that do not rise.

    Example:
        >>> trace = ReplayTrace(np.array([[2.0, 1.0], [1.0, 1.0]]), np.array([10, 20]))
        >>> trace.values("loss").tolist()
        [1.5, 1.0]
    """

    loss: Float64Array
    step: Int64Array
    correct: Float64Array | None = None
    label: Int64Array | None = None
    target_count: Float64Array | None = None

    def __post_init__(self) -> None:
        if self.loss.ndim != 2 or self.step.shape != self.loss.shape[:1] or not self.size:
            raise ValueError(
                f"loss {self.loss.shape} and step {self.step.shape}; give loss (T, N) and step (T,), N at least 1."
            )
        if self.correct is not None and self.correct.shape != self.loss.shape:
            raise ValueError(f"correct {self.correct.shape} and loss {self.loss.shape}; give equal shapes.")
        for name, column in (("label", self.label), ("target_count", self.target_count)):
            if column is not None and column.shape != (self.size,):
                raise ValueError(
                    f"{name} {column.shape} and loss {self.loss.shape}; give {name} (N,), one value a row."
                )
        if self.target_count is not None and not (
            self.target_count.min() >= 0 and 0 < self.target_count.sum() < np.inf
        ):
            raise ValueError("target_count holds no target, or values that are no counts; give each row's, >= 0.")
        if self.correct is not None and not bool(((self.correct >= 0) & (self.correct <= 1)).all()):
            raise ValueError("correct holds values outside 0 to 1; give 1 where the prediction was right, else 0.")
        if bool((np.diff(self.step) <= 0).any()):
            raise ValueError("the trace's steps do not rise; give each evaluation once, in order.")

    @classmethod
    def load(cls, path: str | Path) -> ReplayTrace:
        """Read an ``.npz`` with arrays ``loss`` and ``step``, and ``correct``, ``label``, ``target_count`` if present.

        Values are widened to float64: means of float16 columns are not meaningful otherwise.

        Raises:
            ValueError: the file is no ``.npz``, an array that is needed is missing, or one holds no numbers.
        """
        if Path(path).is_file() and not is_zipfile(path):
            raise ValueError(f"{path} is no .npz file; a trace holds loss (T, N) and step (T,).")
        with np.load(path, allow_pickle=False) as stored:
            missing = [name for name in ("loss", "step") if name not in stored]
            if missing:
                raise ValueError(f"{path} has no array {missing[0]!r}; a trace holds loss (T, N) and step (T,).")
            optional = {name: _numbers(name, stored[name]) for name in ("correct", "target_count") if name in stored}
            label = _whole_numbers("label", stored["label"]) if "label" in stored else None
            loss, step = _numbers("loss", stored["loss"]), _whole_numbers("step", stored["step"])
        return cls(loss, step, optional.get("correct"), label, optional.get("target_count"))

    def save(self, path: str | Path) -> None:
        """Write the trace as a compressed ``.npz``."""
        arrays = {"correct": self.correct, "label": self.label, "target_count": self.target_count}
        given = {name: array for name, array in arrays.items() if array is not None}
        np.savez_compressed(path, allow_pickle=False, loss=self.loss, step=self.step, **given)

    @property
    def size(self) -> int:
        """Number of rows N."""
        return int(self.loss.shape[1])

    def targets(self) -> Float64Array:
        """(N,) targets of each row."""
        return np.ones(self.size) if self.target_count is None else self.target_count

    def results(self, index: int, rows: Int64Array) -> ExampleResults:
        """Return the rows of one evaluation as the table that a live evaluation would give."""
        scores = {} if self.correct is None else {"error": 1.0 - self.correct[index, rows]}
        return ExampleResults(rows, self.loss[index, rows], self.targets()[rows], scores=scores)

    def metric(self, name: str) -> RaceMetric:
        """Return what is raced for ``loss`` or ``error``.

        Raises:
            ValueError: another name, or ``error`` when correctness was not recorded.
        """
        if name not in METRICS or (name == "error" and self.correct is None):
            allowed = METRICS if self.correct is not None else METRICS[:1]
            raise ValueError(f"metric={name!r}; this trace allows {', '.join(allowed)}.")
        return LossMetric() if name == "loss" else ScoreMetric("error", greater_is_better=False, lower=0.0, upper=1.0)

    def row_values(self, name: str) -> Float64Array:
        """(T, N) values whose mean over rows is the metric."""
        self.metric(name)
        if name == "loss":
            counted = np.where(self.targets() > 0, self.loss, 0.0)
            return np.asarray(counted / self.targets().mean(), dtype=np.float64)
        assert self.correct is not None  # noqa: S101 - metric() has checked it
        return 1.0 - self.correct

    def standard_error(self, name: str, index: int) -> float:
        """Return how far one evaluation's metric may be from that of other rows of the kind; of a loss, a ratio's."""
        values = self.row_values(name)[index]
        if name == "loss":
            values = values - values.mean() * self.targets() / self.targets().mean()
        return float(np.std(values)) / float(np.sqrt(self.size))

    def values(self, name: str) -> Float64Array:
        """(T,) the metric on all rows, as stock would compute it."""
        return np.asarray(self.row_values(name).mean(axis=1), dtype=np.float64)


def _numbers(name: str, stored: npt.NDArray[Any]) -> Float64Array:
    if stored.dtype.kind not in "biuf":
        raise ValueError(f"{name} holds {stored.dtype} values; allowed are real numbers.")
    return np.asarray(stored, np.float64)


def _whole_numbers(name: str, stored: npt.NDArray[Any]) -> Int64Array:
    if stored.dtype.kind not in "biuf" or not bool((np.isfinite(stored) & (stored == np.round(stored))).all()):
        raise ValueError(
            f"{name} holds {stored.dtype} values that are no whole numbers; of labels give the class numbers, e.g. "
            "np.unique(label, return_inverse=True)[1]."
        )
    return np.asarray(stored, np.int64)


def export_trace(
    evaluations: Mapping[int, ExampleResults], *, score: str | None = "accuracy", label: npt.ArrayLike | None = None
) -> ReplayTrace:
    """Turn the full evaluations of a real run into a trace.

    It interpolates nothing: every evaluation must hold the same rows.

    Args:
        evaluations: training step -> per-example results of the whole evaluation set.
        score: 0/1 score that says whether a row was right, taken when every table has it; None for losses only.
        label: (N,) class of each row, in the order of the rows' index.

    Returns:
        The trace, rows in order of their index.

    Raises:
        ValueError: no evaluation, evaluations of different rows, or labels that are no class numbers.
    """
    if not evaluations:
        raise ValueError("export_trace() was given no evaluation; give step -> ExampleResults.")
    steps = sorted(evaluations)
    tables = [evaluations[step].in_dataset_order() for step in steps]
    for step, table in zip(steps, tables, strict=True):
        if not np.array_equal(table.index, tables[0].index):
            raise ValueError(
                f"the evaluation at step {step} holds {len(table)} rows and the one at step {steps[0]} "
                f"{len(tables[0])} others; export evaluations of the whole set only."
            )
    known = score is not None and all(score in table.scores for table in tables)
    correct = np.stack([table.scores[str(score)] for table in tables]) if known else None
    loss = np.stack([table.loss_sum for table in tables])
    classes = None if label is None else _whole_numbers("label", np.asarray(label))
    return ReplayTrace(loss, np.asarray(steps, dtype=np.int64), correct, classes, tables[0].target_count)
