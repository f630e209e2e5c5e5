"""What PlusTrainer hands to the evaluation loop in place of a data loader that it would not use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
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

    @cached_property
    def loader(self) -> Any:
        """Upstream's own loader, made when somebody asks for what only it has."""
        return self._make_loader()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)

    def __len__(self) -> int:
        """Return the number of batches of the running evaluation, or of upstream's loader before it is planned.

        Raises:
            TypeError: the number is not known, as for a stream.
        """
        return len(self.loader) if self.batch_count is None else self.batch_count
