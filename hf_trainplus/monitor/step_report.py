"""What the step clock says about an interval: shares, speed, and how the ranks differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.monitor.rank_table import Spread, spread_over_ranks
from hf_trainplus.monitor.step_clock import NOT_TRAINING, PARTS, PartTimes
from hf_trainplus.monitor.throughput import Throughput

# own work: what a rank spends without waiting for another one, where the forward pass is timed apart
_OWN = ("data_wait", "host_to_device", "forward", "optimizer", "callbacks")

COLUMNS = (
    *PARTS,
    "total",
    "steps",
    "forward",
    "communication",
    "device_forward_backward",
    "device_optimizer",
    "examples",
    "tokens",
    "flops",
)
"""One rank's row: seconds a part, seconds in all, steps, seconds inside the forward pass, seconds that backward waits
for other ranks' gradients (inside forward_backward, where a hook measures it), device seconds of two parts, and the
rows, tokens and floating-point operations of its batches. NaN marks what the rank does not measure."""


@dataclass(frozen=True)
class RankRow:
    """One rank's account of an interval, as the vector that travels between ranks.

    Args:
        times: the interval's parts.
        measured: the parts that this rank can tell apart; the others are inside "other".
        extra: further columns by name, e.g. ``{"forward": 1.2}``; absent ones are not measured.

    Example:
        >>> row = RankRow(PartTimes({"data_wait": 1.0, "other": 3.0}, 4.0, 2), measured=("data_wait", "other"))
        >>> vector = row.vector()
        >>> vector[COLUMNS.index("data_wait")], vector[COLUMNS.index("total")], str(vector[COLUMNS.index("tokens")])
        (1.0, 4.0, 'nan')
    """

    times: PartTimes
    measured: Sequence[str]
    extra: Mapping[str, float | None] = field(default_factory=dict)

    def vector(self) -> list[float]:
        """Return the (len(COLUMNS),) row."""
        known: dict[str, float | None] = {part: self.times.seconds.get(part) for part in self.measured}
        known |= {"total": self.times.total_seconds, "steps": float(self.times.steps), **self.extra}
        values = (known.get(name) for name in COLUMNS)
        return [float("nan") if value is None else float(value) for value in values]


@dataclass(frozen=True)
class StepReport:
    """An interval of training over all ranks.

    Logged keys (a value that is not measured has no key):

    | key | unit | meaning |
    |---|---|---|
    | ``time/step_seconds`` | s | training time (no evaluation, saving, skipping) a step, mean over ranks |
    | ``time/{part}_percent`` | % | share of the interval's wall-clock time, mean over ranks |
    | ``time/data_wait_percent_min``, ``_max``, ``time/data_wait_slowest_rank`` | %, rank | over ranks, when several |
    | ``time/own_seconds_min``, ``_max``, ``time/slowest_rank`` | s a step, rank | work that waits for no other rank |
    | ``time/communication_percent`` | % | share inside backward that waits for gradients, where a hook measures it |
    | ``time/device_step_seconds`` | s | device time of forward, backward and optimizer a step |
    | ``speed/examples_per_second``, ``speed/tokens_per_second`` | 1/s | all ranks together |
    | ``speed/tflops_per_device`` | TFLOP/s | by the model's own count |
    | ``speed/model_flops_utilization_percent`` | % | of the device's peak |

    Args:
        rows: (world size, len(COLUMNS)) rows as ``RankRow.vector`` returns them.
        throughput: rates of all ranks together.
    """

    rows: npt.NDArray[np.float64]
    throughput: Throughput

    @property
    def world_size(self) -> int:
        """Number of ranks in the report."""
        return int(self.rows.shape[0])

    @property
    def steps(self) -> int:
        """Steps in the interval."""
        return int(self._column("steps").max())

    def spreads(self) -> dict[str, Spread]:
        """Return name -> spread over ranks, in seconds, of all that every rank measures, and of ``own`` work."""
        found = dict(spread_over_ranks(COLUMNS, self.rows))
        own = np.stack([self._column(name) for name in _OWN])
        # without the forward pass apart, backward's wait for the others is inside and nothing can be said
        if not np.isnan(self._column("forward")).any():
            found["own"] = Spread.of(np.nansum(own, axis=0))
        return found

    def log_values(self) -> dict[str, float]:
        """Return the keys of the table above."""
        spreads = self.spreads()
        total, steps = spreads["total"].mean, max(self.steps, 1)
        values: dict[str, float] = {}
        if total <= 0:
            return values
        aside = sum(spreads[part].mean for part in NOT_TRAINING if part in spreads)
        values["time/step_seconds"] = (total - aside) / steps
        for part in PARTS:
            if part in spreads:
                values[f"time/{part}_percent"] = 100.0 * spreads[part].mean / total
        if "communication" in spreads:
            values["time/communication_percent"] = 100.0 * spreads["communication"].mean / total
        device = [spreads[name].mean for name in ("device_forward_backward", "device_optimizer") if name in spreads]
        if device:
            values["time/device_step_seconds"] = sum(device) / steps
        values |= self._rank_values(spreads, total, steps) if self.world_size > 1 else {}
        return values | self._speed_values()

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON values: the spreads, the rates, and the share of each part."""
        spreads = self.spreads()
        total = spreads["total"].mean
        shares = {part: spreads[part].mean / total for part in PARTS if part in spreads and total > 0}
        return {
            "world_size": self.world_size,
            "steps": self.steps,
            "total_seconds": total,
            "shares": shares,
            "spreads": {name: asdict(spread) for name, spread in spreads.items()},
            "throughput": asdict(self.throughput),
        }

    def _column(self, name: str) -> npt.NDArray[np.float64]:
        return self.rows[:, COLUMNS.index(name)]

    def _rank_values(self, spreads: Mapping[str, Spread], total: float, steps: int) -> dict[str, float]:
        values: dict[str, float] = {}
        if "data_wait" in spreads:
            wait = spreads["data_wait"]
            values["time/data_wait_percent_min"] = 100.0 * wait.minimum / total
            values["time/data_wait_percent_max"] = 100.0 * wait.maximum / total
            values["time/data_wait_slowest_rank"] = wait.largest_rank
        if "own" in spreads:
            own = spreads["own"]
            values["time/own_seconds_min"] = own.minimum / steps
            values["time/own_seconds_max"] = own.maximum / steps
            values["time/slowest_rank"] = own.largest_rank
        return values

    def _speed_values(self) -> dict[str, float]:
        return {f"speed/{name}": value for name, value in asdict(self.throughput).items() if value is not None}
