"""When an evaluation must be left between two batches, in a training run and outside one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeVar

from hf_trainplus.evaluation.ranks import Ranks

if TYPE_CHECKING:
    from transformers import Trainer

    from hf_trainplus.trainer import PlusTrainer

T = TypeVar("T")


def must_leave(trainer: PlusTrainer) -> bool:
    """Say whether the running evaluation is to be left now, the same on all ranks. It is a collective.

    Outside training a request counts for one call of ``evaluate`` or ``predict``, and is used up by leaving it.

    Args:
        trainer: the trainer that evaluates.
    """
    if trainer.is_in_train:
        return urgent_stop_seen(trainer)
    asked = Ranks.current().any(trainer.leave_requested)
    if asked:
        trainer.leave_requested = False
    return asked


def was_left(error: Exception) -> bool:
    """Say whether an evaluation ended because it was left on request, and not by a failure."""
    from hf_trainplus.evaluation.loop import EvaluationLeft  # an evaluation has imported it; making a trainer need not

    return isinstance(error, EvaluationLeft)


def close_bars(trainer: Trainer) -> None:
    """Close the bars of an evaluation that was left; its callbacks are told of no end."""
    for callback in trainer.callback_handler.callbacks:
        bar = getattr(callback, "prediction_bar", None)
        if bar is not None:
            bar.close()
            callback.prediction_bar = None


def urgent_stop_seen(trainer: Trainer) -> bool:
    """Say whether any rank must leave at once: ``request_stop``, a signal, a stop file, a limit in time that is passed.

    It is a collective.

    Args:
        trainer: its callbacks with ``leaves_evaluation`` are asked.
    """
    own = bool(getattr(trainer, "stop_requested", False))
    for callback in trainer.callback_handler.callbacks:
        leaves = getattr(callback, "leaves_evaluation", None)
        own = own or (callable(leaves) and bool(leaves(trainer.args, trainer.state)))
    return Ranks.current().any(own)


def unless_leaving(trainer: Trainer, act: Callable[[], T], say: Callable[[str], None]) -> T | None:
    """Do what follows the last step, unless any rank must leave at once: then the run that goes on does it.

    It is a collective.

    Args:
        trainer: the trainer whose training ends.
        act: evaluates; what it has begun when a rank must leave is left.
        say: warns, each message once.

    Returns:
        What ``act`` returned, None when it was left.
    """
    if not urgent_stop_seen(trainer):
        try:
            return act()
        except Exception as error:
            if not was_left(error):
                raise
    say("the best checkpoint is not evaluated on all rows, since the run has to leave; a run that resumes does it")
    return None


def announce(trainer: Trainer) -> None:
    """Tell the callbacks that ask for it that this trainer leaves evaluations, and makes up for them on a resume."""
    for callback in trainer.callback_handler.callbacks:
        if hasattr(callback, "leaves_evaluations"):
            callback.leaves_evaluations = True


@contextmanager
def puts_signals_back(trainer: Trainer) -> Iterator[None]:
    """Put the signal handlers back when training raises; upstream tells its callbacks nothing of that."""
    try:
        yield
    except BaseException:
        for callback in trainer.callback_handler.callbacks:
            put_back = getattr(callback, "put_signals_back", None)
            if callable(put_back):
                put_back()
        raise


def refuse_before(trainer: Trainer) -> None:
    """Leave an evaluation of a training run before it begins, somebody else's loop too. It is a collective.

    Raises:
        EvaluationLeft: any rank must leave at once.
    """
    if urgent_stop_seen(trainer):
        from hf_trainplus.evaluation.loop import EvaluationLeft

        raise EvaluationLeft("left before it began or was whole: a stop was asked for, nothing is reported")


def note_left(trainer: Trainer) -> None:
    """Let the callbacks note why an evaluation was left. It is a collective."""
    for callback in trainer.callback_handler.callbacks:
        note = getattr(callback, "evaluation_left", None)
        if callable(note):
            note(trainer.args, trainer.state)


@contextmanager
def interruptible(trainer: Trainer) -> Iterator[None]:
    """Leave a metric call in training as soon as a stop signal comes, by an exception: it may take minutes.

    Several processes have to agree, so they leave before the call and not inside of it. It is a collective.

    Raises:
        EvaluationLeft: a stop was asked for before the call, or a signal came inside.
    """
    if not trainer.is_in_train or trainer.compute_metrics is None:
        yield
        return
    from hf_trainplus.evaluation.loop import EvaluationLeft

    refuse_before(trainer)
    if Ranks.current().size > 1:
        yield
        return
    with ExitStack() as stack:
        for callback in trainer.callback_handler.callbacks:
            raising = getattr(callback, "raising_at_signal", None)
            if callable(raising):
                stack.enter_context(raising(lambda: EvaluationLeft("left in a metric call: a signal came")))
        yield
