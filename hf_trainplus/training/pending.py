"""An evaluation that failed: its checkpoint is marked, and a resumed run evaluates it first."""

from __future__ import annotations

import json
import os
from typing import Any

MARKER = "trainplus_pending_evaluation.json"
FAILURES = "trainplus_evaluation_failures.jsonl"


def mark_pending(checkpoint_dir: str, step: int, error: BaseException) -> None:
    """Write into the checkpoint that the evaluation of its step is still to be done."""
    with open(os.path.join(checkpoint_dir, MARKER), "w", encoding="utf-8") as file:
        json.dump(describe(step, error), file, indent=2)


def is_pending(checkpoint_dir: str | None) -> bool:
    """Say whether the checkpoint's own evaluation is still to be done."""
    return checkpoint_dir is not None and os.path.isfile(os.path.join(checkpoint_dir, MARKER))


def clear_pending(checkpoint_dir: str) -> None:
    """Remove the mark after the evaluation was done."""
    os.remove(os.path.join(checkpoint_dir, MARKER))


def record_failure(output_dir: str, step: int, error: BaseException, evaluation_set: str | None = None) -> None:
    """Append the failure to a file of the run, one JSON object a line; it names the set when only that one failed."""
    os.makedirs(output_dir, exist_ok=True)
    described = describe(step, error) | ({} if evaluation_set is None else {"evaluation_set": evaluation_set})
    with open(os.path.join(output_dir, FAILURES), "a", encoding="utf-8") as file:
        file.write(json.dumps(described) + "\n")


def describe(step: int, error: BaseException) -> dict[str, Any]:
    """Return the failure as plain values.

    Example:
        >>> describe(6, ValueError("no"))
        {'step': 6, 'error': 'ValueError', 'message': 'no'}
    """
    return {"step": step, "error": type(error).__name__, "message": str(error)}
