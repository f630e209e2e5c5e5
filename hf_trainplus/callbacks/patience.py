"""Early stopping that survives a resume and says what it counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from hf_trainplus.callbacks._no_batches import hold_back_batches
from hf_trainplus.callbacks._own_state import ensure_entry, saved_state
from hf_trainplus.callbacks._watched_metric import WatchedMetric, larger_is_better, watched_key
from hf_trainplus.callbacks.agreement import agree
from hf_trainplus.decisions.patience import Patience, PatienceVerdict, Unit

_THRESHOLDS = ("stopping_threshold", "divergence_threshold")


class PatienceCallback(TrainerCallback, ExportableState):
    """Stop training when a metric has not improved for some evaluations, steps or seconds, on any Trainer.

    Its state is in the checkpoint, with the evaluation of the checkpoint's own step, and comes back by itself: a
    resumed run stops where the uninterrupted one stops, and a run that had stopped takes no further step. NaN and
    infinity never improve; they count as an evaluation without improvement, or stop at once. It saves nothing, loads
    nothing, and needs neither ``load_best_model_at_end`` nor a periodic ``eval_strategy``. Under
    ``PlusTrainer(eval_mode="race")`` the race judges patience and thresholds, from as many rows as they need. The
    evaluation before the first step (``eval_on_start``) decides nothing, as upstream's never is the best.

    Args:
        patience: evaluations, steps or seconds without improvement, > 0; None for the thresholds only.
        unit: ``"evaluations"``, ``"steps"`` or ``"seconds"`` (of the run, over all its sessions, by
            the fastest of the ranks' clocks).
        threshold: least improvement that resets the count, in units of the metric, >= 0.
        metric: key of the metric, with or without ``eval_``; None for ``metric_for_best_model``, else the loss.
        greater_is_better: direction; None for that of the arguments, or by the metric's name.
        stopping_threshold: stop once the metric is this good.
        divergence_threshold: stop once it is worse than this.
        nonfinite: ``"count"`` or ``"stop"``.
        clock: seconds, monotonic.

    Raises:
        ValueError: a number out of its range, or an evaluation that does not produce the metric.

    Example:
        >>> PatienceCallback(patience=500, unit="steps").patience.unit
        'steps'
    """

    def __init__(
        self,
        patience: float | None = 3,
        unit: Unit = "evaluations",
        threshold: float = 0.0,
        metric: str | None = None,
        *,
        greater_is_better: bool | None = None,
        stopping_threshold: float | None = None,
        divergence_threshold: float | None = None,
        nonfinite: Literal["count", "stop"] = "count",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options: dict[str, Any] = {
            "patience": patience,
            "unit": unit,
            "threshold": threshold,
            "stopping_threshold": stopping_threshold,
            "divergence_threshold": divergence_threshold,
            "nonfinite": nonfinite,
        }
        self.patience = Patience(**self._options)
        self.metric, self._greater_is_better = metric, greater_is_better
        self._clock = clock
        self._before, self._since = 0.0, clock()
        self._watched = WatchedMetric(type(self).__name__)
        self._put_back: Callable[[], None] | None = None
        self.judged_elsewhere = self._stopped = False
        self.verdict: PatienceVerdict | None = None

    @property
    def elapsed_seconds(self) -> float:
        """Seconds of training so far, over all sessions of the run."""
        return self._before + self._clock() - self._since

    def key(self, args: TrainingArguments) -> str:
        """Return the key of the metric among logged metrics."""
        return watched_key(self.metric, args)

    # ---- events ----
    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take up the state of the checkpoint; a run that had stopped is given no batch."""
        name = type(self).__name__
        self.patience = Patience(**self._options, greater_is_better=self._direction(args))
        self._before, self._since, self.verdict = 0.0, self._clock(), None
        self._watched = WatchedMetric(name)
        self.judged_elsewhere = self._stopped = False
        saved = saved_state(state, name, self._arguments())
        if saved:
            self.patience.load_state_dict(saved["patience"])
            self._before = float(saved["elapsed_seconds"])
        ensure_entry(state, name, self.state())
        if saved.get("stopped"):
            control.should_training_stop = self._stopped = True
            self._put_back = hold_back_batches(kwargs.get("train_dataloader"), args)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Refuse to go on after an evaluation of several sets of which none gave the metric."""
        self._watched.require(self.key(args))

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Enter the evaluation and stop when it is time."""
        value = self._watched.read(self.key(args), metrics or {}, args)
        if value is None or self.judged_elsewhere or not state.global_step:
            return
        seconds = self.elapsed_seconds
        if self.patience.unit == "seconds":
            seconds = agree([seconds])[0]  # clocks differ: a rank that stopped alone would leave the others waiting
        self.verdict = self.patience.update(value, step=state.global_step, elapsed_seconds=seconds)
        self._stopped = self.verdict.stop
        if self._stopped:
            control.should_training_stop = True

    def thresholds(self) -> tuple[float, ...]:
        """Return the levels of the metric that stop the run, for a race to judge."""
        return tuple(self._options[name] for name in _THRESHOLDS if self._options[name] is not None)

    def judge_elsewhere(self, *, stop: bool, finite: bool, reached: Sequence[bool]) -> bool:
        """Take a race's verdict on an evaluation, and return whether the run stops.

        Args:
            stop: patience has run out.
            finite: the metric is a number.
            reached: for each of ``thresholds()``, whether the metric is there or better.
        """
        given = [name for name in _THRESHOLDS if self._options[name] is not None]
        side = dict(zip(given, reached, strict=True))
        if finite:
            stop = stop or side.get("stopping_threshold", False) or not side.get("divergence_threshold", True)
        self._stopped = stop or (not finite and self.patience.nonfinite == "stop")
        return self._stopped

    def evaluation_failed(self) -> None:
        """Do not miss the metric of an evaluation that failed, when the run goes on in spite of it."""
        self._watched.forgive()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Give the loader back what was held back."""
        if self._put_back is not None:
            self._put_back()
            self._put_back = None
        self._watched.require(self.key(args))

    # ---- state ----
    def state(self) -> dict[str, Any]:
        """Return what upstream writes into the checkpoint."""
        saved = {
            "patience": self.patience.state_dict(),
            "elapsed_seconds": self.elapsed_seconds,
            "stopped": self._stopped,
        }
        return {"args": self._arguments(), "attributes": {"saved": saved}}

    def _arguments(self) -> dict[str, Any]:
        return {**self._options, "metric": self.metric, "greater_is_better": self._greater_is_better}

    def _direction(self, args: TrainingArguments) -> bool:
        return larger_is_better(self.key(args), self._greater_is_better, args)
