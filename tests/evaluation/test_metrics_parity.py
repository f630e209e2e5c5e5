"""Every metric against what huggingface/evaluate's script of the same name returned (recorded in metric_parity.json).

tests/benchmarks/record_metric_parity.py records the values and names the commits.
"""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from hf_trainplus.evaluation.metrics import AdditiveMetric, load_metric

RECORD = json.loads((Path(__file__).parent / "metric_parity.json").read_text())
TOLERANCE = 1e-9
# what the scripts report beside values: settings, and whole counts that our keys hold otherwise
NOT_VALUES = {"char_order", "word_order", "beta", "counts", "totals"}
CASES = [case for case in RECORD["cases"] if case["metric"] != "rouge"]
ROUGE = [case for case in RECORD["cases"] if case["metric"] == "rouge" and "use_aggregator" in case["evaluate_options"]]
AGGREGATED = [case for case in RECORD["cases"] if case["metric"] == "rouge" and case not in ROUGE]


def name_of(case):
    return f"{case['metric']}-{case['inputs']}-" + ",".join(f"{k}={v}" for k, v in case["options"].items())


def rows_of(case):
    inputs = RECORD["inputs"][case["inputs"]]
    return inputs["predictions"], inputs["references"]


def expected_of(case, primary):
    result = case["evaluate"]
    if not isinstance(result, dict):
        return {primary: result}
    values = {}
    for key, value in result.items():
        if key in NOT_VALUES:
            continue
        if isinstance(value, dict):
            values |= {f"{key}_{part}": number for part, number in value.items()}
        elif isinstance(value, list):
            values |= {f"{key}_{order}": number for order, number in enumerate(value, 1)}
        else:
            values[primary if key == "score" else key] = value
    return values


def in_batches(metric, predictions, references, size):
    for start in range(0, len(predictions), size):
        metric.update(predictions[start : start + size], references[start : start + size])
    return metric


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key] == pytest.approx(value, rel=TOLERANCE, abs=TOLERANCE), key


def test_the_record_names_its_sources():
    assert len(RECORD["source"]["commit"]) == 40
    assert "tensorflow/nmt" in RECORD["source"]["bleu"]
    assert {case["metric"] for case in RECORD["cases"]} == {
        *("accuracy", "precision", "recall", "f1", "matthews_correlation", "roc_auc", "exact_match", "seqeval", "bleu"),
        *("sacrebleu", "chrf", "rouge", "wer", "cer", "mse", "mae", "pearsonr", "spearmanr"),
    }


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_equals_the_evaluate_library(case):
    predictions, references = rows_of(case)
    metric = load_metric(case["metric"], **case["options"])
    expected = expected_of(case, metric.primary)
    metric.update(predictions, references)
    assert_equal(metric.compute(), expected)
    assert metric.primary in expected

    for size in (1, 7, len(predictions)):
        assert_equal(in_batches(metric.empty_copy(), predictions, references, size).compute(), expected)


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_merged_parts_equal_the_evaluate_library(case):
    predictions, references = rows_of(case)
    parts = [load_metric(case["metric"], **case["options"]) for _ in range(3)]
    cut = len(predictions) // 3
    in_batches(parts[0], predictions[:cut], references[:cut], 4)
    in_batches(parts[2], predictions[cut:], references[cut:], 5)  # part 1 has seen no row
    expected = expected_of(case, parts[0].primary)

    gathered = load_metric(case["metric"], **case["options"])
    gathered.update(predictions[:1], references[:1])  # what was there before must not count
    gathered.merge_states([pickle.loads(pickle.dumps(part.state_arrays())) for part in parts])
    assert_equal(gathered.compute(), expected)

    first, second, third = pickle.loads(pickle.dumps(parts))
    first.merge(second)
    first.merge(third)
    assert_equal(first.compute(), expected)


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_additive_statistics_give_the_same_value(case):
    predictions, references = rows_of(case)
    metric = load_metric(case["metric"], **case["options"])
    if not isinstance(metric, AdditiveMetric):
        assert case["metric"] in {"roc_auc", "spearmanr"}
        assert metric.statistics is None
        return
    labels = 5 if case["inputs"] in ("multiclass", "rare_class") else 2
    metric.bind(num_labels=labels, label_names=tag_names(case))
    statistics = metric.example_statistics(predictions, references)
    assert statistics.dtype == np.float64
    assert len(statistics) == len(predictions)
    expected = expected_of(case, metric.primary)
    # raw moments lose digits to an offset of 1000 spreads, as the class says
    tolerance = 1e-7 if case["inputs"] == "regression_offset" else TOLERANCE
    totals = statistics.sum(axis=0)
    assert metric.from_totals(totals) == pytest.approx(expected, rel=tolerance, abs=tolerance)
    assert metric.from_totals(2.5 * totals)[metric.primary] == pytest.approx(
        metric.primary_from_totals(2.5 * totals), nan_ok=True
    )
    stacked = metric.primary_from_totals(np.stack([[totals, totals]] * 3))
    np.testing.assert_allclose(stacked, np.full((3, 2), expected[metric.primary]), rtol=tolerance, atol=tolerance)
    metric.add(statistics[:9])
    metric.add(statistics[9:])
    assert metric.compute() == pytest.approx(expected, rel=tolerance, abs=tolerance)


def tag_names(case):
    if case["metric"] != "seqeval":
        return None
    return sorted({tag for side in rows_of(case) for row in side for tag in row})


@pytest.mark.parametrize("case", ROUGE, ids=name_of)
def test_rouge_equals_row_by_row(case):
    predictions, references = rows_of(case)
    metric = load_metric("rouge", **case["options"])
    statistics = metric.example_statistics(predictions, references)
    for column, kind in enumerate(metric.rouge_types):
        np.testing.assert_allclose(statistics[:, column], case["evaluate"][kind], rtol=0, atol=TOLERANCE)
    expected = {kind: np.mean(values) for kind, values in case["evaluate"].items()}
    assert_equal(in_batches(metric, predictions, references, 8).compute(), expected)
    assert_equal(metric.from_totals(statistics.sum(axis=0)), expected)
    np.testing.assert_allclose(
        metric.example_scores(predictions, references), case["evaluate"]["rougeL"], atol=TOLERANCE
    )


@pytest.mark.parametrize("case", AGGREGATED, ids=name_of)
def test_rouge_mean_stands_for_the_bootstrap_median(case):
    """The aggregated value is no function of the rows: a median of 1,000 bootstrap means, here of one recorded seed."""
    predictions, references = rows_of(case)
    metric = load_metric("rouge", **case["options"])
    rows = metric.example_statistics(predictions, references)
    for column, kind in enumerate(metric.rouge_types):
        standard_error = rows[:, column].std(ddof=1) / np.sqrt(len(rows))
        difference = rows[:, column].mean() - case["evaluate"][kind]
        print(
            f"{name_of(case)} {kind}: mean - recorded bootstrap median = {difference:+.2e} (standard error {standard_error:.2e})"
        )
        # the median of 1,000 draws has a standard error of 1.2533 / sqrt(1000) of theirs; 5 of those
        assert abs(difference) < 5 * 1.2533 / np.sqrt(1000) * standard_error


def test_perplexity_equals_the_mean_over_texts():
    """The script runs its model in float32; the losses here are float64 of the same weights: 1e-5 is what that allows."""
    record = RECORD["perplexity"]
    metric = load_metric("perplexity")
    metric.update(record["loss_sum"], record["target_count"])
    values = metric.compute()
    print(
        f"mean_perplexity {values['mean_perplexity']!r}, recorded {record['evaluate']['mean_perplexity']!r} in float32"
    )
    assert values["mean_perplexity"] == pytest.approx(record["evaluate"]["mean_perplexity"], rel=1e-5)
    token_mean = sum(record["loss_sum"]) / sum(record["target_count"])
    assert values["perplexity"] == pytest.approx(np.exp(token_mean), rel=TOLERANCE)
