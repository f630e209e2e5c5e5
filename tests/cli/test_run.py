"""`trainplus run`: a real chain of two processes, what it prints, and wrong use."""

import json
import signal
import subprocess
import sys
import time

import pytest
import yaml
from typer.testing import CliRunner

from hf_trainplus.cli import app
from tests.support.launch import ROOT, environment

SCRIPT = ROOT / "tests" / "support" / "staged_launch.py"


def write(folder, *stages):
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump({"stages": list(stages)}))
    return path


def call(*words):
    return CliRunner().invoke(app, ["run", *map(str, words)])


def test_help_has_an_example():
    done = CliRunner().invoke(app, ["run", "--help"])
    assert done.exit_code == 0
    assert "trainplus run plan.yaml -- accelerate launch" in " ".join(done.output.split())


def test_all_errors_of_a_plan_and_exit_code_2(tmp_path):
    path = write(tmp_path, {"name": "a", "budget": {"gpu_hour": 1}}, {"name": "a", "learning_rate": -1})
    done = call(path, "--", "python", "t.py", "--output_dir", tmp_path / "out")
    assert done.exit_code == 2
    assert all(text in done.output for text in ("gpu_hour", "learning_rate", "the name of stage 1 too"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no command was given"),
        (["--", "python", "t.py"], "add --output_dir runs/a to the command"),
        (["--", "no_such_program", "--output_dir", "out"], "no_such_program"),
        (["--", "python", "t.py", "--output_dir", "out"], "asks for 2 processes"),
    ],
)
def test_wrong_use(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    processes = 2 if "asks" in message else 1
    path = write(tmp_path, {"name": "a", "budget": "max_steps=1", "num_processes": processes})
    done = call(path, *words)
    assert done.exit_code == 2
    assert message in done.output


def test_a_childs_exit_code_is_passed_on(tmp_path):
    path = write(tmp_path, {"name": "a", "budget": "max_steps=1"})
    done = call(path, "--output-dir", tmp_path / "out", "--", sys.executable, "-c", "raise SystemExit(3)")
    assert done.exit_code == 3
    assert "stage a failed with exit code 3" in done.output


def test_a_command_that_writes_elsewhere_is_said(tmp_path):
    path = write(tmp_path, {"name": "a", "budget": "max_steps=1"})
    done = call(path, "--output-dir", tmp_path / "out", "--", sys.executable, "-c", "pass")
    assert done.exit_code == 0
    assert f"stage a ended and left no checkpoint in {tmp_path / 'out'}; where the command" in done.output


@pytest.mark.slow
def test_two_stages_in_two_processes_and_at_once_the_second_time(tmp_path):
    path = write(tmp_path, {"name": "a", "budget": "max_steps=2"}, {"name": "b", "budget": "max_steps=3"})
    words = [sys.executable, "-c", "from hf_trainplus.cli import main; main()", "run", str(path), "--json"]
    words += ["--output-dir", str(tmp_path / "out"), "--", sys.executable, str(SCRIPT), str(tmp_path / "out")]
    done = subprocess.run(words, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=200, check=True)
    assert [line for line in done.stdout.splitlines() if line.startswith("step")] == ["step 2 on 1", "step 5 on 1"]
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert (outcome["state"], outcome["place"]["step"], outcome["exit_code"]) == ("finished", 5, 0)
    again = call(path, "--output-dir", tmp_path / "out", "--", "no_such_program")
    assert (again.exit_code, again.output.strip()) == (0, "the plan is over at step 5: plan_finished.")


@pytest.mark.slow
def test_ctrl_c_reaches_the_child(tmp_path):
    path, ready = write(tmp_path, {"name": "a", "budget": "max_steps=1"}), tmp_path / "ready"
    code = f"import pathlib, time; pathlib.Path({str(ready)!r}).touch(); time.sleep(60)"
    words = [
        sys.executable,
        "-c",
        "from hf_trainplus.cli import main; main()",
        "run",
        str(path),
        "--output-dir",
        str(tmp_path),
    ]
    child = subprocess.Popen(
        [*words, "--", sys.executable, "-c", code], cwd=ROOT, env=environment(), stderr=subprocess.PIPE
    )
    while not ready.exists():
        assert child.poll() is None
        time.sleep(0.05)
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=30)
    assert b"KeyboardInterrupt" in errors
    assert child.returncode in (1, 128 + signal.SIGINT)


LAUNCHERS = {
    # `accelerate launch` of one process: a parent that dies at a signal and would leave its script behind
    "accelerate": ([sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_machines", "1"], 1),
    "torchrun": ([sys.executable, "-m", "torch.distributed.run", "--standalone"], 2),
}


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize(("launcher", "name"), [("accelerate", "SIGTERM"), ("torchrun", "SIGUSR1")])
def test_a_signal_ends_every_process_with_a_checkpoint_and_the_chain_with_zero(launcher, name, tmp_path):
    command, processes = LAUNCHERS[launcher]
    path = write(tmp_path, {"name": "a", "budget": "max_steps=4000", "num_processes": processes})
    folder = tmp_path / "out"
    folder.mkdir()
    words = [sys.executable, "-c", "from hf_trainplus.cli import main; main()", "run", str(path), "--json"]
    words += ["--output-dir", str(folder), "--", *command, str(ROOT / "tests/support/slow_stage.py"), str(folder)]
    run = subprocess.Popen(
        words, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while not all((folder / f"running-{rank}").exists() for rank in range(processes)):
        assert run.poll() is None, run.stderr.read()[-3000:]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    run.send_signal(getattr(signal, name))
    printed, errors = run.communicate(timeout=60)
    assert run.returncode == 0, errors[-3000:]
    steps = {int((folder / f"ended-{rank}").read_text()) for rank in range(processes)}
    outcome = json.loads(printed.splitlines()[-1])
    assert len(steps) == 1
    assert (outcome["state"], outcome["place"]) == ("stopped", {"stage": "a", "step": steps.pop(), "reason": None})
