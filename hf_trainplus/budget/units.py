"""Amounts as people write them: durations and counts. Text in, numbers out, and back for a person to read."""

from __future__ import annotations

import math
import re

_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_MULTIPLES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_NUMBER = r"\d+(?:_\d+)*(?:\.\d*)?(?:e[+-]?\d+)?"
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([dhms])\s*", re.IGNORECASE)
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)")
_COUNT = re.compile(rf"({_NUMBER})\s*([kmbt]?)", re.IGNORECASE)

DURATION_FORMS = "seconds as a number, '90s', '15m', '2h30m', '1d12h', or SLURM's '02:30:00' and '1-12:00:00'"
COUNT_FORMS = "a number such as 1000, '1e9' or '1_000_000', or one with k, M, B or T such as '300B'"


def parse_duration(value: object, name: str = "duration") -> float:
    """Read a duration.

    It refuses two-part clock times such as ``2:30``, which some mean as hours and others as minutes.

    Args:
        value: seconds as a number, or text such as ``"2h30m"`` or ``"1-12:00:00"``.
        name: what the value is called in an error.

    Returns:
        Seconds, finite and above 0.

    Raises:
        ValueError: the value does not parse, or is not a finite number above 0.

    Example:
        >>> parse_duration("2h30m"), parse_duration("1-00:00:30"), parse_duration(90)
        (9000.0, 86430.0, 90.0)
    """
    seconds = _seconds(value)
    if seconds is None:
        raise ValueError(f"{name} is {value!r}, which is no duration; allowed: {DURATION_FORMS}. Write '2h30m'.")
    return _above_zero(seconds, value, name)


def _seconds(value: object) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _float(value)
    if not isinstance(value, str):
        return None
    text = value.strip()
    if re.fullmatch(_NUMBER, text, re.IGNORECASE):
        return float(text)
    if clock := _CLOCK.fullmatch(text):
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return days * 86400.0 + hours * 3600.0 + minutes * 60.0 + seconds
    parts = _PART.findall(text)
    units = [unit.lower() for _, unit in parts]
    in_order = units == [unit for unit in _SECONDS if unit in units]
    if not parts or not in_order or _PART.sub("", text):
        return None
    return sum(float(number) * _SECONDS[unit] for (number, _), unit in zip(parts, units, strict=True))


def parse_count(value: object, name: str = "count") -> float:
    """Read a count or an amount without a unit.

    It does not convert units: gpu-hours, kilowatt-hours and dollars are given as plain numbers.

    Args:
        value: a number, or text such as ``"1e9"``, ``"1_000"`` or ``"300B"``.
        name: what the value is called in an error.

    Returns:
        The number, finite and above 0.

    Raises:
        ValueError: the value does not parse, or is not a finite number above 0.

    Example:
        >>> parse_count("300B"), parse_count("1_000"), parse_count(2.5)
        (300000000000.0, 1000.0, 2.5)
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _above_zero(_float(value), value, name)
    match = _COUNT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{name} is {value!r}, which is no number; allowed: {COUNT_FORMS}. Write 1e9.")
    return _above_zero(float(match[1]) * _MULTIPLES[match[2].lower()], value, name)


def _float(value: float) -> float:
    """Return a number as a float; a whole number that no float holds is infinite, as in text."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _above_zero(number: float, value: object, name: str) -> float:
    if not math.isfinite(number) or number <= 0:
        raise ValueError(f"{name} is {value!r}; allowed are finite values above 0.")
    return number


def format_duration(seconds: float) -> str:
    """Write seconds for a person, with at most two units.

    Example:
        >>> format_duration(9000), format_duration(42.4), format_duration(3600 * 50), format_duration(0.25)
        ('2h30m', '42s', '2d2h', '0.25s')
    """
    if seconds < 10:
        return f"{seconds:.3g}s"
    left, parts = round(seconds), []
    for unit, size in _SECONDS.items():
        number, left = divmod(left, int(size))
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts[:2])


def format_count(number: float) -> str:
    """Write a count for a person: exact below 100,000, three digits above.

    Example:
        >>> format_count(32), format_count(3.15e23), format_count(0.779), format_count(25_000)
        ('32', '3.15e+23', '0.779', '25,000')
    """
    if abs(number) < 1e5 and float(number).is_integer():
        return f"{int(number):,}"
    return f"{number:.3g}"
