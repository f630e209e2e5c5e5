"""A plan: stages in order, and what follows after each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from hf_trainplus.budget.plans.problems import Problems
from hf_trainplus.budget.plans.stage import Stage
from hf_trainplus.budget.plans.stage_history import StageHistory
from hf_trainplus.budget.plans.stage_order import check_order
from hf_trainplus.budget.stops import StopReason


@dataclass(frozen=True)
class StageDecision:
    """What a plan says after an evaluation, or at the end of a stage's budget.

    Args:
        action: ``go_on`` with the stage, ``begin`` another one, or ``end`` the run.
        stage: index of the stage to begin, None unless ``action`` is ``begin``.
        reason: why the run ends, None unless it does.
        because: the rule that held, for a person.
    """

    action: Literal["go_on", "begin", "end"]
    stage: int | None = None
    reason: StopReason | None = None
    because: str = ""


@dataclass(frozen=True)
class StagePlan:
    """Stages in the order in which a run goes through them.

    It holds no state: where a run is, the trainer keeps in its checkpoint.

    Args:
        stages: at least one; a mapping stands for a ``Stage``.
        name: for a person.

    Raises:
        PlanError: no stage, names or ranges of steps that overlap, or a stage that falls back to no earlier one.

    Example:
        >>> plan = StagePlan([{"name": "look", "budget": "max_steps=10"}, {"name": "train", "budget": "gpu_hours=8"}])
        >>> plan.decide(0, StageHistory(budget_spent=True))
        StageDecision(action='begin', stage=1, reason=None, because='budget spent')
        >>> plan.decide(1, StageHistory(budget_spent=True)).reason.value
        'plan_finished'
    """

    stages: tuple[Stage, ...]
    name: str | None = None

    def __post_init__(self) -> None:
        problems = Problems()
        if not self.stages:
            problems.add(("stages",), "is empty; give at least one stage.")
        given = [stage if isinstance(stage, Stage) else Stage(**dict(stage)) for stage in self.stages]
        object.__setattr__(self, "stages", tuple(given))
        check_order([_settings(stage) for stage in given], ("stages",), problems)
        problems.check()

    def __len__(self) -> int:
        return len(self.stages)

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    @classmethod
    def read(cls, given: StagePlan | Mapping[str, Any] | str | Path, *, world_size: int | None = None) -> StagePlan:
        """Read a plan from a YAML or JSON file or from a mapping; see ``plan_file.read_plan``.

        Raises:
            PlanError: all that is wrong with it, with line numbers for a file.
        """
        from hf_trainplus.budget.plan_file import read_plan

        return read_plan(given, world_size=world_size)

    def index(self, name: str) -> int:
        """Return the place of a stage.

        Raises:
            ValueError: no stage has this name.
        """
        names = [stage.name for stage in self.stages]
        if name not in names:
            raise ValueError(f"the plan has no stage {name!r}; it has {', '.join(names)}.")
        return names.index(name)

    def decide(self, stage: int, history: StageHistory) -> StageDecision:
        """Say what follows.

        Args:
            stage: index of the stage that runs.
            history: what it has seen.

        Raises:
            ValueError: a rule watches a metric that the evaluation did not give.
        """
        here = self.stages[stage]
        action = here.decide(history)
        if action == "go_on":
            return StageDecision("go_on")
        if action == "stop":
            spent = here.stop_when is None or not here.stop_when.should_advance(history)
            reason = StopReason.BUDGET_SPENT if spent else StopReason.PATIENCE
            return StageDecision("end", reason=reason, because=_because(here, "stop_when", spent))
        if action == "fall_back":
            return StageDecision("begin", self.index(str(here.fall_back_to)), because=_because(here, "fall_back_when"))
        held = here.advance_when is not None and here.advance_when.should_advance(history)
        because = _because(here, "advance_when", not held)
        if stage + 1 == len(self.stages):
            return StageDecision("end", reason=StopReason.PLAN_FINISHED, because=because)
        return StageDecision("begin", stage + 1, because=because)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that tell two plans apart and fit into a checkpoint; rules as their descriptions."""
        return {"name": self.name, "stages": [_plain(stage) for stage in self.stages]}


def _settings(stage: Stage) -> Mapping[str, Any]:
    return {one.name: getattr(stage, one.name) for one in fields(stage)}


def _because(stage: Stage, rule: str, spent: bool = False) -> str:
    return "budget spent" if spent else str(getattr(stage, rule).describe())


def _plain(stage: Stage) -> dict[str, Any]:
    plain = {name: value for name, value in _settings(stage).items() if value is not None}
    for name in ("advance_when", "stop_when", "fall_back_when"):
        if name in plain:
            plain[name] = plain[name].describe()
    if stage.budget is not None:
        plain["budget"] = stage.budget.limits()
    if stage.eval is not None:
        plain["eval"] = {key: list(v) if isinstance(v, tuple) else v for key, v in stage.eval.settings().items()}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
