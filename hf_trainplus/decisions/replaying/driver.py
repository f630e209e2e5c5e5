"""Answers a race's commands from a recorded run."""

from __future__ import annotations

from hf_trainplus.decisions.race import Drop, Evaluate, Evaluated, Keep, Kept
from hf_trainplus.decisions.replaying.trace import ReplayTrace
from hf_trainplus.results import Int64Array


class ReplayDriver:
    """Answers a race's commands from a recorded run; checkpoint numbers are indices of evaluations.

    It checks what a live driver could not carry out: kept weights are asked for only while kept, and no pair twice.

    Args:
        trace: the recorded run.

    Raises:
        RuntimeError: a command that live weights could not have answered.
    """

    def __init__(self, trace: ReplayTrace) -> None:
        self.trace = trace
        self.kept: set[int] = set()
        self.most_kept = 0
        self.pairs: dict[int, list[Int64Array]] = {}

    def evaluate(self, command: Evaluate) -> Evaluated:
        """Look the rows up."""
        if not command.live and command.checkpoint not in self.kept:
            raise RuntimeError(f"checkpoint {command.checkpoint} was asked for after its weights were dropped")
        self.pairs.setdefault(command.checkpoint, []).append(command.rows)
        return Evaluated(self.trace.results(command.checkpoint, command.rows))

    def keep(self, command: Keep) -> Kept:
        """Remember that the weights are kept."""
        self.kept.add(command.checkpoint)
        self.most_kept = max(self.most_kept, len(self.kept))
        return Kept()

    def drop(self, command: Drop) -> None:
        """Remember that the weights are gone."""
        self.kept.remove(command.checkpoint)
