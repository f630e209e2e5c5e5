"""Rules on which a stage advances, stops or falls back: one method, ``should_advance``. Pure.

A user adds a rule by writing one class with that method; it is passed in Python, as ``Stage(advance_when=MyRule())``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

from hf_trainplus.budget.plans.stage_history import StageHistory


class AdvanceRule(ABC):
    """Decides from what a stage has seen whether it is over. It keeps no state and changes nothing."""

    @abstractmethod
    def should_advance(self, history: StageHistory) -> bool:
        """Return True when the rule holds.

        Raises:
            ValueError: a metric that the evaluation did not give.
        """

    @abstractmethod
    def describe(self) -> str:
        """Write the rule for a person, on one line, with all its settings: a checkpoint tells two rules apart by it."""


@dataclass(frozen=True)
class MetricAtLeast(AdvanceRule):
    """Holds when the metric of the last evaluation is at least ``at_least``, by the lower end of its interval.

    Without an interval it goes by the value alone, which a small subset may push over the mark by luck.

    Args:
        metric: name, with or without ``eval_``.
        at_least: the mark.

    Example:
        >>> from hf_trainplus.budget.plans.stage_history import Evaluation
        >>> sure = Evaluation(1, {"eval_accuracy": 0.8, "eval_accuracy_ci_low": 0.71, "eval_accuracy_ci_high": 0.9})
        >>> rule = MetricAtLeast("accuracy", 0.7)
        >>> rule.should_advance(StageHistory((sure,))), rule.should_advance(StageHistory())
        (True, False)
    """

    metric: str
    at_least: float

    def should_advance(self, history: StageHistory) -> bool:
        """Return True when the lower end of the interval reaches the mark; NaN never does."""
        return history.last is not None and history.last.interval(self.metric)[0] >= self.at_least

    def describe(self) -> str:
        """Write the rule."""
        return f"{self.metric} at least {_exact(self.at_least)}"


@dataclass(frozen=True)
class MetricAtMost(AdvanceRule):
    """Holds when the metric of the last evaluation is at most ``at_most``, by the upper end of its interval.

    Args:
        metric: name, with or without ``eval_``.
        at_most: the mark.
    """

    metric: str
    at_most: float

    def should_advance(self, history: StageHistory) -> bool:
        """Return True when the upper end of the interval is under the mark; NaN never is."""
        return history.last is not None and history.last.interval(self.metric)[1] <= self.at_most

    def describe(self) -> str:
        """Write the rule."""
        return f"{self.metric} at most {_exact(self.at_most)}"


@dataclass(frozen=True)
class Plateau(AdvanceRule):
    """Holds when the last ``evaluations`` evaluations brought no improvement over the best before them.

    It compares values, not intervals: on a noisy subset, ask for more evaluations. NaN counts as no improvement.

    Args:
        metric: name, with or without ``eval_``.
        evaluations: how many without improvement, >= 1.
        threshold: what counts as an improvement, >= 0.
        greater_is_better: direction of the metric.

    Raises:
        ValueError: a number out of its range.
    """

    metric: str
    evaluations: int = 3
    threshold: float = 0.0
    greater_is_better: bool = False

    def __post_init__(self) -> None:
        if self.evaluations < 1 or self.threshold < 0:
            raise ValueError(
                f"evaluations={self.evaluations}, threshold={self.threshold}; allowed: evaluations >= 1 and "
                "threshold >= 0."
            )

    def should_advance(self, history: StageHistory) -> bool:
        """Return True on a plateau."""
        sign = 1.0 if self.greater_is_better else -1.0
        values = [sign * evaluation.value(self.metric) for evaluation in history.evaluations]
        earlier = [value for value in values[: -self.evaluations] if not math.isnan(value)]
        if not earlier:
            return False
        return not any(value > max(earlier) + self.threshold for value in values[-self.evaluations :])

    def describe(self) -> str:
        """Write the rule.

        Example:
            >>> Plateau("loss").describe()
            'no better loss in 3 evaluations'
            >>> Plateau("f1", 2, threshold=0.01, greater_is_better=True).describe()
            'no better f1 (higher, by more than 0.01) in 2 evaluations'
        """
        lower = self.metric.endswith("loss") and not self.greater_is_better
        notes = [] if lower else ["higher" if self.greater_is_better else "lower"]
        notes += [f"by more than {_exact(self.threshold)}"] if self.threshold else []
        better = f"{self.metric} ({', '.join(notes)})" if notes else self.metric
        return f"no better {better} in {self.evaluations} evaluations"


@dataclass(frozen=True)
class GeneralizationGap(AdvanceRule):
    """Holds by validation loss − training loss: above ``at_least`` the model over-fits, under ``at_most`` it does not.

    The gap is positive when the model does worse on data that it has not seen. Training loss is a mean over the last
    logging interval, under dropout and with the weights of that time, so small gaps may be negative.

    Args:
        at_least: holds when the gap is surely this large (lower end of the validation loss's interval).
        at_most: holds when it is surely no larger (upper end).
        metric: validation loss.

    Raises:
        ValueError: neither or both marks.
    """

    at_least: float | None = None
    at_most: float | None = None
    metric: str = "loss"

    def __post_init__(self) -> None:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError(f"at_least={self.at_least}, at_most={self.at_most}; give exactly one of them.")

    def should_advance(self, history: StageHistory) -> bool:
        """Return True when the gap is over (or under) its mark; without a training loss never."""
        last = history.last
        if last is None or last.training_loss is None:
            return False
        low, high = last.interval(self.metric)
        if self.at_least is not None:
            return low - last.training_loss >= self.at_least
        return self.at_most is not None and high - last.training_loss <= self.at_most

    def describe(self) -> str:
        """Write the rule."""
        at_most = 0.0 if self.at_most is None else self.at_most
        mark = f"at most {_exact(at_most)}" if self.at_least is None else f"at least {_exact(self.at_least)}"
        return f"validation {self.metric} − training loss {mark}"


@dataclass(frozen=True)
class BudgetShare(AdvanceRule):
    """Holds when a share of the stage's budget is used; 1 means that no further step fits.

    Args:
        at_least: the share, above 0 and at most 1.

    Raises:
        ValueError: another share.
    """

    at_least: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.at_least <= 1:
            raise ValueError(f"at_least={self.at_least}; allowed is a share above 0 and at most 1.")

    def should_advance(self, history: StageHistory) -> bool:
        """Return True when the share is used; without a budget never."""
        return history.budget_spent or (history.budget_share is not None and history.budget_share >= self.at_least)

    def describe(self) -> str:
        """Write the rule."""
        return "budget spent" if self.at_least == 1 else f"{_exact(100 * self.at_least)}% of the budget used"


class AllOf(AdvanceRule):
    """Holds when every one of several rules holds.

    Example:
        >>> AllOf([BudgetShare(0.5), MetricAtLeast("f1", 0.7)]).describe()
        '50% of the budget used and f1 at least 0.7'
    """

    def __init__(self, rules: Iterable[AdvanceRule]) -> None:
        self.rules = tuple(rules)

    def should_advance(self, history: StageHistory) -> bool:
        """Return True when all hold."""
        return all(rule.should_advance(history) for rule in self.rules)

    def describe(self) -> str:
        """Write the rules."""
        return " and ".join(_inside(rule) for rule in self.rules)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, (AllOf, OneOf)) and other.rules == self.rules

    def __hash__(self) -> int:
        return hash((type(self), self.rules))


class OneOf(AllOf):
    """Holds when at least one of several rules holds."""

    def should_advance(self, history: StageHistory) -> bool:
        """Return True when one holds."""
        return any(rule.should_advance(history) for rule in self.rules)

    def describe(self) -> str:
        """Write the rules."""
        return " or ".join(_inside(rule) for rule in self.rules)


def _inside(rule: AdvanceRule) -> str:
    """Write a rule inside of several; several of them again stand in brackets."""
    return f"({rule.describe()})" if isinstance(rule, AllOf) and len(rule.rules) > 1 else rule.describe()


def _exact(number: float) -> str:
    """Write a number with all the digits that a person gave it."""
    return f"{number:.15g}"
