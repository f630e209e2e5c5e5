"""Each rule against a fault made exactly, against a healthy run, and without evidence."""

from dataclasses import replace

import pytest

from hf_trainplus.monitor.diagnosis import RULES, AllocatorEvidence, DeviceEvidence, Evidence, Settings, diagnose
from hf_trainplus.monitor.diagnosis.rules import (
    CommunicationBoundRule,
    ComputeBoundRule,
    DataBoundRule,
    EvaluationBoundRule,
    FragmentationRule,
    HostBoundRule,
    LoggingOftenRule,
    MemoryFullRule,
    SavingBoundRule,
    SmallBatchRule,
    StragglerRule,
    ThrottlingRule,
)
from hf_trainplus.monitor.rank_table import Spread

GPU = DeviceEvidence(
    0,
    "H100",
    utilization_percent=75.0,
    memory_used_gib=56.0,
    memory_total_gib=80.0,
    power_watts=500.0,
    temperature_celsius=60.0,
    power_throttled_percent=2.0,
    thermal_throttled_percent=0.0,
)
PARTS = {
    "data_wait": 0.04,
    "host_to_device": 0.01,
    "rank_sync": 0.0,
    "forward_backward": 0.72,
    "optimizer": 0.07,
    "evaluation": 0.08,
    "saving": 0.03,
    "logging": 0.01,
    "callbacks": 0.01,
    "other": 0.03,
}
SETTINGS = Settings(
    dataloader_num_workers=2,
    per_device_train_batch_size=16,
    gradient_accumulation_steps=1,
    logging_steps=10,
    eval_steps=500,
    save_steps=500,
    cpus_per_process=16,
)
HEALTHY = Evidence(
    steps=100,
    step_seconds=0.5,
    shares=PARTS,
    device_idle_share=0.02,
    devices=(GPU,),
    allocator=AllocatorEvidence(allocated_gib=50.0, reserved_gib=55.0, total_gib=80.0, retries=0),
    settings=SETTINGS,
)
ALIKE = Spread(10.0, 10.0, 10.0, 0)
RANKS = replace(
    HEALTHY,
    world_size=4,
    communication_share=0.03,
    spreads={"own": ALIKE, "data_wait": Spread(0.5, 0.5, 0.5, 0), "total": Spread(50.0, 50.0, 50.0, 0)},
)


def shares(**changes):
    return {**PARTS, **changes}


def device(**changes):
    return (replace(GPU, **changes),)


@pytest.mark.parametrize("healthy", [HEALTHY, RANKS], ids=["one rank", "four ranks"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_healthy_run_is_silent(rule, healthy):
    assert rule().check(healthy).outcome != "found"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_without_evidence_a_rule_says_unknown(rule):
    verdict = rule().check(Evidence())
    assert verdict.outcome == "unknown"
    assert verdict.message
    assert verdict.next_step == ""


FAULTS = [
    (DataBoundRule, replace(HEALTHY, shares=shares(data_wait=0.41, evaluation=0.0, saving=0.0)), "41 % of each step waits for data", "workers 2 -> 5"),
    (ComputeBoundRule, replace(HEALTHY, shares=shares(forward_backward=0.9), devices=device(utilization_percent=97.0)), "97 % busy", "bf16"),
    (ComputeBoundRule, replace(HEALTHY, shares=shares(forward_backward=0.9), devices=()), "97 % of the time is forward", "bf16"),
    (MemoryFullRule, replace(HEALTHY, allocator=None, devices=device(memory_used_gib=79.0)), "99 % of a device", "size 16 -> 8"),
    (MemoryFullRule, replace(HEALTHY, allocator=AllocatorEvidence(76.0, 78.0, 80.0)), "95 % of a device", "size 16 -> 8"),
    (FragmentationRule, replace(HEALTHY, allocator=AllocatorEvidence(50.0, 75.0, 80.0)), "keeps 31 % of the device", "expandable_segments"),
    (FragmentationRule, replace(HEALTHY, allocator=AllocatorEvidence(50.0, 55.0, 80.0, 3)), "(3 retries)", "expandable_segments"),
    (SmallBatchRule, replace(HEALTHY, devices=device(utilization_percent=30.0, memory_used_gib=8.0)), "30 % busy with 10 %", "size 16 -> 128"),
    (EvaluationBoundRule, replace(HEALTHY, shares=shares(evaluation=0.5)), "50 % of the time is evaluation", "eval_steps 500 -> 4500"),
    (SavingBoundRule, replace(HEALTHY, shares=shares(saving=0.2)), "20 % of the time is saving", "save_steps 500 -> 6125"),
    (LoggingOftenRule, replace(HEALTHY, shares=shares(logging=0.09)), "10 % of the time is logging", "logging_steps 10 -> 97"),
    (LoggingOftenRule, replace(HEALTHY, shares=shares(callbacks=0.4)), "41 % of the time is logging and callbacks", "callbacks take 40 %: make them cheaper"),
    (ThrottlingRule, replace(HEALTHY, devices=device(thermal_throttled_percent=30.0, temperature_celsius=91.0)), "by heat in 30 % of the samples at up to 91", "cooling"),
    (ThrottlingRule, replace(HEALTHY, devices=device(power_throttled_percent=80.0)), "power limit in 80 %", "nvidia-smi"),
    (HostBoundRule, replace(HEALTHY, device_idle_share=0.9), "nothing to do at 90 %", "torch_compile"),
    (HostBoundRule, replace(HEALTHY, device_idle_share=None, shares=shares(forward_backward=0.9), devices=device(utilization_percent=20.0)), "20 % busy", "torch_compile"),
    (StragglerRule, replace(RANKS, spreads={**RANKS.spreads, "own": Spread(10.0, 12.5, 20.0, 3)}), "rank 3 works 22 % of a step longer", "clocks"),
    (CommunicationBoundRule, replace(RANKS, communication_share=0.4), "40 % of the time is spent on exchanging", "ddp_comm_hook"),
    (CommunicationBoundRule, replace(RANKS, communication_share=None, shares=shares(rank_sync=0.3)), "30 % of the time", "ddp_comm_hook"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "evidence", "says", "advice"), FAULTS)
def test_the_fault_is_found_with_figures_and_a_next_step(rule, evidence, says, advice):
    verdict = rule().check(evidence)
    assert verdict.outcome == "found"
    assert says in verdict.message
    assert advice in verdict.next_step
    assert verdict.evidence
    assert all(isinstance(value, float) for value in verdict.evidence.values())


def test_every_system_rule_has_a_fault():
    tested = {rule.name for rule, *_ in FAULTS}
    curves = {"nonfinite_loss", "divergence", "loss_oscillation", "gradient_spikes", "overfitting", "plateau"}
    assert tested | curves == {rule.name for rule in RULES}


def test_data_wait_names_the_rank():
    spreads = {**RANKS.spreads, "data_wait": Spread(0.5, 6.0, 20.5, 3)}
    verdict = DataBoundRule().check(replace(RANKS, spreads=spreads, shares=shares(evaluation=0.0, saving=0.0)))
    assert verdict.message == "41 % of each step waits for data on rank 3."


@pytest.mark.parametrize("aside", ["evaluation", "saving"])
def test_a_step_that_waits_is_found_beside_a_long_evaluation(aside):
    # a fifth of the time are steps, and each waits half of its time
    mostly_aside = {**dict.fromkeys(PARTS, 0.0), aside: 0.8, "data_wait": 0.1, "forward_backward": 0.1}
    verdict = DataBoundRule().check(replace(HEALTHY, shares=mostly_aside))
    assert verdict.outcome == "found"
    assert verdict.message == "50 % of each step waits for data."
    spreads = {**RANKS.spreads, "own": Spread(1.0, 1.5, 3.0, 3)}
    assert StragglerRule().check(replace(RANKS, spreads=spreads, shares=mostly_aside)).outcome == "found"


def test_a_straggler_is_unknown_where_the_number_of_ranks_is():
    for rule in (StragglerRule, CommunicationBoundRule):
        assert rule().check(replace(HEALTHY, world_size=None)).outcome == "unknown"
        assert rule().check(replace(HEALTHY, world_size=1)).message == "there is one rank."


@pytest.mark.parametrize(
    ("workers", "cpus", "share", "advice"),
    [
        (0, 16, 0.5, "dataloader_num_workers 0 -> 2."),
        (0, 16, 0.9, "dataloader_num_workers 0 -> 12."),
        (2, 16, 0.41, "dataloader_num_workers 2 -> 5."),
        (4, 4, 0.5, "all 4 cores have a worker; make rows cheaper"),
        (4, 6, 0.9, "dataloader_num_workers 4 -> 6."),
        (None, None, 0.5, "raise dataloader_num_workers"),
    ],
)
def test_the_number_of_workers_follows_from_the_share(workers, cpus, share, advice):
    settings = Settings(dataloader_num_workers=workers, cpus_per_process=cpus)
    waiting = shares(data_wait=share, evaluation=0.0, saving=0.0)
    verdict = DataBoundRule().check(replace(HEALTHY, shares=waiting, settings=settings))
    assert verdict.next_step.startswith(advice)


def test_a_busy_device_is_not_held_up_by_its_loader():
    evidence = replace(HEALTHY, shares=shares(data_wait=0.4), devices=device(utilization_percent=99.0))
    assert DataBoundRule().check(evidence).outcome == "clear"


def test_a_slow_rank_is_a_straggler_and_neither_data_nor_communication():
    # rank 1 of two computes longer; rank 0 waits for it at the count
    spreads = {
        "own": Spread(2.0, 6.0, 10.0, 1),
        "data_wait": Spread(0.1, 0.1, 0.1, 0),
        "total": Spread(20.0, 20.0, 20.0, 0),
    }
    evidence = replace(RANKS, world_size=2, spreads=spreads, communication_share=None, shares=shares(rank_sync=0.3))
    outcomes = {verdict.rule: verdict.outcome for verdict in diagnose(evidence)}
    assert outcomes["straggler"] == "found"
    assert outcomes["data_bound"] == "clear"
    assert outcomes["communication_bound"] == "clear"


def test_ranks_that_wait_for_what_one_does_alone_do_not_wait_for_the_exchange():
    # rank 0 writes logs for 15 of 50 seconds; the other three wait for it at the count
    spreads = {**RANKS.spreads, "rank_sync": Spread(0.5, 11.4, 15.0, 3), "logging": Spread(0.1, 3.8, 15.0, 0)}
    evidence = replace(RANKS, spreads=spreads, communication_share=None, shares=shares(rank_sync=0.23))
    assert CommunicationBoundRule().check(evidence).outcome == "clear"


@pytest.mark.parametrize(
    ("rule", "part"),
    [(EvaluationBoundRule, "evaluation"), (SavingBoundRule, "saving"), (LoggingOftenRule, "logging")],
)
def test_what_one_rank_of_four_does_alone_counts_whole(rule, part):
    spreads = {**RANKS.spreads, part: Spread(0.0, 5.0, 20.0, 0)}
    verdict = rule().check(replace(RANKS, spreads=spreads, shares=shares(**{part: 0.1})))
    assert verdict.outcome == "found"
    assert "4" in verdict.message.partition(" %")[0]
    assert verdict.evidence[f"{part}_share"] >= 0.4


@pytest.mark.parametrize(
    ("rule", "part", "setting", "steps"),
    [
        (EvaluationBoundRule, "evaluation", "eval_steps", 500),
        (SavingBoundRule, "saving", "save_steps", 500),
        (LoggingOftenRule, "logging", "logging_steps", 10),
    ],
)
def test_a_stricter_threshold_never_advises_a_shorter_interval(rule, part, setting, steps):
    evidence = replace(HEALTHY, shares=shares(**{part: 0.0075, "callbacks": 0.0}))
    verdict = rule(share=0.005).check(evidence)
    advised = int(verdict.next_step.partition(f"{setting} {steps} -> ")[2].partition(",")[0].rstrip("."))
    assert advised > 2 * steps, verdict.next_step


def test_a_straggler_that_waits_for_data_is_told_so():
    spreads = {**RANKS.spreads, "own": Spread(10.0, 12.5, 20.0, 2), "data_wait": Spread(0.5, 2.9, 10.1, 2)}
    assert "it waits for data" in StragglerRule().check(replace(RANKS, spreads=spreads)).next_step


def test_a_use_that_cannot_be_measured_is_unknown_and_never_idle():
    evidence = replace(HEALTHY, device_idle_share=None, devices=device(utilization_percent=None))
    for rule in (SmallBatchRule, HostBoundRule, ComputeBoundRule):
        assert rule().check(evidence).outcome == "unknown"


def test_a_reserve_on_an_empty_device_is_no_fault():
    evidence = replace(HEALTHY, allocator=AllocatorEvidence(5.0, 40.0, 80.0))
    assert FragmentationRule().check(evidence).outcome == "clear"


def test_reserve_alone_is_not_full_memory():
    evidence = replace(HEALTHY, allocator=AllocatorEvidence(40.0, 78.0, 80.0), devices=device(memory_used_gib=79.0))
    assert MemoryFullRule().check(evidence).outcome == "clear"


def test_too_few_steps_are_unknown():
    evidence = replace(HEALTHY, steps=3, shares=shares(data_wait=0.9, evaluation=0.9))
    assert DataBoundRule().check(evidence).outcome == "unknown"
    assert EvaluationBoundRule().check(evidence).outcome == "unknown"


def test_thresholds_are_arguments():
    evidence = replace(HEALTHY, shares=shares(data_wait=0.1, evaluation=0.2))
    assert DataBoundRule().check(evidence).outcome == "clear"
    assert DataBoundRule(share=0.05).check(evidence).outcome == "found"
    assert EvaluationBoundRule(share=0.1).check(evidence).outcome == "found"
    assert EvaluationBoundRule().check(evidence).outcome == "clear"
