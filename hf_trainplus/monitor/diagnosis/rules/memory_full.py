"""Is device memory close to its end?"""

from __future__ import annotations

from hf_trainplus.monitor.diagnosis.evidence import Evidence
from hf_trainplus.monitor.diagnosis.rule import DiagnosisRule
from hf_trainplus.monitor.diagnosis.verdict import Verdict


class MemoryFullRule(DiagnosisRule):
    """Found when tensors fill more than ``share`` of a device, so that one longer batch would not fit.

    Where the allocator is known, what tensors hold counts and not what the allocator keeps in reserve; else the
    device's own figure does.

    Args:
        share: of the device's memory, 0 to 1.
    """

    name = "memory_full"

    def __init__(self, *, share: float = 0.92) -> None:
        self.share = share

    def check(self, evidence: Evidence) -> Verdict:
        """Judge the peak."""
        allocator, share = evidence.allocator, evidence.memory_share
        if allocator is not None and allocator.total_gib:
            share = allocator.allocated_gib / allocator.total_gib
        if share is None:
            return self.unknown("no device told its memory.")
        return self.verdict(
            share >= self.share,
            f"{100 * share:.0f} % of a device's memory was in use at the peak.",
            next_step=_smaller(evidence.settings.per_device_train_batch_size),
            evidence={"memory_share": share},
        )


def _smaller(batch: int | None) -> str:
    if batch is None or batch < 2:
        return "gradient_checkpointing=True, a shorter maximum length, or FSDP / ZeRO."
    return (
        f"per_device_train_batch_size {batch} -> {batch // 2} with twice the gradient_accumulation_steps, "
        "or gradient_checkpointing=True."
    )
