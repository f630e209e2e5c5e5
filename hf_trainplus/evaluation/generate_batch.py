"""Continues the prompts of one batch, within each row's own limit."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import torch
from transformers import GenerationConfig

from hf_trainplus.evaluation.generated_ids import end_ids, mark_generated, start_width
from hf_trainplus.evaluation.prompts import (
    IGNORED_LABEL,
    GenerationInputs,
    decoder_only_inputs,
    encoder_decoder_inputs,
)
from hf_trainplus.evaluation.row_seeds import RowSeededSampling, row_seeds


@dataclass(frozen=True)
class GenerationSettings:
    """How answers are generated.

    Args:
        config: upstream's configuration; a copy is passed to ``generate``.
        pad_id: fills prompts on the left and answers behind their end, >= 0.
        is_encoder_decoder: whether the prompt goes into an encoder.
        seed: with a row's position it seeds what is drawn for the row, >= 0.
        synced: forward passes are collectives (ZeRO-3, FSDP), so ranks go on until the last one is done.
        max_new_tokens: most new tokens of a row; it stands over any limit in ``config``.
        max_length: most tokens of a row, a decoder-only model's prompt among them, padding not; None for the limit in
            ``config``.
        model_inputs: further keyword arguments of ``generate``.
    """

    config: GenerationConfig
    pad_id: int
    is_encoder_decoder: bool
    seed: int = 0
    synced: bool = False
    max_new_tokens: int | None = None
    max_length: int | None = None
    model_inputs: Mapping[str, Any] = field(default_factory=dict)


class GeneratedBatch(NamedTuple):
    """What was generated for the rows of a batch.

    Args:
        ids: (rows, length) ids as ``generate`` returned them, a decoder-only model's prompt cut off; an
            encoder-decoder model's begin with the ids that its decoder was started with.
        generated: (rows, length) True for generated ids, up to and with a row's end of sequence.
        references: (rows, ...) target ids, -100 where there is none; None without labels.
        prompts: (rows, ...) the inputs that were continued, where they are kept.
    """

    ids: torch.Tensor
    generated: torch.Tensor
    references: torch.Tensor | None
    prompts: torch.Tensor | None = None

    @property
    def scored(self) -> torch.Tensor:
        """(rows, length) generated ids, -100 everywhere else, for metrics that leave out negative ids."""
        return self.ids.masked_fill(~self.generated, IGNORED_LABEL)


def generate_batch(
    model: Any, inputs: Mapping[str, Any], settings: GenerationSettings, positions: Sequence[int]
) -> GeneratedBatch:
    """Continue the prompts of one collated batch.

    Greedy search and beams depend on nothing but the rows; where tokens are drawn, each row draws from a random state
    of its own, which is set by the seed and the row's position. Neither the model's generation configuration nor a
    tokenizer is changed.

    Args:
        model: a model with ``generate``, not its distributed wrapper.
        inputs: a batch as the trainer's collator makes it.
        settings: how to generate.
        positions: (rows,) positions of the rows in the dataset.

    Raises:
        ValueError: a row has no prompt or one that leaves no room, rows are laid end to end, or tokens are drawn in a
            way that cannot be seeded by row.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> config = GPT2Config(vocab_size=20, n_embd=8, n_layer=1, n_head=1, bos_token_id=1, eos_token_id=2)
        >>> model = GPT2LMHeadModel(config).eval()
        >>> settings = GenerationSettings(model.generation_config, 2, False, max_new_tokens=3)
        >>> batch = {"input_ids": torch.tensor([[4, 5, 6]]), "labels": torch.tensor([[-100, -100, 6]])}
        >>> found = generate_batch(model, batch, settings, [0])
        >>> found.ids.shape[1] <= 3, found.references.tolist()
        (True, [[6]])
    """
    prepared = _prepared(inputs, settings, positions)
    allowed = _allowed(prepared, settings, positions)
    config = copy.deepcopy(settings.config)
    _put_limit(config, model, prepared.begun, allowed, settings.max_length)
    with ExitStack() as stack:
        if config.do_sample:
            stack.enter_context(RowSeededSampling(row_seeds(settings.seed, positions)))
        if settings.max_new_tokens is None and settings.max_length is None:
            stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", message="Using the model-agnostic default", category=UserWarning)
        output = model.generate(
            **prepared.inputs, **settings.model_inputs, generation_config=config, synced_gpus=settings.synced
        )
    ids = (output if isinstance(output, torch.Tensor) else output.sequences)[:, prepared.prompt_width :]
    start = start_width(ids, prepared.inputs, model, config) if settings.is_encoder_decoder else 0
    generated = mark_generated(ids, start, end_ids(model, config), allowed)
    ids[:, start:] = ids[:, start:].masked_fill(~generated[:, start:], settings.pad_id)
    return GeneratedBatch(ids, generated, prepared.references)


def _prepared(inputs: Mapping[str, Any], settings: GenerationSettings, positions: Sequence[int]) -> GenerationInputs:
    if settings.is_encoder_decoder:
        return encoder_decoder_inputs(inputs)
    return decoder_only_inputs(inputs, settings.pad_id, positions=positions)


def _allowed(prepared: GenerationInputs, settings: GenerationSettings, positions: Sequence[int]) -> torch.Tensor | None:
    """Return how many new tokens each row may have; None where one length holds for all, or none is set.

    Upstream counts a row's padding into ``max_length``, so that a text's end would depend on the rows beside it.
    """
    if settings.max_new_tokens is not None:
        return torch.full((len(positions),), settings.max_new_tokens)
    if settings.max_length is None or settings.is_encoder_decoder:
        return None
    lengths: torch.Tensor = prepared.inputs["attention_mask"].sum(1).cpu()
    longest = int(lengths.argmax())
    if lengths[longest] >= settings.max_length:
        raise ValueError(
            f"row {positions[longest]} has a prompt of {int(lengths[longest])} tokens and max_length="
            f"{settings.max_length} counts the prompt; set generation_max_new_tokens, which does not."
        )
    return settings.max_length - lengths


def _put_limit(
    config: GenerationConfig, model: Any, begun: int, allowed: torch.Tensor | None, max_length: int | None
) -> None:
    """Say the limit in the one way in which the model's own limit does not come back beside it.

    Upstream fills what is None here from the model's configuration; of two limits it takes the one of new tokens, and
    warns of both in every batch.
    """
    if allowed is None and max_length is None:
        return
    new = int(allowed.max()) if allowed is not None else cast("int", max_length) - begun
    own = getattr(model, "generation_config", None)
    by_length = getattr(own, "max_length", None) is not None or allowed is None
    if by_length and getattr(own, "max_new_tokens", None) is None:
        config.max_length, config.max_new_tokens = begun + new, None
    else:
        config.max_length, config.max_new_tokens = None, new
