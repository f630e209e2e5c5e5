"""Where the training loop stands between two steps, and how a resumed loop is put there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hf_trainplus import _upstream as upstream
from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.training.checkpoints.record import LoopState, record_of

if TYPE_CHECKING:
    from transformers import Trainer

    from hf_trainplus.trainer import PlusTrainer


@dataclass
class Boundary:
    """What the loop was last told at a step boundary; it reads and sets the trainer's running sums.

    Args:
        first_step: step from which on the sum of losses counts; 0, or the step of a checkpoint without a record.
        step: step of the last boundary, -1 before the first.
        at_epoch_end: whether that boundary was the one at the end of an epoch.
        grad_norm, learning_rate: of the last step.

    Example:
        >>> boundary = Boundary()
        >>> boundary.enter(1, 0.5, 1e-3), boundary.at_epoch_end
        (None, False)
        >>> boundary.enter(1, 0.5, 1e-3), boundary.at_epoch_end
        (None, True)
    """

    first_step: int = 0
    step: int = -1
    at_epoch_end: bool = False
    grad_norm: float | None = None
    learning_rate: float | None = None

    def enter(self, step: int, grad_norm: Any, learning_rate: float | None) -> None:
        """Note a boundary; the second one of a step is that of the epoch's end."""
        self.at_epoch_end = step == self.step
        self.step, self.learning_rate = step, learning_rate
        self.grad_norm = None if grad_norm is None else float(grad_norm)

    def state(self, trainer: Trainer) -> LoopState | None:
        """Return what a checkpoint written now must remember; a collective. None outside training."""
        sums = upstream.running_sums(trainer)
        if sums is None:
            return None
        losses = Ranks.current().gather(sums.loss)
        runner = trainer.__dict__.get("_runner")  # None before the first evaluation
        known = self.step == trainer.state.global_step  # a subclass with a loop of its own tells nothing
        return LoopState(
            losses=losses,
            total_loss=sums.total_loss,
            last_logged_step=sums.last_logged_step,
            first_step=self.first_step,
            epoch_ended=self.at_epoch_end if known else True,
            grad_norm=self.grad_norm if known else None,
            learning_rate=self.learning_rate if known else None,
            token_limits={} if runner is None else runner.token_limits,
        )

    def take_up(self, trainer: PlusTrainer, checkpoint_dir: str) -> LoopState | None:
        """Give the trainer the sums of a checkpoint; None when nothing is known of it, as of stock's."""
        record = record_of(checkpoint_dir) if os.path.isdir(checkpoint_dir) else None
        loop = Ranks.current().from_first(None if record is None else record.loop)
        self.first_step, self.step = trainer.state.global_step, -1
        if loop is None:
            return None
        ranks = Ranks.current()
        sums = upstream.RunningSums(loop.loss_of(ranks.index, ranks.size), loop.total_loss, loop.last_logged_step)
        upstream.set_running_sums(trainer, sums)
        if loop.token_limits:
            trainer._runner.take_limits(loop.token_limits)
        self.first_step = loop.first_step
        self.step, self.at_epoch_end = trainer.state.global_step, loop.epoch_ended
        self.grad_norm, self.learning_rate = loop.grad_norm, loop.learning_rate
        return loop

    def train_loss(self, trainer: Trainer) -> float | None:
        """Return the mean loss of all steps since ``first_step``; None outside training."""
        sums = upstream.running_sums(trainer)
        return None if sums is None else sums.total_loss / max(trainer.state.global_step - self.first_step, 0.001)

    def owes_epoch_end(self, trainer: Trainer) -> bool:
        """Say whether a resumed loop stands between the last step of an epoch and what follows it."""
        state = trainer.state
        ends = state.global_step >= state.max_steps or float(state.epoch or 0.5).is_integer()
        return self.step == state.global_step and not self.at_epoch_end and ends
