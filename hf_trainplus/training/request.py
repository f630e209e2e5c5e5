"""What one evaluation is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.decisions.subset import Subset


@dataclass(frozen=True)
class Request:
    """What one evaluation is asked for.

    Args:
        loader: upstream's loader, or an ``EvaluationSource`` of our own.
        loss_only: no predictions are needed.
        predicting: predictions are handed back to the caller.
        ignore_keys: outputs of the model that are no predictions.
        ids: positions of the rows to run; None for all.
        subset: how those rows stand for the whole set; None when they are all rows.
        scheduled: a training run asks, not a person.
        stream_rows: most rows to read of a stream; None for all.
    """

    loader: Any
    loss_only: bool
    predicting: bool = False
    ignore_keys: list[str] | None = None
    ids: npt.NDArray[np.int64] | None = None
    subset: Subset | None = None
    scheduled: bool = False
    stream_rows: int | None = None

    def row_count(self) -> int | None:
        """Return how many rows are asked for, None where nobody knows."""
        dataset: Any = getattr(self.loader, "dataset", None)
        if self.ids is not None:
            return len(self.ids)
        return len(dataset) if hasattr(dataset, "__len__") else None
