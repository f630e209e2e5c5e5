"""The books of a step clock: intervals between logging steps, over all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from transformers import TrainerState, TrainingArguments

from hf_trainplus.callbacks._batch_counts import BatchCounts
from hf_trainplus.callbacks._ranks import gather_rows
from hf_trainplus.callbacks._reduction import ReductionTimer
from hf_trainplus.monitor.device_timer import DeviceTimer
from hf_trainplus.monitor.step_clock import NOT_TRAINING, StepClock
from hf_trainplus.monitor.step_report import COLUMNS, RankRow, StepReport
from hf_trainplus.monitor.throughput import Counters, Throughput, measure_throughput
from hf_trainplus.training.run_size import device_count


class StepAccount:
    """Cuts a run into intervals and adds them up.

    Totals that a checkpoint brought along (steps, tokens, FLOPs) are where counting starts, so that speed is right
    from the first interval after a resume.

    Args:
        args: the Trainer's arguments.
        state: the Trainer's state as training begins.
        clock: the started clock.
        counts: this rank's batches; empty where nobody counts them.
        timer: the device's own time, or None.
        peak_flops: peak of one device in FLOP/s, or None.
        reduce_ranks: exchange rows between ranks.
        reduction: times gradient reduction, or None.
    """

    def __init__(
        self,
        args: TrainingArguments,
        state: TrainerState,
        *,
        clock: StepClock,
        counts: BatchCounts,
        timer: DeviceTimer | None,
        peak_flops: float | None,
        reduce_ranks: bool,
        reduction: ReductionTimer | None = None,
    ) -> None:
        self._args = args
        self._clock = clock
        self._counts = counts
        self._timer = timer
        self._peak_flops = peak_flops
        self._reduce_ranks = reduce_ranks
        self._reduction = reduction
        self._times = clock.read()
        self._counters = self._count(state)
        self._extra_before = self._extra()
        self._rows: npt.NDArray[np.float64] | None = None
        self._added = Counters()
        self._flops_at_start = self._flops_at_log = float(state.total_flos)

    @property
    def world_size(self) -> int:
        """Ranks of the run, whether or not they exchange rows."""
        return int(self._args.world_size)

    @property
    def report(self) -> StepReport | None:
        """All intervals so far, None before the first."""
        if self._rows is None:
            return None
        added, flops = self._added, self._flops_at_log - self._flops_at_start
        if added.flops is None and flops > 0:
            added = replace(added, flops=flops)
        return StepReport(self._rows, self._speed(added, self._rows))

    def note_flops(self, state: TrainerState) -> None:
        """Take note of the Trainer's total, which it adds up over ranks just before each training log."""
        self._flops_at_log = float(state.total_flos)

    def close_interval(self, state: TrainerState, measured: Sequence[str]) -> StepReport:
        """End an interval. Every rank must come here together when ranks are reduced.

        Args:
            state: the Trainer's state.
            measured: the parts that this rank can tell apart.

        Returns:
            The interval over all ranks.
        """
        now, counters, extra = self._clock.read(), self._count(state), self._extra()
        changes = {name: _difference(extra[name], self._extra_before[name]) for name in extra}
        row = RankRow(now.minus(self._times), measured, changes).vector()
        rows = gather_rows(row, self._args.device) if self._reduce_ranks else np.asarray([row])
        added = _of_all_ranks(counters.minus(self._counters), rows)
        self._times, self._counters, self._extra_before = now, counters, extra
        self._added = added if self._rows is None else self._added.plus(added)
        self._rows = rows if self._rows is None else self._rows + rows
        return StepReport(rows, self._speed(added, rows))

    def _speed(self, added: Counters, rows: npt.NDArray[np.float64]) -> Throughput:
        times = {name: float(rows[:, COLUMNS.index(name)].mean()) for name in ("total", *NOT_TRAINING)}
        return measure_throughput(
            added,
            times["total"] - sum(times[part] for part in NOT_TRAINING),
            devices=device_count(self._args),
            peak_flops=self._peak_flops,
        )

    def _count(self, state: TrainerState) -> Counters:
        args = self._args
        batch = (state.train_batch_size or args.train_batch_size) * args.gradient_accumulation_steps * args.world_size
        tracked = args.include_num_input_tokens_seen not in (False, "no")
        return Counters(
            # a full batch a step; where batches are counted one by one, their sum replaces it
            examples=float(state.global_step * batch),
            tokens=float(state.num_input_tokens_seen) if tracked else None,
        )

    def _extra(self) -> dict[str, float | None]:
        device = {} if self._timer is None else self._timer.collect()
        return {
            "forward": self._counts.forward_seconds,
            "examples": self._counts.examples,
            "communication": None if self._reduction is None else self._reduction.seconds,
            "tokens": self._counts.tokens,
            "flops": self._counts.flops,
            "device_forward_backward": device.get("device_forward_backward"),
            "device_optimizer": device.get("device_optimizer"),
        }


def _difference(now: float | None, then: float | None) -> float | None:
    return None if now is None else now - (then or 0.0)


def _of_all_ranks(added: Counters, rows: npt.NDArray[np.float64]) -> Counters:
    """Prefer what the ranks counted batch by batch; the Trainer's own token count stays where it is on."""
    examples, tokens, flops = (_summed(rows, name) for name in ("examples", "tokens", "flops"))
    return Counters(
        examples=added.examples if examples is None else examples,
        tokens=tokens if added.tokens is None else added.tokens,
        flops=flops,
    )


def _summed(rows: npt.NDArray[np.float64], name: str) -> float | None:
    total = float(rows[:, COLUMNS.index(name)].sum())
    return None if np.isnan(total) else total
