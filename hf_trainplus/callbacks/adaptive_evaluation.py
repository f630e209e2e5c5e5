"""Evaluate more often while the metric improves and less often while it does not."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import IntervalStrategy

from hf_trainplus.callbacks._handler_order import stand_last
from hf_trainplus.callbacks._own_state import ensure_entry, saved_state
from hf_trainplus.callbacks._watched_metric import (
    WatchedMetric,
    generates_later,
    is_set_of,
    larger_is_better,
    watched_key,
)
from hf_trainplus.callbacks.agreement import agree
from hf_trainplus.decisions.schedule import AdaptiveSchedule, EvaluationOutcome
from hf_trainplus.training.urgent import clear_urgent, is_urgent, keeps_due_evaluations


class AdaptiveEvaluationCallback(TrainerCallback, ExportableState):
    """Choose the steps of evaluations, on any Trainer: intervals halve while improving and double while flat.

    It takes the place of the grid of ``eval_strategy`` and always evaluates at the last step and after a stop that
    another callback asked for. A sparser grid can miss the checkpoint that the dense grid calls best (33 to 100 % of
    the runs in ``docs/racing.md``); a race does not. With ``load_best_model_at_end`` every new best is saved, also off
    the grid of ``save_steps``. ``eval_on_start`` is the Trainer's own and is honoured, and so is ``eval_delay``, in
    epochs with ``eval_strategy="epoch"``. When training begins it moves behind the other callbacks, wherever it was
    added, so that it sees a stop that any of them asks for.

    Args:
        min_steps: shortest interval, >= 1.
        max_steps: longest interval, >= min_steps.
        improvement_threshold: least improvement over the best so far, in units of the metric, >= 0.
        metric: key of the metric, with or without ``eval_``; None for ``metric_for_best_model``, else the loss.
        greater_is_better: direction; None for that of the arguments, or by the metric's name.
        time_share: largest share of wall-clock time for evaluation, in (0, 1); None for no cap.
        clock: seconds, monotonic.

    Raises:
        ValueError: a number out of its range, or an evaluation that does not produce the metric.

    Example:
        >>> AdaptiveEvaluationCallback(min_steps=10, max_steps=80).schedule.interval
        10
    """

    def __init__(
        self,
        min_steps: int = 100,
        max_steps: int = 10_000,
        improvement_threshold: float = 0.01,
        *,
        metric: str | None = None,
        greater_is_better: bool | None = None,
        time_share: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits: dict[str, Any] = {
            "min_steps": min_steps,
            "max_steps": max_steps,
            "improvement_threshold": improvement_threshold,
            "time_share": time_share,
        }
        self.schedule = AdaptiveSchedule(**self._limits)
        self.metric, self._greater_is_better = metric, greater_is_better
        self._clock = clock
        self.next_step: int | None = None
        self._mark = self._evaluation_begins = clock()
        self._evaluated_at = self._asked_at = -1
        self._watched = WatchedMetric(type(self).__name__)

    # ---- events ----
    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take up the state of the checkpoint, or choose the first step."""
        name = type(self).__name__
        stand_last(self)
        clear_urgent(control)
        delay = 0 if _counts_epochs(args) else math.ceil(args.eval_delay or 0)
        self.schedule = AdaptiveSchedule(**self._limits, greater_is_better=self._direction(args), delay_steps=delay)
        saved = saved_state(state, name)
        self._mark, self._evaluated_at = self._clock(), int(saved.get("evaluated_at", -1))
        self._asked_at, self._watched = -1, WatchedMetric(name)
        if saved:
            self.schedule.load_state_dict(saved["schedule"])
            self.next_step = saved["next_step"]
        else:
            last = state.max_steps or None
            self.next_step = self.schedule.next_step(EvaluationOutcome(state.global_step, last_step=last))
        ensure_entry(state, name, self.state())

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Ask for an evaluation where one is due, and for none on the grid's own steps.

        A stop is evaluated, but for one that is urgent: a signal.
        """
        step = state.global_step
        due = self.next_step is not None and step >= self.next_step and not _is_delayed(args, state)
        ends = step >= state.max_steps or control.should_training_stop
        if is_urgent(control):
            due, ends = due and keeps_due_evaluations(control), False
        control.should_evaluate = (due or ends) and step != self._evaluated_at
        if control.should_evaluate:
            self._ask(step)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Keep the grid's own evaluation at the end of an epoch away; a stop asked for since the step is evaluated."""
        stopped = control.should_training_stop and state.global_step != self._evaluated_at and not is_urgent(control)
        control.should_evaluate = stopped and state.global_step > 0
        if control.should_evaluate:
            self._ask(state.global_step)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Refuse to go on after an evaluation of several sets of which none gave the metric."""
        self._watched.require(self._key(args))

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Refuse a last evaluation that lacks the metric."""
        self._watched.require(self._key(args))

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Learn from the evaluation and choose the next step."""
        key, found = self._key(args), metrics or {}
        if _is_new_best(args, state, found):
            control.should_save = True
        value = self._watched.read(key, found, args)
        passes = value is not None or (generates_later(args, found) and is_set_of(key, found))
        if not passes or not state.global_step or state.global_step == self._evaluated_at:
            return
        now, step = self._clock(), state.global_step
        # ranks time alike: the slowest rank's seconds count for all
        trained, evaluated = agree([self._evaluation_begins - self._mark, now - self._evaluation_begins])
        outcome = EvaluationOutcome(
            step,
            value,
            improvement=_improvement(found, key),
            evaluation_seconds=evaluated,
            training_seconds=max(0.0, trained),
            last_step=state.max_steps or None,
        )
        self._mark = now
        self._evaluated_at = step
        self.next_step = self.schedule.next_step(outcome)

    def evaluation_failed(self) -> None:
        """Let an interval pass after an evaluation that failed, when the run goes on in spite of it."""
        self._watched.forgive()
        if self._asked_at > self._evaluated_at:
            self._evaluated_at = self._asked_at
            self.next_step = self.schedule.next_step(EvaluationOutcome(self._asked_at))

    def _ask(self, step: int) -> None:
        self._asked_at, self._evaluation_begins = step, self._clock()

    # ---- state ----
    def state(self) -> dict[str, Any]:
        """Return what upstream writes into the checkpoint."""
        arguments = {**self._limits, "metric": self.metric, "greater_is_better": self._greater_is_better}
        saved = {
            "schedule": self.schedule.state_dict(),
            "next_step": self.next_step,
            "evaluated_at": self._evaluated_at,
        }
        return {"args": arguments, "attributes": {"saved": saved}}

    def _key(self, args: TrainingArguments) -> str:
        return watched_key(self.metric, args)

    def _direction(self, args: TrainingArguments) -> bool:
        return larger_is_better(self._key(args), self._greater_is_better, args)


def _improvement(metrics: Mapping[str, float], key: str) -> tuple[float, float] | None:
    """Return the interval of the paired improvement over the best before, where the evaluation logged one."""
    low, high = metrics.get(f"{key}_gain_ci_low"), metrics.get(f"{key}_gain_ci_high")
    if high is None:
        return None
    return -math.inf if low is None else low, high


def _counts_epochs(args: TrainingArguments) -> bool:
    """Say whether ``eval_delay`` is in epochs."""
    return args.eval_strategy == IntervalStrategy.EPOCH


def _is_delayed(args: TrainingArguments, state: TrainerState) -> bool:
    return _counts_epochs(args) and (state.epoch or 0.0) < (args.eval_delay or 0)


def _is_new_best(args: TrainingArguments, state: TrainerState, metrics: Mapping[str, float]) -> bool:
    """Say whether upstream will call this evaluation the best and want its checkpoint at the end.

    Where not every row is evaluated, PlusTrainer decides that.
    """
    value = metrics.get(watched_key(None, args))
    if not args.load_best_model_at_end or value is None or not state.global_step:
        return False
    if getattr(args, "eval_mode", "full") != "full" or not math.isfinite(value):
        return False
    best = state.best_metric
    return best is None or (value > best if args.greater_is_better else value < best)
