"""Every comparison and every verdict of a race, one JSON line each, for whoever wants to judge a decision again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from hf_trainplus.training.strict_state import to_strict

FILE = "trainplus_decisions.jsonl"


class DecisionLog:
    """Appends records to ``trainplus_decisions.jsonl`` in the run's folder; it never changes a decision.

    Args:
        run_dir: folder of the run.
        writes: True on the one process that writes files.
    """

    def __init__(self, run_dir: str, *, writes: bool = True) -> None:
        self.path = os.path.join(run_dir, FILE)
        self._writes = writes

    def add(self, records: Iterable[dict[str, Any]]) -> None:
        """Append records."""
        if not self._writes:
            return
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(to_strict(record), allow_nan=False) + "\n" for record in records)

    def rewind(self, step: int) -> None:
        """Drop the records after ``step`` and the final verdict, which a resumed run makes again, and torn lines."""
        if not self._writes or not os.path.isfile(self.path):
            return
        with open(self.path, encoding="utf-8") as file:
            kept = [line for line in file if _step_of(line) <= step]
        temporary = f"{self.path}.tmp"
        with open(temporary, "w", encoding="utf-8") as file:
            file.writelines(kept)
        os.replace(temporary, self.path)


def _step_of(line: str) -> float:
    """Return the step up to which a line holds; a torn line holds for none."""
    try:
        record = json.loads(line)
        return float("inf") if record.get("final") else float(record["step"])
    except (ValueError, KeyError):
        return float("inf")
