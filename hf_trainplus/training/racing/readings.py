"""What a race reads of its evaluation set beforehand, and what it gives to the log afterwards."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hf_trainplus.decisions.estimators.quantiles import critical_value
from hf_trainplus.results import Int64Array
from hf_trainplus.training.racing.session import Observed


def put_level(metrics: dict[str, Any], key: str, observed: Observed, confidence: float) -> None:
    """Log the race's own estimate of the watched metric, which knows fully evaluated checkpoints too."""
    verdict = observed.verdict
    if verdict.value is None or key.endswith("_perplexity"):
        return
    metrics[key] = verdict.value
    metrics[f"{key}_exact"] = float(verdict.exact)
    if verdict.se is not None and not verdict.exact:
        half = critical_value(confidence) * verdict.se
        metrics[f"{key}_ci_low"], metrics[f"{key}_ci_high"] = verdict.value - half, verdict.value + half


def label_codes(dataset: Any) -> Int64Array | None:
    """Return the class of each row where a column of few whole numbers says it, for strata before any loss is known."""
    for name in ("labels", "label"):
        if name not in (getattr(dataset, "column_names", None) or ()):
            continue
        values = np.asarray(dataset.with_format("numpy")[name])
        if values.ndim == 1 and np.issubdtype(values.dtype, np.integer):
            classes, codes = np.unique(values, return_inverse=True)
            return codes.astype(np.int64) if len(classes) <= math.isqrt(len(values)) else None
    return None
