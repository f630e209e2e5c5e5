"""Which of the ids that ``generate`` returns were generated, and metrics that must never see a negative id."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from transformers import GenerationConfig

from hf_trainplus.evaluation.metrics.adapters import StreamingMetric

T = TypeVar("T")


def mark_generated(
    ids: torch.Tensor, start: int, ends: Sequence[int], allowed: torch.Tensor | None = None
) -> torch.Tensor:
    """Mark the ids behind a decoder's start, up to and with each row's first end of sequence.

    Args:
        ids: (rows, length) without a decoder-only model's prompt.
        start: columns that the decoder was started with, >= 0.
        ends: ids that end a sequence.
        allowed: (rows,) most new tokens of each row; None for no limit but the length.

    Returns:
        (rows, length) True where an id was generated.

    Example:
        >>> ids = torch.tensor([[9, 5, 2, 2], [9, 2, 5, 5]])
        >>> mark_generated(ids, 1, [2]).tolist()
        [[False, True, True, False], [False, True, False, False]]
    """
    generated = torch.ones_like(ids, dtype=torch.bool)
    generated[:, :start] = False
    if ends:
        is_end = torch.isin(ids, torch.tensor(list(ends), device=ids.device, dtype=ids.dtype)) & generated
        generated &= (is_end.cumsum(1) - is_end.long()) == 0
    if allowed is not None:
        number = torch.arange(ids.shape[1], device=ids.device) - start
        generated &= number < allowed.to(ids.device)[:, None]
    return generated


def start_width(ids: torch.Tensor, inputs: Mapping[str, Any], model: Any, config: GenerationConfig) -> int:
    """Count the columns that an encoder-decoder model's answers begin with and that were not generated.

    Args:
        ids: (rows, length) what ``generate`` returned.
        inputs: what it was given; ``decoder_input_ids`` come back in front.
        model: its configuration names the id that a decoder is started with.
        config: the configuration of this generation, which comes first.
    """
    if "decoder_input_ids" in inputs:
        return int(inputs["decoder_input_ids"].shape[1])
    sources = [config, getattr(model, "generation_config", None), model.config]
    names = ("decoder_start_token_id", "bos_token_id")
    known = (getattr(source, name, None) for name in names for source in sources)
    start = next((value for value in known if value is not None), None)
    if start is None or ids.shape[1] == 0:
        return 0
    return int(bool((ids[:, 0] == torch.as_tensor(start, device=ids.device)).all()))


def end_ids(model: Any, config: GenerationConfig) -> list[int]:
    """Return the ids that end a sequence, of this generation or else of the model.

    Example:
        >>> end_ids(None, GenerationConfig(eos_token_id=[2, 5])), end_ids(None, GenerationConfig())
        ([2, 5], [])
    """
    end = config.eos_token_id
    if end is None:
        end = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    return [] if end is None else [end] if isinstance(end, int) else list(end)


class FilledIds(StreamingMetric):
    """A metric that is given the padding id in place of -100, because it hands all ids to a decoder itself.

    It stands before functions of a user's own; metrics of this package leave out negative ids by themselves.

    Args:
        metric: the metric.
        pad_id: fills the places that are no generated ids, >= 0.
    """

    def __init__(self, metric: StreamingMetric, pad_id: int) -> None:
        self._metric = metric
        self._pad_id = pad_id
        self.sharing = metric.sharing  # type: ignore[misc]
        self.form = metric.form
        self.primary = metric.primary
        self.greater_is_better = metric.greater_is_better

    def reduce(self, predictions: Any, labels: Any) -> Any:
        """Fill, and reduce as the metric does."""
        return self._metric.reduce(predictions.masked_fill(predictions < 0, self._pad_id), labels)

    def reset(self) -> None:
        """Forget all rows."""
        self._metric.reset()

    def update(self, predictions: Any, labels: Any) -> None:
        """Take in a batch."""
        self._metric.update(predictions, labels)

    def compute(self) -> dict[str, Any]:
        """Return the metric's values."""
        return self._metric.compute()

    def bring_together(self, gather: Callable[[T], list[T]]) -> None:
        """Let the metric take in the rows of the other ranks."""
        self._metric.bring_together(gather)
