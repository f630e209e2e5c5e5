"""Draws the rows by which a training run's arguments want the evaluation set to be represented."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hf_trainplus.decisions.strategies.protocol import SubsetStrategy
from hf_trainplus.decisions.strategies.whole_batches import draw_batches
from hf_trainplus.decisions.subset import Subset, representative_subset
from hf_trainplus.results import ExampleResults
from hf_trainplus.training.run_size import data_seed

if TYPE_CHECKING:
    from transformers import Trainer

    from hf_trainplus.training.runner import EvaluationRunner
    from hf_trainplus.training_args import PlusTrainingArguments

_COLUMNS = ("indices", "weights", "strata", "clusters", "balance")


def own_strategy(trainer: Trainer) -> SubsetStrategy | None:
    """Return the object that the user gave to draw subsets, or None."""
    return cast("SubsetStrategy | None", getattr(trainer, "subset_strategy", None))


def draw_subset(trainer: Trainer, runner: EvaluationRunner, dataset: Any, reference: ExampleResults | None) -> Subset:
    """Draw the subset of an evaluation set.

    A loss that only batches have is never cut by rows: whole batches of it are drawn, and this is said.

    Args:
        trainer: its arguments and its subset strategy count.
        runner: says what rows depend on, once it has run an evaluation.
        dataset: the evaluation set.
        reference: results of a full evaluation, for the strategy ``"difficulty"``; None for the others.
    """
    args = cast("PlusTrainingArguments", trainer.args)
    size = cast("int | float", args.eval_subset_size)
    size = size if isinstance(size, float) else min(size, len(dataset))
    seed = data_seed(args)
    if needs_batches(runner):
        rows = size if isinstance(size, int) else max(1, round(size * len(dataset)))
        subset = draw_batches(len(dataset), rows, int(args.eval_batch_size), seed=seed)
        runner.say_once(f"the loss of a row may depend on the rows beside it, so the subset is {subset.method}")
        return subset
    strategy = own_strategy(trainer) or args.eval_subset_strategy
    try:
        return representative_subset(
            dataset,
            size,
            strategy=strategy,
            label_column=args.eval_label_column if strategy == "stratified" else None,
            reference_loss=reference,
            seed=seed,
        )
    except ValueError as error:
        if strategy != "stratified" or args.eval_label_column is not None:
            raise
        runner.say_once(f"the evaluation subset is drawn at random, not by label: {error}")
        return representative_subset(dataset, size, strategy="random", seed=seed)


def needs_batches(runner: EvaluationRunner) -> bool:
    """Say whether the evaluation before this one found a loss that rows may have from the rows beside them."""
    return runner.last is not None and runner.last.has_loss and not runner.rows_are_independent()


def saved_subset(subset: Subset) -> dict[str, Any]:
    """Return a subset as arrays and plain values, for a checkpoint."""
    columns = {name: getattr(subset, name) for name in _COLUMNS}
    given = {name: np.asarray(column) for name, column in columns.items() if column is not None}
    return given | {"clusters_total": subset.clusters_total}
