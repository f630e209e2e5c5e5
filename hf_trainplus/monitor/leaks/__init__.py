"""Leaks: robust growth at equal points, told apart from what only looks like one, and what grew by name."""

from hf_trainplus.monitor.leaks.census import Census, Grown, grown_sites, take_census
from hf_trainplus.monitor.leaks.judge import Cause, LeakVerdict, judge_memory
from hf_trainplus.monitor.leaks.points import MemoryPoint, read_point
from hf_trainplus.monitor.leaks.resident import own_resident_bytes

__all__ = [
    "Cause",
    "Census",
    "Grown",
    "LeakVerdict",
    "MemoryPoint",
    "grown_sites",
    "judge_memory",
    "own_resident_bytes",
    "read_point",
    "take_census",
]
