"""Batches of a loader that is not ours: used as they are, in arrival order, every row counted once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from transformers.trainer_pt_utils import find_batch_size

from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.evaluation.windows import LoadedBatch

Array = npt.NDArray[Any]


def foreign_batches(loader: Iterable[Any], ranks: Ranks) -> Iterator[LoadedBatch]:
    """Number the rows of a foreign loader by arrival: batch by batch, within a batch rank by rank.

    Rows that Accelerate repeats to fill the last batch are marked as fillers, by the remainder that its loader states.
    A rank that runs out of batches before the others is not helped here: equal counts are the loader's business.

    Args:
        loader: yields batches; Accelerate's loaders also state ``end_of_dataloader`` and ``remainder``.
        ranks: the processes that iterate together.

    Yields:
        (positions, real, batch), as the evaluation loop takes them.
    """
    seen = 0
    for batch in loader:
        rows = find_batch_size(batch)  # type: ignore[no-untyped-call, unused-ignore]
        rows = 1 if rows is None else int(rows)
        counts = ranks.gather(rows)
        before = sum(counts[: ranks.index])
        remainder = int(getattr(loader, "remainder", -1))
        last = bool(getattr(loader, "end_of_dataloader", False)) and remainder > 0
        within = np.arange(before, before + rows)
        real = within < remainder if last and ranks.size > 1 else np.ones(rows, dtype=bool)
        yield LoadedBatch(seen + within, real, batch)
        seen += min(sum(counts), remainder) if last and ranks.size > 1 else sum(counts)
