"""The lazy race: reads the rows that settle each decision, and no others."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace

import numpy as np

from hf_trainplus.decisions.racing.columns import Column
from hf_trainplus.decisions.racing.commands import Answer, Command, Drop, Evaluate, Evaluated, Keep
from hf_trainplus.decisions.racing.config import RaceConfig
from hf_trainplus.decisions.racing.design import look_depths, nested_design
from hf_trainplus.decisions.racing.judge import Judgement, difference_of, judge
from hf_trainplus.decisions.racing.level import level_of
from hf_trainplus.decisions.racing.metrics import RaceMetric
from hf_trainplus.decisions.racing.records import ComparisonRecord, RaceVerdict, rows_hash
from hf_trainplus.decisions.racing.references import add_reference, forget_rows, redesign
from hf_trainplus.decisions.racing.state import Candidate, RaceState
from hf_trainplus.decisions.racing.strata import strata_of_labels
from hf_trainplus.results import Int64Array

Steps = Generator[Command, Answer, None]


class Race:
    """Finds the checkpoint that stock evaluation would call best, from fewer (checkpoint, row) pairs.

    It evaluates nothing itself: ``observe``, ``settle`` and ``finish`` are generators of commands that a driver
    carries out (``drive``), the same for a recorded run and for a live model. It never asks twice for a pair, so it
    never costs more pairs than stock evaluation.

    Args:
        metric: what is compared.
        size: number of rows N of the evaluation set.
        config: bounds, patience, tolerance.
        labels: (N,) group of each row, strata until a checkpoint is fully known; None for one stratum.
        environment: precision, batch shape, versions: repeated in every audit record.
    """

    def __init__(
        self,
        metric: RaceMetric,
        size: int,
        config: RaceConfig | None = None,
        *,
        labels: Int64Array | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.metric = metric
        self.config = config or RaceConfig()
        self.environment = dict(environment or {})
        stratum, scale = strata_of_labels(labels, size)
        self.state = RaceState(nested_design(stratum, scale, seed=self.config.seed))
        looks = (1.0,) if self.config.full else self.config.looks
        self._depths = look_depths(looks, size, first_rows=self.config.first_rows, chunk=self.config.chunk)
        self._step = -1
        self._live: int | None = None
        self._records: list[ComparisonRecord] = []

    @property
    def candidates(self) -> tuple[int, ...]:
        """Checkpoints that may still be the best, oldest first."""
        return tuple(candidate.checkpoint for candidate in self.state.candidates)

    @property
    def cost(self) -> float:
        """Pairs evaluated as a share of those that stock evaluation would have evaluated so far."""
        stock = self.state.observations * self.state.design.size
        return self.state.pairs / stock if stock else 0.0

    def observe(self, checkpoint: int, *, position: float | None = None) -> Generator[Command, Answer, RaceVerdict]:
        """Enter the live weights as ``checkpoint`` and read what the decisions of this moment need.

        Args:
            checkpoint: number of the live weights, larger than every one before.
            position: place on patience's scale (evaluations, steps or seconds); default is the observation's count.

        Returns:
            Through the generator: the verdict.

        Raises:
            ValueError: the checkpoint is not newer than the last one.
        """
        if checkpoint <= self._step:
            raise ValueError(f"checkpoint {checkpoint} follows {self._step}; observe them in rising order, each once.")
        place = float(self.state.observations if position is None else position)
        return self._transaction(self._observe(checkpoint, place))

    def settle(self) -> Generator[Command, Answer, RaceVerdict]:
        """Compare until one candidate is left."""
        return self._transaction(self._settle())

    def finish(self, live: int | None = None) -> Generator[Command, Answer, RaceVerdict]:
        """Settle, then read the best checkpoint fully, so that the value reported is exact.

        Args:
            live: checkpoint whose weights are still in the model, or None.
        """
        self._live = live
        return self._transaction(self._finish())

    # -- operations -------------------------------------------------------------------------------------------------

    def _transaction(self, steps: Generator[Command, Answer, RaceVerdict]) -> Generator[Command, Answer, RaceVerdict]:
        before, step = self.state.snapshot(), self._step
        self._records = []
        try:
            return (yield from steps)
        except BaseException:
            before.columns |= {key: value for key, value in self.state.columns.items() if key not in before.columns}
            before.pairs = self.state.pairs
            self.state, self._step = before, step
            raise

    def _observe(self, checkpoint: int, position: float) -> Generator[Command, Answer, RaceVerdict]:
        self._step = self._live = checkpoint
        if self.state.observations == 0:
            self.state.first_position = position
        self.state.observations += 1
        self.state.candidates.append(Candidate(checkpoint, position))
        yield from self._read(checkpoint, int(self._depths[0]))
        self._sweep(checkpoint)
        yield from self._catch_up(checkpoint)
        yield from self._refresh_reference(checkpoint)
        if len(self.state.candidates) > self.config.max_candidates:
            yield from self._resolve(lambda: len(self.state.candidates) <= self.config.max_candidates // 2)
        stop = yield from self._judge_patience(position)
        verdict = self._verdict(checkpoint, stop)
        yield from self._put_away(checkpoint)
        return verdict

    def _settle(self) -> Generator[Command, Answer, RaceVerdict]:
        yield from self._resolve(lambda: len(self.state.candidates) <= 1)
        verdict = self._verdict(self.candidates[0] if self.candidates else None, False)
        yield from self._put_away(None)
        return verdict

    def _finish(self) -> Generator[Command, Answer, RaceVerdict]:
        yield from self._resolve(lambda: len(self.state.candidates) <= 1)
        best = self.candidates[0] if self.candidates else None
        if best is not None:
            yield from self._read(best, self.state.design.size)
        verdict = self._verdict(best, False)
        yield from self._put_away(None)
        return verdict

    def _catch_up(self, checkpoint: int) -> Steps:
        while (newcomer := self._find(checkpoint)) and len(self.state.candidates) > 1:
            rivals = [other.depth for other in self.state.candidates if other.checkpoint != checkpoint]
            if newcomer.depth >= max(rivals):
                return
            yield from self._read(checkpoint, self._next_depth(newcomer.depth))
            self._sweep(checkpoint)

    def _refresh_reference(self, checkpoint: int) -> Steps:
        state = self.state
        state.ambiguous += len(state.candidates) > 1
        if len(state.candidates) != 1:
            return
        (alone,) = state.candidates
        newest = state.references[-1] if state.references else None
        due = state.ambiguous >= 2 and state.observations >= state.next_reference and alone.checkpoint == checkpoint
        if due and alone.depth < state.design.size:
            yield from self._read(checkpoint, state.design.size)
            state.next_reference = max(state.observations + 8, 1.5 * state.observations)
        if state.columns[alone.checkpoint].full and alone.checkpoint != newest:
            add_reference(state, alone.checkpoint)
            redesign(state, self.config, self.metric)

    def _judge_patience(self, position: float) -> Generator[Command, Answer, bool]:
        patience = self.config.patience
        if patience is None:
            return False
        if not self.state.candidates:
            return position - self.state.first_position >= patience

        def split() -> tuple[bool, bool]:
            ages = [position - candidate.position >= patience for candidate in self.state.candidates]
            return any(ages), not all(ages)

        if all(split()):
            yield from self._resolve(lambda: not all(split()))
        return not split()[1]

    def _resolve(self, done: Callable[[], bool]) -> Steps:
        while not done():
            lead, rival = self._closest_pair()
            depth = self._decisive_depth(lead, rival)
            for candidate in (lead, rival):
                yield from self._read(candidate.checkpoint, depth)
            for candidate in list(self.state.candidates):
                self._sweep(candidate.checkpoint)

    # -- steps ------------------------------------------------------------------------------------------------------

    def _closest_pair(self) -> tuple[Candidate, Candidate]:
        oldest, *others = self.state.candidates
        gaps = [0.0] + [difference_of(self.state, self.metric, oldest, other).value for other in others]
        lead = self.state.candidates[int(np.argmin(gaps))]
        rivals = [other for other in self.state.candidates if other is not lead]
        closeness = [abs(difference_of(self.state, self.metric, lead, rival).z) for rival in rivals]
        return lead, rivals[int(np.argmin(closeness))]

    def _decisive_depth(self, lead: Candidate, rival: Candidate) -> int:
        """Next look, or the first at which the difference would exceed the bound if it stays what it seems."""
        size = self.state.design.size
        depth = min(lead.depth, rival.depth)
        found = difference_of(self.state, self.metric, lead, rival)
        wanted = (found.value / self.config.bound) ** 2
        target = self._next_depth(depth)
        while target < size and found.se**2 * (size / target - 1) / max(size / depth - 1, 1e-300) > wanted:
            target = self._next_depth(target)
        return target

    def _next_depth(self, depth: int) -> int:
        index = int(np.searchsorted(self._depths, depth, side="right"))
        return int(self._depths[min(index, len(self._depths) - 1)])

    def _find(self, checkpoint: int) -> Candidate | None:
        found = [candidate for candidate in self.state.candidates if candidate.checkpoint == checkpoint]
        return found[0] if found else None

    def _read(self, checkpoint: int, depth: int) -> Steps:
        state = self.state
        (candidate,) = [other for other in state.candidates if other.checkpoint == checkpoint]
        if depth <= candidate.depth:
            return
        column = state.columns.get(checkpoint)
        wanted = state.design.order[:depth]
        rows = wanted if column is None else column.missing(wanted)
        if len(rows):
            live = checkpoint == self._live
            answer = yield Evaluate(checkpoint, rows, live, f"depth {depth} of {state.design.size}")
            self._enter(checkpoint, rows, live, answer)
        place = state.candidates.index(candidate)
        state.candidates[place] = replace(candidate, depth=depth)

    def _enter(self, checkpoint: int, rows: Int64Array, live: bool, answer: Answer) -> None:
        if not isinstance(answer, Evaluated):
            raise TypeError(f"the driver answered {type(answer).__name__} to Evaluate; allowed is Evaluated.")
        results = answer.results
        if not np.array_equal(np.sort(results.index), np.sort(rows)):
            raise ValueError(
                f"the driver was asked for {len(rows)} rows of checkpoint {checkpoint} and answered {len(results)} "
                "others; answer exactly the rows asked for, each once."
            )
        values = self.metric.columns(results)
        if checkpoint not in self.state.columns:
            self.state.columns[checkpoint] = Column.empty(self.state.design.size, values.shape[1])
        self.state.columns[checkpoint].add(results, values)
        self.state.pairs += len(rows)
        self.state.reloads += not live
        self.state.reload_seconds += answer.load_seconds or 0.0

    def _sweep(self, checkpoint: int) -> None:
        """Compare one candidate with all others until it is out or no comparison settles."""
        newcomer = self._find(checkpoint)
        if newcomer is not None and self.state.columns[checkpoint].nonfinite:
            self.state.candidates.remove(newcomer)
            return
        for other in list(self.state.candidates):
            current = self._find(checkpoint)
            if current is None:
                return
            if other.checkpoint == checkpoint:
                continue
            older, newer = sorted((current, other), key=lambda candidate: candidate.checkpoint)
            outcome = judge(self.state, self.config, self.metric, older, newer)
            self._records.append(self._record(older, newer, outcome))
            if outcome.loser is not None:
                self.state.candidates = [item for item in self.state.candidates if item.checkpoint != outcome.loser]

    def _put_away(self, checkpoint: int | None) -> Steps:
        """Keep the newcomer's weights if it is still open, and let go of those that are out."""
        open_now = set(self.candidates)
        gone = [number for number in self.state.kept if number not in open_now]
        for number in gone:
            yield Drop(number)
            self.state.kept.remove(number)
        if checkpoint is not None and checkpoint in open_now:
            yield Keep(checkpoint)
            self.state.kept.append(checkpoint)
        forget_rows(self.state)

    def _verdict(self, checkpoint: int | None, stop: bool) -> RaceVerdict:
        state, open_now = self.state, self.candidates
        column = state.columns.get(checkpoint) if checkpoint is not None else None
        level = None
        if column is not None and checkpoint is not None:
            level = level_of(state, self.metric, Candidate(checkpoint, 0.0, column.count))
        return RaceVerdict(
            checkpoint=checkpoint,
            best=open_now[0] if len(open_now) == 1 else None,
            candidates=open_now,
            stop=stop,
            value=level[0] if level else None,
            se=level[1] if level else None,
            rows=column.count if column else 0,
            rows_total=state.design.size,
            exact=bool(column and column.full),
            reason=None,
            records=tuple(self._records),
        )

    def _record(self, older: Candidate, newer: Candidate, outcome: Judgement) -> ComparisonRecord:
        state, found = self.state, outcome.difference
        z = found.z if found is not None and np.isfinite(found.z) else None
        mode = "full" if self.config.full else "race" if self.config.reload else "live"
        return ComparisonRecord(
            step=self._step,
            first=older.checkpoint,
            second=newer.checkpoint,
            loser=outcome.loser,
            basis=outcome.basis,
            depth=outcome.depth,
            rows_total=state.design.size,
            stratum_rows=tuple(state.design.counts(outcome.depth).tolist()),
            rows_hash=rows_hash(state.design.order[: outcome.depth]),
            design=state.design.number,
            seed=self.config.seed,
            difference=found.value if found else None,
            se=found.se if found else None,
            z=z,
            bound=self.config.bound,
            discordant=found.discordant if found else None,
            tolerance=self.config.tolerance,
            candidates=self.candidates,
            pairs=state.pairs,
            stock_pairs=state.observations * state.design.size,
            reloads=state.reloads,
            reload_seconds=state.reload_seconds,
            mode=mode,
            environment=self.environment,
        )
