"""What a race asks of its driver, and what the driver answers: the race itself evaluates nothing."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from hf_trainplus.results import ExampleResults, Int64Array

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Evaluate:
    """Evaluate ``rows`` with the weights of ``checkpoint``; answer with ``Evaluated``.

    Args:
        checkpoint: which weights.
        rows: (n,) positions in the evaluation set, none of them evaluated with these weights before.
        live: True when these are the weights in the model now; False when the kept ones must be loaded first.
        reason: why the race needs them, for logs.
    """

    checkpoint: int
    rows: Int64Array
    live: bool
    reason: str


@dataclass(frozen=True)
class Keep:
    """Keep the live weights as those of ``checkpoint``, safe from rotation; answer with ``Kept``."""

    checkpoint: int


@dataclass(frozen=True)
class Drop:
    """Weights of ``checkpoint`` are not needed any more; answer None.

    They may be deleted only once race state written after this call is safe on disk: a run that resumes from an older
    state still needs them.
    """

    checkpoint: int


@dataclass(frozen=True)
class Evaluated:
    """Per-example results of the rows asked for, in any order, and what getting them took.

    Args:
        results: one row for each row asked for.
        evaluate_seconds: time of the forward passes, None when not measured; alike on all ranks.
        load_seconds: time to load the weights and to restore the live ones, None for live weights or not measured.
    """

    results: ExampleResults
    evaluate_seconds: float | None = None
    load_seconds: float | None = None


@dataclass(frozen=True)
class Kept:
    """The weights are kept; ``save_seconds`` is what it took, None when not measured, alike on all ranks."""

    save_seconds: float | None = None


Command = Evaluate | Keep | Drop
Answer = Evaluated | Kept | None


class RaceDriver(Protocol):
    """Carries out what a race asks for: a recorded run, or a model that is being trained."""

    def evaluate(self, command: Evaluate) -> Evaluated:
        """Evaluate the rows with the checkpoint's weights."""

    def keep(self, command: Keep) -> Kept:
        """Keep the live weights under the checkpoint's number."""

    def drop(self, command: Drop) -> None:
        """Forget the checkpoint's weights once newer race state is safe."""


def drive(steps: Generator[Command, Answer, _Result], driver: RaceDriver) -> _Result:
    """Run one race operation to its end with the driver, and return its result.

    An error of the driver is thrown into the operation, which puts the race back to where it was, and leaves here.

    Args:
        steps: ``Race.observe(...)``, ``Race.settle()`` or ``Race.finish()``.
        driver: carries out the commands.
    """
    try:
        command = next(steps)
        while True:
            command = steps.send(_answer(command, driver))
    except StopIteration as stop:
        result: _Result = stop.value
        return result
    finally:
        steps.close()


def _answer(command: Command, driver: RaceDriver) -> Answer:
    if isinstance(command, Evaluate):
        return driver.evaluate(command)
    if isinstance(command, Keep):
        return driver.keep(command)
    driver.drop(command)
    return None
