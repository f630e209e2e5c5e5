from dataclasses import replace

import numpy as np
import pytest

from hf_trainplus.monitor.diagnosis import RULES, Evidence, Series, Settings
from hf_trainplus.monitor.diagnosis.rules import (
    DivergenceRule,
    GradientSpikesRule,
    LossOscillationRule,
    NonFiniteLossRule,
    OverfittingRule,
    PlateauRule,
)

STEPS = np.arange(1, 101) * 10.0


def falling(seed=0, noise=0.03, n=100):
    rng = np.random.default_rng(seed)
    return 0.8 + 1.7 * np.exp(-np.arange(n) / 60) + rng.normal(0, noise, n)


def evaluations(values, half_width=None):
    steps = STEPS[9::10][: len(values)]
    found = {"eval_loss": Series.of(steps, values)}
    if half_width is not None:
        found["eval_loss_ci_low"] = Series.of(steps, np.asarray(values) - half_width)
        found["eval_loss_ci_high"] = Series.of(steps, np.asarray(values) + half_width)
    return found


def healthy(seed=0):
    rng = np.random.default_rng(seed + 1000)
    return Evidence(
        train_loss=Series.of(STEPS, falling(seed)),
        grad_norm=Series.of(STEPS, np.exp(rng.normal(0, 0.3, 100))),
        **evaluations([2.3, 2.0, 1.7, 1.5, 1.35, 1.25, 1.17, 1.1, 1.05, 1.01], 0.05),
    )


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_healthy_curves_are_silent(rule):
    for seed in range(25):
        verdict = rule().check(healthy(seed))
        assert verdict.outcome != "found", (seed, verdict.message)


def test_an_alternating_loss_is_a_learning_rate_too_high():
    values = 1.5 + 0.6 * (-1.0) ** np.arange(40)
    verdict = LossOscillationRule().check(Evidence(train_loss=Series.of(STEPS[:40], values)))
    assert verdict.outcome == "found"
    assert "turns at nearly every log: lower learning_rate" in verdict.next_step


def test_a_scattering_loss_is_a_batch_too_small():
    values = np.abs(np.random.default_rng(0).normal(1.5, 0.6, 80))
    verdict = LossOscillationRule().check(Evidence(train_loss=Series.of(STEPS[:80], values)))
    assert verdict.outcome == "found"
    assert "raise gradient_accumulation_steps" in verdict.next_step


def test_a_steep_fall_does_not_count_as_scatter():
    values = np.linspace(6.0, 1.0, 50) + np.random.default_rng(0).normal(0, 0.05, 50)
    assert LossOscillationRule().check(Evidence(train_loss=Series.of(STEPS[:50], values))).outcome == "clear"


PLACES = np.arange(1.0, 101.0)
FALLS = {
    "one over t": 10 / PLACES,
    "square root": 11 / np.sqrt(PLACES),
    "exponential": 2 + 10 * np.exp(-PLACES / 10),
    "to nothing": 3 * np.exp(-PLACES / 15),
    "one step": np.where(PLACES < 50, 2.0, 1.2),
    "late": np.concatenate([np.full(10, 10.0), 2.5 + 7 * np.exp(-np.arange(90) / 10)]),
    "cosine": 1.1 + np.cos(np.pi * PLACES / 100),
}


@pytest.mark.parametrize("noise", [0.0, 0.03])
@pytest.mark.parametrize("shape", FALLS)
def test_a_fall_of_any_shape_is_no_scatter_and_no_divergence(shape, noise):
    values = FALLS[shape] * (1 + noise * np.random.default_rng(0).normal(size=100))
    evidence = Evidence(train_loss=Series.of(STEPS, values), grad_norm=Series.of(STEPS, values))
    for rule in (LossOscillationRule, DivergenceRule, GradientSpikesRule):
        assert rule().check(evidence).outcome == "clear"


def test_a_fall_that_swings_is_found_all_the_same():
    swinging = FALLS["exponential"] * (1 + 0.3 * (-1.0) ** np.arange(100))
    slowly = FALLS["exponential"] * (1 + 0.4 * np.sin(np.arange(100) / 3))
    for values in (swinging, slowly):
        assert LossOscillationRule().check(Evidence(train_loss=Series.of(STEPS, values))).outcome == "found"


def test_divergence_names_the_step_to_go_back_to():
    values = np.concatenate([falling(n=60), np.linspace(1.4, 6.0, 30)])
    verdict = DivergenceRule().check(Evidence(train_loss=Series.of(STEPS[:90], values)))
    assert verdict.outcome == "found"
    assert 400 <= verdict.evidence["best_step"] <= 620
    assert "go back to a checkpoint" in verdict.next_step


def test_one_wild_batch_is_no_divergence():
    values = falling()
    values[-1] = 50.0
    assert DivergenceRule().check(Evidence(train_loss=Series.of(STEPS, values))).outcome == "clear"


def test_overfitting_beyond_the_interval():
    curve = [2.0, 1.6, 1.3, 1.2, 1.25, 1.35, 1.5, 1.6]
    evidence = replace(healthy(), **evaluations(curve, 0.05))
    verdict = OverfittingRule().check(evidence)
    assert verdict.outcome == "found"
    assert verdict.evidence["best_step"] == 400.0
    assert verdict.evidence["rise"] == pytest.approx(0.4)
    assert "the gap is" in verdict.message
    assert "[" in verdict.message


def test_a_rise_inside_the_interval_is_no_overfitting():
    curve = [2.0, 1.6, 1.3, 1.2, 1.22, 1.23, 1.22, 1.24]
    evidence = replace(healthy(), **evaluations(curve, 0.05))
    assert OverfittingRule().check(evidence).outcome == "clear"


def test_intervals_are_read_at_the_level_at_which_the_run_logged_them():
    # a rise of 0.1; the standard errors are 0.02 when 0.04 is half of a 95 % interval, and 0.06 when of a 50 % one
    evidence = replace(healthy(), **evaluations([2.0, 1.6, 1.3, 1.2, 1.25, 1.3], 0.04))
    assert OverfittingRule().check(evidence).outcome == "found"
    narrow = replace(evidence, settings=Settings(eval_confidence=0.5))
    assert OverfittingRule().check(narrow).outcome == "clear"
    assert OverfittingRule(logged_confidence=0.95).check(narrow).outcome == "found"


def test_without_intervals_a_row_of_worse_evaluations_is_asked_for():
    rising = replace(Evidence(train_loss=Series.of(STEPS, falling())), **evaluations([2.0, 1.2, 1.3, 1.4, 1.5]))
    twice = replace(Evidence(train_loss=Series.of(STEPS, falling())), **evaluations([2.0, 1.5, 1.2, 1.3, 1.4]))
    assert OverfittingRule().check(rising).outcome == "found"
    assert "no interval is logged" in OverfittingRule().check(rising).message
    assert OverfittingRule().check(twice).outcome == "clear"


@pytest.mark.parametrize("ends", ["one is missing", "one is infinite"])
def test_an_interval_with_one_end_is_none(ends):
    evidence = replace(healthy(), **evaluations([2.0, 1.2, 1.3, 1.4, 1.5], 0.05))
    high = evidence.eval_loss_ci_high
    values = high.values.copy()
    values[2] = np.inf
    broken = Series.of(high.steps, values) if ends == "one is infinite" else Series.of(high.steps[1:], high.values[1:])
    verdict = OverfittingRule().check(replace(evidence, eval_loss_ci_high=broken))
    assert verdict.outcome == "found"
    assert "no interval is logged" in verdict.message


def test_evaluation_and_training_rising_together_is_divergence_not_overfitting():
    values = np.concatenate([falling(n=50), np.linspace(1.5, 4.0, 50)])
    evidence = Evidence(train_loss=Series.of(STEPS, values), **evaluations([2.0, 1.8, 1.6, 1.5, 1.4, 2, 3, 4], 0.05))
    assert OverfittingRule().check(evidence).outcome == "clear"
    assert DivergenceRule().check(evidence).outcome == "found"


def test_a_flat_loss_is_a_plateau_and_a_noisy_one_is_not_called_flat():
    rng = np.random.default_rng(0)
    flat = Evidence(train_loss=Series.of(STEPS[:40], 1.5 + rng.normal(0, 0.003, 40)))
    noisy = Evidence(train_loss=Series.of(STEPS[:40], 1.5 + rng.normal(0, 0.3, 40)))
    verdict = PlateauRule().check(flat)
    assert verdict.outcome == "found"
    assert verdict.severity == "note"
    assert verdict.evidence["fallen_share_at_most"] < 0.01
    assert PlateauRule().check(noisy).outcome == "clear"


def test_a_slow_steady_fall_is_no_plateau():
    values = np.linspace(2.0, 1.8, 40)
    assert PlateauRule().check(Evidence(train_loss=Series.of(STEPS[:40], values))).outcome == "clear"


def test_evaluations_are_judged_for_a_plateau_where_there_are_enough():
    steps = np.arange(25) * 100.0
    evidence = Evidence(train_loss=Series.of(STEPS, falling()), eval_loss=Series.of(steps, np.full(25, 1.1)))
    verdict = PlateauRule().check(evidence)
    assert verdict.outcome == "found"
    assert "the evaluation loss fell" in verdict.message


def test_gradient_spikes_are_named_by_step():
    norms = np.exp(np.random.default_rng(0).normal(0, 0.2, 100))
    norms[[50, 80]] = 60.0
    verdict = GradientSpikesRule().check(Evidence(grad_norm=Series.of(STEPS, norms)))
    assert verdict.outcome == "found"
    assert "steps 510, 810" in verdict.message


def test_gradients_that_fall_from_a_large_start_are_no_spikes():
    norms = 100.0 * np.exp(-np.arange(100) / 10) + 1.0
    assert GradientSpikesRule().check(Evidence(grad_norm=Series.of(STEPS, norms))).outcome == "clear"


@pytest.mark.parametrize("where", ["train_loss", "eval_loss", "grad_norm"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_value_that_is_no_number_is_found_with_its_step(where, bad):
    series = getattr(healthy(), where)
    values = series.values.copy()
    values[4] = bad
    verdict = NonFiniteLossRule().check(replace(healthy(), **{where: Series.of(series.steps, values)}))
    assert verdict.outcome == "found"
    assert f"first at step {series.steps[4]:g}" in verdict.message


def test_evaluated_rows_that_are_no_numbers_are_found():
    verdict = NonFiniteLossRule().check(replace(healthy(), nonfinite_targets=3))
    assert verdict.message == "3 evaluated rows are NaN or infinite."


def test_other_rules_live_with_values_that_are_no_numbers():
    values = falling()
    values[10:13] = np.nan
    evidence = replace(healthy(), train_loss=Series.of(STEPS, values))
    assert [rule().check(evidence).outcome for rule in RULES].count("found") == 1


def test_series_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match=r"steps has shape \(2,\) and values \(3,\)"):
        Series.of([1, 2], [1, 2, 3])
