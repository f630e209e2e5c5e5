"""What a metric function returned, made fit for a log; and which way a metric's name says is better.

Both are pure functions over plain values: numpy only, and torch scalars are read without importing torch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np

_ILLEGAL = re.compile(r"[^A-Za-z0-9_./-]")

_SMALLER, _LARGER = False, True
_NAMES = {
    _SMALLER: "loss perplexity ppl nll negative_log_likelihood cross_entropy bpc bpb bits_per_byte bits_per_character "
    "wer cer mer ter der eer wil error errors error_rate err mae mse rmse msle rmsle mape smape mase medae "
    "brier brier_score ece fid kid lpips fpr fnr edit_distance levenshtein",
    _LARGER: "accuracy accuracies acc f1 fbeta precision recall sensitivity specificity tpr tnr exact_match em "
    "matthews_correlation matthews_corrcoef mcc kappa cohen_kappa auc auroc roc_auc pr_auc auprc average_precision "
    "map mar mrr ndcg hits iou miou jaccard dice pearson pearsonr spearman spearmanr spearmanr_corrcoef kendalltau "
    "correlation cosine_similarity r2 r_squared r2_score explained_variance bleu sacrebleu chrf rouge rouge1 rouge2 "
    "rougel rougelsum meteor bertscore comet cider spice sari wip psnr ssim likelihood reward rewards margins",
}
_LARGER_IS_BETTER = {name: larger for larger, names in _NAMES.items() for name in names.split()}
_QUALIFIER = re.compile(r"_(micro|macro|weighted|binary|samples|overall|score|mean|(at_)?k?\d+)$")
# words in front of a known name that turn its meaning round or make it a spread: the name then says nothing
_TURNING = frozenset(
    [
        "neg",
        "negative",
        "negated",
        "inverse",
        "minus",
        "std",
        "stderr",
        "var",
        "variance",
        "delta",
        "diff",
        "drop",
        "gap",
    ]
)


class JsonSafeMetrics(NamedTuple):
    """Metrics that can be logged and written as JSON, and what could not be.

    Args:
        values: key -> Python int or float; keys match ``[A-Za-z0-9_./-]+``. NaN and infinity stay in, as floats, so
            that they are seen; a writer of strict JSON has to spell them its own way.
        left_out: keys whose value is no single real number (arrays, texts, None) or repeats a key, each once.
        nonfinite: number of values that are NaN or infinite.
    """

    values: dict[str, float | int]
    left_out: list[str]
    nonfinite: int


def json_safe_metrics(metrics: Mapping[str, object], prefix: str = "") -> JsonSafeMetrics:
    """Turn the dictionary of a metric function into plain numbers under safe keys.

    Numpy and torch scalars become Python numbers, nested dictionaries are flattened with ``_``, and characters that
    trackers refuse become ``_``. It never raises for a value, rounds nothing, and drops no NaN.

    Args:
        metrics: name -> value, values may be dictionaries of the same kind.
        prefix: put before every key that does not begin with it, joined by ``_``; "" for none.

    Returns:
        ``(values, left_out, nonfinite)``, see ``JsonSafeMetrics``.

    Raises:
        TypeError: ``metrics`` is no mapping.

    Example:
        >>> import numpy as np
        >>> values, left_out, nonfinite = json_safe_metrics(
        ...     {"f1": np.float32(0.5), "by class": {"a": 1}, "matrix": np.eye(2), "eval_x": float("nan")}, "eval"
        ... )
        >>> values
        {'eval_f1': 0.5, 'eval_by_class_a': 1, 'eval_x': nan}
        >>> left_out, nonfinite
        (['eval_matrix'], 1)
    """
    if not isinstance(metrics, Mapping):
        raise TypeError(
            f"the metric function returned {type(metrics).__name__}; allowed is a dictionary of names and numbers, "
            'e.g. return {"accuracy": value}.'
        )
    values: dict[str, float | int] = {}
    left_out: dict[str, None] = {}
    for name, value in _flattened(metrics):
        key = _safe_key(name, prefix)
        number = _plain_number(value)
        if number is None or not key or key in values:
            left_out[key or name] = None
        else:
            values[key] = number
    nonfinite = sum(isinstance(value, float) and not math.isfinite(value) for value in values.values())
    return JsonSafeMetrics(values, list(left_out), nonfinite)


def metric_direction(name: str, greater_is_better: bool | None = None) -> bool:
    """Say whether a larger value of the metric is better.

    A known name counts with any ``eval_``/``test_``/dataset prefix (``eval_a_loss``) and with the usual qualifiers
    behind it (``f1_macro``, ``recall_at_5``). It never guesses: a name that is not in the table is an error, since a
    wrong guess keeps the worst checkpoint of a run.

    Args:
        name: key of the metric, with or without prefix.
        greater_is_better: the user's own word, which wins over the table; None to look the name up.

    Returns:
        True when larger is better.

    Raises:
        ValueError: the name is unknown and ``greater_is_better`` is None, or that is neither True nor False.
        TypeError: the name is no text.

    Example:
        >>> metric_direction("eval_wer"), metric_direction("eval_valid_f1_macro")
        (False, True)
        >>> metric_direction("eval_elo", greater_is_better=True)
        True
    """
    if not isinstance(name, str):
        raise TypeError(
            f"metric_for_best_model={name!r}; allowed is the name of one metric, e.g. metric_for_best_model='loss'."
        )
    if greater_is_better is not None:
        if greater_is_better not in (True, False):
            raise ValueError(
                f"greater_is_better={greater_is_better!r}; allowed are True, False and None, e.g. "
                "greater_is_better=False."
            )
        return bool(greater_is_better)
    words = _ILLEGAL.sub("_", name.lower()).replace("/", "_").replace("-", "_").split("_")
    for start in range(len(words)):
        known = _known_direction("_".join(words[start:]))
        if known is not None and _TURNING.isdisjoint(words[:start]):
            return known
    raise ValueError(
        f"it is not known whether a larger {name!r} is better or worse; set greater_is_better=True or "
        "greater_is_better=False beside metric_for_best_model."
    )


def _known_direction(name: str) -> bool | None:
    previous = ""
    while name not in _LARGER_IS_BETTER and name != previous:
        previous, name = name, _QUALIFIER.sub("", name)
    return _LARGER_IS_BETTER.get(name)


def _flattened(metrics: Mapping[str, object], parent: str = "") -> Iterator[tuple[str, object]]:
    for name, value in metrics.items():
        path = f"{parent}_{name}" if parent else str(name)
        if isinstance(value, Mapping):
            yield from _flattened(value, path)
        else:
            yield path, value


def _safe_key(name: str, prefix: str) -> str:
    joined = name if not prefix or name.startswith(f"{prefix}_") else f"{prefix}_{name}"
    return _ILLEGAL.sub("_", joined)


def _plain_number(value: object) -> float | int | None:
    """Read a real number out of a Python, numpy or torch scalar (or array of one element); None when it is none."""
    scalar = value
    if hasattr(value, "item") and not isinstance(value, np.longdouble):
        size = value.numel() if hasattr(value, "numel") else getattr(value, "size", 1)
        if size != 1:
            return None
        scalar = value.item()
    if isinstance(scalar, Integral):
        return int(scalar)
    return float(scalar) if isinstance(scalar, Real) else None
