"""The chain of launches, with children that train in this process: order, place, failures, stops."""

import os
from unittest import mock

import pytest
import yaml

from hf_trainplus.budget.plan_file import read_plan
from hf_trainplus.launch.staged import find_place, run_stages
from tests.support import stages


@pytest.fixture
def chain(tmp_path):
    """(plan, its file, output folder, list of the stages that were started, run)."""
    path, folder, started = tmp_path / "plan.yaml", tmp_path / "out", []
    path.write_text(yaml.safe_dump(stages.THREE))

    def run(words, environment):
        started.append((environment["TRAINPLUS_STAGE"], words[2:4]))
        with mock.patch.dict(os.environ, environment):
            stages.make(folder, None).train()
        return 0

    return read_plan(path), path, folder, started, run


COMMAND = ["accelerate", "launch", "train.py"]


def test_each_stage_is_started_once_in_order_and_the_end_is_the_one_process_run(chain, tmp_path):
    plan, path, folder, started, run = chain
    told = []
    outcome = run_stages(plan, path, COMMAND, folder, run, tell=told.append)
    assert [name for name, _ in started] == ["look", "tune", "finish"]
    assert told[0] == "stage look: accelerate launch train.py"
    assert (outcome.state, outcome.place.reason, outcome.place.step, outcome.exit_code) == (
        "finished",
        "plan_finished",
        19,
        0,
    )
    assert stages.steps_of(folder) == [3, 12, 19]
    whole = stages.make(tmp_path / "whole")
    whole.train()
    again = stages.make(folder)
    again.train(resume_from_checkpoint=True)
    assert stages.differences(stages.outcome(whole), stages.outcome(again)) == []


def test_a_plan_that_is_over_starts_nobody(chain):
    plan, path, folder, started, run = chain
    run_stages(plan, path, COMMAND, folder, run)
    started.clear()
    outcome = run_stages(plan, path, COMMAND, folder, run)
    assert (started, outcome.state, outcome.launches, outcome.exit_code) == ([], "finished", (), 0)


def test_another_plan_for_a_run_that_is_over_is_the_childs_business(chain):
    """The child refuses it by name; with plan_on_resume='replace' a changed last stage begins anew."""
    plan, path, folder, started, run = chain
    run_stages(plan, path, COMMAND, folder, run)
    started.clear()
    for change in ({"look": {"learning_rate": 0.5}}, {"finish": {"budget": {"max_steps": 9}}}):
        other = stages.without(stages.THREE, **change)
        path.write_text(yaml.safe_dump(other))
        with pytest.raises(ValueError, match=r"checkpoint-19 contradicts the options: stages\[[02]\]"):
            run_stages(read_plan(other), path, COMMAND, folder, run)
    assert [name for name, _ in started] == ["finish", "finish"]

    def replace(words, environment):
        with mock.patch.dict(os.environ, environment):
            stages.make(folder, None, plan_on_resume="replace").train()
        return 0

    outcome = run_stages(read_plan(other), path, COMMAND, folder, replace)
    assert (outcome.state, len(outcome.launches), outcome.place.step) == ("finished", 1, 19 + 9)


def test_replacing_earlier_stages_of_a_run_that_is_over_takes_no_step(chain):
    plan, path, folder, started, run = chain
    run_stages(plan, path, COMMAND, folder, run)
    other = stages.without(stages.THREE, look={"learning_rate": 0.5})
    path.write_text(yaml.safe_dump(other))
    outcome = run_stages(read_plan(other), path, COMMAND, folder, lambda words, environment: 0)
    assert (outcome.state, len(outcome.launches), outcome.place.step) == ("finished", 1, 19)


def test_a_child_that_fails_ends_the_chain_with_its_code_and_the_next_call_goes_on(chain):
    plan, path, folder, started, run = chain
    fails = iter([0, 9])

    def sometimes(words, environment):
        return run(words, environment) if next(fails) == 0 else 9

    outcome = run_stages(plan, path, COMMAND, folder, sometimes)
    assert (outcome.state, outcome.exit_code, outcome.place.stage) == ("failed", 9, "tune")
    started.clear()
    assert run_stages(plan, path, COMMAND, folder, run).state == "finished"
    assert [name for name, _ in started] == ["tune", "finish"]


def test_a_child_that_leaves_its_stage_unfinished_is_not_started_again(chain):
    plan, path, folder, _, _ = chain
    outcome = run_stages(plan, path, COMMAND, folder, lambda words, environment: 0)
    assert (outcome.state, len(outcome.launches), outcome.place.stage) == ("stopped", 1, "look")


def test_a_stop_at_a_boundary_starts_no_further_stage(chain):
    plan, path, folder, started, run = chain
    outcome = run_stages(plan, path, COMMAND, folder, run, stop=lambda: bool(started))
    assert (outcome.state, outcome.place.stage, outcome.exit_code) == ("stopped", "tune", 0)


def test_a_torn_checkpoint_is_not_believed(chain):
    plan, path, folder, _, run = chain
    run_stages(plan, path, COMMAND, folder, run)
    (folder / "checkpoint-19" / "optimizer.pt").unlink()
    assert find_place(plan, folder).stage == "finish"
    assert find_place(plan, folder).step == 12


def test_processes_of_a_stage_reach_its_command(chain, tmp_path):
    plan = read_plan({"stages": [{"name": "a", "budget": "max_steps=1", "num_processes": 4}]})
    seen = []
    run_stages(plan, "plan.yaml", COMMAND, tmp_path, lambda words, environment: seen.append(list(words)) or 3)
    assert seen == [["accelerate", "launch", "--num_processes", "4", "train.py"]]
    with pytest.raises(ValueError, match="asks for 4 processes"):
        run_stages(plan, "plan.yaml", ["python", "train.py"], tmp_path, lambda words, environment: 0)
