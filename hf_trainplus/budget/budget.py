"""What a run may spend: one frozen value, read from text, from a mapping or from keyword arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from hf_trainplus.budget.units import format_count, format_duration, parse_count, parse_duration


@dataclass(frozen=True)
class Budget:
    """Limits of a run or of a stage; the first one that is reached ends it.

    It measures nothing and stops nothing (see ``BudgetCallback``), and it knows no deadline: a point in time belongs
    to a job, not to a run that may be resumed in another one.

    Args:
        wall_clock: seconds, or text such as ``"2h30m"``; counted from the start of the process, over all resumes.
        gpu_hours: wall-clock hours times devices; a CPU rank counts as one device.
        max_steps: optimizer steps, an integer.
        num_train_epochs: passes over the training data; may be a fraction.
        tokens: input tokens, e.g. ``1e9`` or ``"300B"``.
        energy_kwh: energy of the devices, in kilowatt-hours.
        usd: money; needs a price, ``usd_per_device_hour``, where it is measured.

    Raises:
        ValueError: a limit does not parse or is not above 0; all wrong limits are named at once.

    Example:
        >>> budget = Budget.parse("gpu_hours=8,wall_clock=2h30m,tokens=1e9")
        >>> budget.wall_clock, budget.limits()["gpu_hours"], str(budget)
        (9000.0, 8.0, 'wall_clock=2h30m,gpu_hours=8,tokens=1e+09')
    """

    wall_clock: float | str | None = None
    gpu_hours: float | str | None = None
    max_steps: float | str | None = None
    num_train_epochs: float | str | None = None
    tokens: float | str | None = None
    energy_kwh: float | str | None = None
    usd: float | str | None = None

    def __post_init__(self) -> None:
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        values, problems = read_limits({name: value for name, value in given.items() if value is not None})
        if problems:
            raise ValueError("\n".join(problems.values()))
        for name, number in values.items():
            object.__setattr__(self, name, number)

    @classmethod
    def parse(cls, given: Budget | Mapping[str, Any] | str | None) -> Budget:
        """Read a budget from ``"gpu_hours=8,wall_clock=2h"``, a mapping, another Budget, or None for no limit.

        Raises:
            ValueError: an unknown name, a name given twice, or a limit that does not parse; all are named at once.
            TypeError: neither text nor a mapping.
        """
        if isinstance(given, Budget):
            return given
        if given is None:
            return cls()
        problems: list[str] = []
        if isinstance(given, str):
            given = _split(given, problems)
        if not isinstance(given, Mapping):
            raise TypeError(f"budget is {given!r}; allowed: text such as 'gpu_hours=8,wall_clock=2h', or a mapping.")
        values, wrong = read_limits(given)
        problems.extend(wrong.values())
        if problems:
            raise ValueError("\n".join(problems))
        return cls(**values)

    def limits(self) -> dict[str, float]:
        """Return the limits that are set: name -> number (seconds for ``wall_clock``)."""
        return {field.name: float(value) for field in fields(self) if (value := getattr(self, field.name)) is not None}

    def __bool__(self) -> bool:
        return bool(self.limits())

    def __str__(self) -> str:
        return ",".join(f"{name}={format_limit(name, value)}" for name, value in self.limits().items())


LIMIT_NAMES = tuple(field.name for field in fields(Budget))


def format_limit(name: str, value: float) -> str:
    """Write one limit, or an amount spent under it, as ``Budget.parse`` reads it.

    Example:
        >>> format_limit("wall_clock", 5400), format_limit("tokens", 1e9)
        ('1h30m', '1e+09')
    """
    return format_duration(value) if name == "wall_clock" else format_count(value).replace(",", "_")


def read_limits(given: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, str]]:
    """Read every limit; return the numbers, and what is wrong by name, so that a caller can add line numbers.

    Example:
        >>> numbers, problems = read_limits({"wall_clock": "2h", "gpu_hour": 3, "tokens": "many"})
        >>> numbers, sorted(problems)
        ({'wall_clock': 7200.0}, ['gpu_hour', 'tokens'])
    """
    numbers: dict[str, float] = {}
    problems: dict[str, str] = {}
    for name, value in given.items():
        if name not in LIMIT_NAMES:
            problems[str(name)] = f"{name!r} is no budget; allowed: {', '.join(LIMIT_NAMES)}. Write gpu_hours=8."
            continue
        try:
            numbers[name] = _reader(name)(value, name)
        except ValueError as error:
            problems[name] = str(error)
    return numbers, problems


def _reader(name: str) -> Callable[[object, str], float]:
    if name == "wall_clock":
        return parse_duration
    return _whole if name in ("max_steps", "tokens") else parse_count


def _whole(value: object, name: str) -> float:
    number = parse_count(value, name)
    if not number.is_integer():
        raise ValueError(f"{name} is {value!r}; allowed are whole numbers. Write {name}={max(1, round(number))}.")
    return number


def _split(text: str, problems: list[str]) -> dict[str, str]:
    limits: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name or not value:
            problems.append(f"budget part {part!r} is not name=value; write 'gpu_hours=8,wall_clock=2h30m'.")
        elif name in limits:
            problems.append(f"budget {name} is given twice, {limits[name]!r} and {value!r}; give it once.")
        else:
            limits[name] = value
    return limits
