"""Fingerprints of a model: the values of its weights, and what is computed with them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from hf_trainplus.evaluation.fingerprints.objects import Kind, ObjectWalk
from hf_trainplus.identity import Digest, UnknownIdentityError

PIECE_BYTES = 2**26
"""How much of a tensor is copied to the host at a time, in bytes."""

# what has no part in a forward pass, or says only where a model came from
_NOT_COMPUTED = frozenset(
    (
        "_parameters",
        "_buffers",
        "_modules",
        "training",
        "name_or_path",
        "_is_hf_initialized",
        "warnings_issued",
        "_forward_hooks_with_kwargs",
        "_forward_hooks_always_called",
        "_forward_pre_hooks_with_kwargs",
        "_non_persistent_buffers_set",
    )
)
_HOOKS_OF_VALUES = ("_forward_hooks", "_forward_pre_hooks")


def fingerprint_weights(model: nn.Module) -> str:
    """Fingerprint every parameter and buffer of a model by its name and its values.

    All values are read each time, in pieces, so that nothing has to be trusted: torch's version counter of a tensor
    does not move when ``tensor.data`` is written or an optimizer's own kernel writes it. That costs what reading the
    weights once costs, which the forward pass of a single batch does too.

    Args:
        model: its weights on any device; shared ones are read once.

    Raises:
        UnknownIdentityError: weights that are not loaded, or whose values are not all in the tensor, as those of a
            shard or of a quantized layer.

    Example:
        >>> layer = nn.Linear(2, 2)
        >>> before = fingerprint_weights(layer)
        >>> layer.weight.data[0, 0] += 1
        >>> fingerprint_weights(layer) == before
        False
    """
    digest = Digest()
    names: dict[Any, str] = {}
    for kind, named in (("parameter", model.named_parameters), ("buffer", model.named_buffers)):
        for name, tensor in named(remove_duplicate=False):
            try:
                whole = _whole(tensor)
            except UnknownIdentityError as error:
                raise UnknownIdentityError(f"the {kind} {name} {error}") from error
            place = (whole.device, whole.data_ptr(), whole.dtype, whole.shape, whole.stride())
            first = names.setdefault(place, name) if whole.numel() else name
            digest.add(kind, name, first, str(whole.dtype), str(tuple(whole.shape)))
            if first == name:
                _add_values(digest, whole)
    return digest.text()


def fingerprint_tensor(tensor: torch.Tensor) -> str:
    """Fingerprint a tensor: type, shape and every value.

    Raises:
        UnknownIdentityError: its values are not all in it, or not loaded.

    Example:
        >>> fingerprint_tensor(torch.zeros(2)) == fingerprint_tensor(torch.zeros(2, dtype=torch.bfloat16))
        False
    """
    whole, digest = _whole(tensor), Digest()
    digest.add(str(whole.dtype), str(tuple(whole.shape)))
    _add_values(digest, whole)
    return digest.text()


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    whole = tensor.detach()
    if type(whole) is not torch.Tensor or type(tensor) not in (torch.Tensor, nn.Parameter):
        raise UnknownIdentityError(f"is a {type(tensor).__name__}, whose values are not all in the tensor itself")
    if whole.is_meta:
        raise UnknownIdentityError("is not loaded")
    if whole.is_quantized or whole.layout is not torch.strided:
        raise UnknownIdentityError(f"is a tensor of layout {whole.layout} and dtype {whole.dtype}")
    return whole


def _add_values(digest: Digest, tensor: torch.Tensor) -> None:
    flat = tensor.contiguous().reshape(-1).view(torch.uint8)
    for start in range(0, len(flat), PIECE_BYTES):
        digest.add(flat[start : start + PIECE_BYTES].cpu().numpy().data)


def fingerprint_model(model: nn.Module, kinds: tuple[Kind, ...] = ()) -> str:
    """Fingerprint what a model computes with its weights: classes, options and replaced methods of all its modules.

    Classes of libraries count by the library's version, classes of anybody else by their code. Options are what is set
    on a module: numbers, texts, configurations, functions, forward hooks.

    Args:
        model: the model.
        kinds: how other objects that it holds are read.

    Raises:
        UnknownIdentityError: a module holds something whose content cannot be known.

    Example:
        >>> fingerprint_model(nn.LayerNorm(2)) == fingerprint_model(nn.LayerNorm(2, eps=0.1))
        False
    """
    places = {id(module): name for name, module in model.named_modules()}

    def own_part(value: Any) -> Any:
        return ("module", places[id(value)]) if isinstance(value, nn.Module) and id(value) in places else None

    walk = ObjectWalk((own_part, *kinds), strict=False)
    for name, module in model.named_modules():
        options = {key: value for key, value in sorted(vars(module).items()) if _is_computed(key)}
        try:
            walk.add((name, type(module), options, [_hooks(module, kind) for kind in _HOOKS_OF_VALUES]))
        except UnknownIdentityError as error:
            raise UnknownIdentityError(f"of the module {name or type(module).__name__!r}, {error}") from error
    return walk.text()


def _is_computed(name: str) -> bool:
    return name not in _NOT_COMPUTED and not name.endswith("_hooks")


def _hooks(module: nn.Module, kind: str) -> list[Any]:
    """Return hooks that may change values; this package's own do not."""
    found = getattr(module, kind).values()
    return [hook for hook in found if not str(getattr(hook, "__module__", "")).startswith("hf_trainplus.")]
