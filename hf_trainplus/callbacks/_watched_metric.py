"""Which metric a callback watches, which way is better, and what to do where evaluations lack it."""

from __future__ import annotations

from collections.abc import Mapping

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


class WatchedMetric:
    """Reads a metric from what evaluations log, and refuses a run whose evaluations lack it.

    Of several sets, which are logged one after the other, any may bring the metric. What a person evaluates under a
    prefix of their own is none of its business.

    Args:
        owner: who watches, for the error.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._missing: list[str] | None = None
        self._found = False

    def read(self, key: str, metrics: Mapping[str, float], args: TrainingArguments) -> float | None:
        """Return the metric, or None where this set does not have it, or not yet.

        Args:
            key: key among logged metrics.
            metrics: what one set's evaluation logged.
            args: say whether every evaluation generates.

        Raises:
            ValueError: the evaluation of a single set lacks it.
        """
        if key in metrics:
            self._missing, self._found = None, True
            return float(metrics[key])
        if generates_later(args, metrics):
            return None
        names = sorted(name for name in metrics if name.startswith("eval_"))
        single = "eval_runtime" in metrics
        if single or (not self._found and (names or not metrics)):
            self._missing = sorted({*names, *(self._missing or [])})
        if single:
            self.require(key)
        return None

    def require(self, key: str) -> None:
        """Refuse to go on after an evaluation of which no set had the metric.

        Raises:
            ValueError: the last evaluation lacks it.
        """
        if self._missing is None:
            return
        missing, self._missing = self._missing, None
        loss = next((name for name in missing if name.endswith("loss")), "loss").removeprefix("eval_")
        raise ValueError(
            f"{self._owner} watches {key!r} and the evaluation gave {', '.join(missing) or 'nothing'}. "
            f"Name one of these, e.g. {self._owner}(metric={loss!r})."
        )

    def forgive(self) -> None:
        """Do not miss the metric of an evaluation that failed, when the run goes on in spite of it."""
        self._missing = None


def generates_later(args: TrainingArguments, metrics: Mapping[str, float]) -> bool:
    """Say whether an evaluation lacks what is generated because generation has a rhythm of its own."""
    rhythm = getattr(args, "generation_eval_steps", None)
    return rhythm is not None and not any(key.endswith("generation_examples") for key in metrics)


def is_set_of(key: str, metrics: Mapping[str, float]) -> bool:
    """Say whether these are the metrics of the set that a key belongs to."""
    runtimes = [name.removesuffix("runtime") for name in metrics if name.endswith("_runtime")]
    return any(key.startswith(prefix) for prefix in runtimes)
