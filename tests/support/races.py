"""Runs a race over a trace in tests."""

from __future__ import annotations

from dataclasses import dataclass

from hf_trainplus.decisions.race import Race, RaceConfig, RaceVerdict, drive
from hf_trainplus.decisions.replay import ReplayDriver


@dataclass(frozen=True)
class RaceRun:
    """A finished race: the engine, the driver with all pairs, every verdict, the last one, and the stop's index."""

    race: Race
    driver: ReplayDriver
    verdicts: list[RaceVerdict]
    final: RaceVerdict
    stopped: int

    @property
    def records(self):
        """All comparisons, in order."""
        return [record for verdict in [*self.verdicts, self.final] for record in verdict.records]


def run_race(trace, metric="loss", *, driver=None, labels=None, **options):
    """Race a trace to its end; ``metric`` is a name of the trace or a metric object."""
    driver = driver or ReplayDriver(trace)
    chosen = trace.metric(metric) if isinstance(metric, str) else metric
    race, verdicts, index = Race(chosen, trace.size, RaceConfig(**options), labels=labels), [], 0
    for index in range(len(trace.step)):
        verdicts.append(drive(race.observe(index), driver))
        if verdicts[-1].stop:
            break
    return RaceRun(race, driver, verdicts, drive(race.finish(live=index), driver), index)


def stock_stop(levels, patience):
    """Index at which a counter over exact levels stops, the last one without a stop."""
    best = 0
    for index, level in enumerate(levels):
        if level < levels[best]:
            best = index
        if index - best >= patience:
            return index
    return len(levels) - 1
