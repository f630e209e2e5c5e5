"""Recorded and synthetic runs for the tests of the race."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from hf_trainplus.decisions.replay import ReplayTrace

_SHARED = Path(os.environ.get("TRAINPLUS_SHARED", Path(__file__).resolve().parents[2] / "../shared"))


def recorded(name):
    """Load one of the shared recorded runs, or skip the test."""
    path = _SHARED / "traces" / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"{path.name} is not on this machine")
    return ReplayTrace.load(path)


def synthetic(seed=0, *, evaluations=40, rows=1500, overfit=0.4, noise=0.15, classes=4):
    """A run that falls and then over-fits: each row has a margin that moves with shared and own noise."""
    rng = np.random.default_rng(seed)
    ease = rng.normal(0.8, 1.2, rows)
    drift = (
        rng.standard_normal((evaluations, rows)).cumsum(axis=0)
        * noise
        / np.sqrt(np.arange(1, evaluations + 1))[:, None]
    )
    place = np.arange(evaluations) / evaluations
    gain = 3.0 * (1 - np.exp(-6 * place))
    spread = 1.0 + overfit * 4 * place
    shared = rng.normal(0, 0.08, evaluations) * (1 - place)
    margin = (
        (gain + shared)[:, None] * 0.5 + spread[:, None] * ease[None, :] * (1 - np.exp(-6 * place))[:, None] + drift
    )
    loss = np.logaddexp(0.0, np.log(classes - 1) - margin)
    return ReplayTrace(
        loss, 10 * np.arange(1, evaluations + 1), (margin > np.log(classes - 1)) * 1.0, rng.integers(0, classes, rows)
    )
