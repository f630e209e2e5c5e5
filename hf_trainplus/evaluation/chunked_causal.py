"""The loss of a causal language model without its logits: hidden states meet the output embedding tile by tile."""

from __future__ import annotations

import logging

import torch
from torch import nn

from hf_trainplus.evaluation.loss_kinds.base import Inputs
from hf_trainplus.evaluation.loss_kinds.causal_parts import CausalParts, find_causal_parts
from hf_trainplus.evaluation.loss_kinds.head_tap import probe_batch, run_without_cache, tapped_head, without_labels
from hf_trainplus.evaluation.loss_kinds.output_head import LogitTransform
from hf_trainplus.evaluation.loss_kinds.projected_rows import CausalExampleLosses, project_rows
from hf_trainplus.evaluation.loss_kinds.real_rows import RealRows
from hf_trainplus.evaluation.loss_kinds.transform_choice import choose_transform, targets_of

__all__ = ["CausalExampleLosses", "ChunkedCausalLoss"]

logger = logging.getLogger(__name__)


class ChunkedCausalLoss:
    """Per-example losses of a causal language model, with no tensor of batch x length x vocabulary.

    The model runs up to its output embedding; the hidden states of the target positions go through the embedding in
    tiles of tokens and vocabulary, in the model's own precision, and the softmax is taken in float32. Scaled and
    softly capped logits and biases are handled. It returns no logits, adds no auxiliary loss (a mixture of experts'
    router loss makes it refuse), and is no training loss: it keeps no graph.

    Before its first batch it compares itself with the logits and the loss that the model itself computes for 32 of the
    batch's tokens, and then for rows of the first three batches with their true labels, at most eight groups of a
    tile's tokens; a later batch is compared where it is the first with unequal rows or with ignored labels
    (``RealRows``). A loss of the model's own that differs only on tokens that no group holds is not found out. Make one
    an evaluation, so that each is compared. Ranks that must take the same branch call ``check`` first, and ``refuse``
    where any of them returned False. ``is_another_loss`` says that the rows were what did not agree: the model's loss
    is not the mean over targets, though its logits are as expected.

    Args:
        label_name: key of the labels in a batch.
        label_smoothing: ``label_smoothing_factor``, in [0, 1].
        tile: tokens, and logits, of a tile; None chooses by device (4 MiB of logits on a CPU, 128 MiB elsewhere).

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=32, **sizes)).eval()
        >>> tokens = torch.arange(12).reshape(2, 6)
        >>> losses = ChunkedCausalLoss().example_losses(model, {"input_ids": tokens, "labels": tokens})
        >>> losses.target_count.tolist()
        [5, 5]
    """

    def __init__(
        self, *, label_name: str = "labels", label_smoothing: float = 0.0, tile: tuple[int, int] | None = None
    ) -> None:
        self._label_name, self._label_smoothing, self._tile = label_name, label_smoothing, tile
        self._transform: LogitTransform | None = None
        self._rows: RealRows | None = None
        self._reason: str | None = None
        self.is_another_loss = False

    @property
    def reason(self) -> str | None:
        """Why the loss is not computed this way, or None."""
        return self._reason

    def applies(self, model: nn.Module) -> bool:
        """Say, from the model alone, whether its loss can be had this way; the reason against is logged once."""
        return self._find_parts(model) is not None

    def refuse(self, reason: str) -> None:
        """Compute no loss this way from now on, and log why, once."""
        if self._reason is None:
            self._reason = reason
            logger.warning("The evaluation loss is computed from full logits, since %s.", reason)

    def check(self, model: nn.Module, inputs: Inputs) -> bool:
        """Compare with the model's own loss on a few tokens of the batch; the reason against is logged once.

        Args:
            model: the model in evaluation mode, wrapped or not.
            inputs: a batch on the model's device.

        Returns:
            Whether ``example_losses`` gives this model's loss. Once the comparison has held, later calls repeat its
            answer without a forward pass, unless the batch shows something new.
        """
        return self._compared(model, inputs) is not None

    def example_losses(self, model: nn.Module, inputs: Inputs, *, compare: bool = True) -> CausalExampleLosses | None:
        """Return the losses of each row, or None where the loss cannot be had this way (see ``reason``).

        Args:
            model: the model in evaluation mode, wrapped or not; always the same one.
            inputs: a batch on the model's device, with labels of (batch, length).
            compare: False where ``check`` has seen the batch, or its losses do not count (a measurement).
        """
        compared = self._compared(model, inputs, with_rows=compare)
        if compared is None:
            return None
        parts, transform = compared
        taken: list[CausalExampleLosses | None] = []

        def take(hidden: torch.Tensor) -> bool:
            targets = targets_of(hidden, inputs, self._label_name)
            if targets is None or taken:
                taken.append(None)
                return False
            smoothing = self._label_smoothing
            taken.append(
                project_rows(
                    hidden, parts.head, targets, transform=transform, label_smoothing=smoothing, tile=self._tile
                )
            )
            return True

        with tapped_head(parts.head, take):
            run_without_cache(model, parts.pretrained, without_labels(inputs, self._label_name))
        if len(taken) != 1 or taken[0] is None:
            self.refuse(f"its output embedding was called {len(taken)} times, not once with all hidden states")
            return None
        return taken[0]

    def _compared(
        self, model: nn.Module, inputs: Inputs, *, with_rows: bool = True
    ) -> tuple[CausalParts, LogitTransform] | None:
        parts = self._find_parts(model)
        transform = None if parts is None else self._find_transform(model, parts, inputs)
        if parts is None or transform is None:
            return None
        self._rows = self._rows or RealRows(self._label_name, parts.head.out_features, self._tile)
        for group in self._rows.groups(inputs) if with_rows else ():
            choice = choose_transform(model, parts, group, self._label_name, self._tile, among=[transform])
            if isinstance(choice, str):
                self.refuse(choice)
                self.is_another_loss = True
                return None
        return parts, transform

    def _find_parts(self, model: nn.Module) -> CausalParts | None:
        if self._reason is not None:
            return None
        parts = find_causal_parts(model, label_smoothing=self._label_smoothing)
        if isinstance(parts, str):
            self.refuse(parts)
            return None
        return parts

    def _find_transform(self, model: nn.Module, parts: CausalParts, inputs: Inputs) -> LogitTransform | None:
        if self._transform is not None:
            return self._transform
        probe = probe_batch(inputs, self._label_name)
        if probe is None:
            self.refuse("its batches have no labels, or tensors that are not (batch, length)")
            return None
        choice = choose_transform(model, parts, probe, self._label_name, self._tile)
        if isinstance(choice, str):
            self.refuse(choice)
            return None
        self._transform = choice.transform if choice.is_settled else None
        return choice.transform
