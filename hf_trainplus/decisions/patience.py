"""Early stopping as a pure rule: when has a metric not improved for too long?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal, get_args

Unit = Literal["evaluations", "steps", "seconds"]
StopReason = Literal["patience", "stopping_threshold", "divergence_threshold", "nonfinite"]


@dataclass(frozen=True)
class PatienceVerdict:
    """Outcome of one evaluation.

    Args:
        stop: training should stop.
        reason: what asks for the stop, None without one.
        improved: the value is the best so far.
        best: best finite value so far, None before any.
        best_step: its step.
        waited: evaluations, steps or seconds since the last improvement beyond the threshold.
    """

    stop: bool
    reason: StopReason | None
    improved: bool
    best: float | None
    best_step: int | None
    waited: float


class Patience:
    """Counts how long a metric has not improved, in evaluations, steps or seconds.

    With ``unit="evaluations"`` it stops at the step at which ``transformers.EarlyStoppingCallback`` stops: any strict
    improvement is the new best, but only one by more than ``threshold`` over the best before resets the count, so many
    small improvements can still end in a stop. NaN and infinite values never improve and count as an evaluation
    without improvement; with ``nonfinite="stop"`` they stop. It stops nothing itself and reads no clock, and in a race
    the verdict comes from the race instead (``RaceConfig.patience``), never from a noisy value.

    Args:
        patience: evaluations, steps or seconds without improvement, > 0; None for the thresholds only.
        unit: what is counted.
        threshold: least improvement that resets the count, in units of the metric, >= 0.
        greater_is_better: True when larger values are better.
        stopping_threshold: stop once the value is this good; None for never.
        divergence_threshold: stop once the value is worse than this; None for never.
        nonfinite: "count" or "stop".

    Raises:
        ValueError: a number out of its range, or another unit.

    Example:
        >>> patience = Patience(2)
        >>> [patience.update(value, step=step).stop for step, value in enumerate([1.0, 2.0, 1.5, 3.0], start=1)]
        [False, False, True, True]
    """

    def __init__(
        self,
        patience: float | None = 3,
        *,
        unit: Unit = "evaluations",
        threshold: float = 0.0,
        greater_is_better: bool = False,
        stopping_threshold: float | None = None,
        divergence_threshold: float | None = None,
        nonfinite: Literal["count", "stop"] = "count",
    ) -> None:
        if patience is not None and not patience > 0:
            raise ValueError(f"patience={patience!r}; allowed are numbers > 0, or None for the thresholds only.")
        if unit not in get_args(Unit):
            raise ValueError(f"unit={unit!r}; allowed are {', '.join(get_args(Unit))}.")
        if unit == "evaluations" and patience is not None and patience != int(patience):
            raise ValueError(f"patience={patience!r} evaluations; give a whole number, or unit='steps' or 'seconds'.")
        if not threshold >= 0:
            raise ValueError(f"threshold={threshold!r}; allowed are numbers >= 0: the direction is greater_is_better.")
        if nonfinite not in ("count", "stop"):
            raise ValueError(f"nonfinite={nonfinite!r}; allowed are 'count' and 'stop'.")
        self.patience, self.unit, self.threshold = patience, unit, threshold
        self.greater_is_better, self.nonfinite = greater_is_better, nonfinite
        self.stopping_threshold, self.divergence_threshold = stopping_threshold, divergence_threshold
        self._evaluations = 0
        self._reset_at: float | None = None
        self._last: tuple[int, PatienceVerdict] | None = None

    @property
    def best(self) -> float | None:
        """Best finite value so far."""
        return self._last[1].best if self._last else None

    def update(self, value: float, *, step: int, elapsed_seconds: float | None = None) -> PatienceVerdict:
        """Enter one evaluation; the evaluation of the same step again, as after a resume, changes nothing.

        Args:
            value: the metric.
            step: training step, never falling.
            elapsed_seconds: seconds of the run so far, over all its sessions; needed for ``unit="seconds"``.

        Raises:
            ValueError: the step fell, or seconds are counted and not given.
        """
        if self._last is not None and step <= self._last[0]:
            if step == self._last[0]:
                return self._last[1]
            raise ValueError(f"step {step} comes after step {self._last[0]}; give evaluations in order.")
        self._evaluations += 1
        place = self._place(step, elapsed_seconds)
        best, best_step = (self._last[1].best, self._last[1].best_step) if self._last else (None, None)
        improved = isfinite(value) and (best is None or self._gain(value, best) > 0)
        if self._reset_at is None or (improved and (best is None or abs(value - best) > self.threshold)):
            self._reset_at = place
        waited = place - self._reset_at
        reason = self._reason(value, waited)
        best, best_step = (value, step) if improved else (best, best_step)
        verdict = PatienceVerdict(reason is not None, reason, improved, best, best_step, waited)
        self._last = (step, verdict)
        return verdict

    def _place(self, step: int, elapsed_seconds: float | None) -> float:
        if self.unit == "evaluations":
            return float(self._evaluations)
        if self.unit == "steps":
            return float(step)
        if elapsed_seconds is None:
            raise ValueError("unit='seconds' needs elapsed_seconds; pass update(value, step=..., elapsed_seconds=...).")
        return elapsed_seconds

    def _gain(self, value: float, other: float) -> float:
        return value - other if self.greater_is_better else other - value

    def _reason(self, value: float, waited: float) -> StopReason | None:
        if not isfinite(value):
            if self.nonfinite == "stop":
                return "nonfinite"
        elif self.stopping_threshold is not None and self._gain(value, self.stopping_threshold) >= 0:
            return "stopping_threshold"
        elif self.divergence_threshold is not None and self._gain(value, self.divergence_threshold) < 0:
            return "divergence_threshold"
        return "patience" if self.patience is not None and waited >= self.patience else None

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs to stop at the same step, as JSON values."""
        last = None
        if self._last is not None:
            step, verdict = self._last
            last = {"step": step, **vars(verdict)}
        return {"evaluations": self._evaluations, "reset_at": self._reset_at, "unit": self.unit, "last": last}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state.

        Raises:
            ValueError: the state counts in another unit.
        """
        if state["unit"] != self.unit:
            raise ValueError(
                f"the saved patience counts {state['unit']} and this one {self.unit}; resume with "
                f"unit={state['unit']!r}, or start anew without the saved state."
            )
        self._evaluations, self._reset_at = int(state["evaluations"]), state["reset_at"]
        last = state["last"]
        if last is None:
            self._last = None
            return
        names = ("stop", "reason", "improved", "best", "best_step", "waited")
        self._last = (int(last["step"]), PatienceVerdict(**{name: last[name] for name in names}))
