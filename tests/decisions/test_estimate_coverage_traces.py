"""Nominal 95 % intervals on recorded runs of real training: 92 to 98 % of 800 seeded draws."""

import functools
import os
from pathlib import Path

import numpy as np
import pytest

from hf_trainplus import representative_subset
from hf_trainplus.decisions.estimate import (
    difference_interval,
    mean_interval,
)

DRAWS = 800
TRACES = Path(os.environ.get("TRAINPLUS_SHARED", Path(__file__).resolve().parents[3] / "shared")) / "traces"


@functools.cache
def recorded_run(name):
    path = TRACES / f"{name}_s0.npz"
    if not path.exists():
        pytest.skip(f"the recorded runs are not there: {path}")
    with np.load(path) as run:
        return run["loss"].astype(np.float64), run["correct"].astype(np.float64)


@pytest.mark.parametrize("design", ["random", "proportional", "neyman"])
@pytest.mark.parametrize(("name", "step", "n"), [("ag_news", 40, 100), ("trec6", 33, 245)])
def test_recorded_runs(name, step, n, design):
    """Levels and differences of a checkpoint, its loss and accuracy, with the checkpoint three before as reference."""
    loss, right = recorded_run(name)
    reference = loss[step - 3]
    scores = {"loss": (loss[step], None), "right": (right[step], None)}
    scores |= {"loss change": (loss[step], loss[step - 3]), "right change": (right[step], right[step - 3])}
    hits = dict.fromkeys(scores, 0)
    for seed in range(DRAWS):
        subset = representative_subset(
            {"row": reference},
            n,
            strategy="random" if design == "random" else "difficulty",
            reference_loss=None if design == "random" else reference,
            allocation="neyman" if design == "neyman" else "proportional",
            seed=seed,
        )
        drawn, options = subset.indices, {"design": subset.design()}
        for score, (values, other) in scores.items():
            truth = values.mean() if other is None else (values - other).mean()
            if other is None:
                found = mean_interval(values[drawn], **options)
            else:
                found = difference_interval(values[drawn], other[drawn], **options)
            hits[score] += found.ci_low <= truth <= found.ci_high
    shares = {score: count / DRAWS for score, count in hits.items()}
    print(shares)
    assert all(0.92 <= share <= 0.98 for share in shares.values()), shares
