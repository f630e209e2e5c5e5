"""Records and verdicts from the state of a race."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hf_trainplus.decisions.racing.judge import Judge, Judgement
from hf_trainplus.decisions.racing.levels import Level
from hf_trainplus.decisions.racing.records import ComparisonRecord, LevelVerdict, RaceVerdict
from hf_trainplus.decisions.racing.state import RaceState


def race_verdict(
    state: RaceState,
    checkpoint: int | None,
    level: Level | None,
    stop: bool,
    reason: str | None,
    records: tuple[ComparisonRecord, ...],
    levels: tuple[LevelVerdict, ...],
) -> RaceVerdict:
    """Return the verdict of a call that ends now; ``level`` is that of ``checkpoint``."""
    column = state.columns.get(checkpoint) if checkpoint is not None else None
    return RaceVerdict(
        checkpoint=checkpoint,
        best=state.open[0] if len(state.open) == 1 else None,
        candidates=state.open,
        stop=stop,
        value=level.value if level else None,
        se=level.se if level else None,
        rows=column.count if column else 0,
        rows_total=state.size,
        exact=bool(column and column.full),
        reason=reason,
        records=records,
        levels=levels,
    )


def comparison_record(
    state: RaceState,
    judge: Judge,
    pair: tuple[int, int],
    before: tuple[int, ...],
    outcome: Judgement,
    mode: str,
    environment: Mapping[str, str],
) -> ComparisonRecord:
    """Return the audit record of one comparison of ``pair`` (older, newer) while ``before`` were open."""
    found = outcome.difference
    estimated = found if found is not None and np.isfinite(found.value) else None
    return ComparisonRecord(
        step=state.last,
        first=pair[0],
        second=pair[1],
        loser=outcome.loser,
        basis=outcome.basis,
        depth=outcome.depth,
        rows_total=state.size,
        stratum_rows=tuple(state.design.counts(outcome.depth).tolist()),
        rows_hash=state.design.rows_hash(outcome.depth),
        design=state.design.number,
        seed=judge.config.seed,
        difference=estimated.value if estimated else None,
        se=estimated.se if estimated else None,
        z=estimated.z if estimated and np.isfinite(estimated.z) else None,
        bound=judge.bound_at(outcome.depth / state.size),
        discordant=estimated.discordant if estimated else None,
        regret=outcome.regret,
        tolerance=judge.config.tolerance,
        full=tuple(key for key in pair if state.full(key)),
        references=tuple(state.references),
        candidates=before,
        pairs=state.pairs,
        stock_pairs=state.observations * state.size,
        reloads=state.reloads,
        reload_seconds=state.reload_seconds,
        mode=mode,
        environment=environment,
    )
