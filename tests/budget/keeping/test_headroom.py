"""What is left under each limit, in the quantity that measures it."""

import pytest

from hf_trainplus.budget.budget import Budget
from hf_trainplus.budget.keeping.headroom import headrooms
from hf_trainplus.budget.meter import Progress, Reading


def reading(**changes):
    values = {"wall_clock_seconds": 600.0, "gpu_hours": 1.0, "energy_kwh": 0.5, "usd": 3.0}
    progress = changes.pop("progress", Progress(steps=10, epochs=0.5, tokens=4000))
    return Reading(progress, **{**values, **changes})


def left(budget, **options):
    return {room.limit: (room.quantity, pytest.approx(room.left)) for room in headrooms(budget, reading(), **options)}


def test_every_limit_has_its_quantity():
    budget = Budget(wall_clock=1000, gpu_hours=3, max_steps=25, num_train_epochs=2, tokens=10_000, energy_kwh=2, usd=15)
    assert left(budget, devices=4, usd_per_device_hour=3.0) == {
        "wall_clock": ("seconds", 400.0),
        "gpu_hours": ("seconds", 2 * 3600 / 4),
        "max_steps": ("steps", 15.0),
        "num_train_epochs": ("epochs", 1.5),
        "tokens": ("tokens", 6000.0),
        "energy_kwh": ("energy_kwh", 1.5),
        "usd": ("seconds", 12 / 3.0 * 3600 / 4),
    }


def test_a_deadline_has_no_total():
    (room,) = headrooms(Budget(), reading(), deadline_seconds=-3.0)
    assert (room.limit, room.left, room.total) == ("deadline", -3.0, None)


def test_a_passed_limit_is_negative():
    (room,) = headrooms(Budget(max_steps=4), reading())
    assert room.left == -6


@pytest.mark.parametrize(
    ("budget", "changes", "fix"),
    [
        (Budget(tokens=5), {"progress": Progress(steps=1)}, "include_num_input_tokens_seen"),
        (Budget(num_train_epochs=1), {"progress": Progress(steps=1)}, "counts epochs"),
        (Budget(energy_kwh=5), {"energy_kwh": None}, "No energy counter"),
        (Budget(usd=5), {"usd": None}, "Set usd_per_device_hour"),
        (Budget(usd=5), {}, "Set usd_per_device_hour"),
    ],
)
def test_a_limit_on_something_unmeasured_is_an_error_with_its_fix(budget, changes, fix):
    with pytest.raises(ValueError, match=f"is set, but .* is not measured here.*{fix}"):
        headrooms(budget, reading(**changes))
