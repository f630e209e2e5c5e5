"""Replay: what a policy of evaluation would have cost and chosen on a recorded run."""

from hf_trainplus.decisions.replaying.driver import ReplayDriver
from hf_trainplus.decisions.replaying.policies import POLICIES, ReplayOptions, ReplayResult, replay
from hf_trainplus.decisions.replaying.trace import METRICS, ReplayTrace, export_trace

__all__ = [
    "METRICS",
    "POLICIES",
    "ReplayDriver",
    "ReplayOptions",
    "ReplayResult",
    "ReplayTrace",
    "export_trace",
    "replay",
]
