"""Takes the batches out of a training loader, so that a run that may take no step takes none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import IterableDataset

_ABSENT = object()


class _NoRows(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(())


def hold_back_batches(loader: Any) -> Callable[[], None] | None:
    """Make a loader yield nothing until the returned function is called.

    A Trainer looks at ``control.should_training_stop`` only after a step. With no batch there is no step, whether the
    epoch starts here or Accelerate's ``skip_first_batches`` builds a new loader from the parts of this one: the parts
    are empty too. Only this one object changes, and no row is read.

    Args:
        loader: what callbacks are given as ``train_dataloader``: torch's, or Accelerate's around it.

    Returns:
        A function that puts the loader back, or None for another kind of object.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> loader = DataLoader([1, 2])
        >>> put_back = hold_back_batches(loader)
        >>> len(list(loader)), put_back(), len(list(loader))
        (0, None, 2)
    """
    base = getattr(loader, "base_dataloader", None)
    dataset = getattr(loader, "dataset", None)
    if base is None and not hasattr(loader, "batch_sampler"):
        return None
    if isinstance(dataset, IterableDataset):
        parts: dict[str, Any] = {"dataset": _NoRows()}
    else:
        parts = {"batch_sampler": [], "sampler": []}
    undo = [_put(loader, name, value) for name, value in parts.items()]
    if base is not None:
        # Accelerate calls base_dataloader.__iter__() by name, so an attribute of this one object is enough
        undo.append(_put(base, "__iter__", lambda: iter(())))

    def put_back() -> None:
        for one in undo:
            one()

    return put_back


def _put(owner: Any, name: str, value: Any) -> Callable[[], None]:
    """Set an instance attribute past torch's guard, which forbids it after construction."""
    attributes = vars(owner)
    earlier = attributes.get(name, _ABSENT)
    attributes[name] = value

    def put_back() -> None:
        if earlier is _ABSENT:
            del attributes[name]
        else:
            attributes[name] = earlier

    return put_back
