"""Entities in tag sequences, extracted by seqeval a row at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hf_trainplus.evaluation.metrics.base import require

Counts = dict[str, tuple[int, int, int]]
Tags = list[str]


def entity_counts(predicted: Tags, true: Tags, suffix: bool = False, scheme: str | None = None) -> Counts:
    """Count the entities of one row.

    Args:
        predicted: tag of each token, e.g. ``["B-PER", "I-PER", "O"]``.
        true: the same number of tags.
        suffix: the position mark stands behind the type (``PER-B``).
        scheme: name of a seqeval scheme for strict matching; None for the lenient rules of conlleval.

    Returns:
        type -> (right predictions, predictions, targets) of the types that occur.
    """
    found, wanted = (set(_entities(tags, suffix, scheme)) for tags in (predicted, true))
    right, predictions, targets = (Counter(kind for kind, *_ in group) for group in (found & wanted, found, wanted))
    return {kind: (right[kind], predictions[kind], targets[kind]) for kind in sorted(predictions | targets)}


def entity_types(tags: Sequence[str], suffix: bool = False) -> list[str]:
    """Return the entity types that sequences of these tags can hold, ascending."""
    return sorted({kind for tag in tags if tag != "O" for kind, *_ in _entities([tag], suffix, None)})


def _entities(tags: Tags, suffix: bool, scheme: str | None) -> list[tuple[Any, ...]]:
    if scheme is None:
        found: list[tuple[Any, ...]] = require("seqeval.metrics.sequence_labeling", "seqeval").get_entities(
            tags, suffix
        )
        return found
    schemes = require("seqeval.scheme", "seqeval")
    (row,) = schemes.Entities([tags], getattr(schemes, scheme), suffix).entities
    return [(entity.tag, entity.start, entity.end) for entity in row]
