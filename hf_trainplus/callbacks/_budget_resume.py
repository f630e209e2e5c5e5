"""What a budget needs from a Trainer before it runs: measured quantities, and what a checkpoint kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from transformers import TrainerState, TrainingArguments

from hf_trainplus.budget.budget import Budget
from hf_trainplus.budget.energy import Joules
from hf_trainplus.budget.stops import StopReason
from hf_trainplus.callbacks._budget_progress import counts_tokens, joules_of


def require_measured(budget: Budget, args: TrainingArguments, energy: Joules | None) -> None:
    """Check that everything that is limited is measured.

    Raises:
        ValueError: it is not; the message has the line that makes it so.
    """
    if budget.tokens is not None and not counts_tokens(args):
        raise ValueError(
            f"budget tokens={budget.tokens:g} is set, but the Trainer counts no tokens. "
            'Set TrainingArguments(include_num_input_tokens_seen="all").'
        )
    if budget.energy_kwh is not None and (energy or joules_of(args)) is None:
        raise ValueError(
            f"budget energy_kwh={budget.energy_kwh:g} is set, but nothing measures energy on this machine (NVML does "
            "on NVIDIA GPUs). Give another limit, e.g. gpu_hours=8."
        )


def saved_state(state: TrainerState, name: str) -> Mapping[str, Any]:
    """Return what a checkpoint kept for the callback ``name``; empty for a fresh start or a checkpoint without it."""
    if not state.global_step:
        return {}
    entry = _entries(state).get(name)
    if isinstance(entry, list):
        entry = entry[-1]
    saved: Mapping[str, Any] = (entry or {}).get("attributes", {}).get("saved", {})
    return saved


def ensure_entry(state: TrainerState, name: str, entry: Mapping[str, Any]) -> None:
    """Give the callback an entry in the state: upstream's next save fails without one, as after adding a callback."""
    _entries(state).setdefault(name, dict(entry))


def _entries(state: TrainerState) -> dict[str, Any]:
    # declared as a list; it is a dict by name once TrainerState is made
    return cast("dict[str, Any]", state.stateful_callbacks)


def spent_before(budget: Budget, saved: Mapping[str, Any]) -> str | None:
    """Return the limit by which the checkpoint's run ended, unless it has been raised or dropped since."""
    limit = saved.get("limit")
    if saved.get("reason") != StopReason.BUDGET_SPENT.value or limit is None:
        return None
    now, before = budget.limits().get(limit), saved["keeper"]["limits"].get(limit)
    return str(limit) if now is not None and before is not None and now <= before else None
