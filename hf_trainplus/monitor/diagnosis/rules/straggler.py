"""Is one rank slower than the others?"""

from __future__ import annotations

from hf_trainplus.monitor.diagnosis.evidence import Evidence
from hf_trainplus.monitor.diagnosis.rule import DiagnosisRule
from hf_trainplus.monitor.diagnosis.verdict import Verdict


class StragglerRule(DiagnosisRule):
    """Found when one rank's own work (data, copies, forward, optimizer, callbacks) takes longer by ``excess``.

    Ranks end each step together, so their step times are equal; only work that waits for nobody tells them apart.
    It is the host's time: a GPU that is slower than the others while its host is not is not seen here (see
    ``ThrottlingRule``, and each device's clock).

    Args:
        excess: of the slowest rank over the mean of the others, as a share of a step, 0 to 1.
        least_steps: steps below which the answer is unknown.
    """

    name = "straggler"

    def __init__(self, *, excess: float = 0.1, least_steps: int = 5) -> None:
        self.excess = excess
        self.least_steps = least_steps

    def check(self, evidence: Evidence) -> Verdict:
        """Judge the ranks' own work."""
        world = evidence.world_size
        if world == 1:
            return self.verdict(False, "there is one rank.")
        own, total = evidence.spreads.get("own"), evidence.spreads.get("total")
        if world is None or not evidence.timed(self.least_steps) or own is None or total is None or total.mean <= 0:
            return self.unknown("the ranks' own work was not timed over enough steps.")
        others = (own.mean * world - own.maximum) / (world - 1)
        excess = evidence.of_a_step((own.maximum - others) / total.mean)
        rank = own.largest_rank
        message = f"rank {rank} works {100 * excess:.0f} % of a step longer than the others, who wait for it."
        data = evidence.spreads.get("data_wait")
        waits = (
            data is not None
            and data.largest_rank == rank
            and data.maximum - data.minimum > 0.5 * (own.maximum - others)
        )
        cause = (
            "it waits for data: look at its disk and its share of long rows"
            if waits
            else ("look at its device's clocks, at other jobs on its machine and at its share of long rows")
        )
        figures = {"excess_share": excess, "rank": float(rank)}
        return self.verdict(excess >= self.excess, message, next_step=f"{cause}.", evidence=figures)
