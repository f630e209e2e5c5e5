"""Which metric a callback watches, and which way is better."""

from __future__ import annotations

from transformers import TrainingArguments

from hf_trainplus.evaluation.metric_values import metric_direction


def watched_key(named: str | None, args: TrainingArguments) -> str:
    """Return the key among logged metrics: the one named, else ``metric_for_best_model``, else the loss."""
    name = named or args.metric_for_best_model or "loss"
    return name if name.startswith("eval_") else f"eval_{name}"


def larger_is_better(key: str, named: bool | None, args: TrainingArguments) -> bool:
    """Return the direction: as named, as the arguments have it for their own metric, else by the metric's name.

    Raises:
        ValueError: the name says nothing and nobody else does.
    """
    if named is not None:
        return named
    if args.metric_for_best_model is not None and key.endswith(args.metric_for_best_model):
        return bool(args.greater_is_better)
    return metric_direction(key)
