"""The callback that says once what holds a run up, and writes all verdicts at the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.utils import logging

from hf_trainplus.callbacks._files import write_json
from hf_trainplus.callbacks._guarded import GuardedCallback
from hf_trainplus.callbacks._settings import settings_of
from hf_trainplus.callbacks.gpu_monitor import GPUMonitorCallback
from hf_trainplus.callbacks.memory_leak import MemoryLeakCallback
from hf_trainplus.callbacks.step_clock import StepClockCallback
from hf_trainplus.monitor.diagnosis import DiagnosisRule, Evidence, Verdict, diagnose, gather_evidence, tell

logger = logging.get_logger("hf_trainplus")


class DiagnosisCallback(GuardedCallback):
    """Check the diagnosis rules at a decision point and at the end of training.

    The decision point is the first evaluation, or ``at_step`` steps after the run began or was resumed, whichever comes
    first: early enough to stop and change something. What is found is logged once by the main process, with the next
    thing to do; at the end only what is new. All verdicts stand in ``trainplus/diagnosis.json`` in the output folder.
    It measures nothing itself and decides nothing: it reads the callbacks that it is given and the Trainer's own
    history. It logs no keys.

    Args:
        step_clock: where the time went; without it no rule about time can tell.
        gpu_monitor: what the devices did.
        memory: what the memory did.
        rules: the rules; all of ``RULES`` with their defaults when None.
        at_step: steps to the decision point, >= 1.

    Raises:
        ValueError: ``at_step`` below 1.

    Example:
        >>> clock = StepClockCallback()
        >>> callbacks = [clock, DiagnosisCallback(clock)]      # Trainer(..., callbacks=callbacks)
    """

    def __init__(
        self,
        step_clock: StepClockCallback | None = None,
        gpu_monitor: GPUMonitorCallback | None = None,
        memory: MemoryLeakCallback | None = None,
        *,
        rules: Sequence[DiagnosisRule] | None = None,
        at_step: int = 100,
    ) -> None:
        if at_step < 1:
            raise ValueError(f"at_step={at_step}; allowed is a step of 1 or more, e.g. at_step=100.")
        self._step_clock = step_clock
        self._gpu_monitor = gpu_monitor
        self._memory = memory
        self._rules = rules
        self._at_step = at_step
        self._told: set[str] = set()
        self._decided = False
        self._training = False
        self._began_at = 0

    def evidence(self, args: TrainingArguments, state: TrainerState) -> Evidence:
        """Return what is known now."""
        clock, monitor, memory = self._step_clock, self._gpu_monitor, self._memory
        return gather_evidence(
            log_history=state.log_history,
            step_clock=None if clock is None or not clock.started else clock.summary(),
            devices=None if monitor is None else monitor.summary(),
            memory=None if memory is None else memory.summary(),
            settings=settings_of(args),
        )

    def verdicts(self, args: TrainingArguments, state: TrainerState) -> list[Verdict]:
        """Return one verdict a rule, as of now."""
        return diagnose(self.evidence(args, state), self._rules)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin anew."""
        self._told, self._decided, self._training = set(), False, True
        self._began_at = state.global_step

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Tell at the decision point."""
        if not self._decided and state.global_step - self._began_at >= self._at_step:
            self._tell(args, state)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Tell at the first evaluation."""
        if self._training and not self._decided and state.global_step > 0:
            self._tell(args, state)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Tell what is new and write all verdicts."""
        self._training = False
        verdicts = self._tell(args, state)
        if state.is_world_process_zero:
            path = Path(str(args.output_dir)) / "trainplus" / "diagnosis.json"
            write_json(path, [verdict.to_json() for verdict in verdicts])

    def _tell(self, args: TrainingArguments, state: TrainerState) -> list[Verdict]:
        self._decided = True
        if not state.is_world_process_zero:
            return []
        verdicts = self.verdicts(args, state)
        new = [one for one in verdicts if one.outcome == "found" and one.rule not in self._told]
        self._told.update(one.rule for one in new)
        if text := tell(new):
            logger.warning(f"diagnosis at step {state.global_step}:\n{text}")
        return verdicts
