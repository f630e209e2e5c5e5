"""Precision, recall and F1 of entities in tag sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.evaluation.metrics.base import AdditiveMetric, Float64Array, StateArrays, ratio, require
from hf_trainplus.evaluation.metrics.entities import Tags, entity_counts, entity_types
from hf_trainplus.evaluation.metrics.forms import IGNORE_INDEX, to_numpy

if TYPE_CHECKING:
    from typing_extensions import Self

_SCHEMES = ("IOB1", "IOB2", "IOE1", "IOE2", "IOBES", "BILOU")


class Seqeval(AdditiveMetric):
    """Entity precision, recall and F1, a type and overall, as seqeval's report gives them.

    Predictions and references are tags (lists of lists of strings), or class ids (n, length) with ``label_names``;
    tokens whose reference is -100 are dropped. It takes no sample weights.

    Args:
        label_names: tag of each class id; ``bind`` fills it in from the model. With it the statistics of a row are
            known columns, without it types are found out batch by batch.
        suffix: the position mark stands behind the type (``PER-B``).
        scheme: IOB1, IOB2, IOE1, IOE2, IOBES or BILOU; needed for, and used in, strict mode only, as in seqeval.
        mode: None for the lenient rules of conlleval, ``strict`` for the scheme's.
        zero_division: value where nothing is there to divide by, 0 or 1. No warning is given.

    Raises:
        ValueError: an unknown scheme or mode, or strict mode without a scheme.

    Logged keys: ``overall_precision``, ``overall_recall``, ``overall_f1``, ``overall_accuracy`` (of tokens), all 0 to
    1; for each type that occurs ``{type}_precision``, ``{type}_recall``, ``{type}_f1``, ``{type}_number`` (targets).

    Example:
        >>> metric = Seqeval(label_names=["O", "B-PER", "I-PER"])
        >>> metric.update([[1, 2, 0, 1]], [[1, 2, 0, 0]])
        >>> values = metric.compute()
        >>> values["overall_precision"], values["overall_recall"], values["PER_number"], values["overall_accuracy"]
        (0.5, 1.0, 1.0, 0.75)
    """

    name = "seqeval"
    primary = "overall_f1"

    def __init__(
        self,
        label_names: Sequence[str] | None = None,
        suffix: bool = False,
        scheme: str | None = None,
        mode: str | None = None,
        zero_division: float = 0.0,
    ) -> None:
        require("seqeval.metrics.sequence_labeling", self.name)
        if scheme not in (None, *_SCHEMES) or mode not in (None, "strict") or (mode == "strict" and scheme is None):
            raise ValueError(
                f"seqeval was given scheme={scheme!r} and mode={mode!r}; allowed are mode=None, and mode='strict' with "
                f"one of {', '.join(_SCHEMES)}."
            )
        if zero_division not in (0.0, 1.0):
            raise ValueError(f"seqeval was given zero_division={zero_division!r}; allowed are 0 and 1.")
        self.label_names = label_names
        self.suffix = suffix
        self.scheme = scheme
        self.mode = mode
        self.zero_division = zero_division
        self.reset()

    @property
    def known_types(self) -> list[str] | None:
        """Entity types in the order of the statistics; None without ``label_names``."""
        return None if self.label_names is None else entity_types(self.label_names, self.suffix)

    @property
    def statistics(self) -> int | None:
        """Two columns for tokens (right, all) and three a type; None without ``label_names``."""
        return None if self.known_types is None else 2 + 3 * len(self.known_types)

    def reset(self) -> None:
        """Forget all rows."""
        self._tokens = np.zeros(2)
        self._types: dict[str, Float64Array] = {}

    def _rows(self, predictions: Any, references: Any) -> Iterator[tuple[Tags, Tags]]:
        if len(predictions) != len(references):
            raise ValueError(
                f"seqeval was given {len(predictions)} predictions and {len(references)} references; give one a row."
            )
        for predicted, true in zip(predictions, references, strict=True):
            if len(predicted) != len(true):
                raise ValueError(
                    f"seqeval was given a row of {len(predicted)} predicted and {len(true)} true tags; give one each."
                )
            yield self._tags(predicted, true)

    def _tags(self, predicted: Any, true: Any) -> tuple[Tags, Tags]:
        if len(true) == 0 or isinstance(true[0], str):
            return list(predicted), list(true)
        if self.label_names is None:
            raise ValueError(
                'seqeval was given class ids and no names; give load_metric("seqeval", label_names=["O", ...]).'
            )
        targets, ids = to_numpy(true), to_numpy(predicted)
        counted = targets != IGNORE_INDEX
        names = self.label_names
        return [names[label] for label in ids[counted]], [names[label] for label in targets[counted]]

    def _counts(self, predicted: Tags, true: Tags) -> tuple[Float64Array, dict[str, tuple[int, int, int]]]:
        right = sum(a == b for a, b in zip(predicted, true, strict=True))
        scheme = self.scheme if self.mode == "strict" else None
        return np.array([right, len(true)], dtype=np.float64), entity_counts(predicted, true, self.suffix, scheme)

    def example_statistics(self, predictions: Any, references: Any) -> Float64Array:
        """Return (n, 2 + 3T): right tokens, tokens, then right predictions, predictions and targets of each type.

        Raises:
            ValueError: the types are not known.
        """
        types = self.known_types
        if types is None:
            raise ValueError(
                'statistics of a row need the tags: load_metric("seqeval", label_names=["O", "B-PER", ...]).'
            )
        rows = []
        for predicted, true in self._rows(predictions, references):
            tokens, counts = self._counts(predicted, true)
            rows.append(np.concatenate([tokens, *(counts.get(kind, (0, 0, 0)) for kind in types)]))
        return np.asarray(rows, dtype=np.float64).reshape(len(rows), 2 + 3 * len(types))

    def update(self, predictions: Any, references: Any) -> None:
        """Take in a batch of n rows; see ``Metric.update``."""
        for predicted, true in self._rows(predictions, references):
            self._take(*self._counts(predicted, true))

    def add(self, statistics: Float64Array) -> None:
        """Take in rows (n, 2 + 3T) of ``example_statistics``."""
        sums = np.asarray(statistics, dtype=np.float64).sum(axis=0)
        self._take(sums[:2], dict(zip(self.known_types or [], sums[2:].reshape(-1, 3), strict=True)))

    def _take(self, tokens: Float64Array, counts: Mapping[str, Any]) -> None:
        self._tokens = self._tokens + tokens
        for kind, values in counts.items():
            self._types[kind] = self._types.get(kind, np.zeros(3)) + np.asarray(values, dtype=np.float64)

    def compute(self) -> dict[str, float]:
        """Return the report over all rows so far."""
        return self._report(self._tokens, self._types)

    def from_totals(self, totals: Float64Array) -> dict[str, float]:
        """Return the report from sums (2 + 3T,)."""
        counts = np.asarray(totals, dtype=np.float64)
        return self._report(counts[:2], dict(zip(self.known_types or [], counts[2:].reshape(-1, 3), strict=True)))

    def primary_from_totals(self, totals: Float64Array) -> Float64Array:
        """Return overall F1 (...) of sums (..., 2 + 3T)."""
        counts = totals[..., 2:].reshape(*totals.shape[:-1], -1, 3).sum(axis=-2)
        value = ratio(2 * counts[..., 0], counts[..., 1] + counts[..., 2], self.zero_division)
        return np.where(totals[..., 1] > 0, value, np.nan)

    def _report(self, tokens: Float64Array, types: Mapping[str, Float64Array]) -> dict[str, float]:
        if not tokens[1]:
            return {self.primary: float("nan")}
        present = {kind: counts for kind, counts in sorted(types.items()) if counts[1] + counts[2] > 0}
        report: dict[str, float] = {}
        for kind, counts in [*present.items(), ("overall", np.sum([np.zeros(3), *present.values()], axis=0))]:
            right, predicted, true = counts
            values = ratio(
                np.array([right, right, 2 * right]), np.array([predicted, true, predicted + true]), self.zero_division
            )
            report |= dict(zip((f"{kind}_precision", f"{kind}_recall", f"{kind}_f1"), values.tolist(), strict=True))
            if kind in present:
                report[f"{kind}_number"] = float(true)
        return report | {"overall_accuracy": float(tokens[0] / tokens[1])}

    def state_arrays(self) -> StateArrays:
        """Return token counts, the names of the types found, and their counts (T, 3)."""
        counts = np.stack([*self._types.values()]) if self._types else np.empty((0, 3))
        return {"tokens": self._tokens, "types": np.asarray(list(self._types), dtype=np.str_), "counts": counts}

    def load_state_arrays(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Put back what ``state_arrays`` returned."""
        self._tokens = np.asarray(arrays["tokens"], dtype=np.float64)
        self._types = dict(zip(arrays["types"].tolist(), np.asarray(arrays["counts"], dtype=np.float64), strict=True))

    def _merge(self, other: Self) -> None:
        self._take(other._tokens, other._types)
