"""What the rows of one evaluation of a trainer depend on."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

import torch

from hf_trainplus.evaluation.fingerprints import DataFingerprints, ObjectFingerprints
from hf_trainplus.evaluation.fingerprints.libraries import library_of
from hf_trainplus.identity import Identity, UnknownIdentityError
from hf_trainplus.training.source import EvaluationSource

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn
    from transformers import Trainer

    from hf_trainplus.training.request import Request

_PRECISION = ("eval_precision", "bf16", "fp16", "bf16_full_eval", "fp16_full_eval", "tf32", "torch_compile")
_SETTINGS = (
    "label_smoothing_factor",
    "label_names",
    "remove_unused_columns",
    "include_for_metrics",
    "batch_eval_metrics",
    "eval_predictions",
    "eval_group_columns",
    "eval_cluster_column",
    "use_liger_kernel",
)


class EvaluationIdentities:
    """Finds the identity of an evaluation, reading what may have changed since the last one.

    The sizes of batches and the number of processes are no part of it: a row's result does not depend on them but for
    rounding, and an evaluation in which it does is not kept.

    Args:
        trainer: its arguments, functions, collator and tokenizer count.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._objects = ObjectFingerprints()
        self._data = DataFingerprints(self._objects.of)
        self._undecided: list[Any] = []

    def of(self, request: Request, model: nn.Module) -> Identity:
        """Return the identity of the rows that a request asks for.

        Args:
            request: what is evaluated; its rows, their number and their order do not count.
            model: the model itself, ready for evaluation.

        Raises:
            UnknownIdentityError: part of it cannot be known; the text says which, and why.
        """
        trainer, objects = self._trainer, self._objects
        self._undecided = _undecided_configs(model)
        if not isinstance(request.loader, EvaluationSource):
            raise UnknownIdentityError("the rows come from a data loader that is not PlusTrainer's own")
        dataset = request.loader.dataset
        functions = (trainer.compute_metrics, trainer.preprocess_logits_for_metrics, trainer.compute_loss_func)
        processing = (trainer.data_collator, trainer.processing_class)
        return Identity(
            weights=_named("the model", lambda: objects.of_model(model)),
            data=_named("the evaluation set", lambda: self._data.of(dataset)),
            metrics=_named("the metric function", lambda: objects.of(functions, model=model)),
            processing=_named("the collator or tokenizer", lambda: objects.of(processing, model=model)),
            precision=objects.of(self._precision()),
            settings=objects.of(self._settings(request)),
        )

    def after(self, identity: Identity, request: Request, model: nn.Module) -> list[Identity]:
        """Return the identities of an evaluation that has been run since ``of``: that one, and what it has become.

        A classifier of transformers that is not told its kind of problem infers it from its first labels and writes it
        into its configuration. It computes the same afterwards, if nothing else has changed.

        Raises:
            UnknownIdentityError: it cannot be known any more.
        """
        decided = [(config, config.problem_type) for config in self._undecided if config.problem_type is not None]
        if not decided:
            return [identity]
        try:
            for config, _ in decided:
                config.problem_type = None
            unchanged = self.of(request, model) == identity
        finally:
            for config, kind in decided:
                config.problem_type = kind
        return [identity, self.of(request, model)] if unchanged else [identity]

    def _precision(self) -> dict[str, Any]:
        args, backends = self._trainer.args, torch.backends
        device = args.device
        facts = {name: getattr(args, name, None) for name in _PRECISION}
        facts |= {"mixed": str(self._trainer.accelerator.mixed_precision), "device": device.type}
        facts["processor"] = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
        facts["instructions"] = backends.cpu.get_cpu_capability()
        facts["matmul"] = torch.get_float32_matmul_precision()
        facts["cudnn_tf32"] = backends.cudnn.allow_tf32
        facts["libraries"] = [library_of(name) for name in ("torch", "transformers", "accelerate", "hf_trainplus")]
        return facts

    def _settings(self, request: Request) -> dict[str, Any]:
        settings = {name: getattr(self._trainer.args, name, None) for name in _SETTINGS}
        return settings | {"loss_only": request.loss_only, "ignore_keys": request.ignore_keys}


def _undecided_configs(model: nn.Module) -> list[Any]:
    found = {id(config): config for config in (getattr(part, "config", None) for part in model.modules())}
    return [config for config in found.values() if getattr(config, "problem_type", "") is None]


def _named(what: str, find: Callable[[], str]) -> str:
    try:
        return find()
    except UnknownIdentityError as error:
        raise UnknownIdentityError(f"{what} cannot be told from others: {error}") from error
