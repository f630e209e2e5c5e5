"""Is the device's arithmetic what limits the run? Then nothing around it is in the way."""

from __future__ import annotations

from hf_trainplus.monitor.diagnosis.evidence import Evidence
from hf_trainplus.monitor.diagnosis.rule import DiagnosisRule
from hf_trainplus.monitor.diagnosis.verdict import Verdict


class ComputeBoundRule(DiagnosisRule):
    """Found (as a note) when nearly all the time is forward, backward and optimizer, on a device that is busy.

    Training on the CPU, the time alone tells. On a device whose use cannot be measured the answer is unknown.

    Args:
        share: of wall-clock time, 0 to 1.
        busy_percent: use of the devices.
        least_steps: steps below which the answer is unknown.
    """

    name = "compute_bound"
    severity = "note"

    def __init__(self, *, share: float = 0.8, busy_percent: float = 80.0, least_steps: int = 5) -> None:
        self.share = share
        self.busy_percent = busy_percent
        self.least_steps = least_steps

    def check(self, evidence: Evidence) -> Verdict:
        """Judge the time on the device."""
        parts = ("forward_backward", "optimizer")
        if not evidence.timed(self.least_steps) or any(part not in evidence.shares for part in parts):
            return self.unknown("forward, backward and optimizer were not timed over enough steps.")
        share = sum(evidence.shares[part] for part in parts)
        use = evidence.utilization_percent
        if evidence.devices and use is None:
            return self.unknown("the devices' use cannot be measured here.")
        busy = use is None or use >= self.busy_percent
        message = f"{100 * share:.0f} % of the time is forward, backward and optimizer."
        if use is not None:
            message = f"{message[:-1]}, with the devices {use:.0f} % busy."
        return self.verdict(
            share >= self.share and busy,
            message,
            next_step="nothing is in the way; bf16, torch_compile or more devices are what makes it faster.",
            evidence={"compute_share": share, **({} if use is None else {"utilization_percent": use})},
        )
