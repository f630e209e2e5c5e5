"""Cross entropy of hidden states under an output embedding, tile by tile: no tensor of tokens x vocabulary exists.

The sum of exponentials is kept as a running maximum and a running sum over tiles of the vocabulary (online softmax,
Milakov & Gimelshein 2018, arXiv:1805.02867), so that each block of weights is read once for many tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from hf_trainplus.evaluation.loss_kinds.output_head import LogitTransform

CPU_TILE = (512, 1 << 20)
"""Tokens of a tile, and its logits, on a CPU: 4 MiB in float32, so that softmax reads what the product just wrote."""
DEVICE_TILE = (4096, 1 << 25)
"""The same on an accelerator: 128 MiB in float32, enough to fill it."""


def tile_of(device: torch.device) -> tuple[int, int]:
    """Return the tokens, and the logits, of a tile on a device."""
    return CPU_TILE if device.type == "cpu" else DEVICE_TILE


@dataclass(frozen=True)
class TokenScores:
    """What one pass over the vocabulary yields for each token.

    Args:
        loss: (tokens,) cross entropy in nats, float32 (float64 for float64 logits).
        correct: (tokens,) bool, True where the target is the first class with the largest logit.
    """

    loss: torch.Tensor
    correct: torch.Tensor


@torch.no_grad()
def projected_cross_entropy(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    targets: torch.Tensor,
    *,
    transform: LogitTransform | None = None,
    label_smoothing: float = 0.0,
    tile: tuple[int, int] | None = None,
) -> TokenScores:
    """Score each token's target under ``softmax(transform(hidden @ weight.T + bias))``.

    The product is taken in the dtype in which the model takes it (that of the weights, or of an enclosing autocast),
    so that its roundings are the model's own; everything behind it is in float32. Weights are never cast as a whole.

    Args:
        hidden: (tokens, width) hidden states in front of the output embedding.
        weight: (vocabulary, width) output embedding.
        bias: (vocabulary,) or None.
        targets: (tokens,) class indices, 0 to vocabulary - 1.
        transform: what the model does to its logits; None for nothing.
        label_smoothing: weight in [0, 1] of the mean over the vocabulary.
        tile: tokens, and logits, of a tile; None chooses by device.

    Returns:
        Scores of (tokens,).

    Raises:
        ValueError: a target outside the vocabulary.

    Example:
        >>> scores = projected_cross_entropy(torch.eye(2), torch.zeros(5, 2), None, torch.tensor([0, 4]))
        >>> [round(value, 4) for value in scores.loss.tolist()], scores.correct.tolist()
        ([1.6094, 1.6094], [True, False])
    """
    if len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < len(weight):
        raise ValueError(
            f"targets range from {int(targets.min())} to {int(targets.max())} and the vocabulary has {len(weight)} "
            "entries; allowed are 0 to vocabulary - 1: mask positions without a target with -100."
        )
    tokens_at_once, elements = tile or tile_of(hidden.device)
    dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
    parts = []
    for start in range(0, len(hidden), tokens_at_once):
        rows = slice(start, start + tokens_at_once)
        softmax = _OnlineSoftmax(targets[rows], dtype, smoothed=label_smoothing > 0)
        projection = _Projection(hidden[rows], weight, bias, transform or LogitTransform(), elements)
        for first in range(0, len(weight), projection.classes_at_once):
            softmax.add_(projection.logits(first), first)
        parts.append(softmax.scores(label_smoothing, classes=len(weight)))
    empty = torch.empty(0, device=hidden.device)
    return TokenScores(
        torch.cat([part.loss for part in parts]) if parts else empty,
        torch.cat([part.correct for part in parts]) if parts else empty.bool(),
    )


class _Projection:
    """Logits of some tokens, a block of the vocabulary at a time, in one buffer that each block overwrites."""

    def __init__(
        self,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        transform: LogitTransform,
        elements: int,
    ) -> None:
        self._hidden, self._weight, self._bias, self._transform = hidden, weight, bias, transform
        self.classes_at_once = min(len(weight), max(1, elements // len(hidden)))
        # The ``out=`` forms know no autocast and save one allocation a block where nothing is cast anyway.
        full_precision = weight.dtype in (torch.float32, torch.float64) and hidden.dtype == weight.dtype
        in_place = full_precision and not torch.is_autocast_enabled(hidden.device.type)
        self._buffer = hidden.new_empty(len(hidden) * self.classes_at_once) if in_place else None

    def logits(self, first: int) -> torch.Tensor:
        weight = self._weight[first : first + self.classes_at_once]
        bias = None if self._bias is None else self._bias[first : first + self.classes_at_once]
        if self._buffer is None:
            logits = self._transform.apply_(functional.linear(self._hidden, weight, bias))
            return logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
        out = self._buffer[: len(self._hidden) * len(weight)].view(len(self._hidden), len(weight))
        if bias is None:
            torch.mm(self._hidden, weight.t(), out=out)
        else:
            torch.addmm(bias, self._hidden, weight.t(), out=out)
        return self._transform.apply_(out)


class _OnlineSoftmax:
    """Running maximum, sum of exponentials, target logit and argmax of some tokens over blocks of the vocabulary."""

    def __init__(self, targets: torch.Tensor, dtype: torch.dtype, *, smoothed: bool) -> None:
        self._targets, self._smoothed = targets, smoothed
        self._peak = torch.full(targets.shape, -torch.inf, dtype=dtype, device=targets.device)
        self._sum, self._total, self._picked = (torch.zeros_like(self._peak) for _ in range(3))
        self._correct = torch.zeros_like(targets, dtype=torch.bool)

    def add_(self, logits: torch.Tensor, first: int) -> None:
        """Take in the logits of the classes from ``first`` on; the tensor is overwritten."""
        block_peak = logits.amax(1)
        self._follow_targets(logits, block_peak, first)
        if self._smoothed:
            self._total += logits.sum(1)
        peak = torch.maximum(block_peak, self._peak)
        # A block of -inf alone would give -inf - -inf.
        shift = torch.where(peak == -torch.inf, 0.0, peak)
        self._sum.mul_((self._peak - shift).exp()).add_(logits.sub_(shift[:, None]).exp_().sum(1))
        self._peak = peak

    def _follow_targets(self, logits: torch.Tensor, block_peak: torch.Tensor, first: int) -> None:
        columns = self._targets - first
        rows = ((columns >= 0) & (columns < logits.shape[1])).nonzero().squeeze(1)
        columns = columns[rows]
        self._picked[rows] = logits[rows, columns]
        higher = block_peak > self._peak
        self._correct &= ~higher
        # Among equal logits the first class is the prediction, as in argmax; few rows need that second look.
        top = (self._picked[rows] == block_peak[rows]) & higher[rows]
        self._correct[rows[top]] = logits[rows[top]].argmax(1) == columns[top]

    def scores(self, label_smoothing: float, *, classes: int) -> TokenScores:
        """Return the scores of what was taken in."""
        log_sum = self._sum.log()
        # Differences first: the peak and the target logit are large, their difference is small.
        loss = (self._peak - self._picked) + log_sum
        if self._smoothed:
            smooth = (self._peak - self._total / classes) + log_sum
            loss = (1 - label_smoothing) * loss + label_smoothing * smooth
        return TokenScores(loss, self._correct & ~loss.isnan())
