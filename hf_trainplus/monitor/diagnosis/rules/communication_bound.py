"""Do ranks wait for each other's gradients or counts?"""

from __future__ import annotations

from hf_trainplus.monitor.diagnosis.evidence import Evidence
from hf_trainplus.monitor.diagnosis.rule import DiagnosisRule
from hf_trainplus.monitor.diagnosis.verdict import Verdict


class CommunicationBoundRule(DiagnosisRule):
    """Found when equal ranks spend more than ``share`` of the time on exchanging.

    Gradient reduction runs inside backward and is seen only where a communication hook measures it; without one, a
    small wait at the count collective proves nothing and the answer is unknown. Ranks that are unequal wait for the
    slowest of them, which is ``StragglerRule``'s matter, or for what rank 0 does alone, such as logging: a slow
    exchange holds all ranks up alike.

    Args:
        share: of wall-clock time, 0 to 1.
        imbalance: difference between ranks of own work, or of the wait at the count, as a share of a step, above which
            it is no exchange that is slow.
        least_steps: steps below which the answer is unknown.
    """

    name = "communication_bound"

    def __init__(self, *, share: float = 0.2, imbalance: float = 0.1, least_steps: int = 5) -> None:
        self.share = share
        self.imbalance = imbalance
        self.least_steps = least_steps

    def check(self, evidence: Evidence) -> Verdict:
        """Judge the exchange between ranks."""
        if evidence.world_size == 1:
            return self.verdict(False, "there is one rank.")
        if not evidence.timed(self.least_steps) or "rank_sync" not in evidence.shares:
            return self.unknown("the exchange between ranks was not timed over enough steps.")
        measured = evidence.communication_share
        share = evidence.shares["rank_sync"] + (measured or 0.0)
        own, total = evidence.spreads.get("own"), evidence.spreads.get("total")
        message = f"{100 * share:.0f} % of the time is spent on exchanging between ranks."
        if share < self.share:
            if measured is None:
                return self.unknown("gradient reduction runs inside backward and no communication hook measures it.")
            return self.verdict(False, message, evidence={"communication_share": share})
        if own is None or total is None:
            return self.unknown("ranks wait for each other, and own work was not timed apart on each.")
        unequal = any(
            evidence.of_a_step((spread.maximum - spread.minimum) / total.mean) >= self.imbalance
            for spread in (own, evidence.spreads.get("rank_sync"))
            if spread is not None
        )
        return self.verdict(
            not unequal,
            message,
            next_step="ddp_comm_hook='bf16' (or power_sgd), more gradient_accumulation_steps, or a faster link.",
            evidence={"communication_share": share},
        )
