"""Samples and regressions that several comparisons share, the latest few of them."""

from __future__ import annotations

from collections import OrderedDict

from hf_trainplus.decisions.racing.metrics import AdditiveMetric
from hf_trainplus.decisions.racing.references import covariates_of
from hf_trainplus.decisions.racing.regression import Regression
from hf_trainplus.decisions.racing.sample import Sample
from hf_trainplus.decisions.racing.state import RaceState
from hf_trainplus.results import Float64Array

_MOST_ROWS = 3  # in evaluation sets: each row kept takes about 160 bytes

Covariates = tuple[Float64Array, Float64Array] | None


class Samples:
    """Keeps what was computed for a depth and a set of references; derived from the state, never saved."""

    def __init__(self) -> None:
        self._covariates: tuple[tuple[int, ...], Covariates] = ((), None)
        self._kept: OrderedDict[tuple[object, ...], tuple[Sample, Regression | None]] = OrderedDict()

    def get(
        self, state: RaceState, metric: AdditiveMetric, depth: int, *, adjusted: bool = True
    ) -> tuple[Sample, Regression | None]:
        """Return the design's first ``depth`` rows and the regression over them; None without a reference.

        Args:
            state: gives the design and the references.
            metric: what is compared.
            depth: rows of the prefix.
            adjusted: False when no regression is wanted.
        """
        key = (state.design.number, depth, adjusted, *state.references)
        found = self._kept.get(key)
        # another race's state may have been loaded since: numbers alone do not tell designs apart
        if found is None or found[0].design is not state.design:
            found = self._made(state, metric, depth, adjusted)
            self._kept[key] = found
            self._make_room(state)
        self._kept.move_to_end(key)
        return found

    def _make_room(self, state: RaceState) -> None:
        """Let go of what belongs to another design, and of what was used longest ago."""
        for key in [key for key, (sample, _) in self._kept.items() if sample.design is not state.design]:
            del self._kept[key]
        rows = sum(sample.depth for sample, _ in self._kept.values())
        while rows > _MOST_ROWS * state.size and len(self._kept) > 1:
            _, (sample, _) = self._kept.popitem(last=False)
            rows -= sample.depth

    def _made(
        self, state: RaceState, metric: AdditiveMetric, depth: int, adjusted: bool
    ) -> tuple[Sample, Regression | None]:
        sample = Sample(state.design, depth)
        if not adjusted or depth == state.size:
            return sample, None
        references = tuple(state.references)
        if self._covariates[0] != references:
            self._covariates = (references, covariates_of(state, metric))
        known = self._covariates[1]
        if known is None:
            return sample, None
        return sample, Regression(sample, known[0].take(sample.rows, axis=0), known[1])
