import math

import pytest
from scipy import stats

from hf_trainplus.decisions.estimators.quantiles import critical_value, normal_quantile, t_quantile


@pytest.mark.parametrize("degrees", [0.4, 1, 2, 3.7, 5, 19, 99, 1234.5, 1e6, 1e8, math.inf])
@pytest.mark.parametrize("probability", [1e-9, 0.001, 0.025, 0.3, 0.5, 0.6, 0.95, 0.975, 0.9995])
def test_t_quantile_agrees_with_scipy(probability, degrees):
    expected = stats.t.ppf(probability, degrees) if degrees < 1e7 else stats.norm.ppf(probability)
    assert t_quantile(probability, degrees) == pytest.approx(expected, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("probability", [1e-12, 0.025, 0.5, 0.975])
def test_normal_quantile_agrees_with_scipy(probability):
    assert normal_quantile(probability) == pytest.approx(stats.norm.ppf(probability), rel=1e-9, abs=1e-12)


def test_critical_value_is_two_sided():
    assert critical_value(0.9, 7) == pytest.approx(stats.t.ppf(0.95, 7))


@pytest.mark.parametrize("confidence", [0, 1, -0.1, 95, math.nan])
def test_confidence_is_a_share(confidence):
    with pytest.raises(ValueError, match="confidence is .* between 0 and 1, e.g. confidence=0.95"):
        critical_value(confidence)


def test_bad_degrees_and_probabilities_are_refused():
    with pytest.raises(ValueError, match="degrees_of_freedom is 0"):
        t_quantile(0.9, 0)
    with pytest.raises(ValueError, match="degrees_of_freedom is nan"):
        t_quantile(0.9, math.nan)
    with pytest.raises(ValueError, match="probability is 1"):
        t_quantile(1, 5)
