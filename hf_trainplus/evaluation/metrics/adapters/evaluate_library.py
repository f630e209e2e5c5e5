"""Objects of the evaluate library for the evaluation loop, without their files and locks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from hf_trainplus.evaluation.metrics import forms
from hf_trainplus.evaluation.metrics.adapters.contract import CollectedMetric
from hf_trainplus.evaluation.metrics.forms import IGNORE_INDEX, PredictionForm, to_numpy
from hf_trainplus.evaluation.metrics.texts import Decoder, without_negative_ids

_FORMS: dict[str, PredictionForm] = {"scores": "scores", "labels": "multihot"}
_STORAGE = {"keep_in_memory": True, "num_process": 1, "process_id": 0}


class EvaluateMetric(CollectedMetric):
    """A metric of ``evaluate.load`` or ``evaluate.combine``, computed once on the rows of all ranks.

    What the object declares as its inputs says how predictions are reduced: integers are the argmax, real numbers
    scores, lists of integers 0/1 labels, texts decoded ids. Targets of -100 are dropped where one id a target is asked
    for. While it computes, the object keeps its data in memory and stands alone, so that it writes and locks no file;
    its own settings are put back afterwards. Options of its ``compute`` cannot be passed: ``load_metric`` has them.

    Args:
        metric: an object with ``compute`` and declared ``features``.
        tokenizer: decodes ids for metrics of texts.
        label_names: tag of each class id, for metrics of tags.

    Raises:
        ValueError: the object's inputs are of no kind that is known here, or a tokenizer or tag names are missing.
    """

    def __init__(self, metric: Any, tokenizer: Decoder | None = None, label_names: Sequence[str] | None = None) -> None:
        self._metric = metric
        self._modules = list(getattr(metric, "evaluation_modules", [metric]))
        self._tokenizer = tokenizer
        self._label_names = label_names
        kinds = {_input_kind(module) for module in self._modules}
        if len(kinds) != 1:
            raise ValueError(
                f"the combined metrics take different inputs ({', '.join(sorted(kinds))}); combine metrics of one kind."
            )
        self._kind = kinds.pop()
        self.form = _FORMS.get(self._kind, "argmax")
        self._orders_classes = all(_orders_classes(module) for module in self._modules)
        self._require("texts", tokenizer, "tokenizer", "tokenizer=tokenizer")
        self._require("tags", label_names, "tag names", 'label_names=["O", "B-PER", ...]')

    def _require(self, kind: str, value: Any, what: str, line: str) -> None:
        if self._kind == kind and value is None:
            names = ", ".join(module.name for module in self._modules)
            raise ValueError(f"{names} takes {kind} and no {what} is known; use as_metric(metric, {line}).")

    def reduce(self, predictions: Any, labels: Any) -> Any:
        """Reduce to what the object takes."""
        if self._kind == "scores":
            return (forms.ranking_scores if self._orders_classes else forms.scalar_scores)(predictions)
        return forms.multihot_labels(predictions) if self._kind == "labels" else forms.argmax_ids(predictions)

    def compute_rows(self, predictions: Any, labels: Any, inputs: Any = None, losses: Any = None) -> dict[str, Any]:
        """Compute once, in memory."""
        predicted, true = self._rows(predictions, labels)
        name = next(key for key in _features(self._modules[0]) if key != "references")
        with _in_memory(self._modules):
            result = self._metric.compute(**{name: predicted, "references": true})
        return dict(result) if isinstance(result, Mapping) else {self._modules[0].name: result}

    def _rows(self, predictions: Any, labels: Any) -> tuple[Any, Any]:
        if self._kind == "texts":
            return self._texts(predictions), self._texts(labels)
        predicted, true = to_numpy(predictions), to_numpy(labels)
        counted = true != IGNORE_INDEX
        if self._kind == "ids":
            return predicted[counted], true[counted]
        if self._kind == "tags":
            return self._tags(predicted, counted), self._tags(true, counted)
        return (predicted.astype(int), true.astype(int)) if self._kind == "labels" else (predicted, true)

    def _tags(self, ids: Any, counted: Any) -> list[list[str]]:
        names = self._label_names or ()
        return [[names[label] for label in row[kept]] for row, kept in zip(ids, counted, strict=True)]

    def _texts(self, values: Any) -> Any:
        if isinstance(values, list) and values and isinstance(values[0], (str, list)):
            return values
        rows = [without_negative_ids(row) for row in values]
        return self._tokenizer.batch_decode(rows, skip_special_tokens=True) if self._tokenizer else rows


@contextmanager
def _in_memory(modules: Sequence[Any]) -> Iterator[None]:
    before = [{name: getattr(module, name) for name in _STORAGE} for module in modules]
    try:
        for module in modules:
            vars(module).update(_STORAGE)
        yield
    finally:
        for module, settings in zip(modules, before, strict=True):
            vars(module).update(settings)


def _features(module: Any) -> dict[str, Any]:
    features = module.features
    return dict(features[0] if isinstance(features, list) else features)


def _orders_classes(module: Any) -> bool:
    features = _features(module)
    return "prediction_scores" in features and not hasattr(features["references"], "feature")


def _input_kind(module: Any) -> str:
    """Return ids, scores, labels, texts or tags, from the declared type of the predictions."""
    features = _features(module)
    declared = next((feature for name, feature in features.items() if name != "references"), None)
    inner = getattr(declared, "feature", declared)
    is_list = inner is not declared
    dtype = str(getattr(inner, "dtype", ""))
    if dtype.startswith(("int", "uint", "bool")):
        return "labels" if is_list else "ids"
    if dtype.startswith("float"):
        return "scores"
    if dtype in ("string", "large_string"):
        return "tags" if is_list else "texts"
    raise ValueError(
        f"the inputs of {module.name} are declared as {features}, which is none of class ids, scores, 0/1 labels, tags "
        "and texts; pass a function that calls it: compute_metrics=lambda p: metric.compute(...)."
    )
