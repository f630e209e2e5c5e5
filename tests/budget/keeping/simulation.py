"""A run without a model: steps, evaluations and saves take random times on an injected clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hf_trainplus.budget.budget import Budget
from hf_trainplus.budget.keeping.keeper import BudgetKeeper
from hf_trainplus.budget.meter import Meter, Progress

Noise = Callable[[np.random.Generator], float]


def normal_noise(rng: np.random.Generator) -> float:
    """A factor with mean 1 and a standard deviation of 20 %; a time is never below a twentieth of its mean."""
    return max(0.05, 1 + 0.2 * rng.standard_normal())


def uniform_noise(rng: np.random.Generator) -> float:
    """A factor between 0.8 and 1.2."""
    return rng.uniform(0.8, 1.2)


@dataclass(frozen=True)
class Costs:
    """Mean seconds of the phases, and how often evaluation and save come, in steps."""

    step: float
    evaluation: float
    save: float
    every: int
    startup: float = 0.0


@dataclass(frozen=True)
class Outcome:
    limit_seconds: float
    end_seconds: float
    steps: int
    evaluations: int
    costs: Costs
    seconds_left_at_20: float | None
    seconds_at_20: float | None

    @property
    def overshoot(self) -> float:
        return max(0.0, self.end_seconds - self.limit_seconds)

    @property
    def unused(self) -> float:
        return max(0.0, self.limit_seconds - self.end_seconds)

    @property
    def allowed_unused(self) -> float:
        """max(5 % of the limit, one evaluation + one save + two steps), at their mean costs."""
        costs = self.costs
        return max(0.05 * self.limit_seconds, costs.evaluation + costs.save + 2 * costs.step)


def simulate(
    limit_seconds: float, costs: Costs, rng: np.random.Generator, noise: Noise = normal_noise, forecast=None
) -> Outcome:
    """Train until the keeper says stop; evaluate and save at the end as the callback does."""
    now = 0.0
    keeper = BudgetKeeper(Budget(wall_clock=limit_seconds), Meter(clock=lambda: now), margin_seconds=0.0)
    now += costs.startup * noise(rng)
    keeper.begin(Progress())
    steps, evaluations, stopped, at_20 = 0, 0, False, None

    def run(phase: str) -> None:
        nonlocal now
        now += getattr(costs, phase) * noise(rng)
        keeper.close(phase, Progress(steps=steps))

    while not stopped:
        steps += 1
        run("step")
        pending = ("evaluation", "save") if steps % costs.every == 0 else ()
        verdict = keeper.verdict(Progress(steps=steps), pending=pending)
        stopped = verdict.limit is not None
        if forecast is not None and at_20 is None and keeper.measured.count("step") == 20:
            at_20 = (forecast(keeper, costs, steps), now)
        closes = stopped or (pending and not verdict.postpone)
        for phase in ("evaluation", "save") if closes else verdict.probe:
            evaluations += phase == "evaluation"
            run(phase)
    return Outcome(limit_seconds, now, steps, evaluations, costs, *(at_20 or (None, None)))


def random_costs(rng: np.random.Generator) -> tuple[float, Costs]:
    """A plausible run: 100 to 1,000 steps' worth of time, evaluation and saving up to a tenth of it."""
    step = 10 ** rng.uniform(-1, 1)
    limit = step * 10 ** rng.uniform(2, 3)
    evaluation = limit * 10 ** rng.uniform(-3, -1)
    save = limit * 10 ** rng.uniform(-3.5, -1.5)
    every = int(rng.integers(5, max(6, int(limit / step / 4))))
    return limit, Costs(step, evaluation, save, every, startup=limit * rng.uniform(0, 0.05))
