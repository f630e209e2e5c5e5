"""Do gradients explode now and then?"""

from __future__ import annotations

import numpy as np

from hf_trainplus.monitor.diagnosis.evidence import Evidence
from hf_trainplus.monitor.diagnosis.rule import DiagnosisRule
from hf_trainplus.monitor.diagnosis.verdict import Verdict
from hf_trainplus.monitor.robust import robust_spread


class GradientSpikesRule(DiagnosisRule):
    """Found when logged gradient norms rise far above their neighbours, on the logarithmic scale.

    A spike is ``times`` the median of the ``width`` norms before it and ``spreads`` robust standard deviations above
    it; the first norms of a run, which fall anyway, have nothing before them and are not judged.

    Args:
        times: factor over the median before, > 1.
        spreads: robust standard deviations of the logarithms, > 0.
        width: norms that the median is taken over.
        least: spikes that make a finding, >= 1.
    """

    name = "gradient_spikes"

    def __init__(self, *, times: float = 5.0, spreads: float = 6.0, width: int = 20, least: int = 1) -> None:
        self.times = times
        self.spreads = spreads
        self.width = width
        self.least = least

    def check(self, evidence: Evidence) -> Verdict:
        """Count the spikes."""
        series = evidence.grad_norm.finite()
        positive = series.values > 0
        steps, logs = series.steps[positive], np.log(series.values[positive])
        if len(logs) < self.width + 5:
            return self.unknown(f"{len(logs)} gradient norms are logged; {self.width + 5} are needed.")
        spikes = []
        for place in range(self.width, len(logs)):
            before = logs[place - self.width : place]
            reach = max(np.log(self.times), self.spreads * robust_spread(before))
            if logs[place] - np.median(before) > reach:
                spikes.append(int(steps[place]))
        named = ", ".join(map(str, spikes[:5])) + (", ..." if len(spikes) > 5 else "")
        return self.verdict(
            len(spikes) >= self.least,
            f"the gradient norm spikes {len(spikes)} times{f' (steps {named})' if spikes else ''}.",
            next_step="look at the batches of these steps; lower max_grad_norm or learning_rate, or a longer warmup.",
            evidence={"spikes": float(len(spikes))},
        )
