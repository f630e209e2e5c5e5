"""The hooks of PlusTrainer that only a plan needs; without one each is upstream's own step."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from transformers import TrainingArguments

from hf_trainplus import _upstream as upstream
from hf_trainplus.training.stages.position import quiet_restore
from hf_trainplus.training.stages.streams import stream_position
from hf_trainplus.training.stages.trainer import lengths

if TYPE_CHECKING:
    from hf_trainplus.training.stages.run import StagedRun


class StagedHooks(upstream.UpstreamTrainer):
    """Trainer whose loop asks the run of a plan, when there is one.

    It starts no stage: ``StagedRun.train`` does, and each stage is one of upstream's loops.
    """

    _staged: StagedRun | None = None

    def set_initial_training_values(self, args: TrainingArguments, dataloader: Any) -> Any:
        """Return the lengths of the training as ``Trainer`` does; of a stage's steps and epochs the fewer count."""
        values = super().set_initial_training_values
        staged = self._staged
        return values(args, dataloader) if staged is None else lengths(staged, values, args, dataloader)

    def plus_loop_begins(self) -> None:
        """Choose what the stage trains."""
        if self._staged is not None:
            self._staged.loop_begins()

    def plus_restoring(self) -> AbstractContextManager[None]:
        """Keep upstream from warning that a stage has other settings than the one before it."""
        return nullcontext() if self._staged is None else quiet_restore(self._staged.start)

    def plus_position(self, found: tuple[int, int], max_steps: int, update_steps_an_epoch: int) -> tuple[int, int]:
        """Count epochs and batches from the beginning of the stage, and those of a stream in its own pass."""
        if self._staged is None:
            return (stream_position(self, max_steps) if any(found) else None) or found
        return self._staged.state_restored(max_steps, update_steps_an_epoch)

    def plus_weights_from(self, checkpoint: str) -> str:
        """Load the weights of an earlier boundary after a fall back."""
        return checkpoint if self._staged is None else self._staged.weights_from(checkpoint)

    def plus_load_optimizer(self, checkpoint: str) -> bool:
        """Carry moments over a boundary by the names of parameters; load those that upstream would lose."""
        if self._staged is not None and self._staged.load_optimizer(checkpoint):
            return True
        if not self.is_fsdp_enabled:
            return False
        from hf_trainplus.training.stages.fsdp_crossing import resume_shards

        return resume_shards(self, checkpoint)

    def plus_loads_engine(self, checkpoint: str) -> bool:
        """Have a stage with other processes or other trained parameters loaded by the names of parameters."""
        return self._staged is not None and self._staged.zero.takes(checkpoint)

    def plus_load_engine(self, checkpoint: str) -> None:
        """Load weights and moments by the names of parameters."""
        if self._staged is not None:
            self._staged.zero.load(settings=not self._staged.start.crosses)

    def plus_prepared(self) -> None:
        """Have the checkpoints of a plan name the optimizer's parameters."""
        if self._staged is not None:
            self._staged.prepared()

    def plus_train_sampler(self, sampler: Any) -> Any:
        """Draw the rows of a stage in an order of its own."""
        return sampler if self._staged is None else self._staged.sampler(sampler)

    def plus_epoch_begins(self, epoch: int) -> None:
        """Tell the order its epoch."""
        if self._staged is not None:
            self._staged.epoch_begins(epoch)

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        """Make the optimizer as ``Trainer`` does, its groups as the checkpoint needs them."""
        made = super().create_optimizer(*args, **kwargs)
        if self._staged is not None:
            self._staged.zero.optimizer_made(self.optimizer)
        return made

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Make the schedule as ``Trainer`` does; a stage's is put back after a checkpoint's has been loaded over it."""
        made = super().create_scheduler(num_training_steps, optimizer)
        if self._staged is not None:
            self._staged.schedule_made(made, self.optimizer if optimizer is None else optimizer)
        return made
