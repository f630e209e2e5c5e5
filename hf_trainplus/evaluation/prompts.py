"""From a collated batch to what ``generate`` takes: the prompt on the right side, the targets taken out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

PROMPT_COLUMN = "prompt_input_ids"
PROMPT_MASK = "prompt_attention_mask"
IGNORED_LABEL = -100
_MADE_BY_GENERATE = ("position_ids", "labels", PROMPT_COLUMN, PROMPT_MASK)


@dataclass(frozen=True)
class GenerationInputs:
    """One batch, ready to be continued.

    Args:
        inputs: keyword arguments of ``generate``.
        prompt_width: columns of the prompt that a decoder-only model's answer begins with; 0 for an encoder-decoder
            model.
        references: (rows, length) target ids, filled with -100; None for a batch without labels.
    """

    inputs: dict[str, Any]
    prompt_width: int
    references: torch.Tensor | None

    @property
    def begun(self) -> int:
        """Columns that the decoder is started with: the prompt, or the start of an encoder-decoder model's answer."""
        decoder_ids = self.inputs.get("decoder_input_ids")
        return self.prompt_width or (1 if decoder_ids is None else int(decoder_ids.shape[1]))


def encoder_decoder_inputs(batch: Mapping[str, Any]) -> GenerationInputs:
    """Take the targets out of a batch; the encoder's inputs are the prompt, padded as they come.

    ``decoder_input_ids`` of the shape of the labels were made from them and would give the answer away.

    Example:
        >>> batch = {"input_ids": torch.ones(1, 4), "labels": torch.tensor([[5, 6, -100]])}
        >>> found = encoder_decoder_inputs(batch)
        >>> list(found.inputs), found.references.tolist()
        (['input_ids'], [[5, 6, -100]])
    """
    labels = batch.get("labels")
    left_out = {"labels", PROMPT_COLUMN, PROMPT_MASK}
    decoder_ids = batch.get("decoder_input_ids")
    if labels is not None and decoder_ids is not None and decoder_ids.shape == labels.shape:
        left_out |= {"decoder_input_ids", "decoder_attention_mask"}
    return GenerationInputs({key: value for key, value in batch.items() if key not in left_out}, 0, labels)


def decoder_only_inputs(
    batch: Mapping[str, Any], pad_id: int, *, positions: Sequence[int] | None = None
) -> GenerationInputs:
    """Cut the prompts out of a batch and put them to the right, filled on the left.

    The prompt is what ``prompt_input_ids`` holds where the batch has it; else the part of ``input_ids`` before the
    row's first label that is not -100; else, without labels or targets, all of it. Padding on either side is taken
    off by ``attention_mask``; without a mask every position counts as real. Inputs that go along with ``input_ids``
    column by column are cut alike, others (images) pass as they are. No tokenizer is asked or changed.

    Args:
        batch: ``input_ids`` (rows, length), and what goes with them.
        pad_id: fills the left, >= 0; it is masked.
        positions: (rows,) positions in the dataset, which an error names; None to name the batch's row.

    Raises:
        ValueError: a row without a prompt, no two-dimensional ``input_ids``, or rows that are laid end to end.

    Example:
        >>> batch = {"input_ids": torch.tensor([[4, 5, 6], [7, 8, 0]]),
        ...     "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
        ...     "labels": torch.tensor([[-100, -100, 6], [-100, 8, -100]])}
        >>> found = decoder_only_inputs(batch, pad_id=0)
        >>> found.inputs["input_ids"].tolist(), found.inputs["attention_mask"].tolist(), found.references.tolist()
        ([[4, 5], [0, 7]], [[1, 1], [0, 1]], [[6], [8]])
    """
    ids, labels = batch.get("input_ids"), batch.get("labels")
    if not isinstance(ids, torch.Tensor) or ids.ndim != 2:
        raise ValueError(
            f"generation needs input_ids of shape (rows, length) and the batch has {sorted(batch)}; let the collator "
            "pad rows of input_ids."
        )
    if positions is not None and len(ids) != len(positions):
        raise ValueError(
            f"a batch of {len(positions)} rows has input_ids of shape {tuple(ids.shape)}: rows laid end to end cannot "
            "be continued; use a collator that pads."
        )
    is_target = labels != IGNORED_LABEL if labels is not None else torch.zeros_like(ids, dtype=torch.bool)
    references = None if labels is None else _to_the_left(labels, is_target)
    if PROMPT_COLUMN in batch:
        ids, kept = batch[PROMPT_COLUMN], _real(batch, PROMPT_COLUMN, PROMPT_MASK)
        along = {}
    else:
        kept = _real(batch, "input_ids", "attention_mask") & (is_target.cumsum(1) == 0)
        along = _along(batch, ids)
    if not bool(kept.any(1).all()):
        row = int((~kept.any(1)).nonzero()[0])
        raise ValueError(
            f"row {row if positions is None else positions[row]} has no prompt: its labels begin with its first token. "
            f"Mask the prompt's labels with -100 (completion-only labels), or add a column {PROMPT_COLUMN!r}."
        )
    inputs = {"input_ids": _to_the_right(ids, kept, pad_id), "attention_mask": _to_the_right(kept.long(), kept, 0)}
    inputs |= {key: _to_the_right(value, kept, 0) for key, value in along.items()}
    inputs |= {key: value for key, value in batch.items() if key not in (*inputs, *_MADE_BY_GENERATE)}
    return GenerationInputs(inputs, inputs["input_ids"].shape[1], references)


def _real(batch: Mapping[str, Any], ids: str, mask: str) -> torch.Tensor:
    given = batch.get(mask)
    return torch.ones_like(batch[ids], dtype=torch.bool) if given is None else given.bool()


def _along(batch: Mapping[str, Any], ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """Select further inputs with one value a token, such as token types."""
    known = {"input_ids", "attention_mask", *_MADE_BY_GENERATE}
    return {
        key: value
        for key, value in batch.items()
        if key not in known and isinstance(value, torch.Tensor) and value.shape == ids.shape
    }


def _to_the_right(values: torch.Tensor, kept: torch.Tensor, fill: int) -> torch.Tensor:
    """Move what is kept of each row to its right end, in order, and cut to the longest row."""
    width = int(kept.sum(1).max())
    order = kept.long().argsort(dim=1, stable=True)[:, -width:]
    return values.gather(1, order).masked_fill(~kept.gather(1, order), fill)


def _to_the_left(values: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """Move what is kept of each row to its left end, in order, and cut to the longest row, at least one column."""
    width = max(1, int(kept.sum(1).max()))
    order = (~kept).long().argsort(dim=1, stable=True)[:, :width]
    return values.gather(1, order).masked_fill(~kept.gather(1, order), IGNORED_LABEL)
