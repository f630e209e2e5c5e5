"""How much is left under each limit, in the quantity that measures it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hf_trainplus.budget.budget import Budget
from hf_trainplus.budget.meter import Reading

DEADLINE = "deadline"

_QUANTITY = {"max_steps": "steps", "num_train_epochs": "epochs", "tokens": "tokens", "energy_kwh": "energy_kwh"}


@dataclass(frozen=True)
class Headroom:
    """What is left under one limit.

    Args:
        limit: name of the limit, e.g. ``"gpu_hours"`` or ``"deadline"``.
        quantity: what a phase's cost is measured in: ``seconds``, ``energy_kwh``, ``steps``, ``epochs``, ``tokens``.
        left: amount left in that quantity; negative when the limit is passed.
        total: the whole limit in that quantity, None for a deadline.
    """

    limit: str
    quantity: str
    left: float
    total: float | None


def headrooms(
    budget: Budget,
    reading: Reading,
    *,
    devices: int = 1,
    usd_per_device_hour: float | None = None,
    deadline_seconds: float | None = None,
) -> tuple[Headroom, ...]:
    """Return what is left under every limit of a budget and under the deadline.

    Device-hours and money are turned into seconds, since the devices of a run cost the same every second.

    Args:
        budget: the limits.
        reading: what is spent.
        devices: devices that count from now on.
        usd_per_device_hour: price in dollars; needed when ``budget.usd`` is set.
        deadline_seconds: seconds to the deadline, None without one.

    Raises:
        ValueError: a limit is set on something that is not measured.

    Example:
        >>> from hf_trainplus.budget.meter import Progress
        >>> reading = Reading(Progress(steps=3), 600.0, gpu_hours=0.5, energy_kwh=None, usd=None)
        >>> [(h.limit, h.left) for h in headrooms(Budget(gpu_hours=1, max_steps=10), reading, devices=2)]
        [('gpu_hours', 900.0), ('max_steps', 7.0)]
    """
    rates = _seconds_per_unit(devices, usd_per_device_hour)
    spent = reading.spent()
    found = []
    for limit, total in budget.limits().items():
        if limit not in spent or (limit == "usd" and "usd" not in rates):
            raise ValueError(f"budget {limit}={total:g} is set, but {limit} is not measured here. {_FIX[limit]}")
        rate = rates.get(limit, 1.0)
        found.append(Headroom(limit, _QUANTITY.get(limit, "seconds"), (total - spent[limit]) * rate, total * rate))
    if deadline_seconds is not None:
        found.append(Headroom(DEADLINE, "seconds", deadline_seconds, None))
    return tuple(found)


def _seconds_per_unit(devices: int, usd_per_device_hour: float | None) -> Mapping[str, float]:
    rates = {"gpu_hours": 3600 / devices}
    if usd_per_device_hour:
        rates["usd"] = 3600 / (devices * usd_per_device_hour)
    return rates


_FIX = {
    "num_train_epochs": "Give a trainer that counts epochs, or another limit.",
    "tokens": 'Set TrainingArguments(include_num_input_tokens_seen="all").',
    "energy_kwh": "No energy counter (NVML) answers on this machine; give another limit, e.g. gpu_hours.",
    "usd": "Set usd_per_device_hour.",
}
