import sys

import numpy as np
import psutil
import pytest

from hf_trainplus.monitor.leaks import own_resident_bytes

MIB = 1024**2


def unused():
    raise AssertionError("the system tells the kinds apart")


def test_anonymous_and_shared_memory_count_and_mapped_files_do_not(tmp_path):
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmRSS:\t  900 kB\nRssAnon:\t  500 kB\nRssFile:\t  300 kB\nRssShmem:\t  100 kB\n")
    assert own_resident_bytes(unused, status=str(status)) == 600 * 1024


@pytest.mark.parametrize("content", [None, "Name:\tpython\nVmRSS:\t  900 kB\n"])
def test_where_kinds_are_not_told_apart_all_counts(tmp_path, content):
    status = tmp_path / "status"
    if content is not None:
        status.write_text(content)
    assert own_resident_bytes(lambda: 77.0, status=str(status)) == 77.0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no other system tells mapped pages apart")
def test_on_this_machine_it_grows_with_memory_of_ones_own_alone(tmp_path):
    np.zeros(64 * MIB, dtype=np.uint8).tofile(tmp_path / "rows")
    before, all_before = own_resident_bytes(unused), psutil.Process().memory_info().rss
    mapped = np.memmap(tmp_path / "rows", dtype=np.uint8, mode="r")
    assert int(mapped.sum()) == 0
    assert psutil.Process().memory_info().rss - all_before > 50 * MIB
    assert own_resident_bytes(unused) - before < 8 * MIB
    own = np.ones(64 * MIB, dtype=np.uint8)
    assert own_resident_bytes(unused) - before > 60 * MIB
    assert own.size == mapped.size
