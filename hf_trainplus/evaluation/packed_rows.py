"""What a model returned for examples laid end to end, cut back into one row an example."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from hf_trainplus.evaluation.packing import example_of_token, rows_in_batch
from hf_trainplus.evaluation.row_column import PADDING

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class PackedRows:
    """How the examples of a padding-free batch lie in its single row.

    Where the batch does not say where examples begin, the batch stays one item, as it does in the stock Trainer.

    Args:
        examples: number of examples in the batch, >= 2.
        of_token: (tokens,) the example of each token, ascending; None where that is not known.

    Example:
        >>> batch = {"input_ids": torch.tensor([[7, 8, 9]]), "position_ids": torch.tensor([[0, 0, 1]])}
        >>> PackedRows.of(batch, 2).cut(torch.tensor([[5, 6, 4]])).tolist()
        [[5, -100], [6, 4]]
    """

    examples: int
    of_token: torch.Tensor | None

    @classmethod
    def of(cls, inputs: Any, examples: int) -> PackedRows | None:
        """Read a batch; None where it has one row an example, or is laid out in a way that is not known."""
        if examples < 2 or not isinstance(inputs, Mapping) or rows_in_batch(inputs, examples) != 1:
            return None
        return cls(examples, example_of_token(inputs, examples))

    def cut(self, tree: Any) -> Any:
        """Cut tensors (1, tokens, ...), nested in tuples and dictionaries, to (examples, longest, ...).

        Shorter examples are filled with -100, or False; what has no such shape passes.
        """
        if isinstance(tree, Mapping):
            return {key: self.cut(value) for key, value in tree.items()}
        if isinstance(tree, (tuple, list)):
            return tuple(self.cut(value) for value in tree)
        if self.of_token is None or not isinstance(tree, torch.Tensor) or tree.shape[:2] != (1, len(self.of_token)):
            return tree
        example = self.of_token.to(tree.device)
        lengths = torch.bincount(example, minlength=self.examples)
        within = torch.arange(len(example), device=tree.device) - (lengths.cumsum(0) - lengths)[example]
        shape = (self.examples, int(lengths.max()), *tree.shape[2:])
        rows = tree.new_full(shape, False if tree.dtype == torch.bool else PADDING)
        rows[example, within] = tree[0]
        return rows

    def places(self, positions: Array, real: Array) -> tuple[Array, Array]:
        """Return positions and marks of the rows that ``cut`` leaves: all, or one at the first example's place."""
        if self.of_token is not None:
            return positions, real
        first = int(np.argmax(real))
        return positions[first : first + 1], real[first : first + 1]
