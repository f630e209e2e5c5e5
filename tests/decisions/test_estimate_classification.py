"""F1, MCC and AUC: values against scikit-learn, errors against DeLong and numeric derivatives, honest ends."""

import math

import numpy as np
import pytest
from sklearn.metrics import f1_score, matthews_corrcoef, roc_auc_score

from hf_trainplus.decisions.estimate import SampleDesign, auc_interval, f1_interval, mcc_interval, wilson_interval


def labels(n=400, classes=4, seed=0, wrong=0.3):
    generator = np.random.default_rng(seed)
    true = generator.choice(classes, n, p=generator.dirichlet(np.full(classes, 3.0)))
    return np.where(generator.random(n) < wrong, generator.integers(0, classes, n), true), true


def numeric_error(metric, weights, strata):
    """Infinitesimal jackknife: derivative of the metric in each row's weight."""
    slopes = np.empty(len(weights))
    for row in range(len(weights)):
        up, down = weights.copy(), weights.copy()
        up[row] += 1e-4
        down[row] -= 1e-4
        slopes[row] = (metric(up) - metric(down)) / 2e-4
    variance = 0.0
    for stratum in np.unique(strata):
        own = weights[strata == stratum] * slopes[strata == stratum]
        size = weights[strata == stratum].sum()
        variance += len(own) * own.var(ddof=1) * (1 - len(own) / size)
    return math.sqrt(variance)


STRATA = np.random.default_rng(9).integers(0, 3, 120)
WEIGHTS = np.array([3.0, 8.0, 20.0])[STRATA]


@pytest.mark.parametrize(
    ("options", "reference"),
    [
        ({"average": "binary", "positive": 2}, {"average": "macro", "labels": [2]}),
        ({"average": "micro"}, {"average": "micro"}),
        ({"average": "micro", "labels": [1, 2]}, {"average": "micro", "labels": [1, 2]}),
        ({"average": "macro"}, {"average": "macro"}),
        ({"average": "macro", "labels": [0, 3]}, {"average": "macro", "labels": [0, 3]}),
    ],
)
def test_f1_agrees_with_sklearn_and_its_error_with_derivatives(options, reference):
    predicted, true = labels(120)
    found = f1_interval(predicted, true, design=SampleDesign(WEIGHTS, STRATA), **options)

    def metric(weights):
        return f1_score(true, predicted, sample_weight=weights, zero_division=0, **reference)

    assert found.value == pytest.approx(metric(WEIGHTS))
    assert found.standard_error == pytest.approx(numeric_error(metric, WEIGHTS, STRATA), rel=1e-4)
    assert found.ci_low < found.value < found.ci_high


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_f1_of_several_labels_a_row(average):
    generator = np.random.default_rng(1)
    true = (generator.random((300, 5)) < [0.5, 0.3, 0.2, 0.1, 0.05]).astype(int)
    predicted = np.where(generator.random((300, 5)) < 0.2, 1 - true, true)
    found = f1_interval(predicted, true, average=average)
    assert found.value == pytest.approx(f1_score(true, predicted, average=average))
    subset = f1_interval(predicted, true, average=average, labels=[0, 4])
    assert subset.value == pytest.approx(f1_score(true, predicted, average=average, labels=[0, 4]))


def test_labels_may_be_strings():
    predicted, true = labels(classes=2)
    names = np.array(["neg", "pos"])
    found = f1_interval(names[predicted], names[true], positive="pos")
    assert found.value == pytest.approx(f1_score(true, predicted))
    assert mcc_interval(names[predicted], names[true]).value == pytest.approx(matthews_corrcoef(true, predicted))


def test_micro_f1_of_all_classes_is_wilson_of_the_accuracy():
    predicted, true = labels()
    found, right = f1_interval(predicted, true, average="micro"), wilson_interval(int((predicted == true).sum()), 400)
    assert found.value == pytest.approx(right.value)
    union = 800 - 400 * right.value
    assert found.ci_high < 1
    assert union > 400


def test_perfect_and_hopeless_f1_are_not_certain():
    true = np.array([1] * 20 + [0] * 80)
    perfect = f1_interval(true, true)
    assert (perfect.value, perfect.ci_high) == (1.0, 1.0)
    assert perfect.ci_low == pytest.approx(2 * 0.8389 / 1.8389, abs=1e-3)
    none = f1_interval(np.zeros(100), true)
    assert (none.value, none.ci_low) == (0.0, 0.0)
    assert none.ci_high > 0.05
    macro = f1_interval(true, true, average="macro")
    assert (macro.value, macro.ci_high) == (1.0, 1.0)
    assert macro.ci_low < 0.99
    exact_sample = f1_interval(true, true, average="macro", n_total=200)
    assert macro.ci_low < exact_sample.ci_low < 1


def test_f1_without_any_label_is_none():
    found = f1_interval([0, 0], [0, 0])
    assert (found.value, found.ci_low) == (None, None)


def test_a_class_that_never_occurs_counts_as_zero_when_asked_for():
    predicted, true = labels(classes=3)
    found = f1_interval(predicted, true, average="macro", labels=[0, 1, 2, 7])
    assert found.value == pytest.approx(f1_score(true, predicted, average="macro") * 3 / 4)


def test_wrong_use_of_f1_is_named():
    with pytest.raises(ValueError, match="average is 'weighted'; allowed are 'binary', 'micro', 'macro'"):
        f1_interval([1], [1], average="weighted")
    with pytest.raises(ValueError, match=r"predictions \(2,\) and references \(1,\)"):
        f1_interval([1, 0], [1])
    with pytest.raises(ValueError, match="two-dimensional labels hold values other than 0 and 1"):
        f1_interval([[0.2, 0.9]], [[0, 1]], average="micro")
    with pytest.raises(ValueError, match=r"labels \[5\] are not columns; allowed are 0 to 1"):
        f1_interval([[0, 1]], [[0, 1]], average="micro", labels=[5])


@pytest.mark.parametrize("classes", [2, 5])
def test_mcc_agrees_with_sklearn_and_its_error_with_derivatives(classes):
    predicted, true = labels(120, classes)
    found = mcc_interval(predicted, true, design=SampleDesign(WEIGHTS, STRATA))

    def metric(weights):
        return matthews_corrcoef(true, predicted, sample_weight=weights)

    assert found.value == pytest.approx(metric(WEIGHTS))
    assert found.standard_error == pytest.approx(numeric_error(metric, WEIGHTS, STRATA), rel=1e-4)


def test_mcc_at_its_ends():
    true = np.array([1] * 20 + [0] * 80)
    perfect, inverted = mcc_interval(true, true), mcc_interval(1 - true, true)
    assert (perfect.value, perfect.ci_high) == (1.0, 1.0)
    assert 0.8 < perfect.ci_low < 0.97
    assert (inverted.value, inverted.ci_low) == (-1.0, -1.0)
    assert -0.97 < inverted.ci_high < -0.8
    constant = mcc_interval(np.zeros(100), true)
    assert (constant.value, constant.ci_low, constant.method) == (0.0, None, "constant")
    with pytest.raises(ValueError, match="MCC takes one class a row"):
        mcc_interval([[1, 0]], [[1, 0]])


def scores(n=300, seed=0, gap=1.2, digits=1):
    generator = np.random.default_rng(seed)
    true = generator.random(n) < 0.25
    return np.round(generator.normal(true * gap, 1), digits), true


def delong(score, true):
    positive, negative = score[true], score[~true]
    wins = (positive[:, None] > negative).astype(float) + 0.5 * (positive[:, None] == negative)
    return wins.mean(), wins.mean(axis=1).var(ddof=1) / len(positive) + wins.mean(axis=0).var(ddof=1) / len(negative)


def test_auc_agrees_with_sklearn_and_delong():
    score, true = scores()
    value, variance = delong(score, true)
    found = auc_interval(score, true)
    assert found.value == pytest.approx(roc_auc_score(true, score))
    assert found.value == pytest.approx(value)
    assert found.population_standard_error == pytest.approx(math.sqrt(variance), rel=0.02)


def test_weighted_auc_and_its_error():
    score, true = scores(120)
    found = auc_interval(score, true, design=SampleDesign(WEIGHTS, STRATA))

    def metric(weights):
        return roc_auc_score(true, score, sample_weight=weights)

    assert found.value == pytest.approx(metric(WEIGHTS))
    assert found.standard_error == pytest.approx(numeric_error(metric, WEIGHTS, STRATA), rel=1e-4)


def test_auc_at_its_ends():
    true = np.array([True] * 15 + [False] * 85)
    parted = auc_interval(true.astype(float), true)
    assert (parted.value, parted.ci_high) == (1.0, 1.0)
    assert parted.ci_low == pytest.approx(wilson_interval(15, 15).ci_low)
    constant = auc_interval(np.zeros(100), true)
    assert constant.value == 0.5
    assert auc_interval([1.0, 2.0], [1, 1]).value is None
    broken = auc_interval([1.0, math.nan], [1, 0])
    assert math.isnan(broken.value)
    assert broken.ci_low is None
    with pytest.raises(ValueError, match="give one score and one 0 or 1 a row"):
        auc_interval([1.0], [2])
