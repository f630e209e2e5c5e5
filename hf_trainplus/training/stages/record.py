"""What a checkpoint knows of its plan: the stage, where it began, and what follows when it is over."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from transformers.trainer import TRAINER_STATE_NAME

from hf_trainplus.evaluation.ranks import Ranks

# the name under which the Trainer keeps it among the states of callbacks
ENTRY = "StageCallback"


@dataclass(frozen=True)
class StageRecord:
    """Where a run is in its plan; plain JSON values.

    Args:
        plan: the plan, as ``StagePlan.to_dict`` gives it.
        stage: index of the stage.
        name: its name.
        first_step: global step at which it began.
        first_tokens: tokens seen until then.
        options: what the stage trains with, the run's own settings included.
        visits: stage -> how often it was begun.
        falls: stage -> how often the plan fell back from it.
        spent: whether no further step fits into the stage.
        share: share of the stage's budget that is used, None without a budget.
        next_stage: index of the stage that follows; None while this one goes on and when the plan is over.
        weights_from: stage whose last boundary the next one starts from, when the plan fell back.
        reason: why the plan is over, a ``StopReason`` value; None while it is not.
        because: the rule that held, for a person.
    """

    plan: Mapping[str, Any]
    stage: int
    name: str
    first_step: int = 0
    first_tokens: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    visits: Mapping[str, int] = field(default_factory=dict)
    falls: Mapping[str, int] = field(default_factory=dict)
    spent: bool = False
    share: float | None = None
    next_stage: int | None = None
    weights_from: str | None = None
    reason: str | None = None
    because: str = ""

    @property
    def is_over(self) -> bool:
        """Whether the stage is over: another one follows, or the plan has ended."""
        return self.next_stage is not None or self.reason is not None

    def plain(self) -> dict[str, Any]:
        """Return plain values for the checkpoint."""
        return asdict(self)

    @classmethod
    def from_plain(cls, given: Mapping[str, Any]) -> StageRecord:
        """Read what ``plain`` wrote; keys of other parts are left aside.

        Example:
            >>> StageRecord.from_plain({"plan": {}, "stage": 1, "name": "b", "keeper": {}}).is_over
            False
        """
        known = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in given.items() if name in known})


def read_record(checkpoint: str) -> StageRecord | None:
    """Return the record of a checkpoint, read by rank 0; None when its run had no plan.

    Args:
        checkpoint: folder of the checkpoint.
    """
    return Ranks.current().from_first(_read(checkpoint) if Ranks.current().index == 0 else None)


def _read(checkpoint: str) -> StageRecord | None:
    path = os.path.join(checkpoint, TRAINER_STATE_NAME)
    if not os.path.isfile(path):
        return None
    with open(path, encoding="utf-8") as file:
        entry = (json.load(file).get("stateful_callbacks") or {}).get(ENTRY)
    saved = (entry or {}).get("attributes", {}).get("saved")
    return StageRecord.from_plain(saved) if saved else None
