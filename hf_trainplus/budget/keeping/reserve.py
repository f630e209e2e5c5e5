"""Does another step still fit? The rule that ends a run inside its limits with evaluation and checkpoint done. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from hf_trainplus.budget.keeping.headroom import Headroom
from hf_trainplus.budget.keeping.measured import COUNTED, Measured, Phase

# Smallest value at which none of 12,000 simulated runs overshoots; see tests/benchmarks/budget.py.
DEVIATIONS = 3.5

# A cost that no one has measured cannot be reserved: it is measured once this share of a limit is used.
PROBE_SHARE = 0.25

# Sums of fractions of an epoch are not exact.
_ROUNDING = 1e-9


def exceeded(
    rooms: Iterable[Headroom],
    measured: Measured,
    *,
    pending: Sequence[Phase] = (),
    closing: Sequence[Phase] = ("evaluation", "save"),
    margin_seconds: float = 0.0,
    another: Sequence[Phase] = ("step",),
) -> Headroom | None:
    """Return the limit under which no further step fits, None while one does.

    Asked at every step boundary. Another step fits when what runs at this boundary anyway (``pending``), the step, and
    what ends the run after it (``closing``) stay under every limit.

    Args:
        rooms: what is left under each limit.
        measured: costs of the phases so far; an unmeasured phase reserves nothing, see ``unmeasured``.
        pending: phases that run at this boundary whether or not the run ends.
        closing: phases that end the run.
        margin_seconds: time kept back for what is not measured, such as leaving the process.
        another: what is to fit before the closing phases; nothing, to ask whether those alone still do.

    Returns:
        The tightest limit that another step would pass, or None.

    Example:
        >>> measured = Measured()
        >>> measured.add("step", {"steps": 1})
        >>> exceeded([Headroom("max_steps", "steps", 1, 10)], measured) is None
        True
        >>> exceeded([Headroom("max_steps", "steps", 0, 10)], measured).limit
        'max_steps'
    """
    needs = {"seconds": margin_seconds}
    passed = []
    for room in rooms:
        need = needs.get(room.quantity, 0.0) + measured.upper(
            [*pending, *another, *closing], room.quantity, deviations=DEVIATIONS
        )
        slack = room.left - need
        if room.left <= 0 or slack < -_ROUNDING * (room.total or room.left):
            passed.append((slack, room))
    return min(passed, key=lambda item: item[0])[1] if passed else None


def unmeasured(
    rooms: Iterable[Headroom],
    first: Iterable[Headroom],
    measured: Measured,
    closing: Collection[Phase],
    due_in: Mapping[Phase, int | None] | None = None,
) -> tuple[Phase, ...]:
    """Return the closing phases to run now once, only to learn what they cost.

    Args:
        rooms: what is left now.
        first: what was left when training began.
        measured: costs so far.
        closing: phases that end the run.
        due_in: steps until a phase is due anyway.

    Returns:
        Phases never measured and not due before half of a limit in time or energy is used, once a quarter of it is
        used; else nothing.

    Example:
        >>> measured = Measured()
        >>> measured.add("step", {"seconds": 1.0})
        >>> now, first = ([Headroom("wall_clock", "seconds", left, 100)] for left in (70, 100))
        >>> unmeasured(now, first, measured, ["evaluation"]), unmeasured(now, first, measured, ["save"], {"save": 9})
        (('evaluation',), ())
    """
    unknown = [phase for phase in closing if not measured.count(phase)]
    if not unknown:
        return ()
    at_first = {room.limit: room.left for room in first if room.left > 0}
    probes: list[Phase] = []
    for room in rooms:
        if room.quantity not in ("seconds", "energy_kwh") or room.limit not in at_first:
            continue
        used = 1 - room.left / at_first[room.limit]
        a_step = (measured.mean("step", room.quantity) or 0.0) / at_first[room.limit]
        for phase in unknown:
            steps = (due_in or {}).get(phase)
            soon = steps is not None and used + steps * a_step <= 2 * PROBE_SHARE
            if used >= PROBE_SHARE and not soon and phase not in probes:
                probes.append(phase)
    return tuple(probes)


def share_used(
    rooms: Iterable[Headroom],
    first: Iterable[Headroom],
    measured: Measured,
    *,
    closing: Sequence[Phase] = ("evaluation", "save"),
    margin_seconds: float = 0.0,
) -> float | None:
    """Return how much of the training that the budget allows is done, from 0 to 1.

    It reaches 1 where the run will end, not where the limit is: what is reserved for the last evaluation and the
    checkpoint is taken off. Deadlines do not count, since a run goes on in the next job.

    Returns:
        The largest share over the limits, None without a limit.

    Example:
        >>> rooms = [Headroom("max_steps", "steps", left, 10) for left in (10, 4)]
        >>> share_used(rooms[1:], rooms[:1], Measured())
        0.6
    """
    at_first = {room.limit: room.left for room in first}
    shares = []
    for room in rooms:
        if room.total is None or room.limit not in at_first:
            continue
        usable = at_first[room.limit] - _kept(room.quantity, measured, closing, margin_seconds)
        shares.append(1.0 if usable <= 0 else min(1.0, max(0.0, (at_first[room.limit] - room.left) / usable)))
    return max(shares, default=None)


def _kept(quantity: str, measured: Measured, closing: Sequence[Phase], margin_seconds: float) -> float:
    """What is left where a run ends: it stops at the first boundary inside the reserve, half a step into it."""
    if quantity in COUNTED:
        return 0.0
    half_a_step = (measured.mean("step", quantity) or 0.0) / 2
    reserve = measured.upper(["step", *closing], quantity, deviations=DEVIATIONS)
    return max(0.0, reserve - half_a_step) + (margin_seconds if quantity == "seconds" else 0.0)
