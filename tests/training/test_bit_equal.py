"""With no Plus option set, training is bit-equal to the stock Trainer."""

import pytest

from tests.support import bit_equal
from tests.support.launch import ROOT, torchrun


@pytest.mark.parametrize("name", bit_equal.CASES)
def test_one_process(name, tmp_path):
    assert bit_equal.compare(bit_equal.CASES[name], tmp_path) == []


def test_a_changed_run_is_told_apart(tmp_path):
    stock = bit_equal.train(bit_equal.Trainer, bit_equal.TrainingArguments, tmp_path / "a", {})
    other = {"arguments": {"seed": 1}}
    changed = bit_equal.train(bit_equal.PlusTrainer, bit_equal.PlusTrainingArguments, tmp_path / "b", other)
    assert bit_equal.differences(stock, changed)


@pytest.mark.slow
@pytest.mark.distributed
def test_two_processes(tmp_path):
    done = torchrun(ROOT / "tests/support/bit_equal.py", tmp_path, *bit_equal.CASES)
    lines = [line for line in done.stdout.splitlines() if line.split(" ")[-1] in bit_equal.CASES]
    assert lines == [f"equal {name}" for name in bit_equal.CASES]
