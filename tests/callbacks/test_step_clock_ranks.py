import json

import pytest

from hf_trainplus.monitor.diagnosis import gather_evidence
from hf_trainplus.monitor.diagnosis.rules import CommunicationBoundRule, DataBoundRule, StragglerRule
from tests.support import slow_rank
from tests.support.launch import torchrun

pytestmark = [pytest.mark.distributed, pytest.mark.slow]


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    done = torchrun(slow_rank.__file__, tmp_path_factory.mktemp("ranks"))
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"case"')]
    return {line["case"]: line for line in lines}


def spread(case, name):
    return case["ranks"]["spreads"][name]


def test_a_rank_slow_in_its_forward_pass_is_named_and_nobody_waits_for_data(cases):
    case = cases["forward"]
    slept = 6 * slow_rank.SECONDS
    assert spread(case, "forward")["maximum"] > slept
    assert spread(case, "own")["largest_rank"] == 1
    assert case["last"]["time/slowest_rank"] == 1
    assert spread(case, "data_wait")["maximum"] < slept / 3
    # the fast rank waits inside backward, where gradients are reduced
    assert spread(case, "forward_backward")["minimum"] > 0.8 * slept


def test_waiting_for_a_slow_rank_at_the_count_is_never_data_wait(cases):
    case = cases["callback"]
    slept = 6 * slow_rank.SECONDS
    assert spread(case, "callbacks")["largest_rank"] == 1
    assert spread(case, "callbacks")["maximum"] > slept
    # five of six sleeps are waited for in the count of the next step, the last one at the log
    assert case["seconds"]["rank_sync"] > 0.5 * slept
    assert case["seconds"]["data_wait"] < slept / 3
    assert spread(case, "own")["largest_rank"] == 1


def test_a_rank_that_waits_for_data_is_named_and_the_others_wait_for_it(cases):
    case = cases["data"]
    slept = 6 * slow_rank.SECONDS
    assert spread(case, "data_wait")["largest_rank"] == 1
    assert spread(case, "data_wait")["maximum"] > slept
    assert case["last"]["time/data_wait_slowest_rank"] == 1
    assert case["seconds"]["data_wait"] < slept / 3
    assert case["seconds"]["rank_sync"] > 0.5 * slept


def test_ranks_that_are_handed_their_batches_wait_for_the_reading_rank_and_not_for_data(cases):
    case = cases["callback of a stream"]
    slept = 6 * slow_rank.SECONDS
    assert spread(case, "callbacks")["largest_rank"] == 0
    assert spread(case, "data_wait")["maximum"] < slept / 3
    assert spread(case, "rank_sync")["largest_rank"] == 1
    assert spread(case, "rank_sync")["maximum"] > 0.5 * slept
    assert spread(case, "own")["largest_rank"] == 0


def test_where_no_targets_are_counted_the_wait_before_the_forward_pass_is_nobodys_work(cases):
    case = cases["callback uncounted"]
    # DDP sends its buffers before the model's own forward pass: there the fast rank waits for the slow one
    assert spread(case, "forward_backward")["maximum"] > 0.5 * 6 * slow_rank.SECONDS
    assert spread(case, "forward")["maximum"] < 0.5 * 6 * slow_rank.SECONDS
    assert spread(case, "own")["largest_rank"] == 1


def test_a_slow_stream_is_the_reading_ranks_wait(cases):
    case = cases["data of a stream"]
    # rank 0 reads two rows for each of the six steps
    slept = 12 * slow_rank.SECONDS
    assert spread(case, "data_wait")["largest_rank"] == 0
    assert spread(case, "data_wait")["maximum"] > slept
    assert spread(case, "data_wait")["minimum"] < slept / 3
    assert spread(case, "rank_sync")["largest_rank"] == 1
    assert spread(case, "rank_sync")["maximum"] > 0.5 * slept


@pytest.mark.parametrize(
    ("name", "rank"), [("forward", 1), ("optimizer", 1), ("callback", 1), ("callback of a stream", 0)]
)
def test_a_slow_rank_is_a_straggler_and_never_data_bound(cases, name, rank):
    evidence = gather_evidence(step_clock=cases[name])
    # six steps of a tiny model: what is no sleep is large beside them
    assert DataBoundRule(share=0.35).check(evidence).outcome == "clear"
    assert CommunicationBoundRule().check(evidence).outcome != "found"
    verdict = StragglerRule().check(evidence)
    assert verdict.outcome == "found"
    assert verdict.evidence["rank"] == rank


@pytest.mark.parametrize(("name", "rank"), [("data", 1), ("data of a stream", 0)])
def test_a_rank_with_slow_data_is_data_bound_and_named(cases, name, rank):
    verdict = DataBoundRule().check(gather_evidence(step_clock=cases[name]))
    assert verdict.outcome == "found"
    assert f"waits for data on rank {rank}." in verdict.message


def test_a_communication_hook_tells_how_long_backward_waits_for_gradients(cases):
    case = cases["reduction"]
    slept = 6 * slow_rank.SECONDS
    # as rank 0 sees it: rank 1 is late with every gradient, and waits for none itself
    assert spread(case, "communication")["maximum"] > 0.7 * slept
    assert spread(case, "communication")["largest_rank"] == 0
    assert spread(case, "communication")["minimum"] < 0.5 * slept
    assert case["last"]["time/communication_percent"] > 0
    assert "communication" not in cases["forward"]["ranks"]["spreads"]


def test_healthy_ranks_differ_little_and_parts_add_up_on_each(cases):
    case = cases["healthy"]
    assert case["ranks"]["world_size"] == 2
    assert spread(case, "own")["maximum"] < 6 * slow_rank.SECONDS
    for one in cases.values():
        assert one["sums"] == pytest.approx([1.0, 1.0], rel=0.01)
        shares = one["ranks"]["shares"]
        assert sum(shares.values()) == pytest.approx(1.0, rel=0.01)


def test_a_log_that_waits_for_a_slow_rank_is_no_logging(cases):
    # of six callbacks that sleep on rank 1 two stand before a log, where rank 0 waits for them
    assert spread(cases["callback"], "logging")["maximum"] < slow_rank.SECONDS
