"""Telling how examples lie in a collated batch: one row each, or laid end to end in a single row."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

import torch

_MAIN_INPUTS = ("input_ids", "inputs_embeds", "decoder_input_ids", "input_values", "input_features", "pixel_values")


def rows_in_batch(batch: object, n: int) -> int | None:
    """Count the rows of a collated batch of n examples; anything but n means that examples are laid end to end.

    It looks at shapes only. Padding-free collators (``DataCollatorWithFlattening``) and packing ones give one row of
    all tokens; with a single example that is one row an example again.

    Args:
        batch: what the collator returned: a mapping, a tensor, or a tuple of these.
        n: number of examples that were collated, >= 1.

    Returns:
        Size of the first dimension of the main input, >= 0; None when there is no tensor to look at.

    Example:
        >>> rows_in_batch({"input_ids": torch.zeros(1, 12), "position_ids": torch.zeros(1, 12)}, 3)
        1
        >>> rows_in_batch({"input_ids": torch.zeros(3, 4)}, 3)
        3
    """
    if isinstance(batch, Mapping):
        main = next((batch[name] for name in _MAIN_INPUTS if _has_rows(batch.get(name))), None)
        if main is not None:
            return int(main.shape[0])
        sizes = [int(value.shape[0]) for value in batch.values() if _has_rows(value)]
    elif isinstance(batch, tuple | list):
        sizes = [int(value.shape[0]) for value in batch if _has_rows(value)]
    else:
        sizes = [int(batch.shape[0])] if _has_rows(batch) else []  # type: ignore[attr-defined]
    if n in sizes:
        return n
    return sizes[0] if sizes else None


def example_of_token(batch: Mapping[str, Any], n: int) -> torch.Tensor | None:
    """Number the example that each token of a padding-free batch belongs to.

    It does not guess: where the batch does not say where examples begin, or says another number of them (a collator
    that leaves empty rows out), there is no answer.

    Args:
        batch: padding-free inputs of shape (1, tokens) with ``seq_idx``, ``cu_seq_lens_q`` or ``position_ids``.
        n: number of examples that were collated, >= 1.

    Returns:
        (tokens,) int64 numbers from 0 to n - 1, ascending, or None.

    Example:
        >>> example_of_token({"position_ids": torch.tensor([[0, 1, 0, 0, 1, 2]])}, 3).tolist()
        [0, 0, 1, 2, 2, 2]
    """
    starts = _starts(batch)
    if starts is None or int(starts.sum()) != n:
        return None
    return starts.long().cumsum(0) - 1


def split_inputs(inputs: Any, n: int, bounds: list[tuple[int, int]]) -> list[Any] | None:
    """Cut a collated batch of n examples into parts by rows.

    It takes no padding off, and does not cut a batch whose examples share a row.

    Args:
        inputs: what the collator returned.
        n: number of examples in it, >= 1.
        bounds: first and last + 1 row of each part.

    Returns:
        One batch of the same kind a part, or None when some value does not have one row an example.

    Example:
        >>> split_inputs({"x": torch.arange(3)}, 3, [(0, 2), (2, 3)])
        [{'x': tensor([0, 1])}, {'x': tensor([2])}]
    """
    if not _is_row_wise(inputs, n):
        return None
    return [_rows_of(inputs, first, last) for first, last in bounds]


def _has_rows(value: object) -> bool:
    return len(getattr(value, "shape", ())) > 0


def _starts(batch: Mapping[str, Any]) -> torch.Tensor | None:
    for name in ("seq_idx", "position_ids"):
        marks = batch.get(name)
        if not isinstance(marks, torch.Tensor) or marks.ndim != 2 or marks.shape[0] != 1:
            continue
        step = marks[0].diff()
        new = step != (0 if name == "seq_idx" else 1)
        return torch.cat([new.new_ones(1), new]) if marks.shape[1] else None
    ends = batch.get("cu_seq_lens_q")
    if not isinstance(ends, torch.Tensor) or len(ends) < 2:
        return None
    starts = torch.zeros(int(ends[-1]), dtype=torch.bool, device=ends.device)
    starts[ends[:-1].long()] = True
    return starts


def _is_row_wise(value: object, n: int) -> bool:
    if isinstance(value, Mapping):
        return all(_is_row_wise(part, n) for part in value.values())
    if isinstance(value, tuple):
        return all(_is_row_wise(part, n) for part in value)
    if isinstance(value, list):
        return len(value) == n
    shape = getattr(value, "shape", None)
    return shape is None or len(shape) == 0 or int(shape[0]) == n


def _rows_of(value: Any, first: int, last: int) -> Any:
    if isinstance(value, Mapping):
        part: Any = copy(value)  # keeps the kind: a BatchEncoding stays one
        for key in value:
            part[key] = _rows_of(value[key], first, last)
        return part
    if isinstance(value, tuple):
        parts = [_rows_of(part, first, last) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value[first:last] if isinstance(value, list) or _has_rows(value) else value
