"""Where a stage stands in the Trainer's state: steps count over the whole run, epochs inside the stage."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from hf_trainplus.training.stages.streams import stream_position

if TYPE_CHECKING:
    from transformers import Trainer

    from hf_trainplus.training.stages.record import StageRecord
    from hf_trainplus.training.stages.start import Start

# what it knows of intervals belongs to the stage that is over
_OF_A_STAGE = ("AdaptiveEvaluationCallback",)


@contextmanager
def quiet_restore(start: Start) -> Iterator[None]:
    """Take out upstream's warning of changed arguments where a stage begins; inside a stage it stays."""
    logger = logging.getLogger("transformers.trainer_utils")
    if start.crosses:
        logger.addFilter(_not_about_arguments)
    try:
        yield
    finally:
        logger.removeFilter(_not_about_arguments)


def _not_about_arguments(record: logging.LogRecord) -> bool:
    return "arguments do not match the ones in the `trainer_state.json`" not in record.getMessage()


def settle(
    trainer: Trainer, start: Start, record: StageRecord, max_steps: int, update_steps_an_epoch: int
) -> tuple[int, int]:
    """Set the state's last step and, at a boundary, its intervals.

    Args:
        trainer: its state has just been restored.
        start: how the stage begins.
        record: the stage.
        max_steps: steps of the whole stage.
        update_steps_an_epoch: optimizer steps of a pass over the stage's data.

    Returns:
        Epochs of the stage that are done, and batches of the next one.
    """
    state, args = trainer.state, trainer.args
    if start.finished:
        state.max_steps = state.global_step
        return 0, 0
    state.max_steps = record.first_step + max_steps
    if start.crosses:
        state.compute_steps(args, max_steps)  # type: ignore[no-untyped-call, unused-ignore]
        state.train_batch_size = int(args.train_batch_size)
        for name in _OF_A_STAGE:
            cast("dict[str, Any]", state.stateful_callbacks).pop(name, None)
        return 0, 0
    in_stream = stream_position(trainer, max_steps)
    if in_stream is not None:
        return in_stream
    done = state.global_step - record.first_step
    epochs, steps = divmod(done, update_steps_an_epoch)
    return epochs, 0 if args.ignore_data_skip else steps * args.gradient_accumulation_steps
