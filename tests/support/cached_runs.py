"""Trainers whose evaluations may be answered from disk, and what is counted of them."""

import numpy as np
from transformers import TrainerCallback

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from tests.support import tiny

TIMES = ("seconds", "runtime", "samples_per_second", "steps_per_second")


class Counter(TrainerCallback):
    """Counts the batches that were really evaluated."""

    def __init__(self):
        self.batches = 0

    def on_prediction_step(self, args, state, control, **kwargs):
        self.batches += 1


class Logs:
    """Keeps what is said."""

    def __init__(self, monkeypatch):
        self.said = []
        monkeypatch.setattr("hf_trainplus._upstream.logger.warning", self.said.append)

    @property
    def about_the_cache(self):
        return [message for message in self.said if "eval_cache" in message or "cache's file" in message]


def make(folder, *, rows=None, model=None, metric=None, collator=None, trainer=PlusTrainer, **options):
    rows = tiny.rows(11) if rows is None else rows
    options = {"eval_cache": str(folder / "cache"), "eval_tokens_per_batch": None, **options}
    made = trainer(
        model or tiny.bert(),
        PlusTrainingArguments(**tiny.quiet(folder / "out", **options)),
        train_dataset=tiny.rows(8),
        eval_dataset=rows,
        data_collator=collator or tiny.PaddingCollator(),
        compute_metrics=metric,
    )
    made.counter = Counter()
    made.add_callback(made.counter)
    return made


def without_times(metrics):
    return {key: value for key, value in metrics.items() if not key.endswith(TIMES)}


def evaluated(trainer, *args, **kwargs):
    """Return what was logged but for times, and whether the model was run."""
    before = trainer.counter.batches
    metrics = trainer.evaluate(*args, **kwargs)
    return without_times(metrics), trainer.counter.batches > before


def files(folder):
    return sorted(path.name for path in (folder / "cache").glob("*")) if (folder / "cache").exists() else []


def function(prediction):
    right = prediction.predictions.argmax(-1) == prediction.label_ids
    return {
        "accuracy": np.float32(right.mean()),
        "by": {"count": right.sum()},
        "matrix": np.eye(2),
        "odd": float("nan"),
    }


def with_config(**changes):
    model = tiny.bert()
    for name, value in changes.items():
        setattr(model.config, name, value)
    return model
