"""Were there losses or gradients that are no numbers?"""

from __future__ import annotations

import numpy as np

from hf_trainplus.monitor.diagnosis.evidence import Evidence, Series
from hf_trainplus.monitor.diagnosis.rule import DiagnosisRule
from hf_trainplus.monitor.diagnosis.verdict import Verdict


class NonFiniteLossRule(DiagnosisRule):
    """Found when any logged loss or gradient norm, or any evaluated row, is NaN or infinite.

    ``logging_nan_inf_filter`` (on by default) replaces non-finite training losses before they are logged; the
    gradient norm still tells.
    """

    name = "nonfinite_loss"

    def check(self, evidence: Evidence) -> Verdict:
        """Count them."""
        series = {
            "training losses": evidence.train_loss,
            "evaluation losses": evidence.eval_loss,
            "gradient norms": evidence.grad_norm,
        }
        if not any(len(one) for one in series.values()) and not evidence.nonfinite_targets:
            return self.unknown("no loss is logged.")
        counts = {name: int((~np.isfinite(one.values)).sum()) for name, one in series.items()}
        counts["evaluated rows"] = evidence.nonfinite_targets
        told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        places = [_first_bad(one) for one in series.values()]
        first = min((place for place in places if place is not None), default=None)
        since = "" if first is None else f", first at step {first:g}"
        return self.verdict(
            bool(told),
            f"{told} are NaN or infinite{since}." if told else "all losses and gradient norms are finite.",
            next_step="bf16 instead of fp16, a lower learning_rate, and look for rows whose labels are all masked.",
            evidence={name.replace(" ", "_"): float(count) for name, count in counts.items()},
        )


def _first_bad(series: Series) -> float | None:
    bad = series.steps[~np.isfinite(series.values)]
    return float(bad[0]) if len(bad) else None
