"""Does the allocator hold memory that it cannot use?"""

from __future__ import annotations

from hf_trainplus.monitor.diagnosis.evidence import Evidence
from hf_trainplus.monitor.diagnosis.rule import DiagnosisRule
from hf_trainplus.monitor.diagnosis.verdict import Verdict


class FragmentationRule(DiagnosisRule):
    """Found when reserved minus allocated is a large share of the device while the device is nearly full.

    A reserve on an empty device is how the allocator works and no fault. Retries (the allocator gave everything back
    and began anew) are proof by themselves.

    Args:
        share: reserved minus allocated over the device's memory, 0 to 1.
        full: reserved over the device's memory, from which on it matters, 0 to 1.
    """

    name = "fragmentation"

    def __init__(self, *, share: float = 0.15, full: float = 0.85) -> None:
        self.share = share
        self.full = full

    def check(self, evidence: Evidence) -> Verdict:
        """Judge the allocator's reserve."""
        allocator = evidence.allocator
        if allocator is None or not allocator.total_gib:
            return self.unknown("the caching allocator was not watched.")
        unused = (allocator.reserved_gib - allocator.allocated_gib) / allocator.total_gib
        full = allocator.reserved_gib / allocator.total_gib >= self.full
        retries = allocator.retries or 0
        return self.verdict(
            (unused >= self.share and full) or retries > 0,
            f"the allocator keeps {100 * unused:.0f} % of the device beyond what tensors use ({retries} retries).",
            next_step="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or batches of more equal length.",
            evidence={"unused_share": unused, "retries": float(retries)},
        )
