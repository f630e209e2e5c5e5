"""Metrics by name."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from hf_trainplus.evaluation.metrics.base import Metric

# name -> module of this package and class; a library is imported only when its metric is made
_CLASS_OF = {
    "accuracy": "accuracy.Accuracy",
    "token_accuracy": "accuracy.TokenAccuracy",
    "precision": "precision_recall.Precision",
    "recall": "precision_recall.Recall",
    "f1": "precision_recall.F1",
    "matthews_correlation": "matthews.MatthewsCorrelation",
    "roc_auc": "ranking.RocAuc",
    "exact_match": "exact_match.ExactMatch",
    "perplexity": "perplexity.Perplexity",
    "seqeval": "seqeval.Seqeval",
    "bleu": "bleu.Bleu",
    "sacrebleu": "sacrebleu.SacreBleu",
    "chrf": "chrf.ChrF",
    "rouge": "rouge.Rouge",
    "wer": "error_rates.WordErrorRate",
    "cer": "error_rates.CharacterErrorRate",
    "mse": "regression.MeanSquaredError",
    "mae": "regression.MeanAbsoluteError",
    "pearsonr": "correlation.Pearson",
    "spearmanr": "ranking.Spearman",
}
_ALIASES = {"mcc": "matthews_correlation", "auc": "roc_auc", "pearson": "pearsonr", "spearman": "spearmanr"}


def load_metric(name: str, **options: Any) -> Metric:
    """Make a metric that is updated a batch at a time and keeps a small state.

    Nothing is downloaded and no file is locked. The value equals that of the evaluate library's metric of the same
    name, except where the class says what differs (``rouge``, ``perplexity``).

    Args:
        name: ``metric_names()`` lists them; ``mcc``, ``auc``, ``pearson`` and ``spearman`` are short for
            ``matthews_correlation``, ``roc_auc``, ``pearsonr`` and ``spearmanr``.
        options: arguments of the metric's class, e.g. ``average="macro"`` for ``f1``.

    Returns:
        A ``Metric`` with ``update``, ``merge`` and ``compute``, that ``PlusTrainer(compute_metrics=...)`` accepts.

    Raises:
        ValueError: the name is unknown, or an option has a value that is not allowed.
        TypeError: the metric has no such option.
        ImportError: the metric's library is missing; the text names the extra that brings it.

    Example:
        >>> metric = load_metric("f1", average="macro")
        >>> metric.update([0, 1, 2], [0, 1, 1])
        >>> metric.update([2, 2], [2, 2])
        >>> {name: round(value, 4) for name, value in metric.compute().items()}
        {'f1': 0.8222}
    """
    canonical = _ALIASES.get(name, name)
    if canonical not in _CLASS_OF:
        raise ValueError(f"there is no metric {name!r}; allowed are {', '.join(metric_names())}.")
    module, _, class_name = _CLASS_OF[canonical].partition(".")
    metric_class = getattr(import_module(f"{__package__}.{module}"), class_name)
    allowed = list(inspect.signature(metric_class).parameters)
    unknown = sorted(options.keys() - set(allowed))
    if unknown:
        raise TypeError(
            f"metric {canonical!r} has no option {unknown[0]!r}; allowed are {', '.join(allowed) or 'none'}."
        )
    metric: Metric = metric_class(**options)
    return metric


def metric_names() -> list[str]:
    """Return the names that ``load_metric`` knows, short ones included, in alphabetical order."""
    return sorted([*_CLASS_OF, *_ALIASES])
