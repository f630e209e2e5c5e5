"""The wing stays light: it is read by the command line and by every rank, and knows no Trainer."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "accelerate", "datasets", "pyarrow", "pynvml")

MODULES = (
    "hf_trainplus.budget.cost",
    "hf_trainplus.budget.meter",
    "hf_trainplus.budget.stages",
    "hf_trainplus.budget.plan_file",
    "hf_trainplus.budget.plans.plan_cost",
    "hf_trainplus.budget.stops",
    "hf_trainplus.budget.signals",
    "hf_trainplus.budget.keeping.keeper",
    "hf_trainplus.budget.keeping.energy",
    "hf_trainplus.budget.from_run",
)


@pytest.mark.parametrize("name", ["Budget", "Stage", "StagePlan", "estimate_cost"])
def test_public_names_load_nothing_heavy(name):
    code = f"import sys; from hf_trainplus import {name}; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_all_parts_load_nothing_heavy():
    code = f"import sys; import {', '.join(MODULES)}; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
