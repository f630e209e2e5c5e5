"""The steps of a race as generators of commands: reading, comparing, finding an anchor, settling."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace

import numpy as np

from hf_trainplus.decisions.racing.columns import Column
from hf_trainplus.decisions.racing.commands import Answer, Command, Drop, Evaluate, Evaluated, Keep, Kept
from hf_trainplus.decisions.racing.config import RaceConfig
from hf_trainplus.decisions.racing.design import nested_design
from hf_trainplus.decisions.racing.judge import Judge, Judgement
from hf_trainplus.decisions.racing.opaque import OpaqueMetric
from hf_trainplus.decisions.racing.planner import Plan, Planner
from hf_trainplus.decisions.racing.references import add_reference
from hf_trainplus.decisions.racing.state import RaceState
from hf_trainplus.decisions.racing.strata import strata_of_reference
from hf_trainplus.results import Int64Array

Steps = Generator[Command, Answer, None]
Report = Callable[[int, int, tuple[int, ...], Judgement], None]

_FREE_SHARE = 0.10  # share of N to which a newcomer follows its rivals at once: while live it needs no loading
_ANCHOR_SHARE = 0.30  # a settlement dearer than this share of N is put off for an anchor, which makes all cheaper
_SPENT_SHARE = 0.50  # so is any, once this share of N went into settlements without an anchor
_LEADER_SHARE = 0.45  # with an anchor, a settlement dearer than this means that most are better than the anchor


class Course:
    """Carries one state from command to command; it holds the state between calls and takes no decision of its own.

    Args:
        state: what is known.
        judge: compares.
        config: the race's numbers.
        report: told of every comparison.
    """

    def __init__(self, state: RaceState, judge: Judge, config: RaceConfig, report: Report) -> None:
        self.state = state
        self.judge = judge
        self.planner = Planner(judge)
        self.config = config
        self.report = report
        self.live: int | None = None
        self._loaded: int | None = None
        self._undecided: set[tuple[object, ...]] = set()

    def begin(self, live: int | None) -> None:
        """Start a call with the live weights' number, None when they are no checkpoint's."""
        self.live, self._loaded = live, None
        self._undecided.clear()
        self.planner.forget()
        self.judge.forget()

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, checkpoint: int, depth: int) -> Steps:
        """Read the design's first ``depth`` rows with the checkpoint's weights, those only that are not known yet."""
        state = self.state
        if depth <= state.depth.get(checkpoint, 0):
            return
        wanted = state.design.order[:depth]
        column = state.columns.get(checkpoint)
        rows = wanted if column is None else column.missing(wanted)
        if len(rows):
            live = checkpoint == self.live
            answer = yield Evaluate(checkpoint, rows, live, f"depth {depth} of {state.size}")
            self._enter(checkpoint, rows, answer)
        state.depth[checkpoint] = state.size if state.columns[checkpoint].full else depth
        if state.full(checkpoint):
            add_reference(state, checkpoint)

    def _enter(self, checkpoint: int, rows: Int64Array, answer: Answer) -> None:
        given = _checked(checkpoint, rows, answer)
        results = given.results
        state, live = self.state, checkpoint == self.live
        values = self.judge.metric.columns(results)
        if checkpoint not in state.columns:
            state.columns[checkpoint] = Column.empty(state.size, values.shape[1])
        state.columns[checkpoint].add(results, values)
        state.pairs += len(rows)
        state.costs = state.costs.with_rows(given.evaluate_seconds, len(rows))
        if live:
            self._loaded = None
        elif checkpoint != self._loaded:
            self._loaded = checkpoint
            state.reloads += 1
            state.reload_seconds += given.load_seconds or 0.0
            state.costs = state.costs.with_load(given.load_seconds)

    # -- comparing ----------------------------------------------------------------------------------------------------

    def sweep(self, checkpoint: int) -> None:
        """Compare one open checkpoint with all others, until it is out or nothing more is settled."""
        state = self.state
        if checkpoint in state.open and state.columns[checkpoint].nonfinite:
            state.drop(checkpoint)
            return
        for other in state.open:
            if checkpoint not in state.open:
                return
            if other != checkpoint and other in state.open:
                self._compare(min(checkpoint, other), max(checkpoint, other))

    def _compare(self, older: int, newer: int) -> None:
        state, before = self.state, self.state.open
        known = self.judge.evidence(state, older, newer)
        if known in self._undecided:
            return
        outcome = self.judge.compare(state, older, newer)
        if outcome.loser is None:
            self._undecided.add(known)
        if outcome.loser is not None:
            out = state.candidate(outcome.loser)
            state.drop(outcome.loser)
            kept = older if outcome.loser == newer else newer
            debt = max(state.candidate(kept).debt, out.debt + (outcome.regret or 0.0))
            state.candidates = [
                replace(item, debt=debt) if item.checkpoint == kept else item for item in state.candidates
            ]
        self.report(older, newer, before, outcome)

    def deepen(self, checkpoint: int, depth: int) -> Steps:
        """Read deeper, then compare."""
        yield from self.read(checkpoint, depth)
        self.sweep(checkpoint)

    # -- settling -----------------------------------------------------------------------------------------------------

    def follow(self, checkpoint: int) -> Steps:
        """Let a newcomer catch up with its rivals as far as that is worth while its weights are live."""
        state = self.state
        while checkpoint in state.open and len(state.open) > 1:
            deepest = max(state.depth[other] for other in state.open if other != checkpoint)
            if state.depth[checkpoint] >= min(deepest, _FREE_SHARE * state.size):
                return
            yield from self.deepen(checkpoint, self.planner.next_depth(state, state.depth[checkpoint]))

    def settle_live(self, checkpoint: int) -> Steps:
        """Decide a newcomer against the single fully known best, with live weights only; a winner is read fully."""
        state = self.state
        while checkpoint in state.open and len(state.open) > 1:
            yield from self.deepen(checkpoint, self.planner.next_depth(state, state.depth[checkpoint]))
        if checkpoint in state.open:
            yield from self.read(checkpoint, state.size)
            yield from self.anchor_on(checkpoint)

    def settle_if_cheaper(self, checkpoint: int) -> Steps:
        """Settle a newcomer now where keeping and loading its weights would take longer than reading on."""
        state = self.state
        while checkpoint in state.open and len(state.open) > 1 and state.costs.keep_rows is not None:
            pairs = [(min(other, checkpoint), max(other, checkpoint)) for other in state.open if other != checkpoint]
            plan = self.planner.plans(state, self.live, pairs)[0]
            others = [key for key in (plan.first, plan.second) if key != checkpoint]
            if plan.rows > state.costs.keep_rows or any(state.depth[key] < plan.depth for key in others):
                return
            yield from self.deepen(checkpoint, self._towards(plan, checkpoint))

    def resolve(self, done: Callable[[], bool], wanted: Callable[[int, int], bool] | None = None) -> Steps:
        """Settle the cheapest comparison, again and again, until ``done``.

        Args:
            done: looked at before each settlement.
            wanted: which pairs (older, newer) help; None for all.
        """
        state = self.state
        while not done():
            before = state.pairs
            pairs = [(a, b) for i, a in enumerate(state.open) for b in state.open[i + 1 :]]
            plan = self.planner.plans(state, self.live, [pair for pair in pairs if wanted is None or wanted(*pair)])[0]
            if self._needs_anchor(plan):
                yield from self._advance_leader()
            else:
                yield from self._carry_out(plan)
            state.spent += state.pairs - before

    def _needs_anchor(self, plan: Plan) -> bool:
        state = self.state
        if isinstance(self.judge.metric, OpaqueMetric):
            return False
        if state.anchor not in state.open:
            return plan.rows > _ANCHOR_SHARE * state.size or state.spent > _SPENT_SHARE * state.size
        return plan.rows > _LEADER_SHARE * state.size and self.planner.leader(state) != state.anchor

    def _advance_leader(self) -> Steps:
        """Read the leader on: fully where no anchor is open, else as far as the next look."""
        state = self.state
        leader = self.planner.leader(state)
        stepwise = state.anchor in state.open and state.design.milestone is not None
        depth = self.planner.next_depth(state, state.depth[leader]) if stepwise else state.size
        yield from self.deepen(leader, depth)
        if leader in state.open and state.full(leader):
            yield from self.anchor_on(leader)

    def _carry_out(self, plan: Plan) -> Steps:
        state = self.state
        if plan.certain:
            other = plan.second if plan.first == state.anchor else plan.first
            yield from self.deepen(other, self._towards(plan, other))
        else:
            depth = self._stage(plan)
            for checkpoint in (plan.first, plan.second):
                yield from self.read(checkpoint, depth)
            self.sweep(plan.first)
            self.sweep(plan.second)
        full = [checkpoint for checkpoint in state.open if state.full(checkpoint)]
        if full and state.anchor not in state.open:
            yield from self.anchor_on(full[0])

    def _stage(self, plan: Plan) -> int:
        """Depth to read to before looking again: one look where one checkpoint is read, two where both are loaded."""
        state = self.state
        depths = sorted((state.depth[plan.first], state.depth[plan.second]))
        following = self.planner.next_depth(state, depths[0])
        if depths[1] <= depths[0]:
            following = self.planner.next_depth(state, following)
        return min(following, plan.depth)

    def _towards(self, plan: Plan, checkpoint: int) -> int:
        depth = self.state.depth[checkpoint]
        return self.planner.next_depth(self.state, depth) if plan.certain else max(plan.depth, depth)

    def anchor_on(self, checkpoint: int) -> Steps:
        """Draw a new design from a fully known checkpoint; partly read ones start on it with its first look."""
        state, metric = self.state, self.judge.metric
        if isinstance(metric, OpaqueMetric) or checkpoint == state.anchor:
            return
        state.anchor, state.spent = checkpoint, 0
        yield from self.start_anew()

    def start_anew(self) -> Steps:
        """Draw a design from the anchor and what moved; partly read checkpoints start on it with its first look.

        Rows read before stay known, so that a checkpoint is charged only for those that are new to it.
        """
        state = self.state
        self.redraw()
        partly = sorted((key for key in state.open if not state.full(key)), key=lambda key: key != self.live)
        for other in partly:
            state.depth[other] = 0
        for other in partly:
            if other in state.open:
                yield from self.deepen(other, int(self.judge.looks[0]))

    def redraw(self) -> None:
        """Draw the design again, when what moves is known better; valid while only fully known ones are open."""
        state, metric = self.state, self.judge.metric
        if isinstance(metric, OpaqueMetric) or state.anchor is None:
            return
        strata = strata_of_reference(state.columns[state.anchor], state.past, metric, self.config.strata)
        state.design = nested_design(strata, seed=self.config.seed, number=state.design.number + 1)
        # a depth is a place in one order only; what those out of the race have read is no prefix of the new one
        state.depth = {key: depth for key, depth in state.depth.items() if key in state.open or depth == state.size}
        self.judge.forget()

    def learn(self, checkpoint: int) -> None:
        """Enter how the newcomer's rows moved."""
        state, metric = self.state, self.judge.metric
        column = state.columns[checkpoint]
        if isinstance(metric, OpaqueMetric) or column.nonfinite:
            return
        means = column.values[column.seen].mean(axis=0)
        state.past = state.past.learn(column, metric.rows(column.values, means))

    # -- weights ------------------------------------------------------------------------------------------------------

    def put_away(self, checkpoint: int | None) -> Steps:
        """Let go of the weights of those that are out, and keep the newcomer's if it is open."""
        state = self.state
        for number in [number for number in state.kept if number not in state.open]:
            yield Drop(number)
            state.kept.remove(number)
        if checkpoint is not None and checkpoint in state.open:
            answer = yield Keep(checkpoint)
            if isinstance(answer, Kept):
                state.costs = state.costs.with_save(answer.save_seconds)
            state.kept.append(checkpoint)
        state.forget()


def _checked(checkpoint: int, rows: Int64Array, answer: Answer) -> Evaluated:
    if not isinstance(answer, Evaluated):
        raise TypeError(f"the driver answered {type(answer).__name__} to Evaluate; allowed is Evaluated.")
    given = answer.results.index
    if not np.array_equal(np.sort(given), np.sort(rows)):
        raise ValueError(
            f"the driver was asked for {len(rows)} rows of checkpoint {checkpoint} and answered {len(given)} others; "
            "answer exactly the rows asked for, each once."
        )
    return answer
