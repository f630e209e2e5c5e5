"""Columns of the evaluation set by which metrics are sliced, or whose rows belong together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hf_trainplus.results import ExampleResults


def with_groups(results: ExampleResults, dataset: Any, columns: list[str]) -> ExampleResults:
    """Add group columns of the dataset to the rows of an evaluation.

    Args:
        results: one row an example.
        dataset: the evaluation set as the user gave it, with columns that the model does not take.
        columns: names of its columns.

    Raises:
        ValueError: a column that the dataset does not have, or a stream, whose rows cannot be read again.

    Example:
        >>> rows = [{"topic": "a"}, {"topic": "b"}]
        >>> with_groups(ExampleResults([1], [0.5], [1]), rows, ["topic"]).groups["topic"].tolist()
        ['b']
    """
    if not columns:
        return results
    groups = {name: _values(dataset, name)[results.index] for name in columns}
    return replace(results, groups={**results.groups, **groups})


def _values(dataset: Any, name: str) -> np.ndarray[Any, Any]:
    if not hasattr(dataset, "__len__"):
        raise ValueError(f"column {name!r} was asked for and the evaluation set is a stream; give a set with a length.")
    names = getattr(dataset, "column_names", None)
    if names is None:
        first = dataset[0]
        names = list(first) if hasattr(first, "keys") else []
    if name not in names:
        raise ValueError(
            f"column {name!r} is not in the evaluation set, whose columns are {sorted(names)}. Name one of them, e.g. "
            f"eval_group_columns={next(iter(names), 'topic')!r}, and keep it in the dataset that you pass."
        )
    if hasattr(dataset, "column_names"):
        return np.asarray(list(dataset[name]))
    return np.asarray([dataset[k][name] for k in range(len(dataset))])
