"""Two real processes find what one process finds."""

import json

import pytest
import torch
from datasets import Dataset

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from tests.support import tiny
from tests.support.launch import ROOT, torchrun

pytestmark = [pytest.mark.slow, pytest.mark.distributed]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    done = torchrun(ROOT / "tests/support/two_ranks.py", tmp_path_factory.mktemp("two"))
    line = next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    return json.loads(line[len("FOUND ") :])


def alone(model, rows, folder):
    trainer = PlusTrainer(
        model,
        PlusTrainingArguments(**tiny.quiet(folder, per_device_eval_batch_size=2)),
        eval_dataset=rows,
        data_collator=tiny.PaddingCollator(),
    )
    return trainer.evaluate(), trainer


def test_ranks_hold_the_same_values(found):
    assert found["ranks_agree"] is True


@pytest.mark.parametrize("n", [1, 7, 8, 9])
def test_loss_equals_one_process(found, n, tmp_path):
    metrics, _ = alone(tiny.gpt2(), tiny.causal_rows(n, low=3), tmp_path)
    assert found[f"loss_{n}"] == [pytest.approx(metrics["eval_loss"], abs=1e-5), n, metrics["eval_targets"]]


def test_predictions_are_in_dataset_order(found, tmp_path):
    _, trainer = alone(tiny.bert(), tiny.rows(9), tmp_path)
    output = trainer.predict(tiny.rows(9))
    assert found["labels"][0] == found["labels"][1]
    assert torch.allclose(torch.tensor(found["predictions"]), torch.tensor(output.predictions), atol=1e-5)
    right = (output.predictions.argmax(-1) == output.label_ids).mean()
    assert found["accuracy"] == [pytest.approx(right), 9]


@pytest.mark.parametrize("dispatch", [True, False])
def test_streams_count_every_row_once(found, dispatch, tmp_path):
    metrics, _ = alone(tiny.bert(), Dataset.from_list(tiny.rows(11)), tmp_path)
    assert found[f"stream_{dispatch}"] == [pytest.approx(metrics["eval_loss"], abs=1e-5), 11]


def test_a_foreign_loader_is_used_as_it_is(found, tmp_path):
    metrics, _ = alone(tiny.bert(), tiny.rows(9), tmp_path)
    assert found["foreign"] == [pytest.approx(metrics["eval_loss"], abs=1e-5), 9]


def test_evaluation_changes_no_weight(found):
    assert found["weights_equal"] is True


def test_a_metric_that_fails_on_one_rank_fails_on_all(found):
    assert found["failing_steps"] == 2
    assert found["failing_logged"] == 0


@pytest.mark.parametrize("hook", ["fp16", "bf16", "power_sgd"])
def test_communication_hooks_go_through_accelerate(found, hook):
    assert found[f"hook_{hook}"][0] == hook
    assert found["hook_None"][0] == "no"
    exact, compressed = found["hook_None"][1], found[f"hook_{hook}"][1]
    assert (exact == compressed) == (hook == "power_sgd")  # it begins after 1,000 steps
    assert compressed == pytest.approx(exact, abs=0.2)
