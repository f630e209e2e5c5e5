"""Which numbers, names and switches the Plus arguments allow: one table, read once at construction.

A value that is text is read as a number, since YAML hands over ``1e-3`` as text. Nothing here knows what a field does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class FieldRange:
    """The numbers that one field allows.

    Args:
        low: smallest number, itself allowed unless ``is_open``.
        example: written into the message of a refusal.
        high: number that the value stays below.
        is_open: whether ``low`` itself is refused.
        is_whole: whether only whole numbers are allowed.
        is_optional: whether None is allowed.
        unit: added to the message.

    Example:
        >>> FieldRange(1, "100", is_whole=True).read("eval_min_steps", "50")
        50
        >>> FieldRange(0, "0.95", high=1, is_open=True).read("eval_confidence", 95)
        Traceback (most recent call last):
        ValueError: eval_confidence=95; allowed are numbers above 0 and below 1, e.g. eval_confidence=0.95.
    """

    low: float
    example: str
    high: float = math.inf
    is_open: bool = False
    is_whole: bool = False
    is_optional: bool = False
    unit: str = ""

    def read(self, name: str, value: Any) -> int | float | None:
        """Return the number that was meant.

        Raises:
            ValueError: no number, or one that is not allowed.
        """
        if self.is_optional and (value is None or str(value).lower() == "none"):
            return None
        number = read_number(value)
        if number is None or not self._allows(number):
            raise ValueError(f"{name}={value!r}; allowed are {self}, e.g. {name}={self.example}.")
        return int(number) if self.is_whole else number

    def _allows(self, number: float) -> bool:
        above = number > self.low if self.is_open else number >= self.low
        return above and number < self.high and (not self.is_whole or number == int(number))

    def __str__(self) -> str:
        words = ["whole numbers" if self.is_whole else "numbers", "above" if self.is_open else ">=", f"{self.low:g}"]
        words += ["and below", f"{self.high:g}"] if math.isfinite(self.high) else []
        return " ".join(words) + self.unit + (", and None" if self.is_optional else "")


_STEPS = FieldRange(1, "100", is_whole=True)
_SHARE = FieldRange(0, "0.05", high=1, is_open=True, is_optional=True)
_OPTIONAL_STEPS = FieldRange(1, "100", is_whole=True, is_optional=True)

RANGES = MappingProxyType(
    {
        "eval_confidence": FieldRange(0, "0.95", high=1, is_open=True),
        "eval_tolerance": FieldRange(
            0, "0.25", unit=", in standard errors of the full-set metric (0 keeps the stock decision)"
        ),
        "eval_min_steps": _STEPS,
        "eval_max_steps": FieldRange(1, "10000", is_whole=True),
        "eval_improvement_threshold": FieldRange(0, "0.01"),
        "eval_time_share": _SHARE,
        "usd_per_device_hour": FieldRange(0, "2.5", is_open=True, is_optional=True),
        "generation_eval_steps": _OPTIONAL_STEPS,
        "generation_max_new_tokens": _OPTIONAL_STEPS,
    }
)
"""Numeric fields of the Plus arguments and what they allow."""

SWITCHES = ("eval_race_strict", "predict_with_generate")
"""Fields that are True or False."""

COLUMNS = ("eval_label_column", "eval_cluster_column")
"""Fields that name one column, or are None."""


def read_number(value: Any) -> float | None:
    """Return a finite number, also out of text; None for anything else, and for True and False.

    Example:
        >>> read_number("1e3"), read_number(0.5), read_number(True), read_number("nan"), read_number([1])
        (1000.0, 0.5, None, None, None)
    """
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        return None
    return value  # type: ignore[return-value, unused-ignore]


def read_ranges(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numeric fields of ``values`` as the numbers that were meant; check switches and columns.

    Args:
        values: field -> value, all fields of the tables.

    Raises:
        ValueError: a value that its field does not allow.
    """
    for name in SWITCHES:
        if not any(values[name] is allowed for allowed in (True, False)):
            raise ValueError(f"{name}={values[name]!r}; allowed are True and False, e.g. {name}=True.")
    for name in COLUMNS:
        _check_column(name, values[name], optional=True)
    return {name: allowed.read(name, values[name]) for name, allowed in RANGES.items()}


def read_columns(name: str, value: Any) -> list[str] | None:
    """Return names of columns from a list or from text with commas; None stays None.

    Example:
        >>> read_columns("eval_group_columns", "topic, source"), read_columns("eval_group_columns", None)
        (['topic', 'source'], None)
    """
    if value is None:
        return None
    columns = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(columns, (list, tuple)):
        raise ValueError(
            f"{name}={value!r}; allowed are names of columns, as a list or with commas, and None, e.g. "
            f"{name}='topic,source'."
        )
    for column in columns:
        _check_column(name, column, given=value)
    return list(columns)


def _check_column(name: str, column: Any, *, given: Any = None, optional: bool = False) -> None:
    if (isinstance(column, str) and column.strip()) or (optional and column is None):
        return
    shown = column if given is None else given
    none = " and None" if optional or given is not None else ""
    raise ValueError(f"{name}={shown!r}; allowed are names of columns{none}, e.g. {name}='topic'.")
