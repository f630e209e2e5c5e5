"""From the table of one evaluation to the values that are logged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hf_trainplus.decisions.estimate import Estimate, estimate
from hf_trainplus.evaluation.loop import LoopOutput
from hf_trainplus.evaluation.metric_values import json_safe_metrics


def logged_metrics(
    output: LoopOutput, returned: Mapping[str, Any], prefix: str, *, total: int, confidence: float
) -> tuple[dict[str, float | int], list[str]]:
    """Return what one evaluation logs, and the keys that are no single numbers.

    Args:
        output: what the loop found.
        returned: what the metric function returned.
        prefix: put before every key, e.g. ``eval`` or ``eval_a``.
        total: rows in the dataset.
        confidence: level of the intervals.

    Logged keys (``P`` is the prefix):

    ====================  =====================================================================
    ``P_X``               value of the metric X; ``P_loss`` is the token-exact loss
    ``P_X_ci_low/_high``  interval of X, where one is known
    ``P_X_exact``         1.0 when all rows were used
    ``P_examples``        rows evaluated
    ``P_examples_total``  rows in the dataset
    ``P_targets``         targets (tokens, labels) evaluated
    ``P_nonfinite``       rows with a NaN or infinite loss, and such metrics; only when above 0
    ``P_seconds``         wall-clock seconds of the loop
    ====================  =====================================================================
    """
    plain = {_without_eval(key): value for key, value in returned.items()}
    safe = json_safe_metrics(plain, prefix)
    metrics: dict[str, float | int] = dict(safe.values)
    results = output.results
    if output.has_loss and results.loss is not None:
        metrics[f"{prefix}_loss"] = results.loss
        _add_interval(metrics, f"{prefix}_loss", estimate(results, "loss", confidence=confidence))
    for name in results.scores:
        if f"{prefix}_{name}" in metrics:
            _add_interval(metrics, f"{prefix}_{name}", estimate(results, name, confidence=confidence))
    metrics[f"{prefix}_examples"] = len(results)
    metrics[f"{prefix}_examples_total"] = total
    metrics[f"{prefix}_targets"] = int(round(float(results.target_count.sum())))
    nonfinite = results.nonfinite_count + safe.nonfinite
    if nonfinite:
        metrics[f"{prefix}_nonfinite"] = nonfinite
    metrics[f"{prefix}_seconds"] = output.seconds
    return metrics, safe.left_out


def _add_interval(metrics: dict[str, float | int], key: str, found: Estimate) -> None:
    if found.ci_low is not None and found.ci_high is not None:
        metrics[f"{key}_ci_low"], metrics[f"{key}_ci_high"] = found.ci_low, found.ci_high
    metrics[f"{key}_exact"] = float(found.exact)


def _without_eval(key: str) -> str:
    """Drop the prefix that a metric function may have put itself, so that no key says ``eval_eval_``."""
    return key[len("eval_") :] if key.startswith("eval_") else key
