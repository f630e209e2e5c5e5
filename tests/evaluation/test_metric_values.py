import json
import math
import re
from fractions import Fraction

import numpy as np
import pytest
import torch

from hf_trainplus.evaluation.metric_values import json_safe_metrics, metric_direction


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1),
        (True, 1),
        (0.25, 0.25),
        (Fraction(1, 4), 0.25),
        (np.float16(0.25), 0.25),
        (np.float32(0.25), 0.25),
        (np.longdouble(0.25), 0.25),
        (np.int64(7), 7),
        (np.uint8(7), 7),
        (np.bool_(True), 1),
        (np.array(0.25), 0.25),
        (np.array([0.25]), 0.25),
        (torch.tensor(0.25), 0.25),
        (torch.tensor([0.25], dtype=torch.bfloat16), 0.25),
        (torch.tensor(3), 3),
        (torch.tensor(0.25, requires_grad=True), 0.25),
        (2**80, 2**80),
    ],
)
def test_scalars_of_every_library_become_python_numbers(value, expected):
    values, left_out, nonfinite = json_safe_metrics({"x": value}, "eval")
    assert values == {"eval_x": expected}
    assert type(values["eval_x"]) is type(expected)
    assert left_out == []
    assert nonfinite == 0
    assert json.loads(json.dumps(values, allow_nan=False)) == values


@pytest.mark.parametrize(
    "value",
    [
        np.eye(2),
        np.array([]),
        torch.zeros(3),
        [1, 2],
        (1.0,),
        "0.5",
        np.str_("0.5"),
        None,
        1 + 2j,
        np.datetime64("2020-01-01"),
        object(),
    ],
)
def test_what_is_no_single_number_is_named_and_left_out(value):
    values, left_out, nonfinite = json_safe_metrics({"ok": 1.0, "x": value}, "eval")
    assert values == {"eval_ok": 1.0}
    assert left_out == ["eval_x"]
    assert nonfinite == 0


def test_nonfinite_values_are_counted_and_kept():
    values, left_out, nonfinite = json_safe_metrics(
        {"a": float("nan"), "b": np.float32("inf"), "c": torch.tensor(-float("inf")), "d": 1.0}
    )
    assert math.isnan(values["a"])
    assert values["b"] == math.inf
    assert values["c"] == -math.inf
    assert nonfinite == 3
    assert left_out == []


def test_nested_dictionaries_are_flattened_in_order():
    metrics = {"PER": {"f1": 0.5, "number": np.int32(3), "deep": {"x": 1}}, "overall": 0.25}
    values = json_safe_metrics(metrics, "eval").values
    assert list(values.items()) == [
        ("eval_PER_f1", 0.5),
        ("eval_PER_number", 3),
        ("eval_PER_deep_x", 1),
        ("eval_overall", 0.25),
    ]


def test_a_prefix_is_never_doubled():
    values = json_safe_metrics({"eval_loss": 1.0, "evaluation": 2.0, "loss_eval": 3.0}, "eval").values
    assert values == {"eval_loss": 1.0, "eval_evaluation": 2.0, "eval_loss_eval": 3.0}


@pytest.mark.parametrize("name", ["hits@10", "f1 (macro)", "Präzision", "a:b", "x\ny", "gpu0/mem", "p-1.5", 7])
def test_every_key_passes_the_trackers_pattern(name):
    (key,) = json_safe_metrics({name: 1.0}, "eval").values
    assert re.fullmatch(r"[A-Za-z0-9_./-]+", key)


def test_a_key_that_repeats_after_cleaning_keeps_the_first_and_says_so():
    values, left_out, _ = json_safe_metrics({"a@1": 1.0, "a#1": 2.0, "a": {"1": 3.0}}, "")
    assert values == {"a_1": 1.0}
    assert left_out == ["a_1"]


def test_an_empty_name_without_prefix_is_left_out():
    assert json_safe_metrics({"": 1.0}, "").left_out == [""]


@pytest.mark.parametrize("given", [None, 0.5, [("a", 1)]])
def test_a_result_that_is_no_dictionary_is_named(given):
    with pytest.raises(TypeError, match=f"returned {type(given).__name__}; allowed is a dictionary"):
        json_safe_metrics(given, "eval")


@pytest.mark.parametrize(
    "name",
    ["loss", "perplexity", "ppl", "wer", "cer", "mae", "mse", "rmse", "bpc", "bpb", "ter", "eer", "fid", "nll"]
    + ["eval_loss", "eval_a_loss", "test_wer", "eval_valid_set_rmse", "eval_loss_b_loss", "EVAL_WER", "hamming_loss"]
    + ["mean_absolute_error", "eval_word_error_rate", "eval_brier_score", "validation/loss", "eval_accuracy_loss"],
)
def test_smaller_is_better(name):
    assert metric_direction(name) is False


@pytest.mark.parametrize(
    "name",
    ["accuracy", "f1", "precision", "recall", "mcc", "matthews_correlation", "auc", "roc_auc", "exact_match", "bleu"]
    + ["sacrebleu", "chrf", "rougeL", "rougeLsum", "rouge1", "pearson", "spearmanr", "r2", "eval_loss_accuracy"]
    + ["eval_a_f1_macro", "eval_macro_f1", "eval_overall_f1", "recall_at_5", "hits@10", "ndcg_10", "f1_score"]
    + ["rewards/accuracies", "eval_rewards/margins", "top5_accuracy", "eval_wer_accuracy", "map_50"],
)
def test_larger_is_better(name):
    assert metric_direction(name) is True


@pytest.mark.parametrize(
    "name",
    ["eval_elo", "neg_mean_squared_error", "accuracy_std", "eval_std_loss", "generalization_gap", "flawless", "score"]
    + ["", "eval_", "runtime", "accuracy_drop", "f1ish", "5"],
)
def test_an_unknown_name_is_refused_with_the_choice(name):
    with pytest.raises(ValueError, match=rf"{name!r} is better or worse; set greater_is_better=True or"):
        metric_direction(name)


@pytest.mark.parametrize("choice", [True, False])
@pytest.mark.parametrize("name", ["eval_elo", "loss", "accuracy"])
def test_the_users_word_wins(name, choice):
    assert metric_direction(name, choice) is choice


@pytest.mark.parametrize("choice", ["False", "yes", 2])
def test_a_direction_that_is_neither_true_nor_false_is_refused(choice):
    with pytest.raises(ValueError, match="greater_is_better=.*; allowed are True, False and None"):
        metric_direction("loss", choice)


@pytest.mark.parametrize("name", [5, ["loss"]])
def test_a_name_that_is_no_text_is_refused(name):
    with pytest.raises(TypeError, match="metric_for_best_model=.*; allowed is the name of one metric"):
        metric_direction(name)
