"""How the objects of the libraries around an evaluation are read: tokenizers, collators, metrics, tensors, models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from hf_trainplus.evaluation.fingerprints.data import DataFingerprints, is_arrow_dataset
from hf_trainplus.evaluation.fingerprints.objects import ObjectWalk
from hf_trainplus.evaluation.fingerprints.weights import fingerprint_model, fingerprint_tensor, fingerprint_weights
from hf_trainplus.evaluation.metrics.base import Metric
from hf_trainplus.identity import UnknownIdentityError, fingerprint_named

_OF_A_TOKENIZER = """deprecation_warnings name_or_path vocab_file tokenizer_file files_loaded init_kwargs init_inputs
verbose _in_target_context_manager _processor_class"""
_OF_A_CONFIG = "_name_or_path name_or_path architectures transformers_version dtype torch_dtype"
# these say where an object came from, or change when it is saved or first used
_NOT_CONTENT = {
    "PreTrainedTokenizerBase": frozenset(_OF_A_TOKENIZER.split()),
    "PreTrainedConfig": frozenset(_OF_A_CONFIG.split()),
    "PretrainedConfig": frozenset(_OF_A_CONFIG.split()),
}
_OPTIONS_OF_EVALUATE = {
    "EvaluationModule": ("name", "config_name", "seed"),
    "CombinedEvaluations": ("evaluation_modules", "evaluation_module_names", "force_prefix"),
}
_MASKING_COLLATORS = frozenset({"DataCollatorForLanguageModeling", "DataCollatorForPermutationLanguageModeling"})


class ObjectFingerprints:
    """Fingerprints collators, tokenizers, metrics and functions, by content and code (see ``ObjectWalk``).

    Of a metric of ``load_metric`` or of the evaluate library its options and code count, not the rows that it has seen.

    Args:
        data: fingerprints datasets that a function refers to; None for one of its own.

    Example:
        >>> known = ObjectFingerprints()
        >>> def over(threshold):
        ...     return lambda prediction: {"share": (prediction.predictions > threshold).mean()}
        >>> known.of(over(0.5)) == known.of(over(0.6)), known.of(over(0.5)) == known.of(over(0.5))
        (False, True)
    """

    def __init__(self, data: DataFingerprints | None = None) -> None:
        self._data = data or DataFingerprints(self.of)
        self._kinds = (_tensor, self._module, self._dataset, _masking_collator, _metric, _upstream_object)
        self._evaluated: dict[int, str] = {}

    def of(self, value: Any, *, model: nn.Module | None = None) -> str:
        """Return the fingerprint of an object.

        Args:
            value: any object.
            model: the model that is evaluated, which counts by its name alone where the object refers to it.

        Raises:
            UnknownIdentityError: what it consists of cannot be known; the text says why.
        """
        self._evaluated = {} if model is None else {id(part): name for name, part in model.named_modules()}
        walk = ObjectWalk(self._kinds)
        try:
            walk.add(value)
        except RecursionError as error:
            raise UnknownIdentityError("it refers to itself through lists or dictionaries") from error
        return walk.text()

    def of_model(self, model: nn.Module) -> str:
        """Return the fingerprint of a model's weights and of what it computes with them.

        Raises:
            UnknownIdentityError: something that it holds cannot be known.
        """
        computed = fingerprint_model(model, LIBRARY_KINDS)
        return fingerprint_named({"weights": fingerprint_weights(model), "computed": computed})

    def _module(self, value: Any) -> Any:
        if not isinstance(value, nn.Module) or type(value).__module__.startswith("torchmetrics"):
            return None
        if id(value) in self._evaluated:
            return ("part of the evaluated model", self._evaluated[id(value)])
        return ("model", self.of_model(value))

    def _dataset(self, value: Any) -> Any:
        return ("dataset", self._data.of(value)) if is_arrow_dataset(value) else None


def _tensor(value: Any) -> Any:
    return ("tensor", fingerprint_tensor(value)) if isinstance(value, torch.Tensor) else None


def _masking_collator(value: Any) -> Any:
    if _MASKING_COLLATORS & _base_names(value) and getattr(value, "mlm", True):
        raise UnknownIdentityError(f"{type(value).__name__} masks at random, other tokens at every evaluation")
    return None


def _metric(value: Any) -> Any:
    if isinstance(value, Metric):
        return ("metric", type(value), value.options)
    for base, options in _OPTIONS_OF_EVALUATE.items():
        if base in _base_names(value):
            return ("metric", type(value), {name: getattr(value, name, None) for name in options})
    return None


def _upstream_object(value: Any) -> Any:
    if type(value).__module__.partition(".")[0] == "tokenizers" and hasattr(value, "to_str"):
        # truncation and padding stand first; they are set by every call and overridden in the next
        return ("tokenizer", value.to_str().partition('"added_tokens":')[2])
    if type(value).__name__ == "ConvertOutputsToFp32":  # around a forward under mixed precision; refuses to be pickled
        return ("converted", type(value), value.model_forward)
    for base in _base_names(value) & _NOT_CONTENT.keys():
        attributes: Mapping[str, Any] = vars(value)
        kept = {name: attributes[name] for name in sorted(attributes) if name not in _NOT_CONTENT[base]}
        return ("object", type(value), kept)
    return None


def _base_names(value: Any) -> set[str]:
    return {base.__name__ for base in type(value).__mro__}


LIBRARY_KINDS = (_tensor, _upstream_object)
"""How tensors, tokenizers and configurations are read wherever an object holds them."""
