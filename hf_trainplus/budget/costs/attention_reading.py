"""Attention layers and widths of a model, read from its configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from hf_trainplus.budget.costs.model_shape import Attention, Side, Sizes

_QUADRATIC = {"full_attention": False, "attention": False, "sliding_attention": True, "chunked_attention": True}


def attention_of(config: Any) -> tuple[tuple[Attention, ...], tuple[str, ...]]:
    """Return the attention layers of a configuration, and notes on layers whose cost is left out.

    Args:
        config: a ``PretrainedConfig``, of a text model or of an encoder-decoder.

    Returns:
        Groups of equal layers; none for a model without attention.
    """
    heads = _first(config, "num_attention_heads", "encoder_attention_heads")
    if not heads:
        return (), ("no attention heads in the configuration: only weights times tokens are counted",)
    if getattr(config, "is_encoder_decoder", False):
        return _encoder_decoder(config), tuple(_notes(config))
    width, value_width = _widths(config, heads)
    causal = _is_causal(config)
    if _bands(config):
        return tuple(_banded(config, width, value_width)), tuple(_notes(config))
    kinds = getattr(config, "layer_types", None) or [_plain_kind(config)] * config.num_hidden_layers
    layers: list[Attention] = []
    notes = _notes(config)
    for kind, number in Counter(kinds).items():
        if kind not in _QUADRATIC:
            notes.append(f"{number} {kind} layers: only their weights times tokens are counted")
            continue
        window = _first(config, "sliding_window", "attention_chunk_size") if _QUADRATIC[kind] else None
        layers.append(Attention(number, width, value_width, causal, window))
    return tuple(layers), tuple(notes)


def _bands(config: Any) -> list[int]:
    """Return the window of every encoder layer of Longformer's kind, nothing for other models."""
    window = getattr(config, "attention_window", None)
    if window is None:
        return []
    layers = _first(config, "encoder_layers", "num_hidden_layers")
    return list(window) if isinstance(window, (list, tuple)) else [window] * layers


def _banded(config: Any, width: int, value_width: int) -> Iterator[Attention]:
    for window, number in Counter(_bands(config)).items():
        yield Attention(number, width, value_width, window=window, banded=True)


def _notes(config: Any) -> list[str]:
    """Return what is assumed of attention that is neither dense nor a plain window."""
    notes = []
    if _bands(config):
        notes.append(
            "attention in windows: lengths are taken as multiples of the window, and one global token a sequence is "
            "assumed, whose own attention is left out"
        )
    if getattr(config, "attention_type", None) == "block_sparse":
        notes.append("block-sparse attention is counted as dense, which it is in short sequences")
    return notes


def _plain_kind(config: Any) -> str:
    windowed = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    return "sliding_attention" if windowed else "full_attention"


def _encoder_decoder(config: Any) -> tuple[Attention, ...]:
    encoder_layers = _first(config, "encoder_layers", "num_layers", "num_hidden_layers")
    decoder_layers = _first(config, "decoder_layers", "num_decoder_layers") or encoder_layers
    found: list[Attention] = []
    rows: tuple[tuple[int, str, bool, Side, Side], ...] = (
        (encoder_layers, "encoder_attention_heads", False, "input", "input"),
        (decoder_layers, "decoder_attention_heads", True, "target", "target"),
        (decoder_layers, "decoder_attention_heads", False, "target", "input"),
    )
    for layers, heads_name, causal, queries, keys in rows:
        width, value_width = _widths(config, _first(config, heads_name, "num_attention_heads", "num_heads"))
        if (queries, keys) == ("input", "input") and _bands(config):
            found += _banded(config, width, value_width)
        else:
            found.append(Attention(layers, width, value_width, causal, None, queries, keys))
    return tuple(found)


def _widths(config: Any, heads: int) -> tuple[int, int]:
    """Width of queries and of values, all heads together; DeepSeek's latent attention has two different ones."""
    if getattr(config, "qk_nope_head_dim", None):
        return heads * (config.qk_nope_head_dim + config.qk_rope_head_dim), heads * config.v_head_dim
    head = _first(config, "head_dim", "d_kv") or config.hidden_size // heads
    return heads * head, heads * head


def _is_causal(config: Any) -> bool:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

    if getattr(config, "is_decoder", False):
        return True
    kind = type(config)
    return kind in MODEL_FOR_CAUSAL_LM_MAPPING and kind not in MODEL_FOR_MASKED_LM_MAPPING


def sizes_of(config: Any, vocabulary: int, modules: set[str]) -> Sizes | None:
    """Return the widths that activation memory depends on, None when the configuration does not tell them.

    Args:
        config: the configuration.
        vocabulary: width of the output, 0 without a head over the vocabulary.
        modules: last parts of the names of the model's modules, and the names of their classes.
    """
    heads = _first(config, "num_attention_heads", "encoder_attention_heads")
    hidden = getattr(config, "hidden_size", None)
    if not heads or not hidden:
        return None
    width, _ = _widths(config, heads)
    layers = _first(config, "num_hidden_layers", "encoder_layers")
    targets = 0
    if getattr(config, "is_encoder_decoder", False):
        targets = _first(config, "decoder_layers", "num_decoder_layers") or layers
    return Sizes(
        hidden=hidden,
        layers=layers + targets,
        attention=width,
        key_value=width // heads * (_first(config, "num_key_value_heads") or heads),
        heads=heads,
        feed_forward=_feed_forward(config, hidden),
        activation_copies=_activation_copies(config, modules),
        experts_used=(experts_of(config) or (0, 0))[1],
        vocabulary=vocabulary,
        root_mean_square=any("RMSNorm" in name or name == "T5LayerNorm" for name in modules),
        dropout=bool(_first(config, "hidden_dropout_prob", "resid_pdrop", "dropout_rate", "dropout")),
        target_layers=targets,
    )


# what autograd keeps for activations that are spelled out in Python, in tensors of the feed-forward width
_SPELLED_OUT = {"gelu_new": 5.5, "gelu_fast": 5.5, "quick_gelu": 4.0}
_GATES = frozenset({"gate_proj", "gate_up_proj", "wi_0", "w3"})


def _activation_copies(config: Any, modules: set[str]) -> float:
    if experts_of(config) or modules & _GATES:
        return 4.0
    name = _first(config, "hidden_act", "activation_function", "dense_act_fn")
    return _SPELLED_OUT.get(str(name), 2.0)


def _feed_forward(config: Any, hidden: int) -> int:
    """Width of the feed-forward part that one token uses: experts chosen plus experts shared."""
    experts = experts_of(config)
    if experts:
        one = _first(config, "moe_intermediate_size", "intermediate_size", "d_ff", "encoder_ffn_dim")
        shared = _first(config, "shared_expert_intermediate_size") or 0
        shared += (_first(config, "n_shared_experts") or 0) * one
        return int(one * experts[1] + shared)
    return int(_first(config, "intermediate_size", "n_inner", "d_ff", "encoder_ffn_dim", "ffn_dim") or 4 * hidden)


# models whose number of chosen experts is written in their code and not in their configuration
_CHOSEN_IN_CODE = {"switch_transformers": 1, "nllb-moe": 2}


def experts_of(config: Any) -> tuple[int, int] | None:
    """Return the number of experts and how many of them a token goes through, None without experts.

    Example:
        >>> from types import SimpleNamespace
        >>> experts_of(SimpleNamespace(num_local_experts=8, num_experts_per_tok=2))
        (8, 2)
    """
    number = _first(config, "num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
    chosen = _first(config, "num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k")
    chosen = chosen or _CHOSEN_IN_CODE.get(getattr(config, "model_type", ""))
    return (int(number), int(chosen)) if number and number > 1 and chosen else None


def _first(config: Any, *names: str) -> Any:
    """The first of several names that the configuration knows and sets."""
    return next((value for name in names if (value := getattr(config, name, None)) is not None), None)
