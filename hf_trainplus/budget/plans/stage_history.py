"""What a stage has seen so far: the evidence that rules to advance, to stop and to fall back look at. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_PREFIX = "eval_"


@dataclass(frozen=True)
class Evaluation:
    """One evaluation inside the stage.

    Args:
        step: optimizer step.
        metrics: logged metrics; intervals stand beside a metric as ``..._ci_low`` and ``..._ci_high``.
        training_loss: training loss last logged before it, None when there is none.
    """

    step: int
    metrics: Mapping[str, float]
    training_loss: float | None = None

    def value(self, metric: str) -> float:
        """Return a metric, with or without the prefix ``eval_``.

        Raises:
            ValueError: the evaluation did not give it; the message lists what it gave.

        Example:
            >>> Evaluation(10, {"eval_accuracy": 0.8}).value("accuracy")
            0.8
        """
        return float(self.metrics[self._key(metric)])

    def interval(self, metric: str) -> tuple[float, float]:
        """Return the interval of a metric; without one it is the value itself, twice.

        Example:
            >>> Evaluation(10, {"eval_f1": 0.8, "eval_f1_ci_low": 0.7, "eval_f1_ci_high": 0.9}).interval("f1")
            (0.7, 0.9)
        """
        key = self._key(metric)
        value = self.metrics[key]
        return float(self.metrics.get(f"{key}_ci_low", value)), float(self.metrics.get(f"{key}_ci_high", value))

    def _key(self, metric: str) -> str:
        for key in (metric, f"{_PREFIX}{metric}"):
            if key in self.metrics:
                return key
        names = sorted(name for name in self.metrics if not name.endswith(("_ci_low", "_ci_high")))
        raise ValueError(
            f"a rule of the plan watches {metric!r}, and the evaluation at step {self.step} gave: {', '.join(names)}. "
            "Name one of these in the plan."
        )


@dataclass(frozen=True)
class StageHistory:
    """A stage so far.

    Args:
        evaluations: evaluations inside the stage, oldest first.
        budget_share: share of the stage's budget that is used, 0 to 1; None without a budget.
        budget_spent: whether no further step fits into the stage's budget.
        falls: how often the plan has fallen back from this stage before.
    """

    evaluations: tuple[Evaluation, ...] = ()
    budget_share: float | None = None
    budget_spent: bool = False
    falls: int = 0

    @property
    def last(self) -> Evaluation | None:
        """The newest evaluation, None before the first."""
        return self.evaluations[-1] if self.evaluations else None
