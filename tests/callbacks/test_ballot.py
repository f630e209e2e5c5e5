"""What one rank finds, as numbers, and what all ranks read out of the largest ones."""

import pytest

from hf_trainplus.budget.keeping.keeper import Verdict
from hf_trainplus.budget.stops import StopReason
from hf_trainplus.callbacks._ballot import Decision, ballot, count
from hf_trainplus.callbacks.agreement import agree, world_size

QUIET = Verdict(None, False, (), None)


def decided(*ballots):
    return count([max(votes) for votes in zip(*ballots, strict=True)])


def test_nothing_is_nothing():
    assert decided(ballot(None, QUIET)) == Decision(None, None, False, (), None)


@pytest.mark.parametrize("reason", StopReason)
def test_a_reason_of_one_rank_counts_for_all(reason):
    assert decided(ballot(None, QUIET), ballot(reason, QUIET)).reason is reason


def test_the_strongest_of_several_reasons_counts():
    spent = Verdict("gpu_hours", False, (), 1.0)
    assert decided(ballot(None, spent), ballot(StopReason.SIGNAL, QUIET)).reason is StopReason.SIGNAL
    assert decided(ballot(None, spent), ballot(StopReason.STOP_FILE, QUIET)).reason is StopReason.STOP_FILE


@pytest.mark.parametrize(("limit", "reason"), [("tokens", StopReason.BUDGET_SPENT), ("deadline", StopReason.DEADLINE)])
def test_a_limit_is_a_reason_and_keeps_its_name(limit, reason):
    decision = decided(ballot(None, QUIET), ballot(None, Verdict(limit, False, (), None)))
    assert (decision.reason, decision.limit) == (reason, limit)


def test_postponing_probes_and_shares_are_agreed_on_too():
    one, other = Verdict(None, True, ("evaluation",), 0.4), Verdict(None, False, ("save",), 0.6)
    decision = decided(ballot(None, one), ballot(None, other))
    assert decision == Decision(None, None, True, ("evaluation", "save"), 0.6)
    assert decided(ballot(None, one), ballot(None, QUIET)).share == 0.4


def test_without_a_process_group_a_rank_agrees_with_itself():
    assert world_size() == 1
    assert agree([1.0, 0.25]) == [1.0, 0.25]
