"""A causal language model's losses in chunks, asked for on several ranks that must all take the same way."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from hf_trainplus.evaluation.accounting import LossAccount
from hf_trainplus.evaluation.chunked_causal import CausalExampleLosses, ChunkedCausalLoss
from hf_trainplus.evaluation.ranks import Ranks

if TYPE_CHECKING:
    from transformers import Trainer


class LossWithoutLogits:
    """Computes the losses of a batch's rows without logits, or says on all ranks alike that they are needed.

    It knows no batch that the ranks run together (FSDP, ZeRO-3).

    Args:
        chunked: computes them; one an evaluation.
        model: the model in evaluation mode.
        context: what the trainer computes its loss in.
        ranks: the processes that evaluate together.
        account: told where the model's loss is not the mean over targets.
    """

    def __init__(
        self,
        chunked: ChunkedCausalLoss,
        model: torch.nn.Module,
        context: Callable[[], AbstractContextManager[Any]],
        ranks: Ranks,
        account: LossAccount,
    ) -> None:
        self._chunked, self._model, self._context = chunked, model, context
        self._ranks, self._account = ranks, account
        self._is_open = True

    def __call__(self, inputs: Any) -> CausalExampleLosses | None:
        """Return the losses of the rows, or None where the model's own loss is needed. It is a collective.

        A rank that has no batch to answer for passes None.
        """
        with self._context():
            if self._is_open and self._ranks.any(not self._is_fit(inputs)):
                self._chunked.refuse("another rank cannot compute it in chunks")
                self._is_open = False
                # a batch of one row cannot show it again
                self._account.depends_on_mates |= self._chunked.is_another_loss
            return None if inputs is None else self._chunked.example_losses(self._model, inputs, compare=False)

    def _is_fit(self, inputs: Any) -> bool:
        try:
            return inputs is None or self._chunked.check(self._model, inputs)
        except Exception:
            self._ranks.any(False)  # the others ask here, and hear of the error after the batch
            raise

    def alone(self, inputs: Any) -> CausalExampleLosses | None:
        """Return losses that do not count, asked for by this rank only, to measure how long they take.

        A reason against computing them is told to the others by the next call.
        """
        with self._context():
            return self._chunked.example_losses(self._model, inputs, compare=False)


def loss_without_logits(
    trainer: Trainer, model: torch.nn.Module, ranks: Ranks, account: LossAccount
) -> LossWithoutLogits | None:
    """Return what computes a causal language model's loss in chunks, or None where the model alone speaks against it.

    Args:
        trainer: its context of the loss counts.
        model: the model in evaluation mode.
        ranks: the processes that evaluate together.
        account: told where the model's loss is not the mean over targets.
    """
    chunked = ChunkedCausalLoss()
    if not chunked.applies(model):
        return None
    return LossWithoutLogits(chunked, model, trainer.compute_loss_context_manager, ranks, account)
