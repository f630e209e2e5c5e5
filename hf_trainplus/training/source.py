"""What PlusTrainer hands to the evaluation loop in place of a data loader that it would not use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class EvaluationSource:
    """A dataset to be evaluated, which becomes upstream's own loader only if somebody iterates over it.

    Args:
        dataset: the dataset, as the user gave it.
        description: "Evaluation" or "test", as upstream calls it.
        make_loader: builds upstream's loader.
    """

    def __init__(self, dataset: Any, description: str, make_loader: Callable[[], Any]) -> None:
        self.dataset = dataset
        self.description = description
        self._make_loader = make_loader
        self.batch_count: int | None = None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._make_loader())

    def __len__(self) -> int:
        """Return the number of batches of the running evaluation, which progress bars ask for.

        Raises:
            TypeError: the number is not known, as for a stream.
        """
        if self.batch_count is None:
            raise TypeError("the number of batches is not known")
        return self.batch_count
