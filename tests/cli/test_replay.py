from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from hf_trainplus.cli import app, command_names, summary_of
from hf_trainplus.decisions.replay import ReplayOptions, ReplayTrace, replay
from tests.support.race_traces import synthetic

KEYS = [
    "policy",
    "metric",
    "best_index",
    "best_step",
    "stock_best_index",
    "stop_index",
    "cost",
    "regret_se",
    "false_new_best",
    "seconds",
]


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("traces") / "run.npz"
    synthetic(0, evaluations=20, rows=800).save(path)
    return path


def call(*arguments):
    return CliRunner().invoke(app, [str(item) for item in arguments])


@pytest.mark.parametrize("policy", ["race", "full", "subset", "adaptive"])
@pytest.mark.parametrize("metric", ["loss", "error"])
def test_json_holds_the_replay(trace, policy, metric):
    answer = call("replay", trace, "--policy", policy, "--metric", metric, "--patience", 4, "--seed", 3, "--json")
    assert answer.exit_code == 0
    printed = json.loads(answer.stdout)
    assert list(printed) == KEYS
    expected = replay(
        synthetic(0, evaluations=20, rows=800), policy, metric=metric, options=ReplayOptions(patience=4, seed=3)
    )
    for key in KEYS[:-1]:
        assert printed[key] == getattr(expected, key)


def test_options_reach_the_policy(trace):
    small = json.loads(call("replay", trace, "--policy", "subset", "--fraction", 0.1, "--json").stdout)
    large = json.loads(call("replay", trace, "--policy", "subset", "--fraction", 0.5, "--json").stdout)
    assert small["cost"] < large["cost"]
    exact = json.loads(call("replay", trace, "--metric", "error", "--json").stdout)
    tolerant = json.loads(call("replay", trace, "--metric", "error", "--tolerance", 3, "--json").stdout)
    assert tolerant["cost"] < exact["cost"]
    live = json.loads(call("replay", trace, "--live-only", "--json").stdout)
    assert live["best_index"] == live["stock_best_index"]
    strict = json.loads(call("replay", trace, "--strict", "--json").stdout)
    assert strict["best_index"] == strict["stock_best_index"]


def test_json_stays_strict_where_the_choice_has_no_value(tmp_path):
    loss = np.random.default_rng(0).random((4, 600)) + np.array([3.0, 1.0, 2.0, 0.0])[:, None]
    loss[3, 5] = np.inf  # a subset that lacks the row takes this one
    ReplayTrace(loss, np.arange(1, 5)).save(tmp_path / "run.npz")

    def refused(name):
        raise AssertionError(f"{name} is not JSON")

    answer = call("replay", tmp_path / "run.npz", "--policy", "subset", "--fraction", 0.1, "--seed", 1, "--json")
    printed = json.loads(answer.stdout, parse_constant=refused)
    assert (printed["best_index"], printed["stock_best_index"], printed["regret_se"]) == (3, 1, None)


def test_the_table_names_policy_and_cost(trace):
    answer = call("replay", trace, "--policy", "full")
    assert answer.exit_code == 0
    assert "full" in answer.stdout
    assert "100.0 %" in answer.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--policy", "guess"],
        ["--metric", "f1"],
        ["--patience", "0"],
        ["--tolerance", "-1"],
        ["--fraction", "2"],
        ["--no-such-option"],
    ],
)
def test_wrong_use_exits_with_two(trace, arguments):
    assert call("replay", trace, *arguments).exit_code == 2


def test_a_file_that_is_no_trace_exits_with_two(tmp_path):
    (tmp_path / "run.npz").write_text("no archive")
    assert call("replay", tmp_path / "run.npz").exit_code == 2
    assert call("replay", tmp_path / "absent.npz").exit_code == 2
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    assert call("replay", tmp_path / "other.npz").exit_code == 2
    np.save(tmp_path / "array.npy", np.zeros(3))
    answer = call("replay", tmp_path / "array.npy")
    assert answer.exit_code == 2
    assert "is no .npz file" in " ".join(answer.stderr.replace("│", "").split())


@pytest.mark.parametrize("policy", ["race", "full", "subset", "adaptive"])
def test_a_run_that_was_evaluated_before_its_first_step_is_replayed(policy, tmp_path):
    run = synthetic(0, evaluations=20, rows=800)
    ReplayTrace(run.loss, np.arange(0, 200, 10)).save(tmp_path / "run.npz")
    answer = call("replay", tmp_path / "run.npz", "--policy", policy, "--json")
    assert answer.exit_code == 0
    assert json.loads(answer.stdout)["best_step"] % 10 == 0


def test_help_lists_commands_and_shows_an_example():
    listed = call("--help")
    assert listed.exit_code == 0
    for name in command_names():
        assert name in listed.stdout
    assert "Example: trainplus replay" in " ".join(call("replay", "--help").stdout.split())
    assert call().exit_code == 2
    assert call("no-such-command").exit_code == 2
    assert call("--version").stdout.strip().count(".") >= 1


def test_every_command_has_a_summary():
    assert all(len(summary_of(name)) > 10 for name in command_names())


def test_help_imports_no_command():
    code = (
        "import sys\n"
        "from hf_trainplus.cli import main\n"
        "sys.argv = ['trainplus', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'transformers', 'numpy', 'psutil', 'hf_trainplus.cli.replay'} & set(sys.modules)\n"
        "print('HEAVY', sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("HEAVY []")
