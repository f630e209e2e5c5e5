"""The age and the identity of this process, seen from outside."""

import subprocess
import sys
import time

from hf_trainplus.budget.keeping.process import process_age_seconds, process_identity


def test_the_age_counts_from_the_start_of_the_process():
    code = (
        "import time; time.sleep(0.4); from hf_trainplus.budget.keeping.process import *; print(process_age_seconds())"
    )
    began = time.monotonic()
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert 0.3 < float(out) <= time.monotonic() - began + 0.1


def test_a_wall_clock_that_is_set_changes_nothing(monkeypatch):
    before = process_age_seconds()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert before <= process_age_seconds() < before + 60


def test_without_a_clock_since_boot_the_wall_clock_tells(monkeypatch):
    wanted = process_age_seconds()
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    assert abs(process_age_seconds() - wanted) < 2  # the time of boot is told in whole seconds


def test_the_age_grows_and_the_identity_stays():
    first = process_age_seconds()
    assert process_age_seconds() >= first
    assert process_identity() == process_identity()


def test_another_process_has_another_identity():
    code = "from hf_trainplus.budget.keeping.process import process_identity; print(process_identity())"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() != process_identity()
