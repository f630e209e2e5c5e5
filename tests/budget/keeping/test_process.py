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


def test_the_age_grows_and_the_identity_stays():
    first = process_age_seconds()
    assert process_age_seconds() >= first
    assert process_identity() == process_identity()


def test_another_process_has_another_identity():
    code = "from hf_trainplus.budget.keeping.process import process_identity; print(process_identity())"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() != process_identity()
