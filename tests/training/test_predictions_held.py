"""Predictions that a metric function needed are let go when the evaluation returns."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import weakref

import numpy as np
import pytest
from transformers import Trainer, TrainingArguments

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from hf_trainplus.evaluation.spool import SpoolFolder
from tests.support import tiny
from tests.support.launch import ROOT, environment


def arguments(kind, tmp_path, **options):
    return kind(str(tmp_path), use_cpu=True, report_to="none", disable_tqdm=True, **options)


def test_the_file_is_unmapped_when_evaluate_returns(tmp_path, monkeypatch):
    monkeypatch.setattr(SpoolFolder.__init__, "__kwdefaults__", {"from_bytes": 64, "free_bytes": None, "kept": None})
    held = []

    def metric(prediction):
        held.append((type(prediction.predictions), weakref.ref(prediction.predictions)))
        if len(held) == 2:
            raise RuntimeError("of the function")
        return {"sum": float(np.asarray(prediction.predictions[:, 0, 0]).sum())}

    trainer = PlusTrainer(
        tiny.llama(),
        arguments(PlusTrainingArguments, tmp_path),
        data_collator=tiny.PaddingCollator(),
        eval_dataset=tiny.causal_rows(23),
        compute_metrics=metric,
    )
    assert "eval_sum" in trainer.evaluate()
    gc.collect()
    assert issubclass(held[0][0], np.memmap)
    assert held[0][1]() is None
    with pytest.raises(RuntimeError, match="of the function"):
        trainer.evaluate()
    gc.collect()
    assert trainer._runner.last.predictions is None


KILLED = """
import os, signal, sys
from hf_trainplus import PlusTrainer, PlusTrainingArguments
from hf_trainplus.evaluation.spool import SpoolFolder
from tests.support import tiny

SpoolFolder.__init__.__kwdefaults__["from_bytes"] = 64

def metric(prediction):
    print(type(prediction.predictions).__mro__[1].__name__, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

args = PlusTrainingArguments(sys.argv[1], use_cpu=True, report_to="none", disable_tqdm=True)
rows = tiny.causal_rows(23)
PlusTrainer(tiny.llama(), args, data_collator=tiny.PaddingCollator(), eval_dataset=rows, compute_metrics=metric).evaluate()
"""


@pytest.mark.slow
def test_a_killed_process_leaves_no_file(tmp_path):
    (tmp_path / "spool").mkdir()
    command = [sys.executable, "-c", KILLED, str(tmp_path / "run")]
    settings = environment(TRAINPLUS_SPOOL=str(tmp_path / "spool"))
    done = subprocess.run(command, env=settings, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "memmap"
    assert list((tmp_path / "spool").iterdir()) == []


def test_a_function_that_sums_over_padding_is_given_what_stock_gives(tmp_path):
    def metric(prediction):
        return {"sum": float(prediction.predictions.sum()), "least": float(prediction.predictions.min())}

    model, rows = tiny.llama(), tiny.causal_rows(23, low=3, high=12)
    common = {"data_collator": tiny.PaddingCollator(), "eval_dataset": rows, "compute_metrics": metric}
    stock = Trainer(model, arguments(TrainingArguments, tmp_path, per_device_eval_batch_size=4), **common)
    options = {"per_device_eval_batch_size": 4, "eval_tokens_per_batch": "none"}
    ours = PlusTrainer(model, arguments(PlusTrainingArguments, tmp_path, **options), **common)
    theirs, found = stock.evaluate(), ours.evaluate()
    assert found["eval_least"] == theirs["eval_least"] == -100
    assert np.isfinite(found["eval_sum"])
