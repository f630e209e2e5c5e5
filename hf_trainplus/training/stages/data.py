"""The rows that a stage trains on: a share of the training data, or another data set."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any, cast

from torch.utils.data import IterableDataset, Subset
from transformers import TrainingArguments
from transformers.utils import logging

from hf_trainplus.budget.plans.stage import Stage
from hf_trainplus.decisions.subset import representative_subset
from hf_trainplus.training.run_size import data_seed, device_count
from hf_trainplus.training.stages.streams import stream_problem

logger = logging.get_logger("hf_trainplus")


class StageData:
    """Training data by stage.

    Args:
        given: the training data, or a mapping of data sets by name.

    Raises:
        ValueError: an empty mapping.

    Example:
        >>> StageData({"clean": [1, 2], "noisy": [3]}).first
        [1, 2]
    """

    def __init__(self, given: Any) -> None:
        self.sets: Mapping[str, Any] | None = given if isinstance(given, Mapping) else None
        self._only = given
        if self.sets is not None and not self.sets:
            raise ValueError("train_dataset is an empty mapping; give at least one data set: {'clean': dataset}.")

    @property
    def first(self) -> Any:
        """What stands for the training data before a stage begins."""
        return self._only if self.sets is None else next(iter(self.sets.values()))

    def problem(self, stage: Stage, args: TrainingArguments) -> str | None:
        """Return what is wrong with the data that a stage asks for, None when nothing is.

        Args:
            stage: the stage.
            args: the run's own arguments.
        """
        if not stage.trains:
            return None
        names = list(self.sets or ())
        if self.sets is None and stage.train_dataset is not None:
            return (
                f"train_dataset is {stage.train_dataset!r}, and the trainer was given one data set. Pass a mapping: "
                f"PlusTrainer(train_dataset={{{stage.train_dataset!r}: dataset}})."
            )
        if self.sets is not None and stage.train_dataset not in names:
            given = "missing" if stage.train_dataset is None else repr(stage.train_dataset)
            return f"train_dataset is {given}; the trainer was given {', '.join(names)}."
        if stage.data_fraction is not None and not hasattr(self._source(stage), "__len__"):
            return "data_fraction needs rows that can be counted, and the training data is a stream; leave it out."
        if stage.data_fraction is not None and isinstance(self._source(stage), IterableDataset):
            return "data_fraction needs rows that can be chosen, and the training data is a stream; leave it out."
        return stream_problem(self._source(stage), stage, args) or self._too_few(stage, args)

    def _too_few(self, stage: Stage, args: TrainingArguments) -> str | None:
        """Tell of rows that make no batch, of which the Trainer only warns while it takes no step."""
        rows, devices = rows_of(self._source(stage)), device_count(args)
        if rows is None or not args.dataloader_drop_last:
            return None
        taken = max(1, round(rows * (stage.data_fraction or 1.0)))
        a_batch = stage.rows_a_device(devices, args.per_device_train_batch_size) * devices
        if taken >= a_batch:
            return None
        return (
            f"trains on {taken} of {rows} rows, and dataloader_drop_last=True leaves no batch of {a_batch}; take more "
            "rows, a smaller batch, or set dataloader_drop_last=False."
        )

    def of(self, stage: Stage, args: TrainingArguments) -> Any:
        """Return the training data of a stage; its share is the same rows on every rank and in every process."""
        source = self._source(stage)
        if not stage.trains or stage.data_fraction is None or stage.data_fraction == 1:
            return source
        rows = _share(source, stage, args)
        select = getattr(source, "select", None)
        return select(rows) if callable(select) else Subset(source, rows)

    def _source(self, stage: Stage) -> Any:
        if self.sets is None:
            return self._only
        return self.first if stage.train_dataset is None else self.sets[stage.train_dataset]


def _share(source: Any, stage: Stage, args: TrainingArguments) -> list[int]:
    size = cast("float", stage.data_fraction)
    seed = data_seed(args)
    label = getattr(args, "eval_label_column", None)
    try:
        drawn = representative_subset(source, size, label_column=label, seed=seed)
    except ValueError as error:
        if label is not None:
            raise
        logger.warning(f"stage {stage.name!r}: its share of the data is drawn at random, not by label: {error}")
        drawn = representative_subset(source, size, strategy="random", seed=seed)
    return [int(row) for row in drawn.indices]


def rows_of(dataset: Any) -> int | None:
    """Return the number of rows, None for a stream."""
    return len(cast("Sized", dataset)) if hasattr(dataset, "__len__") else None
