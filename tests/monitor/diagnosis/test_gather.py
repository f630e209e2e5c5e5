import json

import numpy as np
import pytest

from hf_trainplus.monitor.diagnosis import DiagnosisRule, Verdict, diagnose, gather_evidence, tell

STEP_CLOCK = {
    "seconds": {"data_wait": 4.0, "forward_backward": 4.0, "evaluation": 2.0, "callbacks": None},
    "total_seconds": 10.0,
    "steps": 20,
    "device_idle_share": 0.25,
    "settings": {"dataloader_num_workers": 2, "unknown": 1},
    "ranks": None,
}
DEVICES = {
    "devices": [
        {"index": 0, "name": "H100", "utilization": "measured"},
        {"index": 1, "name": "H100", "utilization": "not measurable"},
    ],
    "statistics": {
        "gpu0/utilization_percent": {"all": {"mean": 50.0, "max": 100.0}, "train_step": {"mean": 70.0, "max": 100.0}},
        "gpu0/memory_used_gib": {"all": {"mean": 10.0, "max": 20.0}},
        "gpu0/memory_total_gib": {"all": {"mean": 80.0, "max": 80.0}},
        "gpu0/thermal_throttled_percent": {"all": {"mean": 12.0, "max": 100.0}},
    },
}


def test_times_become_shares_and_missing_parts_stay_missing():
    evidence = gather_evidence(step_clock=STEP_CLOCK)
    assert evidence.shares == {"data_wait": 0.4, "forward_backward": 0.4, "evaluation": 0.2}
    assert evidence.step_seconds == pytest.approx(0.4)
    assert evidence.device_idle_share == 0.25
    assert evidence.settings.dataloader_num_workers == 2


def test_settings_given_win_over_recorded_ones():
    evidence = gather_evidence(step_clock=STEP_CLOCK, settings={"dataloader_num_workers": 8, "eval_steps": None})
    assert evidence.settings.dataloader_num_workers == 8
    assert evidence.settings.eval_steps is None


def test_several_ranks_tell_their_mean_and_their_spread():
    ranks = {
        "world_size": 2,
        "shares": {"data_wait": 0.1},
        "spreads": {"data_wait": {"minimum": 0.0, "mean": 1.0, "maximum": 2.0, "largest_rank": 1}},
    }
    evidence = gather_evidence(step_clock={**STEP_CLOCK, "ranks": ranks})
    assert evidence.world_size == 2
    assert evidence.shares == {"data_wait": 0.1}
    assert evidence.spreads["data_wait"].largest_rank == 1


def test_a_rank_that_kept_to_itself_tells_nothing_about_the_others():
    alone = {"minimum": 1.0, "mean": 1.0, "maximum": 1.0, "largest_rank": 0}
    ranks = {"world_size": 1, "shares": {}, "spreads": {"own": alone, "total": alone}}
    for summary in ({**STEP_CLOCK, "world_size": 2, "ranks": ranks}, {**STEP_CLOCK, "world_size": 2}):
        evidence = gather_evidence(step_clock=summary)
        assert (evidence.world_size, evidence.spreads) == (2, {})
        outcomes = {verdict.rule: verdict.outcome for verdict in diagnose(evidence)}
        assert (outcomes["straggler"], outcomes["communication_bound"]) == ("unknown", "unknown")


def test_a_measured_reduction_becomes_a_share():
    even = {"minimum": 1.0, "mean": 2.0, "maximum": 3.0, "largest_rank": 0}
    spreads = {"communication": even, "total": {**even, "mean": 8.0}}
    ranks = {"world_size": 2, "shares": {}, "spreads": spreads}
    assert gather_evidence(step_clock={**STEP_CLOCK, "ranks": ranks}).communication_share == 0.25
    assert gather_evidence(step_clock=STEP_CLOCK).communication_share is None


def test_devices_tell_their_use_in_training_and_only_where_it_is_measurable():
    first, second = gather_evidence(devices=DEVICES).devices
    assert first.utilization_percent == 70.0
    assert (first.memory_used_gib, first.memory_total_gib) == (20.0, 80.0)
    assert first.thermal_throttled_percent == 12.0
    assert second.utilization_percent is None
    assert gather_evidence(devices=DEVICES).utilization_percent is None


def test_losses_with_intervals_and_repeated_steps():
    history = [
        {"step": 1, "loss": 3.0, "grad_norm": 1.0},
        {"step": 1, "eval_loss": 2.5, "eval_loss_ci_low": 2.4, "eval_loss_ci_high": 2.6, "eval_nonfinite": 2},
        {"step": 2, "loss": 2.0, "grad_norm": float("nan")},
        {"step": 2, "loss": 1.9},
        {"step": 2, "train_runtime": 3.0},
    ]
    evidence = gather_evidence(log_history=history)
    assert evidence.train_loss.values.tolist() == [3.0, 1.9]
    assert (evidence.eval_loss_ci_low.values.tolist(), evidence.eval_loss_ci_high.values.tolist()) == ([2.4], [2.6])
    assert np.isnan(evidence.grad_norm.values).tolist() == [False, True]
    assert evidence.nonfinite_targets == 2


def test_named_evaluation_sets_tell_the_first_ones_loss():
    evidence = gather_evidence(log_history=[{"step": 1, "eval_a_loss": 2.0}, {"step": 1, "eval_b_loss": 9.0}])
    assert evidence.eval_loss.values.tolist() == [2.0]


def test_a_metric_that_is_called_a_loss_is_not_the_loss():
    history = [{"step": 1, "eval_triplet_loss": 9.0, "eval_loss": 2.0}, {"step": 2, "eval_loss": 1.0}]
    assert gather_evidence(log_history=history).eval_loss.values.tolist() == [2.0, 1.0]


def test_rows_that_are_no_numbers_count_in_every_set():
    history = [
        {"step": 1, "eval_a_loss": 2.0, "eval_a_nonfinite": 2},
        {"step": 1, "eval_b_loss": 9.0, "eval_b_nonfinite": 3},
    ]
    assert gather_evidence(log_history=history).nonfinite_targets == 5


def test_nothing_known_gives_no_finding():
    verdicts = diagnose(gather_evidence())
    assert tell(verdicts) == ""
    assert {verdict.outcome for verdict in verdicts} == {"unknown"}


def test_findings_are_told_problems_first_with_the_next_step():
    verdicts = diagnose(gather_evidence(step_clock=STEP_CLOCK, devices=DEVICES))
    text = tell(verdicts)
    assert "data_bound: 50 % of each step waits for data. Next: dataloader_num_workers 2 -> 5." in text
    note, problem = Verdict("a", "found", "A.", severity="note"), Verdict("b", "found", "B.", "do it.")
    assert tell([note, problem, Verdict("c", "clear", "C.")]) == "b: B. Next: do it.\na: A."


def test_verdicts_are_strict_json():
    verdicts = diagnose(gather_evidence(step_clock=STEP_CLOCK, devices=DEVICES))
    assert len(json.loads(json.dumps([verdict.to_json() for verdict in verdicts], allow_nan=False))) == len(verdicts)


def test_a_rule_of_ones_own_is_one_class():
    class Slow(DiagnosisRule):
        name = "slow"

        def check(self, evidence):
            return self.verdict(evidence.step_seconds > 0.1, "slow.", next_step="profile.")

    (verdict,) = diagnose(gather_evidence(step_clock=STEP_CLOCK), rules=[Slow()])
    assert (verdict.rule, verdict.outcome, verdict.next_step) == ("slow", "found", "profile.")
