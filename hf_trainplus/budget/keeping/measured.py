"""What a step, an evaluation and a save cost in this run, as measured: means, spreads, upper bounds.

Pure: amounts come in, numbers go out. The laps that produce the amounts are in ``phases``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Phase = Literal["step", "evaluation", "save"]
PHASES: tuple[Phase, ...] = ("step", "evaluation", "save")

# Counted by the trainer: the next step costs at most what the dearest one did. Time and energy scatter instead.
COUNTED = frozenset({"steps", "epochs", "tokens"})

# Before much is measured, durations are taken to scatter by a fifth of their mean, as strongly as eight measurements
# would say so; both figures come from the simulated runs of tests/benchmarks/budget.py.
PRIOR_SPREAD, PRIOR_WEIGHT = 0.2, 8


@dataclass
class Amount:
    """Running count, mean, scatter (Welford) and maximum of one quantity in one phase."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    largest: float = 0.0

    def add(self, value: float) -> None:
        """Count one more measurement."""
        self.count += 1
        difference = value - self.mean
        self.mean += difference / self.count
        self.squares += difference * (value - self.mean)
        self.largest = max(self.largest, value)

    def variance_of_next(self) -> float:
        """Variance of the next measurement around the mean, the mean's own uncertainty included.

        The scatter is shrunk to the prior, as in the posterior mean of a scaled inverse chi-squared distribution.
        """
        prior = PRIOR_WEIGHT * (PRIOR_SPREAD * self.mean) ** 2
        return (prior + self.squares) / (PRIOR_WEIGHT + self.count - 1) * (1 + 1 / self.count)


@dataclass
class Measured:
    """Costs of the phases of one run: phase -> quantity -> ``Amount``. Quantities: seconds, energy_kwh, steps, ...

    Example:
        >>> measured = Measured()
        >>> for seconds in (1.0, 1.2, 0.8):
        ...     measured.add("step", {"seconds": seconds, "steps": 1})
        >>> measured.mean("step", "seconds"), measured.count("step"), measured.upper(["step"], "steps")
        (1.0, 3, 1)
        >>> 1.5 < measured.upper(["step"], "seconds", deviations=4) < 2.5
        True
    """

    amounts: dict[Phase, dict[str, Amount]] = field(default_factory=dict)

    def add(self, phase: Phase, spent: Mapping[str, float]) -> None:
        """Count one phase that took ``spent`` (quantity -> amount)."""
        amounts = self.amounts.setdefault(phase, {})
        for quantity, value in spent.items():
            amounts.setdefault(quantity, Amount()).add(value)

    def forget(self, phase: Phase) -> None:
        """Drop what was measured of a phase."""
        self.amounts.pop(phase, None)

    def count(self, phase: Phase, quantity: str = "seconds") -> int:
        """Number of measurements of a phase."""
        amount = self.amounts.get(phase, {}).get(quantity)
        return amount.count if amount else 0

    def mean(self, phase: Phase, quantity: str = "seconds") -> float | None:
        """Mean amount of a phase, None before it was measured."""
        amount = self.amounts.get(phase, {}).get(quantity)
        return amount.mean if amount else None

    def upper(self, phases: Iterable[Phase], quantity: str, deviations: float = 4.0) -> float:
        """Amount that the phases together will hardly exceed; phases not yet measured count as nothing.

        Args:
            phases: what will run; a phase may occur twice.
            quantity: e.g. ``"seconds"``.
            deviations: standard deviations above the mean, for quantities that scatter.

        Returns:
            The largest amount seen, summed over phases, for counted quantities; else the sum of the means plus
            ``deviations`` standard deviations of the sum, phases taken as independent.
        """
        known = [amount for phase in phases if (amount := self.amounts.get(phase, {}).get(quantity))]
        if quantity in COUNTED:
            return sum(amount.largest for amount in known)
        variance = sum(amount.variance_of_next() for amount in known)
        return sum(amount.mean for amount in known) + deviations * math.sqrt(variance)

    def state(self) -> dict[str, Any]:
        """Return plain JSON values, for a checkpoint."""
        return {
            phase: {quantity: asdict(amount) for quantity, amount in amounts.items()}
            for phase, amounts in self.amounts.items()
        }

    @classmethod
    def from_state(cls, saved: Mapping[str, Any]) -> Measured:
        """Read what ``state`` wrote."""
        return cls(
            {
                phase: {quantity: Amount(**amount) for quantity, amount in saved[phase].items()}
                for phase in PHASES
                if phase in saved
            }
        )
