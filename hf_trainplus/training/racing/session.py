"""One race inside a training run: observes the live weights at each evaluation and names the winner at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_trainplus.decisions.race import Race, RaceVerdict, drive
from hf_trainplus.decisions.subset import Subset
from hf_trainplus.results import ExampleResults, Int64Array
from hf_trainplus.training.racing.audit import DecisionLog
from hf_trainplus.training.racing.driver import LiveDriver


@dataclass(frozen=True)
class RaceLimits:
    """Below these a race saves nothing worth having, and every row is evaluated.

    Args:
        min_rows: smallest evaluation set that is raced.
        min_seconds: shortest full evaluation that is raced, in seconds, as the first look measures it.
    """

    min_rows: int = 500
    min_seconds: float = 5.0


@dataclass(frozen=True)
class Observed:
    """What one evaluation of a race gives to the log.

    Args:
        verdict: what the race says.
        results: rows known of the observed checkpoint.
        subset: how those rows stand for the whole set; None when they are all of it.
        seconds: wall-clock seconds of forward passes, saving and loading.
        cost: pairs evaluated so far as a share of stock's.
    """

    verdict: RaceVerdict
    results: ExampleResults
    subset: Subset | None
    seconds: float
    cost: float


class RaceSession:
    """Runs a race with a driver, keeps its audit, and says once why every row is evaluated where it is.

    Args:
        race: the race, new or taken up.
        driver: evaluates, keeps and loads.
        log: where comparisons are written.
        say: told once why every row is evaluated.
    """

    def __init__(
        self, race: Race, driver: LiveDriver, log: DecisionLog, say: Callable[[str], None] = lambda message: None
    ) -> None:
        self.race = race
        self.log = log
        self._driver = driver
        self._say = say
        self._advised = False

    def observe(
        self, step: int, position: float | None = None, levels: Sequence[float] = (), sides: Sequence[float] = ()
    ) -> Observed:
        """Enter the live weights as the checkpoint of ``step``; one that reaches a level is read fully."""
        steps = self.race.observe(step, position=position, levels=levels, exact_if_reached=True, sides=sides)
        verdict = self._drive(steps)
        observed = self._observed(step, verdict)
        self._driver.forget_except(verdict.candidates)
        return observed

    def finish(self, live: int | None) -> Observed | None:
        """Settle what is open and read the winner fully; None when nothing was ever observed or nothing is finite.

        Args:
            live: checkpoint whose weights are in the model, or None.
        """
        if not self.race.state.observations:
            return None
        verdict = self._drive(self.race.finish(live), final=True)
        return None if verdict.best is None else self._observed(verdict.best, verdict)

    def _drive(self, steps: Any, *, final: bool = False) -> RaceVerdict:
        verdict: RaceVerdict = drive(steps, self._driver)
        self.log.add(record.to_dict() for record in verdict.records)
        self.log.add([verdict.to_dict() | {"step": self.race.state.last, "final": final}])
        if self.race.state.full_reason is not None:
            self._say(f"eval_mode='race' evaluates every row here: {self.race.state.full_reason}")
        elif verdict.reason is not None and not self._advised:
            self._advised = True  # the log of decisions holds the other near ties
            self._say(verdict.reason)
        return verdict

    def _observed(self, step: int, verdict: RaceVerdict) -> Observed:
        known = self._driver.known(step)
        if known is None:
            known = ExampleResults(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
        known = known.in_dataset_order()
        subset = None if len(known) == self.race.state.size else self._subset(known.index)
        seconds, self._driver.seconds = self._driver.seconds, 0.0
        return Observed(verdict, known, subset, seconds, self.race.cost)

    def _subset(self, index: Int64Array) -> Subset | None:
        """Weight the rows by the strata in which they were drawn, so that a level of other metrics is unbiased."""
        design = self.race.state.design
        strata = design.stratum[index]
        counts = np.bincount(strata, minlength=len(design.sizes))
        if not len(index) or bool(((counts == 0) & (design.sizes > 0)).any()):
            return None
        return Subset(index, (design.sizes / np.maximum(counts, 1))[strata], strata, method="race")
