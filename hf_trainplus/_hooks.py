"""The places in upstream's training loop at which PlusTrainer acts."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any


class TrainingHooks:
    """Hooks that the training loop calls; each does what upstream does until it is overridden.

    It knows nothing of the loop itself: ``_upstream.UpstreamTrainer`` calls them from the private methods of Trainer.
    """

    def plus_evaluate(self, run: Any) -> dict[str, float]:
        """Run the scheduled evaluation of a step; ``run()`` is upstream's own."""
        return run()  # type: ignore[no-any-return, unused-ignore]

    def plus_is_new_best(self, metrics: dict[str, float], run_dir: str) -> bool:
        """Decide whether ``metrics`` are a new best; sets the state accordingly."""
        raise NotImplementedError("abstract: PlusTrainer decides")

    def plus_checkpoint_saved(self, checkpoint_dir: str) -> None:
        """Act after a checkpoint is complete on disk."""

    def plus_training_starts(self, resume_from_checkpoint: str | None, trial: Any, ignore_keys: Any) -> None:
        """Act once a run, after the state is restored and before its first step."""

    def plus_state_loaded(self) -> None:
        """Act after the state of a checkpoint was read, before upstream restores callbacks from it."""

    def plus_training_ends(self, run_dir: str) -> None:
        """Act after the last step, before upstream loads the best model."""

    def plus_checkpoint_begins(self, checkpoint_dir: str) -> None:
        """Act before a checkpoint is written; what is written there is complete when the checkpoint is."""

    def plus_saving(self, final: str) -> AbstractContextManager[str]:
        """Give the folder in which the checkpoint ``final`` is written; at the end of the context it is in place."""
        return nullcontext(os.path.dirname(final))

    def plus_boundary(self, grad_norm: Any, learning_rate: float | None) -> None:
        """Act after a step, and again after the last step of an epoch, before logs, evaluations and saves."""

    def plus_loop_begins(self) -> None:
        """Act once a loop, before data, model and optimizer are prepared."""

    def plus_restoring(self) -> AbstractContextManager[None]:
        """Give the context in which upstream restores the state of a checkpoint."""
        return nullcontext()

    def plus_position(self, found: tuple[int, int], max_steps: int, update_steps_an_epoch: int) -> tuple[int, int]:
        """Return the epochs that are done and the batches of the next one; ``found`` is what upstream says."""
        return found

    def plus_weights_from(self, checkpoint: str) -> str:
        """Return the folder from which weights and optimizer are loaded for a run that resumes from ``checkpoint``."""
        return checkpoint

    def plus_load_optimizer(self, checkpoint: str) -> bool:
        """Load the optimizer in place of upstream and return True; False leaves it to upstream."""
        return False

    def plus_loads_engine(self, checkpoint: str) -> bool:
        """Say whether ``plus_load_engine`` is to load DeepSpeed's engine in place of DeepSpeed itself."""
        return False

    def plus_load_engine(self, checkpoint: str) -> None:
        """Load DeepSpeed's engine from a checkpoint that DeepSpeed cannot take over."""

    def plus_prepared(self) -> None:
        """Act once model, optimizer and schedule are made and loaded."""

    def plus_train_sampler(self, sampler: Any) -> Any:
        """Return the sampler of the training data; ``sampler`` is upstream's."""
        return sampler

    def plus_epoch_begins(self, epoch: int) -> None:
        """Act before the rows of an epoch are drawn."""

    def plus_training_ended(self, run_dir: str) -> None:
        """Act when upstream has loaded the best and deleted the checkpoints that it keeps no longer."""

    def plus_train_loss(self) -> float | None:
        """Return the mean training loss that the end of the run logs; None for upstream's own."""
        return None
