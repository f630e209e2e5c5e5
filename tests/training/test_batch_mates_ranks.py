"""Losses that depend on batch mates, and probes that run out of memory, on two real processes."""

import json

import numpy as np
import pytest
import torch

from tests.support import tiny
from tests.support.launch import ROOT, torchrun
from tests.support.mates_two_ranks import subset
from tests.training.test_batch_mates import RowMeans, causal_rows, mates, own_batches, plus

pytestmark = [pytest.mark.slow, pytest.mark.distributed]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    done = torchrun(ROOT / "tests/support/mates_two_ranks.py", tmp_path_factory.mktemp("two"))
    line = next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    first, second = json.loads(line[len("FOUND ") :])
    for key in ("mates", "row_means", "small", "subset"):
        assert first[key] == second[key]
    return first


def test_batch_mates_stay_those_of_the_trainer(found):
    rows, model, losses = tiny.rows(60, low=3, high=40), mates().eval(), []
    for start in range(0, 60, 3):
        with torch.no_grad():
            losses.append(float(model(**tiny.PaddingCollator()(rows[start : start + 3])).loss))
    assert found["mates"] == pytest.approx([np.mean(losses)] * 2, abs=1e-5)


def test_a_loss_of_the_models_own_is_that_of_the_trainers_batches(found):
    want = own_batches(RowMeans(tiny.llama(initializer_range=0.8).config), causal_rows(), 3)
    assert found["row_means"] == pytest.approx([want] * 2, abs=1e-5)


def test_a_probe_that_runs_out_of_memory_ends_nothing(found, tmp_path):
    want = plus(tiny.bert(), tiny.rows(60, low=3, high=40), tmp_path).evaluate()["eval_loss"]
    assert found["small"] == pytest.approx([want] * 2, abs=1e-5)


def test_one_row_that_does_not_fit_is_passed_on_by_both(found):
    assert "out of memory" in found["one_row"]


def test_whole_batches_of_a_subset_are_those_of_one_process(found, tmp_path):
    rows, logged = subset(tmp_path, ranks=1)
    assert found["subset"][0] == rows
    assert len(logged) == 4
    assert np.array(found["subset"][1]) == pytest.approx(np.array(logged), abs=1e-6)
