"""What a budget needs from a Trainer before it runs: measured quantities, and what a checkpoint kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import TrainerState, TrainingArguments

from hf_trainplus.budget.budget import Budget
from hf_trainplus.budget.keeping.energy import Joules
from hf_trainplus.budget.stops import StopReason
from hf_trainplus.callbacks._budget_progress import counts_tokens, joules_of
from hf_trainplus.callbacks._own_state import ensure_entry as ensure_entry
from hf_trainplus.callbacks._own_state import saved_state as saved_state


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


def require_counted(budget: Budget, state: TrainerState) -> None:
    """Check after a step that tokens which are limited are counted: upstream warns, counts none and goes on for ever.

    Raises:
        ValueError: none was counted; the message has the line that makes it so.
    """
    if budget.tokens is not None and state.global_step > 0 and not state.num_input_tokens_seen:
        raise ValueError(
            f"budget tokens={budget.tokens:g} is set, and no token was counted in step {state.global_step}: batches "
            "have nothing under the name that the model gives as its input. Set model.main_input_name to their key, "
            "e.g. 'input_ids', or give another limit."
        )


def spent_before(budget: Budget, saved: Mapping[str, Any]) -> str | None:
    """Return the limit by which the checkpoint's run ended, unless it has been raised or dropped since."""
    limit = saved.get("limit")
    if saved.get("reason") != StopReason.BUDGET_SPENT.value or limit is None:
        return None
    now, before = budget.limits().get(limit), saved["keeper"]["limits"].get(limit)
    return str(limit) if now is not None and before is not None and now <= before else None
