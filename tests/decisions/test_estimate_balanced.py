"""The error of a draw that held labels at their shares: only what they do not explain is left open."""

import numpy as np
import pytest

from hf_trainplus import representative_subset
from hf_trainplus.decisions.estimate import SampleDesign, f1_interval, mean_interval
from hf_trainplus.decisions.estimators.balanced import balanced_error
from tests.support.interval_coverage import assert_covers

LABELS = 12


def labelled_rows():
    """Return 2,000 rows with any number of labels, those without included, and the sums that the labels give them."""
    generator = np.random.default_rng(1)
    flags = generator.random((2000, LABELS)) < 1 / np.arange(2, LABELS + 2)
    return flags, flags @ generator.normal(0, 2, LABELS)


@pytest.mark.parametrize(
    ("score", "noise", "width"), [("loss", 1.0, 0.6), ("loss", 8.0, 1.02), ("right", 1.0, 0.85), ("right", 8.0, 1.02)]
)
def test_subset_by_several_labels_covers(score, noise, width):
    flags, sums = labelled_rows()
    values = sums + np.random.default_rng(2).normal(0, noise, 2000)
    if score == "right":
        values = (values > np.quantile(values, 0.3)).astype(float)
    widths = []

    def draw(generator):
        subset = representative_subset({"labels": flags}, 200, seed=int(generator.integers(2**31)))
        found = mean_interval(values[subset.indices], design=subset.design())
        plain = mean_interval(values[subset.indices], n_total=2000)
        widths.append((found.ci_high - found.ci_low) / (plain.ci_high - plain.ci_low))
        return found

    assert_covers(draw, values.mean())
    print(f"width {np.mean(widths):.2f} of a plain sample's")
    assert np.mean(widths) < width


def test_each_row_has_the_same_chance_also_without_a_label():
    flags, _ = labelled_rows()
    drawn = np.zeros(2000)
    for seed in range(300):
        drawn[representative_subset({"labels": flags}, 200, seed=seed).indices] += 1
    for count in range(6):
        rows = flags.sum(1) == count
        expected = 300 * 200 * rows.mean()
        assert abs(drawn[rows].sum() - expected) < 4 * np.sqrt(expected)


def test_the_regression_residuals_are_what_is_open():
    generator = np.random.default_rng(0)
    flags = (generator.random((300, 3)) < 0.4).astype(float)
    flags -= flags.mean(axis=0)
    values = flags @ [1.0, -2.0, 0.5] + generator.normal(0, 0.3, 300)
    values -= values.mean()
    slopes = np.linalg.lstsq(flags, values, rcond=None)[0]
    residuals = values - flags @ slopes
    found = balanced_error(values, flags, 0.9)
    assert found.variance == pytest.approx(residuals @ residuals / (300 - 4) / 300 * 0.9)
    assert found.degrees == 296


def test_what_the_draw_left_of_imbalance_is_added():
    flags = np.array([[0.5], [-0.5]] * 50) + 0.02
    values = 3.0 * (flags[:, 0] - flags.mean())
    assert balanced_error(values, flags, 0.9).variance == pytest.approx((3.0 * 0.02) ** 2)


def test_numbers_that_say_the_same_count_once():
    flags = np.repeat(np.array([[0.5], [-0.5]] * 50), 3, axis=1)
    values = np.random.default_rng(0).normal(size=100)
    assert balanced_error(values, flags, 0.5).degrees == 98


def test_without_degrees_of_freedom_the_error_is_unknown():
    assert not balanced_error(np.array([1.0, -1.0]), np.array([[0.5], [-0.5]]), 0.5).known


def test_a_slice_is_not_balanced():
    flags, _ = labelled_rows()
    design = representative_subset({"labels": flags}, 100, seed=0).design()
    assert design.balance.shape == (100, 13)  # and the rows without a label
    assert design.take(np.arange(50)).balance is None


def test_results_in_another_order_meet_their_own_rows():
    flags, sums = labelled_rows()
    subset = representative_subset({"labels": flags}, 100, seed=0)
    order = np.random.default_rng(0).permutation(100)
    straight = mean_interval(sums[subset.indices], design=subset.design())
    mixed = mean_interval(sums[subset.indices][order], design=subset.design_of(subset.indices[order]))
    assert (mixed.ci_low, mixed.ci_high) == pytest.approx((straight.ci_low, straight.ci_high))


def test_rare_labels_are_no_balance_and_a_small_draw_has_none():
    flags, _ = labelled_rows()
    assert representative_subset({"labels": flags[:, :1] & False}, 100, seed=0).balance is None
    assert representative_subset({"labels": flags}, 8, seed=0).balance is None


def test_metrics_of_counts_take_account_of_it():
    flags, sums = labelled_rows()
    subset = representative_subset({"labels": flags}, 300, seed=3)
    truth, guess = (sums > 0)[subset.indices].astype(int), (sums > 0.5)[subset.indices].astype(int)
    balanced = f1_interval(truth, guess, design=subset.design())
    plain = f1_interval(truth, guess, design=SampleDesign(subset.weights, subset.strata))
    assert balanced.value == plain.value
    assert balanced.standard_error < plain.standard_error


def test_one_line_a_row():
    with pytest.raises(ValueError, match=r"balance \(3, 1\) and weights \(2,\): give one line a row"):
        SampleDesign(np.ones(2), np.zeros(2, int), balance=np.zeros((3, 1)))
