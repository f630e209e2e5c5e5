"""Training data without a length: its stages end by steps, by a meter, or by a rule with a last step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from transformers import TrainingArguments
from transformers.trainer_utils import has_length

if TYPE_CHECKING:
    from transformers import Trainer

    from hf_trainplus.budget.plans.stage import Stage

# their places among the arguments of Trainer
_ARGUMENTS, _TRAIN_DATASET = 1, 3


def stages_say_when(given: Sequence[Any], named: Mapping[str, Any], plan: Any) -> AbstractContextManager[None]:
    """Give the context to make a trainer in: upstream asks for ``max_steps`` with a stream, which a plan's stages have.

    Args:
        given: positional arguments of the trainer.
        named: its other arguments.
        plan: its plan, None for that of its arguments.
    """
    args = named.get("args", given[_ARGUMENTS] if len(given) > _ARGUMENTS else None)
    data = named.get("train_dataset", given[_TRAIN_DATASET] if len(given) > _TRAIN_DATASET else None)
    planned = plan is not None or getattr(args, "plan", None) is not None
    if not planned or args is None or args.max_steps > 0 or data is None or has_length(data):
        return nullcontext()
    return _open(args)


@contextmanager
def _open(args: TrainingArguments) -> Iterator[None]:
    from hf_trainplus.budget.remaining import OPEN_STEPS  # what a plan needs; making a trainer need not load it
    from hf_trainplus.training.stages.arguments import applied

    with applied(args, {"max_steps": OPEN_STEPS}):
        yield


def stream_problem(data: Any, stage: Stage, args: TrainingArguments) -> str | None:
    """Return why a stage on this data would have no end, None when it has one.

    Args:
        data: its training data.
        stage: the stage.
        args: the run's own arguments.
    """
    if not stage.trains or data is None or has_length(data):
        return None
    limits = stage.limits().limits()
    if "num_train_epochs" in limits:
        return (
            f"num_train_epochs={limits['num_train_epochs']:g} counts passes over rows, and the training data is a "
            "stream without a length. Write budget: {max_steps: 1000}."
        )
    if "max_steps" in limits or (not limits and args.max_steps > 0):
        return None
    # upstream walks through as many steps as are planned, also where the stream has ended
    given = ", ".join(f"{name}: {value:g}" for name, value in limits.items())
    return (
        f"{given or 'its rule'} leaves open how many steps it has, and the training data is a stream without a length. "
        f"Add the most it may take: budget: {{{given}{', ' if given else ''}max_steps: 1000}}."
    )


def stream_position(trainer: Trainer, max_steps: int) -> tuple[int, int] | None:
    """Return the passes over a stream that are done and the batches of the next one; None where rows can be counted.

    Upstream takes all steps as those of one pass, so that a run would go on in its second pass at a wrong row. The
    state's epoch is the number of the pass and the share of the planned batches, whichever pass they are in.

    Args:
        trainer: its state has just been restored.
        max_steps: steps that are planned for the stage, or for the run.
    """
    state, args = trainer.state, trainer.args
    if not state.epoch or trainer.train_dataset is None or has_length(trainer.train_dataset):
        return None
    passes = int(state.epoch)
    batches = round((state.epoch - passes) * max_steps * args.gradient_accumulation_steps)
    return passes, 0 if args.ignore_data_skip else batches


def no_steps(values: Callable[..., Any], args: TrainingArguments, dataloader: Any) -> Any:
    """Return the lengths of a stage that trains nothing; upstream finds those of a stream from its steps alone.

    Args:
        values: upstream's ``set_initial_training_values``.
        args: the arguments of the stage.
        dataloader: its training loader.
    """
    from hf_trainplus.training.stages.arguments import applied

    with applied(args, {"max_steps": 1}):
        _, steps_a_pass, examples, _, batch, batches_a_pass, _ = values(args, dataloader)
    return 0, steps_a_pass, examples, 0, batch, batches_a_pass, 0
