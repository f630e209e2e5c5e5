"""Makes a ``ModelShape`` from a model, a configuration or a name; weights are never loaded (meta device)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hf_trainplus.budget.costs.attention_reading import attention_of, experts_of, sizes_of
from hf_trainplus.budget.costs.gradient_flow import GradientFlow, plain_name, reads_encoder
from hf_trainplus.budget.costs.model_shape import Attention, ModelShape, Product, Side

if TYPE_CHECKING:
    from torch import nn
    from transformers import PretrainedConfig

_A_SEQUENCE = re.compile(r"(^|\.)(pooler|seq_relationship)(\.|$)")
# Longformer's global tokens, of which a sequence has one or few
_GLOBAL_QUERY = "query_global"
_HEADS_ON_ONE_POSITION = ("classifier", "pre_classifier", "classification_head")


def read_model(model: Any) -> ModelShape:
    """Return the shape of a model.

    Args:
        model: a number of parameters, a ``ModelShape``, a ``torch.nn.Module`` (frozen and adapter weights are told
            apart by ``requires_grad``), a ``PretrainedConfig``, or the name of a model on the Hub or on disk, of which
            only the configuration is read.

    Raises:
        ValueError: a name that is not found, or a model of several towers whose tokens differ in number.
        TypeError: something else.

    Example:
        >>> from transformers import GPT2Config
        >>> shape = read_model(GPT2Config())
        >>> f"{shape.parameters:,.0f}", shape.attention[0].layers, shape.attention[0].causal
        ('124,439,808', 12, True)
    """
    if isinstance(model, ModelShape):
        return model
    if isinstance(model, (int, float)) and not isinstance(model, bool):
        return ModelShape.of_count(float(model))
    import torch
    from transformers import PretrainedConfig

    if isinstance(model, str):
        return _read_module(_on_meta(_load_config(model))).renamed(model)
    if isinstance(model, PretrainedConfig):
        return _read_module(_on_meta(model))
    if isinstance(model, torch.nn.Module):
        return _read_module(model)
    raise TypeError(
        f"model is a {type(model).__name__}; allowed: a number of parameters, a model, a configuration or a name. "
        "Write estimate_cost('gpt2', ...) or estimate_cost(7e9, ...)."
    )


def _load_config(name: str) -> PretrainedConfig:
    from transformers import AutoConfig

    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"model {name!r} has no configuration that can be read ({str(error).splitlines()[0]}). Give the name of a "
            "folder or of a model on the Hub, or only its size: --parameters 7e9."
        ) from error
    return config


def _on_meta(config: PretrainedConfig) -> nn.Module:
    """Build the model without memory: the class that the configuration names, else the one with a language head."""
    import torch
    import transformers
    from transformers.models.auto import modeling_auto as auto

    if hasattr(config, "vision_config") or hasattr(config, "audio_config"):
        raise ValueError(
            f"{type(config).__name__} has several towers, whose tokens differ in number. Estimate each by itself, e.g. "
            "estimate_cost(config.text_config, ...) and estimate_cost(config.vision_config, ...)."
        )
    named = getattr(transformers, (getattr(config, "architectures", None) or [""])[0], None)
    built: nn.Module
    factory: Any
    with torch.device("meta"):
        if named is not None:
            built = named(config)
            return built
        for mapping, factory in (
            (auto.MODEL_FOR_CAUSAL_LM_MAPPING, transformers.AutoModelForCausalLM),
            (auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, transformers.AutoModelForSeq2SeqLM),
            (auto.MODEL_FOR_MASKED_LM_MAPPING, transformers.AutoModelForMaskedLM),
        ):
            if type(config) in mapping and not _is_encoder_with_causal_twin(config, mapping):
                built = factory.from_config(config)
                return built
        factory = transformers.AutoModel
        built = factory.from_config(config)
        return built


def _is_encoder_with_causal_twin(config: PretrainedConfig, mapping: Any) -> bool:
    """BERT and BART have causal classes too; nobody means those by their plain configuration."""
    from transformers.models.auto import modeling_auto as auto

    if mapping is not auto.MODEL_FOR_CAUSAL_LM_MAPPING or getattr(config, "is_decoder", False):
        return False
    kind = type(config)
    return kind in auto.MODEL_FOR_MASKED_LM_MAPPING or kind in auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING


def _read_module(model: nn.Module) -> ModelShape:
    config = getattr(model, "config", None)
    modules = {name.rsplit(".", 1)[-1] for name, _ in model.named_modules()}
    modules |= {type(module).__name__ for module in model.modules()}
    parameters = list({id(p): p for p in model.parameters()}.values())
    attention, notes = (
        attention_of(config) if config is not None else ((), ("no configuration: attention is left out",))
    )
    find_head: Any = getattr(model, "get_output_embeddings", None)
    head = find_head() if find_head else None
    vocabulary = int(head.weight.shape[0]) if head is not None and getattr(head, "weight", None) is not None else 0
    return ModelShape(
        name=type(model).__name__,
        parameters=float(sum(_numel(p) for p in parameters)),
        trainable_parameters=float(sum(_numel(p) for p in parameters if p.requires_grad)),
        products=tuple(_products(model, config)),
        attention=_with_gradient(attention, [name for name, p in model.named_parameters() if p.requires_grad], model),
        sizes=sizes_of(config, vocabulary, modules) if config is not None else None,
        notes=notes,
    )


def _numel(parameter: Any) -> int:
    """Number of weights; bitsandbytes packs several into one byte and keeps the shape beside them."""
    state = getattr(parameter, "quant_state", None)
    shape = getattr(state, "shape", None)
    return int(shape.numel()) if shape is not None else int(parameter.numel())


def _products(model: nn.Module, config: Any) -> Iterator[Product]:
    experts = experts_of(config) if config is not None else None
    encoder_decoder = bool(getattr(config, "is_encoder_decoder", False))
    flow, kind = GradientFlow(_trained(model)), _class_name(model)
    for name, module in model.named_modules():
        if "original_module" in name:
            continue
        gradient_goes_on = flow.reaches(name)
        for weights, share, trainable in _weights(name, module, experts):
            yield Product(
                weights=float(weights),
                share=share * _repeats(name, config),
                trainable=trainable,
                input_gradient=gradient_goes_on,
                in_block=re.search(r"\.\d+\.", name) is not None,
                side=_side(plain_name(name), kind, encoder_decoder),
            )


def _trained(model: nn.Module) -> set[str]:
    """Return the names of the modules with trainable weights of their own."""
    named = model.named_parameters(remove_duplicate=False)
    return {name.rpartition(".")[0] for name, one in named if one.requires_grad}


def _class_name(model: nn.Module) -> str:
    """Return the name of the model's class; an adapter's wrapper has one of its own."""
    base: Any = getattr(model, "get_base_model", None)
    return type(model if base is None else base()).__name__


def _repeats(name: str, config: Any) -> float:
    """Return how many layers use the same weights: ALBERT goes through each of its groups again."""
    groups = getattr(config, "num_hidden_groups", None)
    return float(config.num_hidden_layers / groups) if groups and ".albert_layer_groups." in name else 1.0


def _weights(name: str, module: nn.Module, experts: tuple[int, int] | None) -> Iterator[tuple[int, float, bool]]:
    """Weights of one module that are multiplied, the share a token uses, and whether they are trained."""
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    chosen = experts[1] / experts[0] if experts else 1.0
    if isinstance(module, nn.Linear):
        share = chosen if re.search(r"(^|\.)experts\.(expert_)?\d+\.", name) else 1.0
        yield module.in_features * module.out_features, share, module.weight.requires_grad
    elif isinstance(module, (Conv1D, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        yield module.weight.numel(), 1.0, module.weight.requires_grad
    else:
        for parameter in module.parameters(recurse=False):
            if experts and parameter.ndim == 3 and parameter.shape[0] == experts[0]:
                yield parameter.numel(), chosen, parameter.requires_grad
            elif parameter.ndim == 2 and "Router" in type(module).__name__:
                yield parameter.numel(), 1.0, parameter.requires_grad


def _side(name: str, model: str, encoder_decoder: bool) -> Side:
    first = name.split(".", 1)[0]
    one_position = first in _HEADS_ON_ONE_POSITION and any(
        task in model for task in ("SequenceClassification", "ImageClassification", "MultipleChoice")
    )
    if _A_SEQUENCE.search(name) or one_position or _GLOBAL_QUERY in name:
        return "sequence"
    if not encoder_decoder or "encoder" in name.split(".") or reads_encoder(name):
        return "input"
    return "target"


def _with_gradient(groups: tuple[Attention, ...], trained: list[str], model: nn.Module) -> tuple[Attention, ...]:
    """Split layers into those below the first trained weight, through which no gradient goes, and the others."""
    split: list[Attention] = []
    for group in groups:
        below = _layers_below(group, groups, trained, [name for name, _ in model.named_parameters()])
        if below:
            split.append(replace(group, layers=below, gradient=False))
        if group.layers > below:
            split.append(replace(group, layers=group.layers - below))
    return tuple(split)


def _layers_below(group: Attention, groups: tuple[Attention, ...], trained: list[str], names: list[str]) -> int:
    """Number of a group's layers that lie below everything trained; layers of several kinds are taken as mixed."""
    first = next((name for name in names if name in set(trained)), None)
    if first is None:
        return group.layers
    block = re.search(r"\.(\d+)\.", first)
    if block is None:
        before_all_blocks = not any(re.search(r"\.\d+\.", name) for name in names[: names.index(first)])
        return 0 if before_all_blocks else group.layers
    if group.queries == "target" and "decoder" not in first.split("."):
        return 0
    if group.queries == "input" and "decoder" in first.split(".") and any(one.queries == "target" for one in groups):
        return group.layers
    together = sum(one.layers for one in groups if (one.queries, one.keys) == (group.queries, group.keys))
    return min(group.layers, round(int(block[1]) * group.layers / together))
