"""Run by torchrun in two processes: every kind of metric returns on both ranks what one process returns."""

import os
import sys

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torchmetrics.classification import MulticlassF1Score

from hf_trainplus.evaluation.metrics import load_metric
from hf_trainplus.evaluation.metrics.adapters import MetricReducer, as_metric
from hf_trainplus.evaluation.ranks import Ranks
from tests.support.launch import leave

ROWS, CLASSES, BATCH = 23, 4, 3
NAMES = ["O", "B-A", "I-A", "B-B"]


class Words:
    def batch_decode(self, rows, *, skip_special_tokens):
        return [" ".join(f"w{token}" for token in row) for row in rows]


class BatchShare:
    def __init__(self):
        self.kept = []

    def __call__(self, p, compute_result):
        self.kept += (p.predictions.argmax(-1) == p.label_ids).flatten().tolist()
        result = {"share": sum(self.kept) / len(self.kept), "rows": len(self.kept)} if compute_result else {}
        self.kept = [] if compute_result else self.kept
        return result


def made():
    """Return name -> metric, and whether its rows are those of one label (True) or of tokens."""
    plain = {
        name: (lambda name=name, options=options: as_metric(load_metric(name, **options), num_labels=CLASSES), True)
        for name, options in {
            "accuracy": {},
            "f1": {"average": "macro"},
            "mcc": {},
            "auc": {"multi_class": "ovr"},
        }.items()
    }
    return plain | {
        "labels found by each rank": (lambda: as_metric(load_metric("f1", average="weighted")), True),
        "seqeval": (lambda: as_metric(load_metric("seqeval"), label_names=NAMES), False),
        **{
            name: (lambda name=name: as_metric(load_metric(name, tokenizer=Words())), False)
            for name in ("sacrebleu", "chrf", "rouge", "wer", "exact_match")
        },
        "torchmetrics": (lambda: as_metric(MulticlassF1Score(CLASSES)), True),
        "batch function": (lambda: as_metric(BatchShare()), True),
    }


def data(one_label):
    rng = np.random.default_rng(0)
    shape = (ROWS, CLASSES) if one_label else (ROWS, 5, CLASSES)
    labels = rng.integers(0, CLASSES, shape[:-1])
    if not one_label:
        labels[rng.random(labels.shape) < 0.2] = -100
    return torch.tensor(rng.normal(size=shape)), torch.tensor(labels)


def evaluated(metric, logits, labels, ranks):
    """Share batches over ranks, with the last one a batch of fillers on one rank, as an uneven set has it."""
    reducer = MetricReducer([metric], ranks)
    batches = list(range(0, ROWS, BATCH))
    batches += [None] * (-len(batches) % ranks.size)
    for start in batches[ranks.index :: ranks.size]:
        real = start is not None
        rows = np.arange(start, min(start + BATCH, ROWS)) if real else np.zeros(2, int)
        reducer.add(rows if real else rows[:0], np.full(len(rows), real), logits[rows], labels[rows])
    return reducer.columns()


def check(name, make, one_label, ranks):
    logits, labels = data(one_label)
    # the object's own synchronisation would wait for the other rank
    alone = None if name == "torchmetrics" else evaluated(make(), logits, labels, Ranks()).metrics
    if name == "torchmetrics":
        alone = {"f1_score": MulticlassF1Score(CLASSES, sync_on_compute=False)(logits, labels)}
    metric = make()
    for _ in range(2):
        together = evaluated(metric, logits, labels, ranks)
    assert together.metrics.keys() == alone.keys(), (together.metrics, alone)
    for key, value in alone.items():
        np.testing.assert_allclose(float(together.metrics[key]), float(value), rtol=1e-12, err_msg=f"{name} {key}")
    for rows in together.statistics.values():
        assert sorted(together.index.tolist()) == list(range(ROWS))
        assert len(rows) == ROWS
    everywhere = ranks.gather({key: float(value) for key, value in together.metrics.items()})
    assert everywhere[0] == everywhere[1], everywhere
    if ranks.index == 0:
        print(f"equal {name}", flush=True)


def check_failure(ranks):
    """Rank 1 alone meets a third class; both must leave, and none may wait."""
    reducer = MetricReducer([as_metric(load_metric("f1")), as_metric(BatchShare())], ranks)
    for _ in range(3):
        labels = torch.tensor([0, 2]) if ranks.index == 1 else torch.tensor([0, 1])
        reducer.add(np.arange(2), np.ones(2, bool), torch.eye(2), labels)
    own = ranks.index == 1
    message = r"classes \[0, 1, 2\] occur" if own else "a metric failed on rank 1: ValueError"
    with pytest.raises(ValueError if own else RuntimeError, match=message):
        reducer.columns()
    if ranks.index == 0:
        print("equal failure", flush=True)


def main():
    dist.init_process_group("gloo")
    os.environ["HF_HUB_OFFLINE"] = "1"
    ranks = Ranks.current()
    for name, (make, one_label) in made().items():
        check(name, make, one_label, ranks)
    check_failure(ranks)
    leave()


if __name__ == "__main__":
    sys.exit(main())
