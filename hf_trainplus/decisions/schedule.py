"""When to evaluate next: a fixed grid, or intervals that follow the metric and a share of wall-clock time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, isfinite
from typing import Any, Protocol


@dataclass(frozen=True)
class EvaluationOutcome:
    """What a schedule learns from one evaluation; step 0 without a value stands for the start of training.

    Args:
        step: training step of the evaluation, >= 0.
        value: the watched metric, None when nothing was evaluated.
        improvement: (low, high) interval of the paired improvement over the best before, positive is better, in units
            of the metric; None when only point values are known.
        evaluation_seconds: what the evaluation took, None when not measured.
        training_seconds: training time since the evaluation before (or since the start), evaluation apart.
        last_step: last step of the run or of its stage, None when unknown; it is always evaluated.
    """

    step: int
    value: float | None = None
    improvement: tuple[float, float] | None = None
    evaluation_seconds: float | None = None
    training_seconds: float | None = None
    last_step: int | None = None


class EvaluationSchedule(Protocol):
    """Decides the step of the next evaluation; called once at the start and after every evaluation."""

    def next_step(self, outcome: EvaluationOutcome) -> int | None:
        """Return the next step to evaluate at, larger than ``outcome.step``; None when the run is over by then."""


@dataclass(frozen=True)
class FixedSchedule:
    """The stock grid: every ``every`` steps, from ``delay_steps`` on, and the last step.

    Args:
        every: steps between evaluations, >= 1.
        delay_steps: no evaluation before this step, >= 0.

    Raises:
        ValueError: a number out of its range.

    Example:
        >>> FixedSchedule(every=10, delay_steps=25).next_step(EvaluationOutcome(0))
        30
    """

    every: int
    delay_steps: int = 0

    def __post_init__(self) -> None:
        if self.every < 1 or self.delay_steps < 0:
            raise ValueError(f"every={self.every}, delay_steps={self.delay_steps}; give every >= 1, delay_steps >= 0.")

    def next_step(self, outcome: EvaluationOutcome) -> int | None:
        """Return the next multiple of ``every``."""
        after = max(outcome.step + 1, self.delay_steps)
        return _within(ceil(after / self.every) * self.every, outcome)


class AdaptiveSchedule:
    """Intervals that halve while the metric improves and double while it does not.

    It saves evaluations and changes decisions: a sparser grid misses the best checkpoint of the dense one in a third
    to all of the runs measured (``docs/racing.md``); a race does not. It evaluates nothing and reads no clock.

    Where the interval of the paired improvement is known, an improvement is one whose whole interval lies beyond the
    threshold, none is one whose whole interval does not; an interval around the threshold leaves the pace as it is.
    With ``time_share`` no evaluation starts before its expected end would keep evaluation's share of all time measured
    so far under the cap, even where that takes longer than ``max_steps``; the first and the last evaluation, whose
    time or place is not the schedule's to choose, are exempt.

    Args:
        min_steps: shortest interval, >= 1.
        max_steps: longest interval, >= ``min_steps``.
        improvement_threshold: least improvement over the best so far, in units of the metric, >= 0.
        greater_is_better: True when larger values are better.
        start_steps: first interval; None for ``min_steps``.
        delay_steps: no evaluation before this step; it is itself one.
        time_share: largest share of wall-clock time that evaluation may take, in (0, 1); None for no cap.

    Raises:
        ValueError: a number out of its range.

    Example:
        >>> schedule = AdaptiveSchedule(min_steps=10, max_steps=80, improvement_threshold=0.01)
        >>> [schedule.next_step(EvaluationOutcome(step, value)) for step, value in [(0, None), (10, 1.0), (20, 1.0)]]
        [10, 20, 40]
    """

    def __init__(
        self,
        min_steps: int = 100,
        max_steps: int = 10_000,
        improvement_threshold: float = 0.01,
        *,
        greater_is_better: bool = False,
        start_steps: int | None = None,
        delay_steps: int = 0,
        time_share: float | None = None,
    ) -> None:
        if min_steps < 1 or max_steps < min_steps:
            raise ValueError(f"min_steps={min_steps}, max_steps={max_steps}; give 1 <= min_steps <= max_steps.")
        if not improvement_threshold >= 0 or delay_steps < 0:
            raise ValueError(
                f"improvement_threshold={improvement_threshold}, delay_steps={delay_steps}; both must be >= 0."
            )
        if time_share is not None and not 0 < time_share < 1:
            raise ValueError(f"time_share={time_share}; give a share in (0, 1), e.g. 0.05, or None for no cap.")
        self.min_steps, self.max_steps = min_steps, max_steps
        self.improvement_threshold, self.greater_is_better = improvement_threshold, greater_is_better
        self.delay_steps, self.time_share = delay_steps, time_share
        self.interval = min(max(start_steps or min_steps, min_steps), max_steps)
        self._best: float | None = None
        self._steps, self._seen = 0, 0
        self._training_seconds = self._evaluation_seconds = 0.0
        self._longest_evaluation = 0.0

    def next_step(self, outcome: EvaluationOutcome) -> int | None:
        """Learn from one evaluation and return the next step to evaluate at.

        Args:
            outcome: the evaluation; at the start, step 0 without a value.

        Raises:
            ValueError: the step is smaller than one seen before.
        """
        if outcome.step < self._steps:
            raise ValueError(
                f"step {outcome.step} comes after step {self._steps}; give outcomes in order, and load the saved state "
                "before the first one of a resumed run."
            )
        self._measure(outcome)
        if outcome.value is not None:
            self._pace(outcome)
        wanted = outcome.step + max(self.interval, self._steps_for_share())
        return _within(max(wanted, self.delay_steps), outcome)

    def _measure(self, outcome: EvaluationOutcome) -> None:
        self._steps = outcome.step
        self._training_seconds += outcome.training_seconds or 0.0
        self._evaluation_seconds += outcome.evaluation_seconds or 0.0
        self._longest_evaluation = max(0.7 * self._longest_evaluation, outcome.evaluation_seconds or 0.0)

    def _pace(self, outcome: EvaluationOutcome) -> None:
        improved = self._improved(outcome)
        self._seen += 1
        value = outcome.value
        if value is not None and isfinite(value) and (self._best is None or self._gain(value, self._best) > 0):
            self._best = value
        if improved is None or self._seen == 1:
            return
        if improved:
            self.interval = max(self.min_steps, self.interval // 2)
        else:
            self.interval = min(self.max_steps, self.interval * 2)

    def _improved(self, outcome: EvaluationOutcome) -> bool | None:
        if outcome.value is None or not isfinite(outcome.value):
            return False
        if outcome.improvement is not None:
            low, high = outcome.improvement
            if low > self.improvement_threshold:
                return True
            return False if high <= self.improvement_threshold else None
        return self._best is None or self._gain(outcome.value, self._best) > self.improvement_threshold

    def _gain(self, value: float, best: float) -> float:
        return value - best if self.greater_is_better else best - value

    def _steps_for_share(self) -> int:
        if self.time_share is None or self._steps == 0 or self._training_seconds <= 0:
            return 0
        expected = self._evaluation_seconds + self._longest_evaluation
        missing = expected * (1 - self.time_share) / self.time_share - self._training_seconds
        return max(0, ceil(missing / (self._training_seconds / self._steps)))

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs to choose the same next step, as JSON values."""
        return {
            "interval": self.interval,
            "best": self._best,
            "steps": self._steps,
            "seen": self._seen,
            "training_seconds": self._training_seconds,
            "evaluation_seconds": self._evaluation_seconds,
            "longest_evaluation": self._longest_evaluation,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state; limits are those of this object, not the saved ones."""
        self.interval = min(max(int(state["interval"]), self.min_steps), self.max_steps)
        self._best, self._steps, self._seen = state["best"], int(state["steps"]), int(state["seen"])
        self._training_seconds = float(state["training_seconds"])
        self._evaluation_seconds = float(state["evaluation_seconds"])
        self._longest_evaluation = float(state["longest_evaluation"])


def _within(step: int, outcome: EvaluationOutcome) -> int | None:
    if outcome.last_step is None:
        return step
    return None if outcome.step >= outcome.last_step else min(step, outcome.last_step)
