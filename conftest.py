"""Settings of the whole test session, doctests included."""

import gc
import os
from pathlib import Path

import pytest

# DeepSpeed, where it is installed, prints a line on the way to this choice, which no doctest expects
if not Path("/dev/nvidia0").exists():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# scripts that tests and people start: importing them as modules would show nothing, and some change global settings
collect_ignore_glob = ["tests/support/*", "tests/benchmarks/*"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that have most slow tests: a process that takes one of them last leaves the others idle."""
    slow: dict[Path, int] = {}
    for item in items:
        slow[item.path] = slow.get(item.path, 0) + (item.get_closest_marker("slow") is not None)
    items.sort(key=lambda item: -slow[item.path])


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what the imports made out of every later garbage collection: accelerate asks for one a training."""
    gc.collect()
    gc.freeze()
