"""Why a race reads every row, and what would have been cheaper."""

from __future__ import annotations

from collections.abc import Sequence

from hf_trainplus.decisions.racing.config import RaceConfig
from hf_trainplus.decisions.racing.judge import RaceMetric
from hf_trainplus.decisions.racing.records import ComparisonRecord
from hf_trainplus.decisions.racing.state import RaceState
from hf_trainplus.decisions.racing.tolerance import cheaper_tolerance, full_set_se

_DEEP = 0.5


def full_reason(config: RaceConfig, size: int) -> str | None:
    """Return why every row is read from the start; None when the set can be raced."""
    if config.full is not None:
        return config.full
    if size < config.least_rows:
        return f"{size} rows are fewer than {config.least_rows}: too few for a race to save time"
    return None


def short_reason(config: RaceConfig, state: RaceState) -> str | None:
    """Return why every row is read once a full evaluation is known to be short; None when it is not, or not known."""
    seconds = state.costs.row_seconds
    if seconds is None or seconds * state.size >= config.least_seconds:
        return None
    return (
        f"a full evaluation takes about {seconds * state.size:.1f} s, less than {config.least_seconds:g} s: "
        "too short for a race to save time"
    )


def cannot_race(
    *, stable_rows: bool = True, symmetric: bool = True, rows_alone: bool = True, size: int | None = None
) -> str | None:
    """Return why a set or a metric cannot be raced at all, for ``RaceConfig(full=...)``; None when it can.

    Args:
        stable_rows: rows have positions that stay the same from evaluation to evaluation.
        symmetric: the metric does not depend on the order of rows.
        rows_alone: a row's score does not depend on the rows that share its batch.
        size: number of rows, None for a stream of unknown length.

    Example:
        >>> cannot_race(stable_rows=False)
        'rows have no stable positions (a stream without ids), so no row can be read again'
        >>> cannot_race(size=10_000) is None
        True
    """
    if not stable_rows:
        return "rows have no stable positions (a stream without ids), so no row can be read again"
    if size is None:
        return "the number of rows is not known before they are read"
    if not symmetric:
        return "the metric depends on the order of rows"
    if not rows_alone:
        return "a row's loss depends on the rows that share its batch"
    return None


def tie_advice(state: RaceState, metric: RaceMetric, records: Sequence[ComparisonRecord]) -> str | None:
    """Return the tolerance that would have made near ties of this call cheap; None when none cost half the rows."""
    error = full_set_se(state, metric)
    near = [
        record
        for record in records
        if record.basis in ("exact", "certain")
        and record.depth >= _DEEP * record.rows_total
        and record.regret is not None
        and record.regret >= -error
    ]
    if not near or error == 0:
        return None
    advice = f"checkpoints {near[-1].first} and {near[-1].second} nearly tie, which took {near[-1].depth} rows"
    tolerance = cheaper_tolerance(state, metric)
    if tolerance is None:
        return advice + "; eval_tolerance=0.25 would allow a regret of a quarter standard error instead"
    return advice + f"; eval_tolerance={tolerance:.2g} would settle a tie after about 22 % of the rows"
