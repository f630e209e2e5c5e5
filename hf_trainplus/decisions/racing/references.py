"""Fully known checkpoints: they shape the order of reading and explain part of every difference."""

from __future__ import annotations

import numpy as np

from hf_trainplus.decisions.racing.metrics import AdditiveMetric, ScoreMetric
from hf_trainplus.decisions.racing.state import RaceState
from hf_trainplus.decisions.racing.strata import clue_of
from hf_trainplus.results import Float64Array

MOST = 4


def add_reference(state: RaceState, checkpoint: int) -> None:
    """Remember a fully known checkpoint; beyond four the oldest that is not the anchor is forgotten."""
    if state.columns[checkpoint].nonfinite or checkpoint in state.references:
        return
    state.references.append(checkpoint)
    spare = [known for known in state.references if known not in (state.anchor, checkpoint)]
    if len(state.references) > MOST:
        state.references.remove(spare[0])


def covariates_of(state: RaceState, metric: AdditiveMetric) -> tuple[Float64Array, Float64Array] | None:
    """Return (N, p) columns known for every row and their (p,) means; None without a reference.

    The columns are the references' parts of the metric, the newest one's probability of the right answer as far as
    its loss tells it, and for a score its loss.
    """
    if not state.references:
        return None
    columns = [state.columns[key] for key in state.references]
    parts = [metric.rows(column.values, column.means) for column in columns]
    clue = clue_of(columns[-1], metric)
    parts.append(np.exp(-np.clip(clue, -50.0, 50.0)))
    if isinstance(metric, ScoreMetric):
        parts.append(clue)
    table = np.column_stack(parts)
    return table, table.mean(axis=0)
