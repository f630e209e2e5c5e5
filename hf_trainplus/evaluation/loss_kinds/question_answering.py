"""Extractive question answering: the first and the last token of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from hf_trainplus.evaluation.loss_kinds.base import ExampleLosses, Inputs, Outputs
from hf_trainplus.evaluation.loss_kinds.cross_entropy import row_cross_entropy


@dataclass(frozen=True)
class QuestionAnsweringLoss:
    """Cross entropy of start and end position, two targets a row.

    A position beyond the row's length is no target, and one below 0 means token 0, as in the models. The model's own
    loss is the mean of two means, over starts and over ends, so that the two agree only where as many starts as ends
    are inside. The softmax is over all positions of the padded batch, padding included, as in the models.

    Args:
        start_name: key of the (batch,) or (batch, 1) start positions in the inputs.
        end_name: key of the end positions.

    Example:
        >>> positions = {"start_positions": torch.tensor([0, 9]), "end_positions": torch.tensor([1, 2])}
        >>> logits = {"start_logits": torch.zeros(2, 4), "end_logits": torch.zeros(2, 4)}
        >>> QuestionAnsweringLoss().example_losses(logits, positions).target_count.tolist()
        [2, 1]
    """

    start_name: str = "start_positions"
    end_name: str = "end_positions"
    name: str = "question_answering"

    def example_losses(self, outputs: Outputs, inputs: Inputs) -> ExampleLosses | None:
        """Return the losses of each row, or None where logits or positions are missing or do not fit each other."""
        logits, positions = _start_and_end_logits(outputs), self._positions(inputs)
        if logits is None or positions is None or logits.shape[:2] != positions.shape:
            return None
        length = logits.shape[2]
        return row_cross_entropy(logits, positions.clamp(0, length), ignore_index=length)

    def without_padding(self, outputs: Outputs, inputs: Inputs) -> ExampleLosses | None:
        """Return the losses of each row over its own tokens; None where the batch has no ``attention_mask`` of theirs.

        The models' softmax runs over padding too, so that their loss of a row depends on the rows beside it.
        """
        logits, positions, mask = _start_and_end_logits(outputs), self._positions(inputs), inputs.get("attention_mask")
        if logits is None or positions is None or not isinstance(mask, torch.Tensor):
            return None
        if mask.shape != (logits.shape[0], logits.shape[2]):
            return None
        length = logits.shape[2]
        inside = logits.float().masked_fill(~mask.bool()[:, None, :], float("-inf"))
        return row_cross_entropy(inside, positions.clamp(0, length), ignore_index=length)

    def count_targets(self, inputs: Inputs) -> torch.Tensor | None:
        """Return the (batch,) number of positions inside the row, 0 to 2, or None without positions."""
        positions = self._positions(inputs)
        if positions is None:
            return None
        tokens = inputs.get("input_ids")
        if not isinstance(tokens, torch.Tensor):
            return torch.full((len(positions),), 2, dtype=torch.int64, device=positions.device)
        return (positions < tokens.shape[1]).sum(1)

    def _positions(self, inputs: Inputs) -> torch.Tensor | None:
        pair = [inputs.get(name) for name in (self.start_name, self.end_name)]
        columns = [column.reshape(-1) for column in pair if isinstance(column, torch.Tensor)]
        if len(columns) < 2 or len(columns[0]) != len(columns[1]):
            return None
        return torch.stack(columns, dim=1)


def _start_and_end_logits(outputs: Outputs) -> torch.Tensor | None:
    if isinstance(outputs, torch.Tensor):
        return None
    if isinstance(outputs, Mapping):
        candidates = [outputs.get("start_logits"), outputs.get("end_logits")]
    else:
        candidates = list(outputs[:3])
    pair = [value for value in candidates if isinstance(value, torch.Tensor) and value.dim() == 2][:2]
    if len(pair) < 2 or pair[0].shape != pair[1].shape:
        return None
    return torch.stack(pair, dim=1)
