"""One training on AG News with a stopwatch on everything that evaluation makes it do."""

from __future__ import annotations

import csv
import gzip
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import (
    DataCollatorWithPadding,
    EarlyStoppingCallback,
    PreTrainedTokenizerFast,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.utils import logging

from hf_trainplus import PlusTrainer, PlusTrainingArguments, load_metric
from hf_trainplus.evaluation.rng import preserve_rng
from recipes.small_bert import small_bert, train_tokenizer

_SHARED = Path(os.environ.get("TRAINPLUS_SHARED", Path(__file__).resolve().parents[2] / "../shared"))
DATA = _SHARED / "data" / "ag_news"
LABELS = ("World", "Sports", "Business", "Sci/Tech")


@dataclass(frozen=True)
class Setting:
    """Sizes of a training; steps follow from ``evaluations`` times ``eval_steps``."""

    evaluations: int = 40
    train_rows: int = 5000
    eval_rows: int = 7600
    eval_steps: int = 20
    train_batch: int = 32
    eval_batch: int = 32
    learning_rate: float = 5e-4
    width: int = 128
    seed: int = 0


@dataclass(frozen=True)
class News:
    """Tokenized rows, labels included, and the tokenizer that was trained on the training rows alone."""

    tokenizer: PreTrainedTokenizerFast
    train: Dataset
    evaluation: Dataset

    @classmethod
    def read(cls, setting: Setting) -> News:
        """Read the first rows of both files; the order of the files is that of their publication."""
        train = _rows("subset_train.csv.gz")[: setting.train_rows]
        evaluation = _rows("test.csv.gz")[: setting.eval_rows]
        tokenizer = train_tokenizer([row["text"] for row in train], vocab_size=8000, max_length=128)
        return cls(tokenizer, _tokenized(train, tokenizer), _tokenized(evaluation, tokenizer))


def _rows(name: str) -> list[dict[str, str]]:
    with gzip.open(DATA / name, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [{"text": row.get("text") or f"{row['title']} {row['description']}", "label": row["label"]} for row in rows]


def _tokenized(rows: list[dict[str, str]], tokenizer: PreTrainedTokenizerFast) -> Dataset:
    encoded = tokenizer([row["text"] for row in rows], truncation=True, return_token_type_ids=False)
    return Dataset.from_dict({**encoded, "labels": [int(row["label"]) for row in rows]})


@dataclass(frozen=True)
class Run:
    """What one training decided, and what evaluation cost it.

    ``wall_seconds`` and ``cpu_seconds`` are those of evaluation, ``train_*`` those of ``train()`` as a whole.
    """

    trainer: str
    metric: str
    best_step: int
    best_value: float
    stop_step: int
    evaluations: int
    rows: int
    wall_seconds: float
    cpu_seconds: float
    train_wall_seconds: float
    train_cpu_seconds: float
    parts: dict[str, float]
    reloads: int
    weights: str
    values: list[float] = field(repr=False)


class Stopwatch:
    """Times methods of one object, the outermost call of those that call each other; apart for each name."""

    def __init__(
        self, wall_clock: Callable[[], float] = time.perf_counter, cpu_clock: Callable[[], float] = time.process_time
    ) -> None:
        self.wall: dict[str, float] = {}
        self.cpu = 0.0
        self._wall_clock, self._cpu_clock = wall_clock, cpu_clock
        self._running = False

    def watch(self, target: Any, *names: str) -> None:
        """Replace the methods by timed ones, on this object alone."""
        for name in names:
            setattr(target, name, self._timed(name, getattr(target, name)))

    def _timed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._running:
                return method(*args, **kwargs)
            with self._measured(name):
                return method(*args, **kwargs)

        return timed

    @contextmanager
    def _measured(self, name: str) -> Iterator[None]:
        self._running, wall, cpu = True, self._wall_clock(), self._cpu_clock()
        try:
            yield
        finally:
            self._running = False
            self.wall[name] = self.wall.get(name, 0.0) + self._wall_clock() - wall
            self.cpu += self._cpu_clock() - cpu


# a race also works when a best is named, around every checkpoint, and when training ends
_OURS = ("plus_evaluate", "plus_is_new_best", "plus_checkpoint_begins", "plus_checkpoint_saved", "plus_training_ends")


def train(
    kind: str,
    metric: str,
    patience: int | None,
    news: News,
    setting: Setting,
    prepare: Callable[[Trainer], object] = lambda trainer: None,
) -> Run:
    """Train once.

    Stock's evaluation shifts the random state of the training. It is put back here, so that all kinds train to the same
    weights and only their evaluations differ.

    Args:
        kind: ``stock`` for ``Trainer``, ``full`` or ``race`` for ``PlusTrainer`` in that mode.
        metric: ``loss`` or ``accuracy``: what decides.
        patience: evaluations without a new best after which training stops; None never stops.
        news: the data.
        setting: sizes.
        prepare: called with the trainer before it trains.
    """
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(kind, metric, patience, news, setting, folder)
        prepare(trainer)
        if kind == "stock":
            trainer.evaluate = preserve_rng()(trainer.evaluate)
        watch = Stopwatch()
        watch.watch(trainer, "evaluate", *(_OURS if kind != "stock" else ()))
        wall, cpu = time.perf_counter(), time.process_time()
        trainer.train()
        seconds = time.perf_counter() - wall, time.process_time() - cpu
        return _run_of(trainer, kind, metric, watch, seconds, len(news.evaluation))


def _trainer(kind: str, metric: str, patience: int | None, news: News, setting: Setting, folder: str) -> Trainer:
    options = {
        "output_dir": folder,
        "max_steps": setting.evaluations * setting.eval_steps,
        "learning_rate": setting.learning_rate,
        "warmup_steps": 20,
        "per_device_train_batch_size": setting.train_batch,
        "per_device_eval_batch_size": setting.eval_batch,
        "eval_strategy": "steps",
        "eval_steps": setting.eval_steps,
        "save_strategy": "steps",
        "save_steps": setting.eval_steps,
        "save_total_limit": 2,
        "load_best_model_at_end": True,
        "metric_for_best_model": metric,
        "greater_is_better": metric == "accuracy",
        "seed": setting.seed,
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "logging_steps": setting.eval_steps,
    }
    stock = kind == "stock"
    arguments = TrainingArguments(**options) if stock else PlusTrainingArguments(**options, eval_mode=kind)
    set_seed(setting.seed)
    callbacks: list[TrainerCallback] = [] if patience is None else [EarlyStoppingCallback(patience)]
    trainer = (Trainer if stock else PlusTrainer)(
        small_bert(news.tokenizer, LABELS, width=setting.width),
        arguments,
        train_dataset=news.train,
        eval_dataset=news.evaluation,
        data_collator=DataCollatorWithPadding(news.tokenizer),
        compute_metrics=None if metric == "loss" else accuracy_of if stock else load_metric("accuracy"),
        callbacks=callbacks,
    )
    trainer.pop_callback(PrinterCallback)
    return trainer


def accuracy_of(prediction: Any) -> dict[str, float]:
    """Return the accuracy, as scripts for the stock ``Trainer`` compute it."""
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def _run_of(trainer: Trainer, kind: str, metric: str, watch: Stopwatch, seconds: tuple[float, float], size: int) -> Run:
    state = trainer.state
    logged = [entry for entry in state.log_history if f"eval_{metric}" in entry and "eval_best_step" not in entry]
    raced = trainer._scheduled.race.session.race.state if kind == "race" else None
    return Run(
        trainer=kind,
        metric=metric,
        best_step=state.best_global_step,
        best_value=float(state.best_metric),
        stop_step=state.global_step,
        evaluations=len(logged),
        rows=raced.pairs if raced is not None else size * len(logged),
        wall_seconds=sum(watch.wall.values()),
        cpu_seconds=watch.cpu,
        train_wall_seconds=seconds[0],
        train_cpu_seconds=seconds[1],
        parts=dict(watch.wall),
        reloads=raced.reloads if raced is not None else 0,
        weights=fingerprint(trainer.model),
        values=[float(entry[f"eval_{metric}"]) for entry in logged],
    )


def fingerprint(model: torch.nn.Module) -> str:
    """Return a hash of every bit of the weights."""
    found = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        found.update(name.encode())
        found.update(value.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def warm_up(news: News) -> None:
    """Train a few steps with both trainers, so that imports and first calls count for neither."""
    logging.disable_progress_bar()
    small = Setting(evaluations=2, eval_steps=2)
    few = replace(news, evaluation=news.evaluation.select(range(min(600, len(news.evaluation)))))
    for kind in ("stock", "race"):
        train(kind, "accuracy", None, few, small)
