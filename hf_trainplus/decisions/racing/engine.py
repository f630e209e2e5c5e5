"""The race: the decisions of full evaluation from the rows that settle them, and no others."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from hf_trainplus.decisions.racing.commands import Answer, Command
from hf_trainplus.decisions.racing.config import RaceConfig
from hf_trainplus.decisions.racing.course import Course
from hf_trainplus.decisions.racing.design import look_depths, nested_design
from hf_trainplus.decisions.racing.judge import Judge, Judgement, RaceMetric
from hf_trainplus.decisions.racing.levels import Level, decide_level, level_of
from hf_trainplus.decisions.racing.opaque import OpaqueMetric
from hf_trainplus.decisions.racing.patience import patience_runs_out
from hf_trainplus.decisions.racing.reasons import full_reason, short_reason, tie_advice
from hf_trainplus.decisions.racing.records import ComparisonRecord, LevelVerdict, RaceVerdict
from hf_trainplus.decisions.racing.reporting import comparison_record, race_verdict
from hf_trainplus.decisions.racing.saved import restore_state, saved_state
from hf_trainplus.decisions.racing.state import Candidate, RaceState
from hf_trainplus.decisions.racing.strata import strata_of_labels
from hf_trainplus.decisions.racing.volatility import Volatility
from hf_trainplus.results import Int64Array

_MEASURED_UNTIL = 3  # the first evaluation warms up and seems slow, so the next ones are looked at too

Operation = Generator[Command, Answer, RaceVerdict]


class Race:
    """Finds the checkpoint that stock evaluation would call best, from fewer (checkpoint, row) pairs.

    It evaluates nothing itself: ``observe``, ``settle`` and ``finish`` are generators of commands that a driver
    carries out (see ``drive``), the same for a recorded run and for a live model. It never asks twice for a pair, so
    it never costs more pairs than stock evaluation. An operation that is left by an error or closed puts the race back
    to where it was before the call; rows that were read stay known. With ``tolerance=0`` best checkpoint and stop are
    those of stock evaluation, but for the error that the bound allows.

    Args:
        metric: what is compared.
        size: number of rows N of the evaluation set.
        config: bounds, patience, tolerance.
        labels: (N,) group of each row, strata until a checkpoint is fully known; None for one stratum.
        fingerprint: of the evaluation set; a saved state of another one is refused.
        environment: precision, batch shape, versions: repeated in every audit record.

    Example:
        >>> import numpy as np
        >>> from hf_trainplus.decisions.race import LossMetric, Race, drive
        >>> from hf_trainplus.decisions.replay import ReplayDriver, ReplayTrace
        >>> levels = np.array([2.0, 0.5, 1.0])[:, None]
        >>> trace = ReplayTrace(levels + np.random.default_rng(0).random((3, 2000)), np.array([10, 20, 30]))
        >>> race, driver = Race(LossMetric(), trace.size), ReplayDriver(trace)
        >>> for index in range(3):
        ...     verdict = drive(race.observe(index), driver)
        >>> drive(race.finish(), driver).best, round(race.cost, 2)
        (1, 0.37)
    """

    def __init__(
        self,
        metric: RaceMetric,
        size: int,
        config: RaceConfig | None = None,
        *,
        labels: Int64Array | None = None,
        fingerprint: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.metric = metric
        self.config = config or RaceConfig()
        self.fingerprint = fingerprint
        self.environment = dict(environment or {})
        strata = strata_of_labels(labels, size)
        design = nested_design(strata, seed=self.config.seed, equal_rates=isinstance(metric, OpaqueMetric))
        first_rows = max(self.config.first_rows, 6 * self.config.strata)
        looks = look_depths(self.config.looks, size, first_rows=first_rows, chunk=self.config.chunk)
        state = RaceState(design, Volatility.empty(size), full_reason=full_reason(self.config, size))
        self._course = Course(state, Judge(metric, self.config, looks), self.config, self._report)
        self._records: list[ComparisonRecord] = []

    @property
    def state(self) -> RaceState:
        """What the race knows; read it, never change it."""
        return self._course.state

    @property
    def candidates(self) -> tuple[int, ...]:
        """Checkpoints that may still be the best, oldest first."""
        return self.state.open

    @property
    def kept(self) -> tuple[int, ...]:
        """Checkpoints whose weights the driver must hold, also after a resume from the saved state."""
        return tuple(self.state.kept)

    @property
    def last_checkpoint(self) -> int:
        """Number of the newest checkpoint observed, -1 before any; a resumed run must not observe it again."""
        return self.state.last

    @property
    def leader(self) -> int | None:
        """The open checkpoint that looks best now, for display; None when none is open."""
        return self._course.planner.leader(self.state) if self.candidates else None

    @property
    def cost(self) -> float:
        """Pairs evaluated as a share of those that stock evaluation would have evaluated so far."""
        stock = self.state.observations * self.state.size
        return self.state.pairs / stock if stock else 0.0

    def observe(
        self,
        checkpoint: int,
        *,
        position: float | None = None,
        levels: Sequence[float] = (),
        exact_if_reached: bool = False,
        sides: Sequence[float] = (),
    ) -> Operation:
        """Enter the live weights as ``checkpoint`` and read what the decisions of this moment need.

        Args:
            checkpoint: number of the live weights, larger than every one before.
            position: place on patience's scale (evaluations, steps or seconds), never falling; default counts
                observations.
            levels: levels of the metric of which it must be known whether this checkpoint reaches them, for stage
                advance and plateau schedulers; decided in ``verdict.levels``.
            exact_if_reached: read every row of a checkpoint that reaches a level: its value will be the next level.
            sides: further levels, after the others in ``verdict.levels``, of which nothing but the side is needed.

        Returns:
            Through the generator: the verdict.

        Raises:
            ValueError: the checkpoint is not newer than the last one.
        """
        if checkpoint <= self.state.last:
            raise ValueError(
                f"checkpoint {checkpoint} follows {self.state.last}; observe them in rising order, each once."
            )
        place = float(self.state.observations if position is None else position)
        asked = [(level, exact_if_reached) for level in levels] + [(level, False) for level in sides]
        return self._transaction(self._observe(checkpoint, place, asked), checkpoint)

    def settle(self, live: int | None = None) -> Operation:
        """Compare until one candidate is left.

        Args:
            live: checkpoint whose weights are in the model now, or None.
        """
        return self._transaction(self._settle(), live)

    def finish(self, live: int | None = None) -> Operation:
        """Settle, then read the best checkpoint fully, so that the value reported is exact.

        Args:
            live: checkpoint whose weights are in the model now, or None.
        """
        return self._transaction(self._finish(), live)

    def race_no_more(self, reason: str) -> None:
        """Read every row of every checkpoint from the next observation on, and say why in every verdict."""
        self.state.full_reason = reason

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state: numpy arrays and JSON values, nested; call it between operations only."""
        return saved_state(self.state, self.metric.name, self.config, self.fingerprint)

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from a saved state to the same verdicts and pairs as the run that saved it.

        Raises:
            ValueError: the state is of another evaluation set, metric, seed or number of rows.
        """
        self._course.state = restore_state(saved, self.state.size, self.metric.name, self.config, self.fingerprint)
        self._course.begin(None)

    # -- operations ---------------------------------------------------------------------------------------------------

    def _transaction(self, steps: Operation, live: int | None) -> Operation:
        course, before = self._course, self.state.snapshot()
        course.begin(live)
        self._records = []
        try:
            return (yield from steps)
        except BaseException:
            before.columns |= {key: value for key, value in self.state.columns.items() if key not in before.columns}
            before.pairs = self.state.pairs
            course.state = before
            course.begin(None)
            raise

    def _observe(self, checkpoint: int, position: float, levels: Sequence[tuple[float, bool]]) -> Operation:
        course, state = self._course, self.state
        if state.observations == 0:
            state.first_position = state.reset_position = position
        state.observations, state.last = state.observations + 1, checkpoint
        state.candidates.append(Candidate(checkpoint, position))
        yield from self._compete(checkpoint)
        course.learn(checkpoint)
        decided: list[LevelVerdict] = []
        for level, exact in levels:
            decided.append((yield from decide_level(course, checkpoint, level, exact_if_reached=exact)))
        before = level_of(state, course.judge, checkpoint)
        yield from self._make_room()
        stop = yield from patience_runs_out(course, position)
        verdict = self._verdict(checkpoint, stop, tuple(decided), before)
        yield from course.put_away(checkpoint)
        return verdict

    def _compete(self, checkpoint: int) -> Generator[Command, Answer, None]:
        course, state = self._course, self.state
        first = state.size if state.full_reason else int(course.judge.looks[0])
        yield from course.deepen(checkpoint, first)
        if state.full_reason is None and state.observations <= _MEASURED_UNTIL:
            state.full_reason = short_reason(self.config, state)
            if state.full_reason is not None:
                yield from course.deepen(checkpoint, state.size)
        if self._live_only:
            yield from course.settle_live(checkpoint)
            return
        yield from course.follow(checkpoint)
        yield from course.settle_if_cheaper(checkpoint)

    def _make_room(self) -> Generator[Command, Answer, None]:
        course, state = self._course, self.state
        most = 1 if state.full_reason else self.config.max_candidates
        yield from course.resolve(lambda: len(state.open) <= most)
        alone = state.open[0] if len(state.open) == 1 else None
        if state.full_reason or not state.open:
            return
        if alone is not None and state.full(alone) and alone != state.anchor:
            yield from course.anchor_on(alone)
        elif alone is not None and alone == state.anchor:
            course.redraw()

    def _settle(self) -> Operation:
        yield from self._course.resolve(lambda: len(self.candidates) <= 1)
        verdict = self._verdict(self.candidates[0] if self.candidates else None)
        yield from self._course.put_away(None)
        return verdict

    def _finish(self) -> Operation:
        state = self.state
        while True:
            met = state.candidates
            yield from self._course.resolve(lambda: len(self.candidates) <= 1)
            best = self.candidates[0] if self.candidates else None
            if best is not None:
                yield from self._course.read(best, state.size)
            if best is None or not state.columns[best].nonfinite:
                break
            # a row that no comparison had needed is no number: those that it beat here are open again
            state.candidates = [
                item for item in met if item.checkpoint != best and not state.columns[item.checkpoint].nonfinite
            ]
        verdict = self._verdict(best)
        yield from self._course.put_away(None)
        return verdict

    @property
    def _live_only(self) -> bool:
        return not self.config.reload or self.config.threshold > 0

    # -- reports ------------------------------------------------------------------------------------------------------

    def _verdict(
        self,
        checkpoint: int | None,
        stop: bool = False,
        levels: tuple[LevelVerdict, ...] = (),
        before: Level | None = None,
    ) -> RaceVerdict:
        state = self.state
        found = level_of(state, self._course.judge, checkpoint) if checkpoint is not None else None
        reason = state.full_reason or tie_advice(state, self.metric, self._records)
        return race_verdict(state, checkpoint, found or before, stop, reason, tuple(self._records), levels)

    def _report(self, older: int, newer: int, before: tuple[int, ...], outcome: Judgement) -> None:
        mode = "full" if self.state.full_reason else "live" if self._live_only else "race"
        judge = self._course.judge
        record = comparison_record(self.state, judge, (older, newer), before, outcome, mode, self.environment)
        self._records.append(record)
