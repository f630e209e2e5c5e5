"""One stage of a run: what it may spend, how it trains and evaluates, when it moves on."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from hf_trainplus.budget.advance import AdvanceRule
from hf_trainplus.budget.budget import Budget
from hf_trainplus.budget.plans.problems import Problems
from hf_trainplus.budget.plans.stage_evaluation import StageEvaluation
from hf_trainplus.budget.plans.stage_history import StageHistory
from hf_trainplus.budget.plans.stage_reading import read_stage

Action = Literal["go_on", "advance", "stop", "fall_back"]

BATCH_ARGUMENTS = ("per_device_train_batch_size", "gradient_accumulation_steps")
OPTIMIZATION_ARGUMENTS = (
    "learning_rate",
    "lr_scheduler_type",
    "lr_scheduler_kwargs",
    "warmup_steps",
    "weight_decay",
    "max_grad_norm",
)


@dataclass(frozen=True)
class Stage:
    """One stage; plain values and mappings are read as in a plan file.

    It switches nothing itself: a trainer reads it.

    Args:
        name: letters, digits, ``_ . -``; unique in a plan.
        preset: ``exploration``, ``tuning`` or ``production``; what is set here wins over it.
        train: False for a stage that only evaluates.
        budget: limits of the stage: a ``Budget``, a mapping or text.
        steps: ``(first, end)`` global steps, in place of a budget in steps.
        on_budget_spent: ``advance`` or ``stop``, when the budget is spent and ``advance_when`` has not held.
        per_device_train_batch_size: rows a device and forward pass.
        global_batch_size: rows a step over all devices; accumulation follows from it.
        gradient_accumulation_steps: forward passes a step.
        learning_rate: peak of the stage.
        lr_scheduler_type: as in ``TrainingArguments``, and so are ``lr_scheduler_kwargs``, ``warmup_steps``,
            ``weight_decay`` and ``max_grad_norm``.
        data_fraction: stratified share of the training data, above 0 and at most 1.
        train_dataset: name of the training data, when the trainer was given a mapping of them.
        freeze: patterns of parameter names that are not trained.
        eval: how the stage evaluates.
        advance_when: rule on which the next stage begins.
        stop_when: rule on which the run ends.
        fall_back_when: rule on which an earlier stage begins again, from its last boundary.
        fall_back_to: its name.
        fall_back_at_most: how often, >= 1.
        num_processes: processes that ``trainplus run`` starts the stage with.

    Raises:
        PlanError: anything that does not parse or fit together; all of it is named at once.

    Example:
        >>> stage = Stage("warmup", budget={"gpu_hours": 100}, global_batch_size=256, per_device_train_batch_size=32)
        >>> stage.accumulation(world_size=4), stage.decide(StageHistory(budget_spent=True))
        (2, 'advance')
    """

    name: str
    preset: str | None = None
    train: bool | None = None
    budget: Budget | None = None
    steps: tuple[int, int] | None = None
    on_budget_spent: str | None = None
    per_device_train_batch_size: int | None = None
    global_batch_size: int | None = None
    gradient_accumulation_steps: int | None = None
    learning_rate: float | None = None
    lr_scheduler_type: str | None = None
    lr_scheduler_kwargs: dict[str, Any] | None = None
    warmup_steps: float | None = None
    weight_decay: float | None = None
    max_grad_norm: float | None = None
    data_fraction: float | None = None
    train_dataset: str | None = None
    freeze: tuple[str, ...] | None = None
    eval: StageEvaluation | None = None
    advance_when: AdvanceRule | None = None
    stop_when: AdvanceRule | None = None
    fall_back_when: AdvanceRule | None = None
    fall_back_to: str | None = None
    fall_back_at_most: int | None = None
    num_processes: int | None = None

    def __post_init__(self) -> None:
        problems = Problems()
        given = {one.name: value for one in fields(self) if (value := getattr(self, one.name)) is not None}
        values = read_stage(given, ("stage",), problems) or {}
        problems.check()
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def trains(self) -> bool:
        """False for a stage that only evaluates."""
        return self.train is not False

    def limits(self) -> Budget:
        """Return the stage's budget; a range of steps is one in steps."""
        budget = self.budget or Budget()
        if self.steps is None:
            return budget
        own = budget.limits()
        steps = float(self.steps[1] - self.steps[0])
        return Budget(**{**own, "max_steps": min(steps, own.get("max_steps", steps))})

    def accumulation(self, world_size: int, per_device_train_batch_size: int | None = None) -> int:
        """Return the forward passes a step.

        Args:
            world_size: number of processes.
            per_device_train_batch_size: the run's own, for a stage that does not say.

        Raises:
            ValueError: the global batch size cannot be made up.
        """
        if self.global_batch_size is None:
            return self.gradient_accumulation_steps or 1
        per_device = self.per_device_train_batch_size or per_device_train_batch_size
        if self.gradient_accumulation_steps is not None and self.per_device_train_batch_size is None:
            return self.gradient_accumulation_steps
        unit = (per_device or 1) * world_size
        if self.global_batch_size % unit:
            raise ValueError(
                f"stage {self.name!r}: global_batch_size={self.global_batch_size} is no multiple of {unit}, which is "
                f"{per_device or 1} rows a device on {world_size} devices. Write "
                f"{max(unit, round(self.global_batch_size / unit) * unit)}."
            )
        return self.global_batch_size // unit

    def rows_a_device(self, world_size: int, default: int) -> int:
        """Return the rows a device and forward pass, derived from the global batch size where only that is given."""
        if self.per_device_train_batch_size is not None:
            return self.per_device_train_batch_size
        if self.global_batch_size is not None and self.gradient_accumulation_steps is not None:
            return self.global_batch_size // (self.gradient_accumulation_steps * world_size)
        return default

    def training_arguments(self) -> dict[str, Any]:
        """Return what the stage sets among the fields of ``TrainingArguments``."""
        return {
            name: value
            for name in (*BATCH_ARGUMENTS, *OPTIMIZATION_ARGUMENTS)
            if (value := getattr(self, name)) is not None
        }

    def decide(self, history: StageHistory) -> Action:
        """Say what to do after an evaluation, or when the budget is spent. Stop goes before fall back, before advance.

        Args:
            history: what the stage has seen.

        Raises:
            ValueError: a rule watches a metric that the evaluation did not give.
        """
        if self.stop_when is not None and self.stop_when.should_advance(history):
            return "stop"
        may_fall = history.falls < (self.fall_back_at_most or 1)
        if self.fall_back_when is not None and may_fall and self.fall_back_when.should_advance(history):
            return "fall_back"
        if self.advance_when is not None and self.advance_when.should_advance(history):
            return "advance"
        if history.budget_spent:
            return "stop" if self.on_budget_spent == "stop" else "advance"
        return "go_on"
