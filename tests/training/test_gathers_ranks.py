"""A trainer that gathers rows of a batch over ranks gets equally many of them on each rank."""

import json

import pytest

from tests.support.gathers_two_ranks import all_evaluations
from tests.support.launch import ROOT, torchrun

pytestmark = [pytest.mark.slow, pytest.mark.distributed]


def test_gathers_inside_the_loss_meet_equal_rows_and_change_no_value(tmp_path):
    done = torchrun(ROOT / "tests/support/gathers_two_ranks.py", tmp_path / "two")
    line = next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    first, second = json.loads(line[len("FOUND ") :])
    alone = all_evaluations(str(tmp_path / "one"))
    assert first == second
    assert set(first) == set(alone)
    for name, values in alone.items():
        for (loss, rows), (loss_alone, rows_alone) in zip(first[name], values, strict=True):
            assert rows == rows_alone, name
            assert loss == pytest.approx(loss_alone, abs=1e-5), name
