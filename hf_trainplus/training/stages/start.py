"""Where a run begins or goes on in its plan, from what a checkpoint says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hf_trainplus.budget.stages import StagePlan
from hf_trainplus.budget.stops import StopReason
from hf_trainplus.training.stages.contradictions import contradiction, differences
from hf_trainplus.training.stages.record import StageRecord


@dataclass(frozen=True)
class Start:
    """What runs next.

    Args:
        stage: index of the stage.
        checkpoint: folder that it starts from, None from nothing.
        crosses: whether the stage begins here, in place of going on.
        finished: whether the plan is over: no step is due.
        record: what the checkpoint knows, None without one.
    """

    stage: int
    checkpoint: str | None = None
    crosses: bool = True
    finished: bool = False
    record: StageRecord | None = None


def find_start(
    plan: StagePlan,
    checkpoint: str | None,
    record: StageRecord | None,
    options_of: Callable[[int], Mapping[str, Any]],
    *,
    replace: bool = False,
) -> Start:
    """Return where a run is in its plan.

    Args:
        plan: today's plan.
        checkpoint: folder that the run is resumed from, None from nothing.
        record: what that checkpoint knows of its plan.
        options_of: index of a stage -> what it would train with today.
        replace: take today's plan where the two differ.

    Raises:
        ValueError: plan or options contradict the checkpoint, or the new plan has no place for it.
    """
    if checkpoint is None:
        return Start(0)
    if record is None:
        if not replace:
            raise ValueError(
                f"{checkpoint} was written without a plan, so it is in no stage. Set plan_on_resume='replace' to begin "
                f"stage {plan.stages[0].name!r} from its weights, or start with resume_from_checkpoint=None."
            )
        return Start(0, checkpoint)
    changed = differences(record.plan, plan.to_dict())
    if changed and not replace:
        raise contradiction(checkpoint, changed)
    if changed:
        return _replaced(plan, checkpoint, record)
    if record.reason is not None:
        return Start(record.stage, checkpoint, crosses=False, finished=True, record=record)
    if record.next_stage is not None:
        return Start(record.next_stage, checkpoint, record=record)
    options = differences(record.options, options_of(record.stage))
    if options and not replace:
        raise contradiction(checkpoint, options)
    return Start(record.stage, checkpoint, crosses=bool(options), record=record)


def _replaced(plan: StagePlan, checkpoint: str, record: StageRecord) -> Start:
    """Find the checkpoint's place in another plan, by the names of stages; a changed stage begins anew."""
    names = [stage.name for stage in plan]
    if record.next_stage is not None:
        following = str(record.plan["stages"][record.next_stage]["name"])
        if following in names:
            return Start(names.index(following), checkpoint, record=record)
    if record.name not in names:
        raise ValueError(
            f"{checkpoint} is in stage {record.name!r}, and the new plan has {', '.join(names)}. Keep the name of the "
            "stage to go on with, or start with resume_from_checkpoint=None."
        )
    here = names.index(record.name)
    if record.next_stage is None and record.reason != StopReason.PLAN_FINISHED.value:
        return Start(here, checkpoint, crosses=_changed(plan, here, record) or record.is_over, record=record)
    if here + 1 < len(names):
        return Start(here + 1, checkpoint, record=record)
    if _changed(plan, here, record):
        return Start(here, checkpoint, record=record)
    return Start(here, checkpoint, crosses=False, finished=True, record=record)


def _changed(plan: StagePlan, here: int, record: StageRecord) -> bool:
    return bool(differences(record.plan["stages"][record.stage], plan.to_dict()["stages"][here]))
