"""Class ids as metrics take them: checked, and with masked targets set apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_trainplus.evaluation.metrics.forms import IGNORE_INDEX, to_numpy

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LabelRows:
    """Predicted and true class ids of n rows.

    Args:
        predictions: (n, length) ids; length is 1 where a row has one label.
        references: (n, length) ids.
        counted: (n, length) False where the target is masked with -100.
    """

    predictions: Int64Array
    references: Int64Array
    counted: npt.NDArray[np.bool_]

    @property
    def labels(self) -> Int64Array:
        """Ascending ids that occur on either side, masked targets left out."""
        return np.unique(np.concatenate([self.predictions[self.counted], self.references[self.counted]]))

    @staticmethod
    def of(predictions: Any, references: Any, metric: str) -> LabelRows:
        """Check and shape the ids of a batch.

        Args:
            predictions: (n,) or (n, length) ids.
            references: the same shape.
            metric: name for the error messages.

        Raises:
            ValueError: the shapes differ, or the values are no whole numbers.
        """
        predicted, true = as_ids(predictions, metric, "predictions"), as_ids(references, metric, "references")
        if predicted.shape != true.shape:
            raise ValueError(
                f"{metric} was given predictions of shape {predicted.shape} and references of shape {true.shape}; give "
                "one class id for each target, e.g. logits.argmax(-1)."
            )
        rows = true.reshape(len(true), -1) if true.size else true.reshape(len(true), 0)
        return LabelRows(predicted.reshape(rows.shape), rows, rows != IGNORE_INDEX)


def refuse_multihot(references: Any, metric: str, num_labels: int | None) -> None:
    """Refuse targets that are 0/1 vectors with one column a class where class ids are asked for.

    Tokens of two classes look alike while the number of classes is not known; where it is, ids of tokens pass.

    Raises:
        ValueError: two dimensions, 0 and 1 alone, and as many columns as classes (more than 1 where that is not known).
    """
    true = to_numpy(references)
    if true.ndim != 2 or true.shape[1] < 2 or not true.size or num_labels not in (None, true.shape[1]):
        return
    if bool(np.isin(true, (0, 1)).all()):
        raise ValueError(
            f"{metric} was given references of shape {true.shape} that hold 0 and 1 alone. For rows of 0/1 labels use "
            f'load_metric("{metric}", ..., multilabel=True); ids of tokens of two classes take no padding off here: '
            "give them flat, or with num_labels=2."
        )


def as_ids(values: Any, metric: str, what: str) -> Int64Array:
    """Read whole numbers of one dimension or more as int64.

    Raises:
        ValueError: the values are texts, have no dimension, or are not whole.
    """
    array = to_numpy(values)
    if array.ndim == 0 or (array.size and array.dtype.kind not in "biuf"):
        raise ValueError(
            f"{metric} was given {what} of type {array.dtype} and shape {array.shape}; give class ids as whole numbers "
            "in one dimension or more (map names to ids first)."
        )
    ids = array.astype(np.int64)
    if array.dtype.kind == "f" and not np.array_equal(ids, array):
        raise ValueError(
            f"{metric} was given {what} that are not whole numbers, e.g. {array[ids != array].flat[0]}; give class "
            "ids, e.g. logits.argmax(-1)."
        )
    return ids
