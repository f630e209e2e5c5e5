"""From the table of one evaluation to the values that are logged."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any
from zlib import crc32

from hf_trainplus.decisions.estimate import Estimate, SampleDesign, estimate, estimate_slices, smooth_interval
from hf_trainplus.decisions.subset import Subset
from hf_trainplus.evaluation.loop import LoopOutput
from hf_trainplus.evaluation.metric_values import json_safe_metrics
from hf_trainplus.results import ExampleResults, Float64Array

SHARES = frozenset(["accuracy", "token_accuracy", "precision", "recall", "f1"])
"""Metrics of counts that lie between 0 and 1 and have no score of their own a row."""


def logged_metrics(
    output: LoopOutput,
    returned: Mapping[str, Any],
    prefix: str,
    *,
    total: int | None,
    confidence: float,
    smooth: Mapping[str, Callable[[Float64Array], Any]] | None = None,
    subset: Subset | None = None,
    cluster: str | None = None,
    slices: Sequence[str] = (),
) -> tuple[dict[str, float | int], list[str]]:
    """Return what one evaluation logs, and the keys that are no single numbers.

    Args:
        output: what the loop found.
        returned: what the metric function returned.
        prefix: put before every key, e.g. ``eval`` or ``eval_a``.
        total: rows in the dataset; None for the beginning of a stream, whose values are then not exact.
        confidence: level of the intervals.
        smooth: metric -> its value as a function of totals of the rows' statistics.
        subset: how the rows were drawn; None when they are the whole set.
        cluster: group column whose rows belong together, for standard errors; None for independent rows.
        slices: group columns by whose values the scores are logged too, and the loss where each row's own is known.

    Logged keys (``P`` is the prefix):

    ====================  =====================================================================
    ``P_X``               value of the metric X; ``P_loss`` is the token-exact loss
    ``P_X_ci_low/_high``  interval of X, where one is known
    ``P_X_exact``         1.0 when all rows were used
    ``P_C_V_X``           X on the rows whose column C is V, with its interval (``eval_group_columns``); values that
                          differ only in characters that keys cannot hold have a checksum behind them
    ``P_examples``        rows evaluated
    ``P_examples_total``  rows in the dataset; not for the beginning of a stream
    ``P_targets``         targets (tokens, labels) evaluated
    ``P_nonfinite``       rows with a NaN or infinite loss, and such metrics; only when above 0
    ``P_seconds``         wall-clock seconds of the loop
    ====================  =====================================================================
    """
    plain = {_without_eval(str(key)): value for key, value in returned.items()}
    safe = json_safe_metrics(plain, prefix)
    metrics: dict[str, float | int] = dict(safe.values)
    results = output.results
    options: dict[str, Any] = {"confidence": confidence, "subset": subset, "clusters": cluster}
    if output.has_loss and results.loss is not None:
        _add_loss(metrics, output, prefix, options)
    for name in results.scores:
        _add(metrics, f"{prefix}_{name}", estimate(results, name, **options))
    for name, value in (smooth or {}).items():
        if name in results.statistics and name not in results.scores:
            found = _smooth(results, name, value, confidence, subset, cluster)
            _add(metrics, f"{prefix}_{name}", found)
    named = (["loss"] if output.has_loss and output.per_row else []) + list(results.scores)
    for column, name in product(slices, named):
        of_value = estimate_slices(results, name, column, **options)
        for label, found in zip(_labels(of_value), of_value.values(), strict=True):
            _add(metrics, safe_key(f"{prefix}_{column}_{label}_{name}"), found)
    metrics[f"{prefix}_examples"] = len(results)
    if total is not None:
        metrics[f"{prefix}_examples_total"] = total
    else:  # however many rows were read, a beginning is not the whole
        metrics |= {key: 0.0 for key in metrics if key.endswith("_exact")}
    metrics[f"{prefix}_targets"] = int(round(float(results.target_count.sum())))
    nonfinite = results.nonfinite_count + safe.nonfinite
    if nonfinite:
        metrics[f"{prefix}_nonfinite"] = nonfinite
    metrics[f"{prefix}_seconds"] = output.seconds
    return metrics, safe.left_out


def _add_loss(metrics: dict[str, Any], output: LoopOutput, prefix: str, options: Mapping[str, Any]) -> None:
    """Log the loss and the perplexity; of a loss that only a batch has, the batch is the unit: its rows say the same.

    Where such rows were drawn one by one, nothing tells how far the loss may be off.
    """
    batches, subset = output.batch_of_row, options["subset"]
    known = batches is None or subset is None or subset.clusters is not None
    given = dict(options) if batches is None else {**options, "clusters": batches}
    for name in ("loss", "perplexity"):
        if name == "loss" or f"{prefix}_{name}" in metrics:
            found = estimate(output.results, name, **given)
            _add(metrics, f"{prefix}_{name}", found if known else replace(found, ci_low=None, ci_high=None))


def _smooth(
    results: ExampleResults,
    name: str,
    value: Callable[[Float64Array], Any],
    confidence: float,
    subset: Subset | None,
    cluster: str | None,
) -> Estimate:
    clusters = None if cluster is None else results.groups[cluster]
    rows = len(results)
    design = SampleDesign.simple(rows, clusters=clusters)
    if subset is not None:
        design = subset.design_of(results.index, clusters=clusters)
    # the sums of one 0/1 count in another make a share, whose interval stays between 0 and 1
    transform = "logit" if name in SHARES else "identity"
    return smooth_interval(
        results.statistics[name],
        lambda totals: float(value(totals)),
        design=design,
        confidence=confidence,
        transform=transform,
    )


def _add(metrics: dict[str, float | int], key: str, found: Estimate) -> None:
    """Log a value with its interval; a value that is not finite stays as it was computed, with no interval."""
    given = metrics.get(key)
    if (
        given is not None
        and found.exact
        and found.value is not None
        and not math.isclose(given, found.value, rel_tol=1e-6)
    ):
        return  # the user's own quantity of that name: an interval of ours would belong to another one
    if found.value is not None and (given is None or not found.exact):
        metrics[key] = found.value
    if found.ci_low is not None and found.ci_high is not None:
        metrics[f"{key}_ci_low"], metrics[f"{key}_ci_high"] = found.ci_low, found.ci_high
    metrics[f"{key}_exact"] = float(found.exact)


def _labels(values: Collection[Any]) -> list[str]:
    """Name slices so that no two share a key: a value that its key does not tell apart gets a checksum behind it."""
    keys = [safe_key(str(value)) for value in values]
    times = Counter(keys)
    unclear = [times[key] > 1 and value != key for key, value in zip(keys, values, strict=True)]
    checksums = [f"_{crc32(repr(value).encode()):08x}" for value in values]
    return [key + checksum * doubt for key, checksum, doubt in zip(keys, checksums, unclear, strict=True)]


def safe_key(key: str) -> str:
    """Replace what trackers refuse in a key.

    Example:
        >>> safe_key("eval_topic_world news_loss")
        'eval_topic_world_news_loss'
    """
    return re.sub(r"[^A-Za-z0-9_./-]", "_", key)


def _without_eval(key: str) -> str:
    """Drop the prefix that a metric function may have put itself, so that no key says ``eval_eval_``."""
    return key[len("eval_") :] if key.startswith("eval_") else key
