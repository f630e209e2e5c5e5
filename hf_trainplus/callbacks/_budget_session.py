"""One call of ``train()`` under a budget: everything that begins and ends with it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from transformers import Trainer, TrainerState, TrainingArguments

from hf_trainplus.budget.keeping.energy import Joules
from hf_trainplus.budget.keeping.headroom import Headroom
from hf_trainplus.budget.keeping.keeper import BudgetKeeper
from hf_trainplus.budget.keeping.measured import Phase
from hf_trainplus.budget.keeping.process import process_age_seconds, process_identity
from hf_trainplus.budget.meter import Meter, Progress
from hf_trainplus.budget.remaining import Rhythm, TimeLeft
from hf_trainplus.budget.signals import SignalStop
from hf_trainplus.budget.stops import AnyOf, Moment, StopCondition, StopFile, StopReason, find_deadline
from hf_trainplus.callbacks._ballot import Decision, ballot, count
from hf_trainplus.callbacks._budget_options import BudgetOptions
from hf_trainplus.callbacks._budget_progress import joules_of, progress_of, rhythm_of
from hf_trainplus.callbacks.agreement import agree
from hf_trainplus.training.run_size import device_count


class BudgetSession:
    """Watches signals, stop file and limits from the start of training to its end, and lets the ranks agree.

    Args:
        options: the callback's options.
        args: the Trainer's arguments.
        loader: the training loader, for counting examples.
        clock: seconds from a fixed point.
        energy: joules of this process's devices, None = ask NVML.
        conditions: the user's own.
    """

    def __init__(
        self,
        options: BudgetOptions,
        args: TrainingArguments,
        loader: Any,
        *,
        clock: Callable[[], float],
        energy: Joules | None,
        conditions: Iterable[StopCondition],
    ) -> None:
        self._args = args
        self._loader = loader
        age = process_age_seconds() if options.count_from_process_start else 0.0
        meter = Meter(
            devices=device_count(args),
            usd_per_device_hour=options.usd_per_device_hour,
            clock=clock,
            started=clock() - age,
            joules=energy or joules_of(args),
            devices_metered=max(1, args.n_gpu),
            process=process_identity() if options.count_from_process_start else None,
        )
        left = find_deadline(options.deadline, os.environ, time.time())
        ends = None if left is None else clock() + left
        self.keeper = BudgetKeeper(
            options.limits(),
            meter,
            deadline_seconds=lambda: None if ends is None else ends - clock(),
            margin_seconds=options.margin_seconds,
            expected_seconds=options.expected_seconds,
        )
        self.signals = SignalStop(options.stop_signals, scope=Trainer.train.__code__)
        files = [StopFile(options.stop_file, clock=clock)] if options.stop_file else []
        self._rhythm: Rhythm | None = None
        self._condition = AnyOf([self.signals, *files, *conditions])

    def begin(self, state: TrainerState, saved: Mapping[str, Any] | None) -> None:
        """Start counting, from what an earlier session saved when there was one."""
        if saved:
            self.keeper.restore(saved)
        self.keeper.begin(self.progress(state))
        self.signals.install()

    def end(self) -> None:
        """Put the signal handlers back."""
        self.signals.restore()

    def progress(self, state: TrainerState) -> Progress:
        """Return how far training is."""
        return progress_of(self._args, state, self._loader)

    def close(self, phase: Phase, state: TrainerState) -> None:
        """Say that a phase ends here."""
        self.keeper.close(phase, self.progress(state))

    def check(self, moment: Moment) -> StopReason | None:
        """Return what this rank alone sees: a signal, a stop file, a condition. Cheap; no collective."""
        return self._condition.check(moment)

    def overdue(self, state: TrainerState, closing: Sequence[Phase], seconds: float = 0.0) -> bool:
        """Say whether this rank alone sees that some seconds and the closing phases do not fit into a limit in time."""
        return self.keeper.overdue(self.progress(state), closing, seconds)

    def decide(
        self,
        state: TrainerState,
        moment: Moment,
        pending: Sequence[Phase],
        closing: Sequence[Phase],
        spent: str | None = None,
    ) -> Decision:
        """Let all ranks decide together; every rank must call it at the same boundaries.

        Args:
            state: the Trainer's state.
            moment: what the conditions look at.
            pending: phases due at this boundary.
            closing: phases that end the run.
            spent: a limit that the checkpoint says is spent.
        """
        # what the Trainer's rhythm was, for `trainplus estimate --from-run`
        self._rhythm = rhythm_of(self._args, state, self.keeper.measured.count("evaluation"), self._loader)
        verdict = self.keeper.verdict(
            self.progress(state), pending=pending, closing=closing, due_in=self._rhythm.due_in(state.global_step)
        )
        if spent and verdict.limit is None:
            verdict = replace(verdict, limit=spent)
        return count(agree(ballot(self.check(moment), verdict)))

    def rhythm_values(self) -> dict[str, int | None]:
        """Return when the run evaluates and saves, as plain values."""
        return asdict(self._rhythm) if self._rhythm else {}

    def describe(self, limit: str | None, state: TrainerState) -> str:
        """Write what is spent of a limit, for a person; empty without a limit."""
        return self.keeper.describe(limit, self.progress(state)) if limit else ""

    def time_left(
        self, state: TrainerState, closing: Sequence[Phase], later_stages: float, stage_rooms: Sequence[Headroom]
    ) -> TimeLeft | None:
        """Forecast the time to the end, None before 20 steps are measured."""
        return self.keeper.time_left(
            self.progress(state),
            rhythm_of(self._args, state, self.keeper.measured.count("evaluation"), self._loader),
            closing=closing,
            later_stages=later_stages,
            stage_rooms=stage_rooms,
        )
