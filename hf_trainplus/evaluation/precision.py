"""The precision of an evaluation: autocast around the forward passes, weights as they are."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from accelerate.utils.operations import ConvertOutputsToFp32
from torch import nn

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": None}


def check_precision(precision: str | None, device_type: str) -> None:
    """Refuse a precision that is unknown, or that autocast does not offer on the device.

    Args:
        precision: None, ``"bf16"``, ``"fp16"`` or ``"fp32"``.
        device_type: e.g. ``"cpu"``, ``"cuda"``.

    Raises:
        ValueError: an unknown precision, or one that the device cannot autocast to.

    Example:
        >>> check_precision("bf16", "cpu")
    """
    _autocast(precision, device_type)


@contextmanager
def evaluation_autocast(precision: str | None, device_type: str, *, model: nn.Module | None = None) -> Iterator[None]:
    """Run what is inside in the given precision, by autocast alone.

    Weights are never cast, so that nothing is left to put back, also in the middle of training; a model that is held
    in half precision stays in it under ``fp32``. Autocast keeps no casts meanwhile: made without gradients, they would
    cost an enclosing training step its own, and kept, they would hold the weights a second time.

    Args:
        precision: None leaves the training's precision, ``"bf16"`` and ``"fp16"`` switch autocast on, ``"fp32"``
            switches it off.
        device_type: type of the device that the model is on, e.g. ``"cuda"``.
        model: the model, wrapped or not, whose ``forward`` Accelerate may have put under the training's autocast;
            that one is lifted meanwhile. None when there is none.

    Raises:
        ValueError: an unknown precision, or one that the device cannot autocast to.

    Example:
        >>> layer = torch.nn.Linear(2, 2)
        >>> with evaluation_autocast("bf16", "cpu"):
        ...     layer(torch.ones(1, 2)).dtype, layer.weight.dtype
        (torch.bfloat16, torch.float32)
    """
    autocast = _autocast(precision, device_type)
    if autocast is None:
        yield
        return
    with ExitStack() as stack:
        if model is not None:
            stack.enter_context(_lift_training_autocast(model))
        stack.enter_context(autocast)
        yield


def _autocast(precision: str | None, device_type: str) -> torch.autocast | None:
    if precision is None:
        return None
    if precision not in _DTYPES:
        raise ValueError(
            f"eval_precision is {precision!r}; allowed are None, {', '.join(map(repr, _DTYPES))}: "
            "pass eval_precision='bf16', or leave it out for the training's precision."
        )
    dtype = _DTYPES[precision]
    try:
        with warnings.catch_warnings():
            # Where a dtype is not offered, torch warns and goes on in full precision: here that is an error.
            warnings.simplefilter("error", UserWarning)
            return torch.autocast(device_type, dtype=dtype, enabled=dtype is not None, cache_enabled=False)
    except (UserWarning, RuntimeError) as error:
        raise ValueError(
            f"eval_precision is {precision!r} on a {device_type!r} device, which cannot do it: "
            f"{str(error).rstrip('.')}. Pass eval_precision='fp32', or 'bf16' where the device has it."
        ) from error


@contextmanager
def _lift_training_autocast(model: nn.Module) -> Iterator[None]:
    """Take off the autocast that ``Accelerator.prepare`` puts around ``forward``, which would win over an outer one."""
    wrapped = [(module, vars(module)["forward"]) for module in model.modules() if _is_under_autocast(module)]
    try:
        for module, _ in wrapped:
            module.forward = module._original_forward  # type: ignore[assignment]
        yield
    finally:
        for module, forward in wrapped:
            module.forward = forward


def _is_under_autocast(module: nn.Module) -> bool:
    attributes = vars(module)
    converter = getattr(attributes.get("forward"), "__wrapped__", None)
    return "_original_forward" in attributes and isinstance(converter, ConvertOutputsToFp32)
