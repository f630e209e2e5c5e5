"""The callback that looks for memory that grows and never comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerControl, TrainerState, TrainingArguments

from hf_trainplus.callbacks._files import write_json
from hf_trainplus.callbacks._guarded import GuardedCallback
from hf_trainplus.callbacks._leak_watch import LeakOptions, LeakWatch
from hf_trainplus.callbacks._loader_tap import listen, stop_listening
from hf_trainplus.monitor.leaks import Grown, LeakVerdict, MemoryPoint


class MemoryLeakCallback(GuardedCallback):
    """Watch host and device memory at equal points of the cycle and say when, and what, leaks.

    Works with any Trainer, on every rank by itself. A point is taken every ``every_steps`` steps, and after every
    evaluation; the two series are judged apart. Before a point garbage is collected, which costs some tenths of a
    second in a process with millions of objects: points that would take more than ``time_share`` of the run's time
    are left out. It changes no result, frees nothing but garbage, and returns the allocator's cache only when asked
    (``empty_cache=True``, which makes the next steps slower). A leak is warned about once, with what grew since the
    end of the warm-up, and stands in ``trainplus/memory.json`` in the output folder (``memory-rank{r}.json`` on other
    ranks). It logs no keys.

    Args:
        every_steps: steps between points, >= 1; None takes points after evaluations only.
        warmup: points of each series that are not judged, >= 1.
        least_growth_bytes: growth a point below which it is noise, >= 0.
        trace_allocations: record where Python memory is allocated (tracemalloc: training gets slower).
        empty_cache: return the allocator's cache before each point.
        time_share: largest share of the time since training began that points may take, above 0 and at most 1; None
            takes every point.
        write_summary: write the file at the end.

    Raises:
        ValueError: numbers out of range.

    Example:
        >>> MemoryLeakCallback(every_steps=200).verdicts()      # nothing has been trained yet
        {}
    """

    def __init__(
        self,
        every_steps: int | None = 100,
        *,
        warmup: int = 2,
        least_growth_bytes: float = 256 * 1024.0,
        trace_allocations: bool = False,
        empty_cache: bool = False,
        time_share: float | None = 0.005,
        write_summary: bool = True,
    ) -> None:
        if (every_steps is not None and every_steps < 1) or warmup < 1 or least_growth_bytes < 0:
            raise ValueError(
                f"every_steps={every_steps}, warmup={warmup}, least_growth_bytes={least_growth_bytes}; allowed are "
                "every_steps >= 1 or None, warmup >= 1 and a growth >= 0, e.g. MemoryLeakCallback(every_steps=100)."
            )
        if time_share is not None and not 0 < time_share <= 1:
            raise ValueError(f"time_share={time_share}; allowed is above 0 and at most 1, or None for every point.")
        self._options = LeakOptions(every_steps, warmup, least_growth_bytes, trace_allocations, empty_cache, time_share)
        self._write_summary = write_summary
        self._watch: LeakWatch | None = None
        self._loader: Any = None
        self._training = False

    @property
    def grown(self) -> list[Grown]:
        """What grew between the end of the warm-up and the leak that was found; empty without one."""
        return [] if self._watch is None else list(self._watch.grown)

    def points(self) -> dict[str, list[MemoryPoint]]:
        """Return the series: "steps" and "evaluation"."""
        return {} if self._watch is None else {name: list(points) for name, points in self._watch.series.items()}

    def verdicts(self) -> dict[str, list[LeakVerdict]]:
        """Return the verdicts of each series, one a kind of memory that is measured."""
        return {} if self._watch is None else {name: self._watch.judge(one) for name, one in self.points().items()}

    def summary(self) -> dict[str, Any] | None:
        """Return verdicts, points, what grew and the allocator's peak as JSON values; None before training."""
        return None if self._watch is None else self._watch.summary()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin anew."""
        if self._watch is not None:
            self._watch.close()
        device = args.device if args.device.type == "cuda" else None
        self._watch = LeakWatch(self._options, device, int(args.process_index))
        self._loader = kwargs.get("train_dataloader")
        self._watch.hears_loader = listen(self._loader, self._watch)
        self._training = True

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Take a point of the series "steps"."""
        every = self._options.every_steps
        if self._watch is not None and every is not None and state.global_step % every == 0:
            self._watch.take("steps", state.global_step)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Take a point of the series "evaluation"."""
        if self._watch is not None and self._training:
            self._watch.take("evaluation", state.global_step)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Write the summary."""
        self._training = False
        if self._watch is None:
            return
        stop_listening(self._loader, self._watch)
        self._loader = None
        self._watch.close()
        if self._write_summary:
            rank = int(args.process_index)
            name = "memory.json" if rank == 0 else f"memory-rank{rank}.json"
            write_json(Path(str(args.output_dir)) / "trainplus" / name, self.summary())
