"""Does the device wait for the host to queue its kernels?"""

from __future__ import annotations

from hf_trainplus.monitor.diagnosis.evidence import Evidence
from hf_trainplus.monitor.diagnosis.rule import DiagnosisRule
from hf_trainplus.monitor.diagnosis.verdict import Verdict


class HostBoundRule(DiagnosisRule):
    """Found when the device has run dry each time the host has just queued a pass: many small kernels.

    The proof is the device's own queue. Where it was not looked at, a device that is little used while the host is
    inside forward, backward and optimizer counts too. Training on the CPU the question does not arise.

    Args:
        idle_share: share of looks with an empty queue, 0 to 1.
        compute_share: share of time inside forward, backward and optimizer, 0 to 1.
        busy_percent: use of the devices.
        least_steps: steps below which the answer is unknown.
    """

    name = "host_bound"

    def __init__(
        self,
        *,
        idle_share: float = 0.5,
        compute_share: float = 0.8,
        busy_percent: float = 50.0,
        least_steps: int = 5,
    ) -> None:
        self.idle_share = idle_share
        self.compute_share = compute_share
        self.busy_percent = busy_percent
        self.least_steps = least_steps

    def check(self, evidence: Evidence) -> Verdict:
        """Judge the device's queue, or its use."""
        advice = "a larger batch, torch_compile=True, optim='adamw_torch_fused', or fewer small operations."
        if not evidence.timed(self.least_steps):
            return self.unknown("too few steps were timed.")
        if evidence.device_idle_share is not None:
            idle = evidence.device_idle_share
            message = f"the device had nothing to do at {100 * idle:.0f} % of the passes that the host had just queued."
            return self.verdict(idle >= self.idle_share, message, next_step=advice, evidence={"idle_share": idle})
        use = evidence.utilization_percent
        if use is None:
            return self.unknown("no device whose use can be measured.")
        inside = evidence.shares.get("forward_backward", 0.0) + evidence.shares.get("optimizer", 0.0)
        return self.verdict(
            inside >= self.compute_share and use < self.busy_percent,
            f"the devices are {use:.0f} % busy while the host spends {100 * inside:.0f} % of the time in the model.",
            next_step=advice,
            evidence={"utilization_percent": use, "compute_share": inside},
        )
