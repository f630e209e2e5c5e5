"""One DataLoader and one set of workers for all evaluations: what they are asked for is swapped, they stay.

Worker processes, open files and pinned-memory threads therefore do not grow with the number of evaluations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset


@dataclass(frozen=True)
class LoaderSettings:
    """How rows are read: the loader's part of ``TrainingArguments``.

    Args:
        num_workers: worker processes, >= 0; 0 reads in this process.
        pin_memory: copy batches to page-locked memory; without an accelerator it has no effect.
        prefetch_factor: batches that each worker prepares ahead, >= 1; None for torch's default.
        multiprocessing_context: how workers start ("fork", "spawn", "forkserver"); None for the platform's default.
    """

    num_workers: int = 0
    pin_memory: bool = False
    prefetch_factor: int | None = None
    multiprocessing_context: str | None = None

    @property
    def held_at_once(self) -> int:
        """Number of tasks that may be prepared and not yet used."""
        return max(1, self.num_workers * (self.prefetch_factor or 2))


class TaskLoader:
    """A DataLoader whose unit of work is a task: ``answer(task)`` runs in the workers, answers come back in order.

    It does not know what a task is. Only the newest run can be read on: an older one that was left half-way stops with
    an error when it is continued.

    Args:
        answer: picklable callable where workers are spawned; anything where they are forked.
        settings: workers and memory.
    """

    def __init__(self, answer: Callable[[Any], Any], settings: LoaderSettings) -> None:
        self._queue = _TaskQueue()
        self._runs = 0
        workers = settings.num_workers > 0
        self._loader: DataLoader[Any] | None = DataLoader(
            _Answers(answer),
            batch_sampler=self._queue,
            collate_fn=_unchanged,
            num_workers=settings.num_workers,
            pin_memory=settings.pin_memory and _can_pin(),
            prefetch_factor=settings.prefetch_factor if workers else None,
            multiprocessing_context=settings.multiprocessing_context if workers else None,
            persistent_workers=workers,
            # a generator of its own: drawing the workers' seed must not move the training's random state
            generator=torch.Generator(),
        )

    def run(self, tasks: Iterable[Any]) -> Iterator[Any]:
        """Yield the answers to the tasks, in order; tasks are drawn ahead where there are workers.

        Raises:
            RuntimeError: the loader is closed, or a newer run has begun.
        """
        if self._loader is None:
            raise RuntimeError("This loader was closed; make a new one to evaluate again.")
        self._runs += 1
        run = self._runs
        self._queue.tasks = tasks
        for answer in self._loader:
            yield answer
            if run != self._runs:
                raise RuntimeError("A newer run of this loader has begun; read one run at a time.")

    def close(self) -> None:
        """End the workers and wait for them; a second call does nothing."""
        if self._loader is None:
            return
        iterator, self._loader = self._loader._iterator, None
        self._runs += 1
        if iterator is not None and hasattr(iterator, "_shutdown_workers"):
            iterator._shutdown_workers()


class _TaskQueue:
    """Stands where DataLoader expects its batch sampler; each run reads what was put here."""

    tasks: Iterable[Any] = ()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tasks)


class _Answers(Dataset[Any]):
    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self._answer = answer

    def __getitems__(self, task: Any) -> Any:
        return self._answer(task)


def _unchanged(answer: Any) -> Any:
    return answer


def _can_pin() -> bool:
    return torch.cuda.is_available() or (hasattr(torch, "xpu") and torch.xpu.is_available())
