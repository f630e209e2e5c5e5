"""Sampling that gives a row the same tokens whatever rows are beside it: one random generator a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.overrides import TorchFunctionMode

_DRAWS = (torch.multinomial, torch.Tensor.multinomial)


def row_seeds(seed: int, positions: npt.ArrayLike) -> list[int]:
    """Mix a run's seed with the positions of rows in their dataset, so that neighbours share nothing.

    Args:
        seed: whole number >= 0.
        positions: (n,) positions, >= 0.

    Returns:
        n seeds below 2**32.

    Example:
        >>> row_seeds(0, [3, 7]) == [row_seeds(0, [3])[0], row_seeds(0, [7])[0]]
        True
    """
    mixed = (np.random.SeedSequence([seed, int(position)]) for position in np.asarray(positions))
    return [int(sequence.generate_state(1)[0]) for sequence in mixed]


class RowSeededSampling(TorchFunctionMode):
    """While it is entered, row r of a batch draws its tokens from generator r alone.

    ``generate`` draws the tokens of a batch from one random state, so that a text depends on the batch's other rows.
    Here each call of ``torch.multinomial`` is answered row by row; how probabilities are made (temperature, top-k,
    beams) stays upstream's. It leaves the global random states alone, and does not make a row's probabilities
    independent of padding: they agree to rounding.

    Args:
        seeds: one seed a row.

    Raises:
        ValueError: a draw whose probabilities are not one row for each seed.

    Example:
        >>> probabilities = torch.ones(2, 1000)
        >>> with RowSeededSampling([4, 5]):
        ...     both = torch.multinomial(probabilities, 1)
        >>> with RowSeededSampling([5]):
        ...     alone = torch.multinomial(probabilities[1:], 1)
        >>> bool((both[1:] == alone).all())
        True
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self._seeds = list(seeds)
        self._generators: list[torch.Generator] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in _DRAWS and not (kwargs or {}).get("generator"):
            return self._draw(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _draw(self, input: torch.Tensor, num_samples: int, replacement: bool = False, **_: Any) -> torch.Tensor:
        if input.ndim != 2 or len(input) != len(self._seeds):
            raise ValueError(
                f"probabilities of shape {tuple(input.shape)} are drawn from and {len(self._seeds)} rows have seeds; "
                "allowed is one row of probabilities a prompt: leave out assisted decoding."
            )
        if not self._generators:
            self._generators = [torch.Generator(input.device).manual_seed(seed) for seed in self._seeds]
        rows = zip(input, self._generators, strict=True)
        return torch.stack(
            [torch.multinomial(row, num_samples, replacement, generator=generator) for row, generator in rows]
        )
