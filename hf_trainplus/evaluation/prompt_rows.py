"""Rows of a dataset with the lengths of their prompts, and the collator that brings their prompts along."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from hf_trainplus.evaluation.prompts import IGNORED_LABEL, PROMPT_COLUMN, PROMPT_MASK
from hf_trainplus.evaluation.windows import Collate

PROMPT_LENGTH = "length"
"""The column that ``measured_length`` asks first."""


class PromptRows:
    """A dataset whose rows say how long their prompts are, so that a look-ahead window sorts them by it.

    Each row is read once and nothing is planned beforehand. Rows that are no mappings pass as they are; a row whose
    labels are made by its collator counts with all of its tokens.

    Args:
        dataset: anything with ``__getitem__``; ``__getitems__`` is used where it is there.

    Example:
        >>> PromptRows([{"input_ids": [4, 5, 6], "labels": [-100, -100, 6]}]).__getitems__([0])[0]["length"]
        2
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitems__(self, positions: list[int]) -> list[Any]:
        """Read rows."""
        batched = getattr(self._dataset, "__getitems__", None)
        rows = batched(positions) if batched is not None else [self._dataset[position] for position in positions]
        return [_MeasuredRow(row) if isinstance(row, Mapping) else row for row in rows]


class _MeasuredRow(dict[str, Any]):
    """A row with its prompt's length; ``given`` is the row as it was."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.given = row
        length = prompt_length(row)
        super().__init__(row if length is None else {**row, PROMPT_LENGTH: length})


def prompt_length(row: Mapping[str, Any]) -> int | None:
    """Count the tokens that are given before an answer begins; None for a row that has no ids.

    Example:
        >>> prompt_length({"input_ids": [4, 5, 6]}), prompt_length({"prompt_input_ids": [4], "input_ids": [4, 5]})
        (3, 1)
    """
    if PROMPT_COLUMN in row:
        return len(row[PROMPT_COLUMN])
    ids, labels = row.get("input_ids"), row.get("labels")
    if ids is None or not hasattr(ids, "__len__"):
        return None
    if labels is None or not hasattr(labels, "__len__") or len(labels) != len(ids):
        return len(ids)
    targets = np.flatnonzero(np.asarray(labels) != IGNORED_LABEL)
    return int(targets[0]) if len(targets) else len(ids)


class PromptCollator:
    """Collates rows as somebody else's collator does, and adds the prompts that rows bring in a column.

    The other collator never sees the column, which it would have to pad. Prompts are padded here, on the left.

    Args:
        collate: the trainer's collator.

    Example:
        >>> collate = PromptCollator(lambda rows: {"input_ids": torch.tensor([row["input_ids"] for row in rows])})
        >>> batch = collate([{"prompt_input_ids": [4], "input_ids": [4, 5]}, {"prompt_input_ids": [6, 7],
        ...     "input_ids": [6, 7]}])
        >>> batch["prompt_input_ids"].tolist(), batch["prompt_attention_mask"].tolist()
        ([[0, 4], [6, 7]], [[0, 1], [1, 1]])
    """

    def __init__(self, collate: Collate) -> None:
        self._collate = collate

    def __call__(self, rows: Sequence[Any]) -> Any:
        """Collate rows of ``PromptRows``, or rows as they are."""
        given = [row.given if isinstance(row, _MeasuredRow) else row for row in rows]
        if not (given and isinstance(given[0], Mapping) and PROMPT_COLUMN in given[0]):
            return self._collate(given)
        prompts = [torch.as_tensor(row[PROMPT_COLUMN]).long() for row in given]
        left_out = (PROMPT_COLUMN, PROMPT_MASK)
        others = [{key: value for key, value in row.items() if key not in left_out} for row in given]
        masks = [torch.ones_like(prompt) for prompt in prompts]
        return {**self._collate(others), PROMPT_COLUMN: _left_padded(prompts), PROMPT_MASK: _left_padded(masks)}


def _left_padded(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_side="left")
