"""What a race reads of its evaluation set beforehand, and what it gives to the log afterwards."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hf_trainplus.decisions.estimators.quantiles import critical_value
from hf_trainplus.decisions.strategies.columns import DatasetColumns
from hf_trainplus.decisions.strategies.encoding import encode_labels
from hf_trainplus.decisions.strategies.label_values import ClassLabels, LabelSets
from hf_trainplus.results import Int64Array
from hf_trainplus.training.racing.session import Observed

if TYPE_CHECKING:
    from hf_trainplus.training_args import PlusTrainingArguments

_PROBE_ROWS = 1000


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


def environment_of(args: PlusTrainingArguments) -> dict[str, str]:
    """Return what every audit record says of how rows were evaluated."""
    from hf_trainplus import __version__

    precision = args.eval_precision or str(args.mixed_precision)
    return {"version": __version__, "precision": precision, "batch_size": str(args.eval_batch_size)}


def label_codes(dataset: Any, named: str | None = None) -> Int64Array | None:
    """Return the class of each row where a column says it, for strata before any loss is known.

    Only a column of a table is read, since rows that are made one by one may cost more than the strata save; lists of
    labels, as the targets of a language model, are no classes.

    Args:
        dataset: the evaluation set.
        named: the column (``eval_label_column``); None takes ``labels`` or ``label``.

    Raises:
        ValueError: the column that was named is not there.
    """
    if named is None and not getattr(dataset, "column_names", None):
        return None
    columns = DatasetColumns(dataset)
    names = [name for name in ("labels", "label") if name in columns.names] if named is None else [named]
    if not names or not isinstance(_classes(columns.head(names[0], _PROBE_ROWS)), ClassLabels):
        return None
    labels = _classes(columns.read(names[0]))
    if not isinstance(labels, ClassLabels) or labels.count > math.isqrt(len(labels.codes)):
        return None
    return labels.codes.astype(np.int64)


def _classes(column: Any) -> ClassLabels | LabelSets | None:
    try:
        return encode_labels(column)
    except TypeError:
        return None
