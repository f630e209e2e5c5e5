"""Does the loader hold training up?"""

from __future__ import annotations

import math

from hf_trainplus.monitor.diagnosis.evidence import Evidence
from hf_trainplus.monitor.diagnosis.rule import DiagnosisRule
from hf_trainplus.monitor.diagnosis.verdict import Verdict

# as many workers again as are needed on average: rows do not all take the same time
_MARGIN = 1.25


class DataBoundRule(DiagnosisRule):
    """Found when the slowest rank waits for data more than ``share`` of the time that steps take.

    Evaluation and saving do not count: however long they are, a step that waits could be shorter.

    A device that is busy nearly all the time is not held up, whatever the host waits for: above ``busy_percent`` the
    rule is clear. The number of workers that it names follows from the measured share: with w workers and a share s
    spent waiting, a batch takes w / (1 - s) workers (without workers s / (1 - s)), and a quarter more for unequal rows.

    Args:
        share: of wall-clock time without evaluation and saving, 0 to 1.
        least_steps: steps below which the answer is unknown.
        busy_percent: use of the devices above which the loader keeps up.
    """

    name = "data_bound"

    def __init__(self, *, share: float = 0.15, least_steps: int = 5, busy_percent: float = 95.0) -> None:
        self.share = share
        self.least_steps = least_steps
        self.busy_percent = busy_percent

    def check(self, evidence: Evidence) -> Verdict:
        """Judge the wait for data."""
        if not evidence.timed(self.least_steps) or "data_wait" not in evidence.shares:
            return self.unknown("the wait for data was not timed over enough steps.")
        spread = evidence.spreads.get("data_wait")
        rank = 0 if spread is None else spread.largest_rank
        share = evidence.of_a_step(evidence.largest_share("data_wait"))
        use = evidence.utilization_percent
        where = f" on rank {rank}" if (evidence.world_size or 1) > 1 else ""
        message = f"{100 * share:.0f} % of each step waits for data{where}."
        found = share >= self.share and not (use is not None and use >= self.busy_percent)
        figures = {"data_wait_share": share, "rank": float(rank)}
        return self.verdict(found, message, next_step=_workers(share, evidence), evidence=figures)


def _workers(share: float, evidence: Evidence) -> str:
    workers, cpus = evidence.settings.dataloader_num_workers, evidence.settings.cpus_per_process
    cheaper = "make rows cheaper: tokenize before training, cache, or a faster disk"
    if workers is None or share >= 1:
        return f"raise dataloader_num_workers, or {cheaper}."
    wanted = math.ceil(_MARGIN * (workers or share) / (1 - share))
    wanted = max(wanted, workers + 1)
    if cpus is not None and wanted > cpus:
        wanted = cpus
    if wanted <= workers:
        return f"all {cpus} cores have a worker; {cheaper}."
    return f"dataloader_num_workers {workers} -> {wanted}."
