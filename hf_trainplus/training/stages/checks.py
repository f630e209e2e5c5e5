"""Whether a trainer can run a plan: everything that stands against it is told when the trainer is made."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from transformers.utils import logging

from hf_trainplus.budget.advance import AdvanceRule, AllOf, BudgetShare
from hf_trainplus.budget.plans.stage import Stage
from hf_trainplus.budget.plans.stage_evaluation import ALL_SETS
from hf_trainplus.budget.stages import StagePlan
from hf_trainplus.training.run_size import device_count
from hf_trainplus.training.stages.arguments import evaluates, is_open, stage_arguments
from hf_trainplus.training.stages.data import StageData
from hf_trainplus.training.stages.schedules import schedule_problem

if TYPE_CHECKING:
    from transformers import Trainer

logger = logging.get_logger("hf_trainplus")

RELAUNCH = "trainplus run plan.yaml -- accelerate launch train.py ..."
_BY_METRIC = ("reduce_lr_on_plateau", "greedy")


def refuse_what_cannot_run(
    trainer: Trainer, plan: StagePlan, data: StageData, extra_sets: Collection[str], *, only: str | None
) -> None:
    """Check a plan against the trainer that is to run it.

    Args:
        trainer: a trainer that is made.
        plan: its plan.
        data: its training data.
        extra_sets: names of the further evaluation sets.
        only: the one stage that this process runs, None for all.

    Raises:
        ValueError: all that does not fit, a line each.
    """
    if only is not None:
        plan.index(only)
    problems = list(_of_the_run(trainer, plan, only))
    for stage in plan:
        if only in (None, stage.name):
            found = [
                data.problem(stage, trainer.args),
                *_of_a_stage(trainer, stage),
                *_of_processes(trainer, stage, only),
            ]
            problems += [f"stage {stage.name!r}: {problem}" for problem in found if problem is not None]
        unknown = _extra(stage) - {ALL_SETS, *extra_sets}
        if unknown:
            problems.append(
                f"stage {stage.name!r}: extra_datasets names {', '.join(sorted(unknown))}; the trainer was given "
                f"{', '.join(extra_sets) or 'none'}. Pass PlusTrainer(extra_eval_datasets={{name: dataset}})."
            )
    if problems:
        raise ValueError("\n".join(problems))
    if trainer.args.max_steps > 0 and all(stage.limits() or not stage.trains for stage in plan):
        logger.warning_once(
            f"max_steps={trainer.args.max_steps} ends nothing here: every stage of the plan says itself when it ends. "
            f"Give budget='max_steps={trainer.args.max_steps}' to end the whole run."
        )


def _of_the_run(trainer: Trainer, plan: StagePlan, only: str | None) -> Iterator[str]:
    args, several = trainer.args, len(plan) > 1
    sharded = "DeepSpeed" if trainer.is_deepspeed_enabled else "FSDP" if trainer.is_fsdp_enabled else None
    if sharded and several and only is None:
        yield (
            f"under {sharded} a stage boundary is a new launch, and this process would run {len(plan)} stages. Start "
            f"it with: {RELAUNCH}"
        )
    if trainer.is_deepspeed_enabled and several:
        yield from _under_deepspeed(trainer, [stage for stage in plan if stage.trains])
    if trainer.is_fsdp_enabled and several:
        yield from _under_fsdp(trainer, [stage for stage in plan if stage.trains])
    if trainer.optimizer is not None and several and only is None:
        yield (
            "optimizers=(...) holds one optimizer, and every stage makes its own. Pass "
            "optimizer_cls_and_kwargs=(torch.optim.AdamW, {...}) instead."
        )
    if args.save_only_model and several:
        yield "save_only_model=True leaves nothing for the next stage to go on from; set save_only_model=False."
    if args.auto_find_batch_size:
        yield "auto_find_batch_size=True changes what the plan says; set it to False and name batch sizes that fit."
    if args.restore_callback_states_from_checkpoint:
        yield (
            "restore_callback_states_from_checkpoint=True makes callbacks anew, without their plan. Leave it out: "
            "those of hf_trainplus restore themselves."
        )
    if "num_train_epochs" in str(getattr(args, "budget", None) or ""):
        yield "budget limits num_train_epochs, which a plan counts in each stage; put it into the stages' budgets."


def _under_fsdp(trainer: Trainer, trained: Sequence[Stage]) -> Iterator[str]:
    plugin = getattr(trainer.accelerator.state, "fsdp_plugin", None)
    whole = "SHARDED_STATE_DICT" not in str(getattr(plugin, "state_dict_type", None))
    if len({stage.freeze for stage in trained}) > 1 and getattr(plugin, "fsdp_version", 2) == 1 and whole:
        yield (
            "stages differ in freeze, and a whole checkpoint of FSDP1 holds an optimizer for equal trained parameters "
            "only; set fsdp_version: 2, or fsdp_state_dict_type: SHARDED_STATE_DICT."
        )


def _under_deepspeed(trainer: Trainer, trained: Sequence[Stage]) -> Iterator[str]:
    """Tell what of an engine cannot be taken over by other processes, or by other parameters."""
    refreezes = len({stage.freeze for stage in trained}) > 1
    if not refreezes and len({stage.num_processes for stage in trained}) == 1:
        return
    config = getattr(trainer.accelerator.state.deepspeed_plugin, "deepspeed_config", {})
    zero = config.get("zero_optimization") or {}
    offload = zero.get("offload_optimizer") or {}
    if zero.get("stage") not in (1, 2, 3):
        yield (
            f"stages differ in freeze or num_processes, which DeepSpeed carries over with ZeRO only, and "
            f"zero_optimization.stage is {zero.get('stage')}; set it to 2 or 3."
        )
    if offload.get("device") == "nvme" or offload.get("ratio", 1) != 1:
        yield (
            "stages differ in freeze or num_processes, which an optimizer on NVMe or split by ratio cannot follow; set "
            "offload_optimizer.device to cpu, without a ratio."
        )
    if refreezes and "optimizer" in config:
        yield (
            "stages differ in freeze, and an optimizer in DeepSpeed's configuration counts the steps of all parameters "
            "as one; leave 'optimizer' out of it and set optim='adamw_torch'."
        )


def _of_processes(trainer: Trainer, stage: Stage, only: str | None) -> Iterator[str]:
    size = trainer.args.world_size
    if stage.num_processes not in (None, size):
        told = f"TRAINPLUS_STAGE={only} was" if only else "this run was"
        yield f"num_processes is {stage.num_processes}, and {told} started with {size}. Start it with: {RELAUNCH}"
        return
    try:
        stage_arguments(stage, trainer.args, device_count(trainer.args))
    except ValueError as error:
        yield str(error).removeprefix(f"stage {stage.name!r}: ")


def _of_a_stage(trainer: Trainer, stage: Stage) -> Iterator[str]:
    args = trainer.args
    rules = (stage.advance_when, stage.stop_when, stage.fall_back_when)
    watched = [rule for rule in rules if rule is not None and _watches(rule)]
    if evaluates(stage, args) and trainer.eval_dataset is None:
        yield "evaluates, and there is no eval_dataset. Pass PlusTrainer(eval_dataset=...)."
    if watched and not evaluates(stage, args):
        yield (
            f"has a rule on an evaluation ({watched[0].describe()}) and evaluates nothing. Add eval: {{strategy: "
            "epoch}, or set eval_strategy."
        )
    problem = schedule_problem(stage, args)
    if problem is not None:
        yield problem
    schedule = str(stage.lr_scheduler_type or getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type))
    if schedule in _BY_METRIC and args.metric_for_best_model is None:
        yield f"lr_scheduler_type {schedule} follows a metric; set metric_for_best_model='loss'."
    warmup = args.warmup_steps if stage.warmup_steps is None else stage.warmup_steps
    if is_open(stage) and warmup >= 1:
        yield (
            f"warmup_steps is {warmup:g}, and no number of steps ends the stage ({stage.limits()}). Give a share of "
            "its budget, e.g. warmup_steps: 0.05, or add max_steps."
        )
    if is_open(stage) and schedule in _BY_METRIC:
        yield f"lr_scheduler_type {schedule} cannot follow a budget ({stage.limits()}); take e.g. cosine."
    if stage.limits().usd is not None and getattr(args, "usd_per_device_hour", None) is None:
        yield "a budget in usd needs a price; set usd_per_device_hour=2.5."


def _watches(rule: AdvanceRule) -> bool:
    if isinstance(rule, AllOf):
        return any(_watches(one) for one in rule.rules)
    return not isinstance(rule, BudgetShare)


def _extra(stage: Stage) -> set[str]:
    return set() if stage.eval is None else set(stage.eval.extra_datasets)
