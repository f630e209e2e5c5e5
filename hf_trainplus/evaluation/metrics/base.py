"""The contract of a metric: reduced a batch at a time, merged over ranks, small state."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from hf_trainplus.evaluation.metrics import forms
from hf_trainplus.evaluation.metrics.forms import PredictionForm

if TYPE_CHECKING:
    from typing_extensions import Self

Float64Array = npt.NDArray[np.float64]
StateArrays = dict[str, npt.NDArray[Any]]


class Metric(ABC):
    """A metric of an evaluation set that sees one batch at a time.

    It holds no model, reads no file and opens no network connection or lock. It does not talk to other ranks: the
    caller gathers ``state_arrays`` and merges them, or calls ``merge``. Objects can be pickled.

    Attributes:
        name: name in ``load_metric``.
        primary: key of ``compute``'s result that stands for the metric.
        greater_is_better: direction of the primary value.
        form: what ``reduce`` makes of a batch of model output.
        per_example: whether the primary value is the plain mean of ``example_scores`` over the rows.
        statistics: number of columns of the additive statistics of a row. None: the metric has none (it keeps one
            score a row), or does not know its labels yet (see ``bind``).
    """

    name: ClassVar[str]
    greater_is_better: ClassVar[bool] = True
    form: PredictionForm = "argmax"
    primary: str
    per_example: bool = False

    @property
    def statistics(self) -> int | None:
        """Columns of the additive statistics of a row, or None."""
        return None

    @property
    def options(self) -> dict[str, Any]:
        """The options that the metric was made with, defaults included; ``bind`` may have filled some in."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def bind(
        self, *, num_labels: int | None = None, label_names: Sequence[str] | None = None, tokenizer: Any = None
    ) -> None:
        """Fill in what only the model or its tokenizer knows, where the user has not said it and the metric asks.

        Args:
            num_labels: number of classes of the model's head.
            label_names: tag of each class id, e.g. ``["O", "B-PER", "I-PER"]``.
            tokenizer: anything with ``batch_decode``.
        """
        known = {"num_labels": num_labels, "label_names": label_names, "tokenizer": tokenizer}
        for option, value in known.items():
            if value is not None and getattr(self, option, value) is None:
                setattr(self, option, value)

    def reduce(self, output: Any) -> Any:
        """Reduce a batch of model output to ``form``, on the device that it lies on; see ``forms``."""
        reducers = {
            "argmax": forms.argmax_ids,
            "scores": forms.scalar_scores,
            "multihot": forms.multihot_labels,
            "logits": forms.main_prediction,
        }
        return reducers[self.form](output)

    @abstractmethod
    def reset(self) -> None:
        """Forget all rows."""

    @abstractmethod
    def update(self, predictions: Any, references: Any) -> None:
        """Take in a batch of n rows.

        Args:
            predictions: (n, ...) reduced predictions, an array, tensor or list.
            references: (n, ...) targets; -100 is masked in token-level metrics.
        """

    @abstractmethod
    def compute(self) -> dict[str, float]:
        """Return name -> value over all rows so far; NaN where no row (or nothing defined) was seen."""

    @abstractmethod
    def state_arrays(self) -> StateArrays:
        """Return the state as name -> numpy array, to be gathered from other ranks or saved."""

    @abstractmethod
    def load_state_arrays(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Put back what ``state_arrays`` returned; what was there is forgotten."""

    @abstractmethod
    def _merge(self, other: Self) -> None: ...

    def merge(self, other: Self) -> None:
        """Take in the rows that another metric of the same kind and options has seen.

        Raises:
            TypeError: the other metric is of another class.
            ValueError: it has other options.
        """
        if type(other) is not type(self):
            raise TypeError(f"{type(self).__name__} cannot merge {type(other).__name__}; give the same kind.")
        ours, theirs = self.options, other.options
        for option in ours.keys() - {"tokenizer", "postprocess"}:
            if not np.array_equal(ours[option], theirs[option]):
                raise ValueError(
                    f"{self.name} with {option}={ours[option]!r} cannot merge {option}={theirs[option]!r}; "
                    "make both with the same options."
                )
        self._merge(other)

    def merge_states(self, states: Sequence[Mapping[str, npt.NDArray[Any]]]) -> None:
        """Replace the state by the merged states of all ranks, given in rank order (this one's among them)."""
        self.reset()
        for arrays in states:
            part = self.empty_copy()
            part.load_state_arrays(arrays)
            self._merge(part)

    def empty_copy(self) -> Self:
        """Return a metric of the same options that has seen no row."""
        return type(self)(**self.options)

    def example_scores(self, predictions: Any, references: Any) -> Float64Array | None:
        """Return the (n,) score of each row where the metric is their mean, else None; NaN marks a masked row."""
        return None

    def __repr__(self) -> str:
        shown = ", ".join(f"{key}={value!r}" for key, value in self.options.items() if key != "tokenizer")
        return f"{type(self).__name__}({shown})"


class AdditiveMetric(Metric):
    """A metric that is a function of column sums: of counts, matches, errors or moments of the rows.

    A subclass says what a row adds (``example_statistics``) and what the sums mean (``primary_from_totals``). The sums
    are float64, so that counts are exact up to 2**53 rows and a delta method can weight them.
    """

    _totals: Float64Array | None = None

    @abstractmethod
    def example_statistics(self, predictions: Any, references: Any) -> Float64Array:
        """Return the (n, k) additive sufficient statistics of each row."""

    @abstractmethod
    def primary_from_totals(self, totals: Float64Array) -> Float64Array:
        """Return the primary value (...) of column sums (..., k); the sums may carry weights."""

    def from_totals(self, totals: Float64Array) -> dict[str, float]:
        """Return what ``compute`` returns, from column sums (k,)."""
        return {self.primary: float(self.primary_from_totals(np.asarray(totals, dtype=np.float64)))}

    def scores_from_statistics(self, statistics: Float64Array) -> Float64Array | None:
        """Return the (n,) score of rows (n, k) where the metric is their mean, else None; NaN marks a masked row."""
        return self.primary_from_totals(statistics) if self.per_example else None

    def example_scores(self, predictions: Any, references: Any) -> Float64Array | None:
        """Return the (n,) score of each row where the metric is their mean, else None; NaN marks a masked row."""
        if not self.per_example:
            return None
        return self.scores_from_statistics(self.example_statistics(predictions, references))

    def add(self, statistics: Float64Array) -> None:
        """Take in rows (n, k) of ``example_statistics`` that were computed before, instead of ``update``."""
        if not len(statistics):  # sums of nothing would be zeros, and those mean a value
            return
        total = np.asarray(statistics, dtype=np.float64).sum(axis=0)
        self._totals = total if self._totals is None else self._totals + total

    def update(self, predictions: Any, references: Any) -> None:
        """Take in a batch of n rows; see ``Metric.update``."""
        self.add(self.example_statistics(predictions, references))

    def reset(self) -> None:
        """Forget all rows."""
        self._totals = None

    def compute(self) -> dict[str, float]:
        """Return name -> value over all rows so far; NaN where no row was seen."""
        if self._totals is None:
            return {self.primary: float("nan")}
        return self.from_totals(self._totals)

    def state_arrays(self) -> StateArrays:
        """Return the column sums, an empty array before the first row."""
        return {"totals": np.empty(0) if self._totals is None else self._totals}

    def load_state_arrays(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Put back what ``state_arrays`` returned."""
        totals = np.asarray(arrays["totals"], dtype=np.float64)
        self._totals = totals if totals.size else None

    def _merge(self, other: Self) -> None:
        if other._totals is not None:
            self.add(other._totals[None])


def ratio(numerator: Float64Array, denominator: Float64Array, undefined: float = float("nan")) -> Float64Array:
    """Divide elementwise, with ``undefined`` where the denominator is 0."""
    numerator, denominator = np.broadcast_arrays(np.asarray(numerator, np.float64), np.asarray(denominator, np.float64))
    quotient = np.full(numerator.shape, undefined, dtype=np.float64)
    np.divide(numerator, denominator, out=quotient, where=denominator != 0)
    return quotient


def require(module: str, metric: str) -> Any:
    """Import a library of the extra ``metrics``.

    Raises:
        ImportError: it is not installed; the text names the line that installs it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(
            f'load_metric("{metric}") needs {module.partition(".")[0]}, which is not installed; '
            'run: pip install "hf-trainplus[metrics]"'
        ) from error
