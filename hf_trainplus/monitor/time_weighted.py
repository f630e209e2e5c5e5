"""Mean, smallest and largest value over time, in constant memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass
class TimeWeighted:
    """Statistics of a value that held for a time each time it was seen.

    It keeps no samples. A value that is not seen adds neither value nor time.

    Example:
        >>> use = TimeWeighted()
        >>> use.add(100.0, 1.0)
        >>> use.add(0.0, 3.0)
        >>> use.mean, use.minimum, use.maximum, use.seconds
        (25.0, 0.0, 100.0, 4.0)
    """

    seconds: float = 0.0
    minimum: float = float("inf")
    maximum: float = float("-inf")
    _weighted: float = 0.0

    def add(self, value: float, seconds: float) -> None:
        """Count a value that held for ``seconds`` >= 0; with no time it counts for the extremes only.

        Raises:
            ValueError: a negative time.
        """
        self.add_to_mean(value, seconds)
        self.minimum = min(self.minimum, value)
        self.maximum = max(self.maximum, value)

    def add_to_mean(self, value: float, seconds: float) -> None:
        """Count a value for the mean and not for the extremes.

        Raises:
            ValueError: a negative time.
        """
        if seconds < 0:
            raise ValueError(f"seconds={seconds}; allowed is a time >= 0.")
        self.seconds += seconds
        self._weighted += value * seconds

    @property
    def mean(self) -> float | None:
        """The mean over time; None while no time has passed."""
        return self._weighted / self.seconds if self.seconds > 0 else None

    def to_json(self) -> dict[str, float | None]:
        """Return the statistics as JSON values; None before the first value."""
        seen = self.minimum <= self.maximum
        return {
            "mean": self.mean,
            "min": self.minimum if seen else None,
            "max": self.maximum if seen else None,
            "seconds": self.seconds,
        }


class PhaseStatistics:
    """``TimeWeighted`` statistics of many values, apart for each phase and for all phases together ("all").

    Memory grows with the number of names and phases, not with time.

    Example:
        >>> statistics = PhaseStatistics()
        >>> statistics.add({"gpu0/power_watts": 300.0}, {"train_step": 0.5, "evaluation": 1.5})
        >>> statistics.add({"gpu0/power_watts": 100.0}, {"evaluation": 0.5})
        >>> statistics.get("gpu0/power_watts", "evaluation").mean, statistics.get("gpu0/power_watts").mean
        (250.0, 260.0)
    """

    def __init__(self) -> None:
        self._table: dict[tuple[str, str], TimeWeighted] = {}

    def add(self, values: Mapping[str, float], durations: Mapping[str, float]) -> None:
        """Count values that held while the given phases ran.

        The longest phase takes the value for its extremes; the others get their share of the mean alone, since a
        value averaged over the sampling interval says little about a phase that filled a corner of it.

        Args:
            values: name -> value.
            durations: phase -> seconds of it since the values were taken before.
        """
        total = sum(durations.values())
        longest = max(durations, key=lambda phase: durations[phase]) if durations else None
        for name, value in values.items():
            self._entry(name, "all").add(value, total)
            for phase, seconds in durations.items():
                entry = self._entry(name, phase)
                if phase == longest:
                    entry.add(value, seconds)
                else:
                    entry.add_to_mean(value, seconds)

    def get(self, name: str, phase: str = "all") -> TimeWeighted | None:
        """Return the statistics of one value in one phase, None when it was never seen there."""
        return self._table.get((name, phase))

    def phases(self) -> list[str]:
        """Return the phases seen, without "all", in order of appearance."""
        return list(dict.fromkeys(phase for _, phase in self._table if phase != "all"))

    def names(self) -> list[str]:
        """Return the names seen, in order of appearance."""
        return list(dict.fromkeys(name for name, _ in self._table))

    def to_json(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """Return name -> phase -> statistics."""
        found: dict[str, dict[str, dict[str, float | None]]] = {}
        for (name, phase), entry in self._table.items():
            found.setdefault(name, {})[phase] = entry.to_json()
        return found

    def _entry(self, name: str, phase: str) -> TimeWeighted:
        entry = self._table.get((name, phase))
        if entry is None:
            entry = self._table[name, phase] = TimeWeighted()
        return entry
