"""Arguments of PlusTrainer: the upstream arguments and flat fields for evaluation.

Every field is of a kind that ``HfArgumentParser`` reads from a command line or a YAML file; fields with several kinds
are read from text once, in ``__post_init__``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from transformers import Seq2SeqTrainingArguments, TrainingArguments

from hf_trainplus.evaluation.metric_values import metric_direction
from hf_trainplus.training import argument_values as values
from hf_trainplus.training.stages.launched import set_launched_stage


@dataclass
class PlusTrainingArguments(TrainingArguments):
    """``TrainingArguments`` with the options of hf_trainplus; with none of them set, training is bit-equal to stock.

    It lifts one upstream refusal: ``load_best_model_at_end`` accepts any pair of ``save_steps`` and ``eval_steps``,
    since PlusTrainer writes a checkpoint for every new best. Under other arguments it stands as the last base:
    ``@dataclass class Args(SFTConfig, PlusTrainingArguments): pass``.

    Raises:
        ValueError: a value outside its range, or a ``metric_for_best_model`` whose direction is unknown.
        TypeError: PlusTrainingArguments stands before another arguments class among the bases.

    Example:
        >>> args = PlusTrainingArguments("out", use_cpu=True, eval_subset_size=0.1, load_best_model_at_end=True,
        ...     eval_strategy="steps", eval_steps=3, save_steps=4, report_to="none")
        >>> args.eval_confidence, args.eval_subset_size, args.greater_is_better
        (0.95, 0.1, False)
    """

    eval_mode: str = field(
        default="full",
        metadata={
            "help": "Evaluation during training: full (all rows), subset (fixed representative rows), or race (the "
            "fewest rows that settle each decision)."
        },
    )
    eval_subset_size: float | None = field(
        default=None,
        metadata={
            "help": "Rows of eval_mode=subset, and the limit of a stream: a number of rows, or a fraction (1.0: all)."
        },
    )
    eval_subset_strategy: str = field(
        default="stratified",
        metadata={"help": "How the subset is drawn: stratified, random, diversity or difficulty."},
    )
    eval_label_column: str | None = field(
        default=None, metadata={"help": "Column whose values are the strata (None: label or labels)."}
    )
    eval_group_columns: str | None = field(
        default=None, metadata={"help": "Columns, with commas, by which metrics are sliced."}
    )
    eval_cluster_column: str | None = field(
        default=None, metadata={"help": "Column that says which rows belong together, for standard errors."}
    )
    eval_race_strict: bool = field(
        default=False, metadata={"help": "Race with bound 4.0 in place of 3.5 standard errors."}
    )
    eval_tolerance: float = field(
        default=0.0,
        metadata={
            "help": "Regret allowed in a race, in standard errors of the full-set metric; 0 keeps the stock decision."
        },
    )
    eval_schedule: str = field(
        default="fixed",
        metadata={"help": "fixed: the grid of eval_strategy; adaptive: intervals that follow the metric."},
    )
    eval_min_steps: int = field(default=100, metadata={"help": "Shortest interval of the adaptive schedule."})
    eval_max_steps: int = field(default=10_000, metadata={"help": "Longest interval of the adaptive schedule."})
    eval_improvement_threshold: float = field(
        default=0.01, metadata={"help": "Least improvement that shortens the adaptive interval, in the metric's units."}
    )
    eval_time_share: float | None = field(
        default=None, metadata={"help": "Largest share of wall-clock time for evaluation, with eval_schedule=adaptive."}
    )
    budget: dict | str | None = field(  # type: ignore[type-arg, unused-ignore]
        default=None,
        metadata={"help": "Limits of the whole run, e.g. gpu_hours=8,wall_clock=2h30m; the run ends inside them."},
    )
    usd_per_device_hour: float | None = field(
        default=None, metadata={"help": "Price of one device for one hour, for a budget in usd."}
    )
    deadline: str | None = field(
        default=None,
        metadata={
            "help": "When the run must be over, with its last evaluation and checkpoint: an ISO 8601 time or seconds "
            "since 1970; SLURM_JOB_END_TIME counts too, the earlier one holds."
        },
    )
    plan: dict | str | None = field(  # type: ignore[type-arg, unused-ignore]
        default=None, metadata={"help": "Stages of the run: a YAML or JSON file, JSON text, or a mapping."}
    )
    plan_on_resume: str = field(
        default="keep",
        metadata={
            "help": "A plan or options that contradict the checkpoint's: keep refuses them, replace takes the new ones."
        },
    )
    stop_signals: str | None = field(
        default="SIGTERM,SIGUSR1",
        metadata={
            "help": "Signals after which the run saves and leaves at the next step, out of an evaluation too; none for "
            "what they do by themselves."
        },
    )
    gpu_monitor: str | None = field(
        default=None,
        metadata={"help": "Sample devices in the background: true, or seconds between samples; false or none for no."},
    )
    eval_predictions: str | None = field(
        default=None,
        metadata={"help": "What an ordinary compute_metrics function is given: argmax or logits (None: inferred)."},
    )
    eval_confidence: float = field(
        default=0.95, metadata={"help": "Level of every logged confidence interval, between 0 and 1."}
    )
    eval_tokens_per_batch: str | None = field(
        default="auto",
        metadata={
            "help": "Length-sorted evaluation batches under a limit of padded tokens: auto, a number, or none for "
            "per_device_eval_batch_size rows."
        },
    )
    eval_precision: str | None = field(
        default=None, metadata={"help": "Autocast in evaluation only: bf16, fp16 or fp32; the weights are not cast."}
    )
    eval_cache: str | None = field(
        default=None,
        metadata={
            "help": "Reuse the results of the same weights, data and metric code: a folder, or true for "
            "trainplus_eval_cache in the output folder; false or none for never."
        },
    )
    predict_with_generate: bool = field(
        default=False,
        metadata={"help": "Give metrics the ids that the model generates by itself; the loss stays teacher-forced."},
    )
    generation_eval_steps: int | None = field(
        default=None,
        metadata={"help": "Generate in the first evaluation after every so many steps (None: in every evaluation)."},
    )
    generation_eval_size: float | None = field(
        default=None,
        metadata={"help": "Rows that an evaluation generates for: a number, or a fraction (None and 1.0: all)."},
    )
    generation_max_new_tokens: int | None = field(
        default=None, metadata={"help": "Most tokens of a generated answer, the prompt not counted."}
    )
    on_eval_error: str = field(
        default="raise",
        metadata={"help": "After a failing evaluation, its checkpoint being safe: raise the error, or continue."},
    )
    ddp_comm_hook: str | None = field(
        default=None, metadata={"help": "Gradient compression under DDP: fp16, bf16 or power_sgd."}
    )

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        values.refuse_wrong_base_order(cls, PlusTrainingArguments, TrainingArguments)

    def __post_init__(self) -> None:
        values.read_plus_fields(self)
        set_launched_stage(self)
        self.best_metric_named = self.metric_for_best_model is not None
        if self.load_best_model_at_end and self.metric_for_best_model is None:
            self.metric_for_best_model = "loss"
        if self.metric_for_best_model is not None:
            self.greater_is_better = metric_direction(self.metric_for_best_model, self.greater_is_better)
        # Upstream refuses save/eval pairs that could leave a best model unsaved; here a new best is always saved.
        load_best, self.load_best_model_at_end = self.load_best_model_at_end, False
        try:
            super().__post_init__()  # type: ignore[no-untyped-call, unused-ignore]
        finally:
            self.load_best_model_at_end = load_best


@dataclass
class PlusSeq2SeqTrainingArguments(Seq2SeqTrainingArguments, PlusTrainingArguments):
    """``Seq2SeqTrainingArguments`` with the options of hf_trainplus.

    Example:
        >>> PlusSeq2SeqTrainingArguments("out", use_cpu=True, report_to="none").eval_confidence
        0.95
    """
