"""Does saving take too much of the run?"""

from __future__ import annotations

from hf_trainplus.monitor.diagnosis.evidence import Evidence
from hf_trainplus.monitor.diagnosis.rules.time_share import TimeShareRule, stretched


class SavingBoundRule(TimeShareRule):
    """Found when saving takes more than ``share`` (default 0.1) of the time."""

    name = "saving_bound"
    parts = ("saving",)
    what = "saving checkpoints"
    default_share = 0.1

    def advice(self, share: float, evidence: Evidence) -> str:
        """Name the interval at which saving would take 2 %, or less where ``share`` is low."""
        steps = stretched(evidence.settings.save_steps, share, self.target(0.02))
        longer = "a longer save_steps" if steps is None else f"save_steps {evidence.settings.save_steps:g} -> {steps}"
        return f"{longer}, a faster disk, or save_only_model=True where no resume is needed."
