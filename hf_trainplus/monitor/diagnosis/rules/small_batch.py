"""Is the batch too small for the device?"""

from __future__ import annotations

from hf_trainplus.monitor.diagnosis.evidence import Evidence
from hf_trainplus.monitor.diagnosis.rule import DiagnosisRule
from hf_trainplus.monitor.diagnosis.verdict import Verdict


class SmallBatchRule(DiagnosisRule):
    """Found when a device is neither busy nor full and nothing else holds it up.

    It does not say what a larger batch does to learning: keep the global batch by fewer accumulation steps where the
    recipe depends on it.

    Args:
        busy_percent: use of the devices below which they have room.
        memory_share: of their memory, 0 to 1, below which a larger batch fits.
        waiting_share: wait for data, 0 to 1, above which the loader is the reason.
        least_steps: steps below which the answer is unknown.
    """

    name = "small_batch"

    def __init__(
        self,
        *,
        busy_percent: float = 60.0,
        memory_share: float = 0.5,
        waiting_share: float = 0.15,
        least_steps: int = 5,
    ) -> None:
        self.busy_percent = busy_percent
        self.memory_share = memory_share
        self.waiting_share = waiting_share
        self.least_steps = least_steps

    def check(self, evidence: Evidence) -> Verdict:
        """Judge use and memory together."""
        use, memory = evidence.utilization_percent, evidence.memory_share
        if use is None or memory is None or memory <= 0:
            return self.unknown("the devices' use or memory cannot be measured here.")
        if not evidence.timed(self.least_steps) or "data_wait" not in evidence.shares:
            return self.unknown("the wait for data was not timed over enough steps.")
        room = use < self.busy_percent and memory < self.memory_share
        batch = evidence.settings.per_device_train_batch_size
        # memory grows at most in proportion to the batch; a tenth is left free
        times = max(2, int(0.9 / memory))
        wanted = None if batch is None else batch * min(times, 8)
        larger = "a larger batch" if batch is None else f"per_device_train_batch_size {batch} -> {wanted}"
        return self.verdict(
            room and evidence.shares["data_wait"] < self.waiting_share,
            f"the devices are {use:.0f} % busy with {100 * memory:.0f} % of their memory in use.",
            next_step=f"{larger}.",
            evidence={"utilization_percent": use, "memory_share": memory},
        )
