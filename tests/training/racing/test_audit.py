"""A reviewer takes a line of the audit and the run's checkpoints, and judges the comparison again."""

import json

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import BertForSequenceClassification

from hf_trainplus.decisions.racing.columns import Column
from hf_trainplus.decisions.racing.design import Design
from hf_trainplus.decisions.racing.metrics import LossMetric, ScoreMetric
from hf_trainplus.decisions.racing.paired import paired_difference
from hf_trainplus.decisions.racing.samples import Samples
from hf_trainplus.decisions.racing.saved import read_state
from hf_trainplus.decisions.racing.state import RaceState
from hf_trainplus.decisions.racing.volatility import Volatility
from hf_trainplus.results import ExampleResults
from tests.support import tiny
from tests.training.test_race import finished, learnable, make

METRICS = {"loss": LossMetric(), "accuracy": ScoreMetric("accuracy", greater_is_better=True, lower=0.0, upper=1.0)}


def evaluated(folder, step, rows, data):
    """Evaluate the checkpoint of a step on some rows, with nothing of ours."""
    model = BertForSequenceClassification.from_pretrained(folder / f"checkpoint-{step}").eval()
    batch = tiny.PaddingCollator()([data[row] for row in rows])
    labels = batch.pop("labels")
    with torch.no_grad():
        logits = model(**batch).logits
    losses = functional.cross_entropy(logits, labels, reduction="none").double().numpy()
    right = (logits.argmax(-1) == labels).double().numpy()
    return ExampleResults(rows, losses, np.ones(len(rows)), scores={"accuracy": right})


def column(table, size, metric):
    made = Column.empty(size, 2 if isinstance(metric, LossMetric) else 1)
    made.add(table, metric.columns(table))
    return made


@pytest.mark.parametrize("name", ["loss", "accuracy"])
def test_a_decision_can_be_recomputed(name, tmp_path):
    data = learnable(400)
    finished(make(tmp_path, "race", metric=name, save_strategy="steps", save_steps=1, max_steps=8))
    metric, judged = METRICS[name], 0
    for line in (tmp_path / "trainplus_decisions.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["kind"] != "comparison":
            continue
        design = Design.from_state(
            read_state(tmp_path / f"checkpoint-{record['step']}/trainplus_race.npz")["race"]["design"]
        )
        if record["basis"] not in ("bound", "open") or record["se"] is None or design.number != record["design"]:
            continue
        assert design.rows_hash(record["depth"]) == record["rows_hash"]
        assert design.counts(record["depth"]).tolist() == record["stratum_rows"]
        columns = {}
        for step in {record["first"], record["second"], *record["references"]}:
            whole = step in record["full"] or step in record["references"]
            rows = np.arange(400) if whole else design.order[: record["depth"]]
            columns[step] = column(evaluated(tmp_path, step, rows, data), 400, metric)
        state = RaceState(design, Volatility.empty(400), columns=columns, references=record["references"])
        sample, regression = Samples().get(state, metric, record["depth"])
        found = paired_difference(columns[record["second"]], columns[record["first"]], sample, metric, regression)
        assert found.value == pytest.approx(record["difference"], abs=1e-6)
        assert found.se == pytest.approx(record["se"], rel=1e-3)
        assert found.discordant == record["discordant"]
        assert (abs(found.z) > record["bound"]) == (record["loser"] is not None)
        judged += 1
    assert judged >= 3
