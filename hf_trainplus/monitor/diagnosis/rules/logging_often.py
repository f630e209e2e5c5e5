"""Does logging take too much of the run?"""

from __future__ import annotations

from hf_trainplus.monitor.diagnosis.evidence import Evidence
from hf_trainplus.monitor.diagnosis.rules.time_share import TimeShareRule, stretched


class LoggingOftenRule(TimeShareRule):
    """Found when logging and callbacks take more than ``share`` (default 0.05) of the time.

    Each log waits for the device and, distributed, for the slowest rank.
    """

    name = "logging_often"
    parts = ("logging", "callbacks")
    what = "logging and callbacks"
    default_share = 0.05

    def advice(self, share: float, evidence: Evidence) -> str:
        """Name the interval at which logging would take 1 %, or the callbacks, which no interval makes rarer."""
        logging = evidence.largest_share("logging")
        callbacks = share - logging
        if callbacks > logging:
            return f"callbacks take {100 * callbacks:.0f} %: make them cheaper, or let them act at logging steps alone."
        steps = stretched(evidence.settings.logging_steps, logging, self.target(0.01))
        if steps is None:
            return "a longer logging_steps, or cheaper callbacks."
        return f"logging_steps {evidence.settings.logging_steps:g} -> {steps}, or cheaper callbacks."
