"""What one stage has spent, and whether another step fits into its own budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from transformers import TrainerState, TrainingArguments

from hf_trainplus.budget.budget import Budget
from hf_trainplus.budget.keeping.headroom import Headroom
from hf_trainplus.budget.keeping.keeper import BudgetKeeper
from hf_trainplus.budget.keeping.measured import Phase
from hf_trainplus.budget.meter import Meter, Progress
from hf_trainplus.budget.plans.stage import Stage
from hf_trainplus.callbacks._ballot import Decision, ballot, count
from hf_trainplus.callbacks._budget_progress import joules_of, progress_of, rhythm_of
from hf_trainplus.callbacks._budget_resume import require_counted, require_measured
from hf_trainplus.callbacks.agreement import agree
from hf_trainplus.training.run_size import device_count
from hf_trainplus.training.stages.arguments import metered_limits
from hf_trainplus.training.stages.record import StageRecord


class StageMeter:
    """Meters of one stage, from its first step on, over all resumes.

    Limits in steps and epochs are not its business: the Trainer's own counting ends those.

    Args:
        stage: the stage.
        record: where it began.
        args: the Trainer's arguments.
        loader: the training loader, for counting examples.
        clock: seconds from a fixed point.

    Raises:
        ValueError: a limit on something that this Trainer does not measure.
    """

    def __init__(
        self, stage: Stage, record: StageRecord, args: TrainingArguments, loader: Any, clock: Callable[[], float]
    ) -> None:
        self._record, self._args, self._loader = record, args, loader
        limits = Budget(**metered_limits(stage))
        require_measured(limits, args, None)
        self.limited = bool(limits)
        meter = Meter(
            devices=device_count(args),
            usd_per_device_hour=getattr(args, "usd_per_device_hour", None),
            clock=clock,
            joules=joules_of(args) if limits.energy_kwh is not None else None,
            devices_metered=max(1, args.n_gpu),
        )
        self.keeper = BudgetKeeper(limits, meter, margin_seconds=0.0)

    def begin(self, state: TrainerState, saved: Mapping[str, Any] | None) -> None:
        """Start counting, from what an earlier process saved inside the stage."""
        if saved:
            self.keeper.restore(saved)
        self.keeper.begin(self._progress(state))

    def close(self, phase: Phase, state: TrainerState) -> None:
        """Say that a phase ends here.

        Raises:
            ValueError: the stage limits tokens, and none was counted.
        """
        if phase == "step":
            require_counted(self.keeper.budget, state)
        self.keeper.close(phase, self._progress(state))

    def rooms(self, state: TrainerState) -> tuple[Headroom, ...]:
        """Return what is left under each of the stage's limits that need a meter."""
        return self.keeper.rooms(self._progress(state))

    def decide(self, state: TrainerState, pending: Sequence[Phase], closing: Sequence[Phase]) -> Decision | None:
        """Let all ranks decide whether another step fits; None without a limit, when nobody has to ask."""
        if not self.limited:
            return None
        rhythm = rhythm_of(self._args, state, self.keeper.measured.count("evaluation"), self._loader)
        verdict = self.keeper.verdict(
            self._progress(state), pending=pending, closing=closing, due_in=rhythm.due_in(state.global_step)
        )
        return count(agree(ballot(None, verdict)))

    def _progress(self, state: TrainerState) -> Progress:
        whole = progress_of(self._args, state, self._loader)
        tokens = None if whole.tokens is None else whole.tokens - self._record.first_tokens
        return replace(whole, steps=whole.steps - self._record.first_step, tokens=tokens)
