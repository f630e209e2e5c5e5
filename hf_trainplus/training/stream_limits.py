"""How many rows of a stream an evaluation reads, and whether they are all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hf_trainplus.evaluation.endless import is_endless
from hf_trainplus.evaluation.ranks import Ranks
from hf_trainplus.results import ExampleResults
from hf_trainplus.training.source import EvaluationSource

if TYPE_CHECKING:
    from transformers import Trainer

    from hf_trainplus.training.request import Request


def stream_limit(trainer: Trainer, request: Request) -> int | None:
    """Return the number of rows to read of a stream; None for all, and for what has a length.

    ``eval_subset_size`` counts where a training run evaluates a subset, in ``eval_mode="full"``, and where the stream
    is seen to have no end: the best checkpoint of a subset, and a person, get the whole stream.

    Args:
        trainer: its arguments count.
        request: what is asked for.
    """
    dataset: Any = getattr(request.loader, "dataset", None)
    if hasattr(dataset, "__len__"):
        return None
    own = _of_arguments(trainer, dataset) if isinstance(request.loader, EvaluationSource) else None
    limits = [limit for limit in (own, request.stream_rows) if limit is not None]
    return min(limits, default=None)


def _of_arguments(trainer: Trainer, stream: object) -> int | None:
    size = getattr(trainer.args, "eval_subset_size", None)
    counts = getattr(trainer.args, "eval_mode", "full") == "full" or is_endless(stream)
    return size if counts and isinstance(size, int) else None  # a fraction of an unknown length is no number


def is_beginning(request: Request, results: ExampleResults, limit: int | None) -> bool:
    """Say whether rows are, as far as is known, the beginning of a longer stream.

    Args:
        request: what was asked for.
        results: the rows that were read.
        limit: most rows that were to be read; None for all.
    """
    if limit is None or not len(results):
        return False
    # of a stream that was split between ranks, a rank's next row is a world size away
    dataset: Any = getattr(request.loader, "dataset", None)
    step = Ranks.current().size if getattr(dataset, "_distributed", None) is not None else 1
    return int(results.index.max()) + step >= limit
