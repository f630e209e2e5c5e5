"""Which evaluation set and which metric a race is about, and in which units its best is told."""

import pytest

from hf_trainplus import load_metric
from hf_trainplus.training import best
from hf_trainplus.training.racing.watched import race_metric
from tests.training.test_race import finished, learnable, make


def run(folder, mode, sets, key, **options):
    trainer = make(folder / mode, mode, max_steps=5, metric="loss", metric_for_best_model=key, **options)
    trainer.eval_dataset = sets
    return finished(trainer)


@pytest.mark.parametrize(
    ("sets", "key", "raced", "other"),
    [
        ({"test": 150, "test_hard": 300}, "test_hard_loss", "eval_test_hard", "eval_test"),
        ({"test_hard": 150, "test": 300}, "test_loss", "eval_test", "eval_test_hard"),
        ({"my set": 300, "b": 150}, "eval_my_set_loss", "eval_my_set", "eval_b"),
    ],
)
def test_the_set_that_the_metric_names_is_raced(sets, key, raced, other, tmp_path):
    data = {name: learnable(rows, seed=rows) for name, rows in sets.items()}
    full, race = (run(tmp_path, mode, data, key) for mode in ("full", "race"))
    assert race.state.best_global_step == full.state.best_global_step
    assert race.state.best_metric == pytest.approx(full.state.best_metric, abs=1e-6)
    entries = race.state.log_history
    assert any(f"{raced}_race_cost" in entry for entry in entries)
    assert not any(f"{other}_race_cost" in entry for entry in entries)
    assert {entry[f"{other}_examples"] for entry in entries if f"{other}_examples" in entry} == {150}


def test_without_a_metric_that_names_a_set_it_says_that_nothing_is_raced(tmp_path, caplog):
    sets = {"a": learnable(150), "b": learnable(150)}
    race = run(tmp_path, "race", sets, None, load_best_model_at_end=False)
    assert "names none of the evaluation sets" in caplog.text
    assert not any("eval_a_race_cost" in entry for entry in race.state.log_history)


def test_the_best_of_a_raced_perplexity_is_a_perplexity(tmp_path):
    full, race = (finished(make(tmp_path / mode, mode, metric="perplexity")) for mode in ("full", "race"))
    assert race.state.best_global_step == full.state.best_global_step
    assert race.state.best_metric == pytest.approx(full.state.best_metric, abs=1e-6)


@pytest.mark.parametrize(
    ("key", "names", "found"),
    [
        ("eval_a_loss", ["a", "a_b"], "a"),
        ("eval_a_b_loss", ["a_b", "a"], "a_b"),
        ("eval_loss", ["a"], None),
        ("eval_x_y_f1", ["x y"], "x y"),
    ],
)
def test_the_longest_name_of_a_set_is_meant(key, names, found):
    assert best.watched_set(key, names) == found


def test_a_side_value_of_a_metric_object_is_told_from_a_function():
    seqeval = load_metric("seqeval")
    reason = race_metric("overall_precision", [seqeval], greater_is_better=True, rows=1000).reason
    assert "a side value of a metric object; a race compares main values ('overall_f1')" in reason


def test_a_metric_object_is_found_behind_the_name_of_its_set(tmp_path):
    trainer = make(tmp_path, "race", max_steps=4, metric="accuracy", metric_for_best_model="my_set_accuracy")
    trainer.compute_metrics = load_metric("accuracy")
    trainer.eval_dataset = {"my set": learnable(300), "b": learnable(150)}
    finished(trainer)
    assert any("eval_my_set_race_cost" in entry for entry in trainer.state.log_history)
