"""Every use of private members of transformers' Trainer, in one place.

``UpstreamTrainer`` gives them public names: what PlusTrainer overrides are the hooks of ``TrainingHooks``, and what it
calls are the functions below. Each private member that is used is listed in ``PRIVATE_MEMBERS`` and a test says whether
the installed release has it, so that a new release breaks this file, loudly, and no other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers import Trainer
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, SaveStrategy
from transformers.utils import logging

from hf_trainplus._hooks import TrainingHooks

if TYPE_CHECKING:
    from torch import nn

logger = logging.get_logger("hf_trainplus")

# private member -> the first release that is known to have it in the form used here
PRIVATE_MEMBERS = {
    "_evaluate": "5.0",
    "_determine_best_metric": "5.0",
    "_save_checkpoint": "5.0",
    "_load_best_model": "5.0",
    "_wrap_model": "5.0",
    "_remove_unused_columns": "5.0",
    "_get_collator_with_removed_columns": "5.0",
    "_prepare_inputs": "5.0",
    "_get_output_dir": "5.0",
    "_inner_training_loop": "5.0",
    "_run_epoch": "5.0",
    "_finalize_training": "5.0",
    "_get_num_items_in_batch": "5.0",
    "_load_callback_state": "5.0",
    "_get_eval_sampler": "5.0",
    "_get_dataloader": "5.0",
    "_maybe_log_save_evaluate": "5.0",
    "_load_rng_state": "5.0",
    "_push_from_checkpoint": "5.0",
    "_init_training_state": "5.0",
    "_prepare_for_training": "5.0",
    "_load_from_checkpoint": "5.0",
    "_load_optimizer_and_scheduler": "5.0",
    "_get_train_sampler": "5.0",
    "_prepare_input": "5.0",
    "_prepare_context_parallel_inputs": "5.0",
    "_set_signature_columns_if_needed": "5.0",
}

# methods that choose the columns of a row
COLUMN_METHODS = (
    "_remove_unused_columns",
    "_set_signature_columns_if_needed",
    "_get_collator_with_removed_columns",
)

# methods that decide over inputs, precision and loss of an evaluation; somebody's own may depend on anything
EVALUATING_METHODS = (
    "compute_loss",
    "prediction_step",
    "compute_loss_context_manager",
    "autocast_smart_context_manager",
    "_prepare_inputs",
    "_prepare_input",
    "_prepare_context_parallel_inputs",
    "_get_num_items_in_batch",
    "_wrap_model",
    *COLUMN_METHODS,
)

# attributes that the training loop sets on itself, in the same way
PRIVATE_ATTRIBUTES = {
    "_tr_loss": "5.0",
    "_total_loss_scalar": "5.0",
    "_globalstep_last_logged": "5.0",
    "_train_batch_size": "5.0",
}


@dataclass(frozen=True)
class RunningSums:
    """Training losses of this rank since the last log, those that were logged, and the step of that log."""

    loss: float
    total_loss: float
    last_logged_step: int


class UpstreamTrainer(TrainingHooks, Trainer):
    """Trainer whose private steps are the hooks of ``TrainingHooks``."""

    _plus_makes_up = False

    def _evaluate(self, trial: Any, ignore_keys_for_eval: Any, skip_scheduler: bool = False) -> dict[str, float]:
        if skip_scheduler and self._plus_goes_on and not self._plus_makes_up:
            return {}  # eval_on_start of a run that has started before, at step 0 too
        return self.plus_evaluate(
            lambda: super(UpstreamTrainer, self)._evaluate(trial, ignore_keys_for_eval, skip_scheduler=skip_scheduler)
        )

    @property
    def _plus_goes_on(self) -> bool:
        resumed = self._plus_resume
        has_state = resumed is not None and os.path.isfile(os.path.join(resumed, TRAINER_STATE_NAME))
        return self.state.global_step > 0 or has_state

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        return self.plus_is_new_best(metrics, self._get_output_dir(trial=trial))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        final = checkpoint_dir(self, trial)
        run_dir = os.path.dirname(final)
        with self.plus_saving(final) as folder, _writing_in(self, folder, run_dir):
            self.plus_checkpoint_begins(checkpoint_dir(self, trial))
            super()._save_checkpoint(model, trial)
        if folder != run_dir and self.args.push_to_hub:
            self._push_from_checkpoint(final)
        self.plus_checkpoint_saved(final)

    def _get_output_dir(self, trial: Any) -> str:
        return getattr(self, "_plus_writes_in", None) or super()._get_output_dir(trial)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        if getattr(self, "_plus_writes_in", None) is None:  # the upload runs beside the training: from its last place
            super()._push_from_checkpoint(checkpoint_folder)  # type: ignore[no-untyped-call, unused-ignore]

    def _maybe_log_save_evaluate(self, tr_loss: Any, grad_norm: Any, *args: Any, **kwargs: Any) -> None:
        self.plus_boundary(grad_norm, kwargs.get("learning_rate"))
        super()._maybe_log_save_evaluate(tr_loss, grad_norm, *args, **kwargs)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log as upstream does; the mean training loss at the end is that of the whole run."""
        ends = "train_loss" in logs and getattr(self, "_plus_finalizing", False)
        loss = self.plus_train_loss() if ends else None
        if loss is not None:
            logs["train_loss"] = loss
        super().log(logs, *args, **kwargs)

    def _get_num_items_in_batch(self, *args: Any, **kwargs: Any) -> Any:
        # Without a count the model takes the mean over its own targets. Upstream's count is off by one a row for
        # classes that leave loss_type unset, such as GPT-2.
        if getattr(self, "_plus_local_loss", False) and self.compute_loss_func is None:
            return None
        return super()._get_num_items_in_batch(*args, **kwargs)

    def _load_callback_state(self) -> None:
        self.plus_state_loaded()
        super()._load_callback_state()

    def _run_epoch(self, *args: Any, **kwargs: Any) -> Any:
        if not self._plus_started:
            self._plus_begin(kwargs.get("trial"), kwargs.get("start_time"))
            if self.state.global_step >= self.state.max_steps > 0:  # upstream would take one more
                self.control.should_training_stop = True
            if self.control.should_training_stop:  # a pending evaluation asked for it: no step is due any more
                return None
        self.plus_epoch_begins(kwargs["epoch"])
        return super()._run_epoch(*args, **kwargs)  # type: ignore[no-untyped-call, unused-ignore]

    def _finalize_training(self, trial: Any, num_train_samples: Any, start_time: Any) -> Any:
        if not self._plus_started:  # resumed where no step was left
            self._plus_begin(trial, start_time)
        self.plus_training_ends(self._get_output_dir(trial=trial))
        self._plus_finalizing = True
        output = super()._finalize_training(trial, num_train_samples, start_time)  # type: ignore[no-untyped-call, unused-ignore]
        self._plus_finalizing = False
        self.plus_training_ended(self._get_output_dir(trial=trial))
        return output._replace(training_loss=output.metrics["train_loss"])

    def _plus_begin(self, trial: Any, start_time: Any) -> None:
        self._plus_started, self._plus_start_time = True, start_time
        self.plus_training_starts(self._plus_resume, trial, self._plus_ignore_keys)

    def _inner_training_loop(self, *args: Any, **kwargs: Any) -> Any:
        self._plus_started = self._plus_finalizing = False
        self._plus_resume = kwargs.get("resume_from_checkpoint")
        self._plus_ignore_keys = kwargs.get("ignore_keys_for_eval")
        self.plus_loop_begins()
        return super()._inner_training_loop(*args, **kwargs)

    def _init_training_state(
        self, max_steps: int, num_update_steps_per_epoch: int, num_train_epochs: int, *args: Any, **kwargs: Any
    ) -> tuple[int, int]:
        with self.plus_restoring():
            found: tuple[int, int] = super()._init_training_state(  # type: ignore[no-untyped-call, unused-ignore]
                max_steps, num_update_steps_per_epoch, num_train_epochs, *args, **kwargs
            )
        return self.plus_position(found, max_steps, num_update_steps_per_epoch)

    def _prepare_for_training(self, max_steps: int, train_dataloader: Any, resume_from_checkpoint: str | None) -> Any:
        folder = None if resume_from_checkpoint is None else self.plus_weights_from(resume_from_checkpoint)
        ours = folder if folder is not None and self.plus_loads_engine(folder) else None
        prepared = super()._prepare_for_training(max_steps, train_dataloader, None if ours else folder)  # type: ignore[no-untyped-call, unused-ignore]
        if ours is not None:
            self.plus_load_engine(ours)
            self._load_optimizer_and_scheduler(ours)
        self.plus_prepared()
        return prepared

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(self.plus_weights_from(resume_from_checkpoint), model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None or not self.plus_load_optimizer(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return self.plus_train_sampler(super()._get_train_sampler(train_dataset))

    def _wrap_model(self, *args: Any, **kwargs: Any) -> Any:
        wrapped = super()._wrap_model(*args, **kwargs)
        hook = getattr(self.args, "ddp_comm_hook", None)
        if hook is not None:
            set_ddp_comm_hook(self, hook)
        return wrapped


def checkpoint_dir(trainer: Any, trial: Any = None) -> str:
    """Return the folder of the checkpoint of the current step."""
    run_dir: str = trainer._get_output_dir(trial=trial)
    return os.path.join(run_dir, f"{PREFIX_CHECKPOINT_DIR}-{trainer.state.global_step}")


def save_checkpoint(trainer: Any, trial: Any = None) -> str:
    """Write a complete checkpoint of the current step and return its folder."""
    trainer._save_checkpoint(trainer.model_wrapped, trial)
    return checkpoint_dir(trainer, trial)


@contextmanager
def _writing_in(trainer: Any, folder: str, run_dir: str) -> Iterator[None]:
    """Let upstream write a checkpoint in ``folder``, and name the best one by the place that it has afterwards."""
    if folder == run_dir:
        yield
        return
    state, strategy = trainer.state, trainer.args.save_strategy
    best = os.path.join(run_dir, f"{PREFIX_CHECKPOINT_DIR}-{state.best_global_step}")
    if strategy != SaveStrategy.NO and state.best_global_step and os.path.isdir(best):
        state.best_model_checkpoint = best
    trainer._plus_writes_in = folder
    try:
        yield
        written = checkpoint_dir(trainer)
        if str(state.best_model_checkpoint).startswith(os.path.join(folder, "")):
            state.best_model_checkpoint = best
            if trainer.args.should_save:
                state.save_to_json(os.path.join(written, TRAINER_STATE_NAME))
    finally:
        trainer._plus_writes_in = None


def running_sums(trainer: Any) -> RunningSums | None:
    """Return the loop's running sums, None outside training."""
    if not trainer.is_in_train or not hasattr(trainer, "_tr_loss"):
        return None
    return RunningSums(trainer._tr_loss.item(), trainer._total_loss_scalar, trainer._globalstep_last_logged)


def set_running_sums(trainer: Any, sums: RunningSums) -> None:
    """Put the loop where another one stood."""
    trainer._tr_loss.fill_(sums.loss)
    trainer._total_loss_scalar, trainer._globalstep_last_logged = sums.total_loss, sums.last_logged_step


def end_epoch(trainer: Any, checkpoint: str, trial: Any, grad_norm: float | None, learning_rate: float | None) -> None:
    """Do what follows the last step of an epoch, for a checkpoint that was written between the two."""
    trainer._load_rng_state(checkpoint)
    trainer.control = trainer.callback_handler.on_epoch_end(trainer.args, trainer.state, trainer.control)
    trainer._maybe_log_save_evaluate(
        trainer._tr_loss,
        grad_norm,
        trainer.model_wrapped,
        trial,
        trainer.state.epoch,
        trainer._plus_ignore_keys,
        trainer._plus_start_time,
        learning_rate=learning_rate,
    )


def run_dir(trainer: Any, trial: Any) -> str:
    """Return the folder of the run's checkpoints."""
    return str(trainer._get_output_dir(trial=trial))


def forget_optimizer(trainer: Any) -> None:
    """Let the next loop make optimizer and schedule anew, and wrap the model anew."""
    trainer.optimizer = trainer.lr_scheduler = None
    trainer.model_wrapped = trainer.model


def set_train_batch_size(trainer: Any) -> None:
    """Make the training loader follow the arguments, from which upstream reads it once only."""
    trainer._train_batch_size = trainer.args.train_batch_size


def evaluate_step(trainer: Any, trial: Any, ignore_keys: Any) -> dict[str, float]:
    """Run the evaluation of the current step as the training loop would; the one at step 0 moves no schedule."""
    at_start = trainer.state.global_step == 0
    trainer._plus_makes_up = at_start
    try:
        metrics: dict[str, float] = trainer._evaluate(trial, ignore_keys, skip_scheduler=at_start)
    finally:
        trainer._plus_makes_up = False
    return metrics


def save_weights(trainer: Any, folder: str) -> None:
    """Write the model as ``from_pretrained`` reads it, without pushing it anywhere."""
    trainer.save_model(folder, _internal_call=True)


def load_best_model(trainer: Any) -> None:
    """Load the weights of ``trainer.state.best_model_checkpoint``."""
    trainer._load_best_model()


def generation_arguments(trainer: Any) -> dict[str, Any]:
    """Return what ``Seq2SeqTrainer.evaluate`` or ``predict`` was last called with for ``generate``."""
    return dict(getattr(trainer, "_gen_kwargs", {}))


def prepare_inputs(trainer: Any, inputs: Any) -> Any:
    """Move a batch to the trainer's device."""
    return trainer._prepare_inputs(inputs)


@contextmanager
def prepared_once(trainer: Any, inputs: Any) -> Iterator[None]:
    """Let ``prediction_step`` take inputs that have been prepared as they are; somebody's own way may change them."""
    before = vars(trainer).get("_prepare_inputs")
    prepare = trainer._prepare_inputs
    trainer._prepare_inputs = lambda given: given if given is inputs else prepare(given)
    try:
        yield
    finally:
        del trainer._prepare_inputs
        if before is not None:
            trainer._prepare_inputs = before


def dataset_and_collator(trainer: Any, dataset: Any, description: str) -> tuple[Any, Any]:
    """Return the dataset and the collator, with columns that the model does not take removed by one or the other."""
    import datasets

    if isinstance(dataset, datasets.Dataset):
        return trainer._remove_unused_columns(dataset, description=description), trainer.data_collator
    return dataset, trainer._get_collator_with_removed_columns(trainer.data_collator, description=description)


def prepare_model_for_evaluation(trainer: Any) -> nn.Module:
    """Return the model that an evaluation runs, wrapped and placed as upstream's own evaluation does it."""
    if trainer.is_deepspeed_enabled and trainer.deepspeed is None:
        from transformers.integrations.deepspeed import deepspeed_init

        deepspeed_init(trainer, num_training_steps=0, inference=True)  # type: ignore[no-untyped-call, unused-ignore]
    model: nn.Module = trainer._wrap_model(trainer.model, training=False)
    if len(trainer.accelerator._models) == 0 and model is trainer.model:
        sharded = trainer.is_deepspeed_enabled or (trainer.is_fsdp_enabled and not trainer.args.torch_compile)
        prepare = trainer.accelerator.prepare
        model = prepare(model) if sharded else trainer.accelerator.prepare_model(model, evaluation_mode=True)
        if trainer.is_fsdp_enabled:
            trainer.model = model
        if model is not trainer.model:
            trainer.model_wrapped = model
        if trainer.is_deepspeed_enabled:
            trainer.deepspeed = trainer.model_wrapped
    if not trainer.is_in_train:
        if trainer.args.fp16_full_eval:
            model = model.to(dtype=torch.float16, device=trainer.args.device)
        elif trainer.args.bf16_full_eval:
            model = model.to(dtype=torch.bfloat16, device=trainer.args.device)
    return model


@contextmanager
def local_loss(trainer: Any) -> Iterator[None]:
    """Let ``compute_loss`` average over this rank's batch only.

    Upstream divides by the number of targets on all ranks and multiplies by the number of ranks, which costs a
    collective a batch and makes a batch's loss depend on the other ranks' rows.
    """
    args = trainer.args
    before = args.average_tokens_across_devices
    args.average_tokens_across_devices, trainer._plus_local_loss = False, True
    try:
        yield
    finally:
        args.average_tokens_across_devices, trainer._plus_local_loss = before, False


class _EndlessLoader:
    """What Accelerate's gradient state asks of a loader, for one that never reports its end."""

    end_of_dataloader = False
    remainder = -1


@contextmanager
def active_evaluation_loader(trainer: Any) -> Iterator[None]:
    """Stand in as Accelerate's active data loader, so that gathers in an evaluation are never cut.

    ``gather_for_metrics`` drops the remainder of the loader that is active; while training runs that is the training
    loader, and at its last batch rows of an evaluation would be cut off.
    """
    state = trainer.accelerator.gradient_state
    loader = _EndlessLoader()
    state._add_dataloader(loader)
    try:
        yield
    finally:
        state._remove_dataloader(loader)


def set_ddp_comm_hook(trainer: Any, hook: str) -> None:
    """Put a gradient compression hook into the arguments that Accelerate wraps the model with."""
    from accelerate.utils import DDPCommunicationHookType, DistributedDataParallelKwargs

    handler = trainer.accelerator.ddp_handler
    if handler is None:
        handler = trainer.accelerator.ddp_handler = DistributedDataParallelKwargs()
    handler.comm_hook = DDPCommunicationHookType(hook)


def chooses_own_rows(trainer: Any, *ours: type) -> bool:
    """Say whether a subclass of somebody else decides which rows an evaluation loader gives."""
    return any(overrides(trainer, name, *ours) for name in ("_get_eval_sampler", "_get_dataloader"))


def prepares_own_inputs(trainer: Any, *ours: type) -> bool:
    """Say whether somebody's own method prepares the inputs of a batch, which may not bear being called twice."""
    return overrides(trainer, "_prepare_inputs", *ours)


def overrides(trainer: Any, name: str, *ours: type) -> bool:
    """Say whether somebody else's subclass overrides the method ``name``, or somebody has set it on the trainer."""
    if _is_set_by_somebody(trainer, name):
        return True
    method = getattr(type(trainer), name)
    return all(method is not getattr(cls, name, None) for cls in (Trainer, *ours))


def _is_set_by_somebody(trainer: Any, name: str) -> bool:
    """Say whether a method was replaced on one trainer, by other code than upstream's and ours, which measures."""
    own = vars(trainer).get(name)
    home = str(getattr(own, "__globals__", {}).get("__name__", ""))
    return own is not None and home.partition(".")[0] not in ("transformers", "accelerate", "hf_trainplus")
