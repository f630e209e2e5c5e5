"""The value every estimator returns: a number, how far it may be off, and for what."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A metric with its interval, and with the number of examples it rests on.

    Two questions are kept apart. *The set*: what would all ``n_total`` examples give? ``standard_error`` answers it and
    is 0 when all were used. *The population*: what would another set of examples of the same kind give?
    ``population_standard_error`` answers that. ``ci_low`` and ``ci_high`` hold for the set while only part of it was
    used, and for the population once the value is exact for the set. It does not correct for a set that was already
    used to choose the model.

    Args:
        value: the estimate; NaN or infinite when the data are, None when there is nothing to average.
        ci_low: lower end of the interval, or None where none can be given (non-finite data, a single row).
        ci_high: upper end, or None.
        standard_error: of the value as an estimate of the full set's; 0 when exact, None when unknown.
        population_standard_error: of the value as an estimate of the population's; None when unknown.
        n: examples used, >= 0.
        n_total: examples in the full set, >= n; None when it has no known end.
        confidence: level of the interval, in (0, 1).
        exact: True when every example of the set was used.
        method: how the interval was made, e.g. ``"wilson"``.
        population_ci_low: lower end of the interval for the population; equals ``ci_low`` when exact.
        population_ci_high: upper end of the interval for the population.

    Example:
        >>> from hf_trainplus.decisions.estimate import wilson_interval
        >>> full = wilson_interval(20, 20)
        >>> full.value, full.exact, round(full.ci_low, 3), full.ci_high
        (1.0, True, 0.839, 1.0)
    """

    value: float | None
    ci_low: float | None
    ci_high: float | None
    standard_error: float | None
    population_standard_error: float | None
    n: int
    n_total: int | None
    confidence: float
    exact: bool
    method: str
    population_ci_low: float | None = None
    population_ci_high: float | None = None

    @property
    def finite(self) -> bool:
        """True when the value is a real number: only then may it become a best value."""
        return self.value is not None and math.isfinite(self.value)

    def __str__(self) -> str:
        shown = "none" if self.value is None else f"{self.value:.6g}"
        interval = "no interval" if self.ci_low is None else f"[{self.ci_low:.6g}, {self.ci_high:.6g}]"
        total = "a stream's" if self.n_total is None else self.n_total
        examples = f"all {total} examples" if self.exact else f"{self.n} of {total} examples"
        return f"{shown} {interval} ({self.confidence:.0%}, {self.method}, {examples})"
