import numpy as np
import pytest
from scipy import stats

from hf_trainplus.monitor.robust import detrended, falling_fit, robust_spread, rolling_median, theil_sen


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("ties", [False, True])
def test_the_slope_and_its_interval_are_scipys(seed, ties):
    rng = np.random.default_rng(seed)
    x = np.arange(rng.integers(5, 60), dtype=float)
    y = rng.normal(0, 1, len(x)) + 0.05 * x
    y = y.round(0) if ties else y
    ours, oracle = theil_sen(x, y), stats.theilslopes(y, x, alpha=0.95)
    assert ours.value == pytest.approx(oracle.slope)
    assert (ours.low, ours.high) == (pytest.approx(oracle.low_slope), pytest.approx(oracle.high_slope))


def test_the_interval_covers_the_true_slope():
    rng = np.random.default_rng(0)
    x = np.arange(25, dtype=float)
    inside = 0
    for _ in range(400):
        slope = theil_sen(x, 0.3 * x + rng.standard_t(2, len(x)))
        inside += slope.low <= 0.3 <= slope.high
    # 95 % of 400 with four standard errors below
    assert inside >= 400 * 0.95 - 4 * np.sqrt(400 * 0.95 * 0.05)


@pytest.mark.parametrize(
    ("x", "y", "level", "message"),
    [
        ([0, 1], [0, 1], 0.95, "allowed are two equal lengths of 3 or more"),
        ([0, 1, 2], [0, 1], 0.95, "allowed are two equal lengths"),
        ([0, 1, 2], [0, 1, np.nan], 0.95, "over finite x and y"),
        ([0, 1, 2], [0, 1, 2], 1.0, "confidence=1.0"),
        ([1, 1, 1], [0, 1, 2], 0.95, "x has one value only"),
    ],
)
def test_wrong_input(x, y, level, message):
    with pytest.raises(ValueError, match=message):
        theil_sen(x, y, confidence=level)


def test_spread_is_the_standard_deviation_of_a_normal_sample():
    sample = np.random.default_rng(0).normal(0, 3, 20_000)
    assert robust_spread(sample) == pytest.approx(3, rel=0.03)
    sample[:2000] = 1e9
    assert robust_spread(sample) < 4
    assert robust_spread([1.0]) == 0.0


def test_rolling_median_and_its_limits():
    values = np.random.default_rng(1).normal(size=30)
    expected = [np.median(values[k : k + 7]) for k in range(24)]
    assert rolling_median(values, 7).tolist() == pytest.approx(expected)
    with pytest.raises(ValueError, match="width=31; allowed is 1 to 30"):
        rolling_median(values, 31)


def test_detrending_takes_a_line_away():
    noise = np.random.default_rng(2).normal(size=50)
    rest = detrended(5.0 * np.arange(50) + noise)
    assert np.std(rest) == pytest.approx(np.std(noise), rel=0.1)
    assert np.median(rest) == pytest.approx(0.0)


@pytest.mark.parametrize("seed", range(5))
def test_the_falling_fit_is_the_isotonic_regression(seed):
    isotonic = pytest.importorskip("sklearn.isotonic")
    rng = np.random.default_rng(seed)
    values = np.round(5 / np.arange(1, 60) + rng.normal(0, 0.5, 59), 1)  # with ties
    oracle = isotonic.IsotonicRegression(increasing=False).fit_transform(np.arange(59), values)
    assert falling_fit(values) == pytest.approx(oracle)
