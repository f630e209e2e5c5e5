"""Fully known checkpoints: they shape the order of reading and explain part of every difference."""

from __future__ import annotations

import numpy as np

from hf_trainplus.decisions.racing.config import RaceConfig
from hf_trainplus.decisions.racing.design import nested_design
from hf_trainplus.decisions.racing.metrics import RaceMetric
from hf_trainplus.decisions.racing.state import RaceState
from hf_trainplus.decisions.racing.strata import clue_of, strata_of_reference
from hf_trainplus.results import Float64Array

_KEPT = 4


def add_reference(state: RaceState, checkpoint: int) -> None:
    """Remember a fully known checkpoint as the newest reference; the oldest beyond four is forgotten."""
    others = [known for known in state.references if known != checkpoint]
    state.references = [*others, checkpoint][-_KEPT:]
    state.covariates = None
    forget_rows(state)


def forget_rows(state: RaceState) -> None:
    """Forget the rows of checkpoints that are neither open nor references."""
    needed = {candidate.checkpoint for candidate in state.candidates} | set(state.references)
    state.columns = {key: column for key, column in state.columns.items() if key in needed}


def redesign(state: RaceState, config: RaceConfig, metric: RaceMetric) -> None:
    """Draw a new order of reading from the newest reference.

    Valid only while every open checkpoint is fully known: a partly read one would lose its sample.
    """
    newest, *others = [state.columns[key] for key in reversed(state.references)]
    stratum, scale = strata_of_reference(newest, others[:3], metric, config.strata)
    state.design = nested_design(stratum, scale, seed=config.seed, number=state.design.number + 1)
    state.ambiguous = 0


def covariates_of(state: RaceState, metric: RaceMetric) -> tuple[Float64Array | None, Float64Array | None]:
    """Return (N, p) columns known for every row and their (p,) means, or ``(None, None)`` without a reference."""
    if not state.references:
        return None, None
    if state.covariates is None:
        columns = [state.columns[key] for key in state.references]
        linear = [column.values @ metric.gradient(column.means) for column in columns]
        x = np.column_stack([*linear, np.exp(-clue_of(columns[-1], metric))])
        state.covariates = (x, x.mean(axis=0))
    return state.covariates
