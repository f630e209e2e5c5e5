"""The model run without its labels, once its rows' losses are known: its own loss need not be computed again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from hf_trainplus.evaluation.accounting import BatchLosses, LossAccount
from hf_trainplus.evaluation.capture import OutputCapture

Step = Callable[[Any], tuple[Any, Any, Any]]


class Measured(NamedTuple):
    """One batch: its losses, what the step returned as logits and labels, and what the model returned."""

    losses: BatchLosses
    logits: Any
    labels: Any
    outputs: list[Any]


@dataclass
class Agreement:
    """Whether a model gives the same losses with and without its labels; None before that was looked at."""

    holds: bool | None = None


def measure_step(step: Step, inputs: Any, rows: int, capture: OutputCapture, account: LossAccount) -> Measured:
    """Run a step on a batch and take its losses; nothing is kept.

    Args:
        step: returns (loss, logits, labels).
        inputs: the batch.
        rows: number of its rows.
        capture: holds what the model returns meanwhile.
        account: computes the losses.
    """
    loss, logits, labels = step(dict(inputs) if hasattr(inputs, "keys") else inputs)
    outputs = capture.take()
    return Measured(account.measure(loss, outputs, inputs, rows), logits, labels, outputs)


@dataclass
class BareStep:
    """Runs batches without labels where the account already knows that the rows' losses are the model's own.

    The loss of a causal language model is half of its forward pass where the vocabulary is large, and what counts are
    the losses of the rows, which are computed from the logits. The first batch that would be run like this is run both
    ways; a model that gives other losses without labels is always given them.

    Args:
        step: returns (None, logits, labels) from a forward pass without labels.
        agreement: what is known of the model; kept over evaluations by the caller.
        tolerance: difference allowed between the losses of a row, relative to 1 or to the loss where it is larger.
    """

    step: Step
    agreement: Agreement = field(default_factory=Agreement)
    tolerance: float = 1e-4

    def measured(
        self, full: Step, inputs: Any, rows: int, capture: OutputCapture, account: LossAccount
    ) -> Measured | None:
        """Return a batch run without labels, or None where the model's own loss is needed.

        Args:
            full: runs the batch with its labels.
            inputs: the batch.
            rows: number of its rows.
            capture: holds what the model returns meanwhile.
            account: knows whether the rows' losses reproduce the model's own.
        """
        if self.agreement.holds is False or not account.knows_rows:
            return None
        expected = None
        if self.agreement.holds is None:  # the logits of the two passes are not held together
            expected = measure_step(full, inputs, rows, capture, account).losses.rows
        _, logits, labels = self.step(dict(inputs))
        outputs = capture.take()
        losses = account.measure_rows(outputs, inputs, rows)
        if losses is None or losses.rows is None:
            self.agreement.holds = False
            return None
        if self.agreement.holds is None:
            self.agreement.holds = expected is not None and self._same(losses.rows.loss_sum, expected.loss_sum)
        return Measured(losses, logits, labels, outputs) if self.agreement.holds else None

    def _same(self, found: torch.Tensor, expected: torch.Tensor) -> bool:
        return bool(torch.allclose(found, expected, rtol=self.tolerance, atol=self.tolerance, equal_nan=True))
