"""`trainplus plan show` as a command."""

import json

import pytest
import typer
from typer.testing import CliRunner

from hf_trainplus.cli import plan
from tests.budget.test_plan_file import BAD, GOOD


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")
    app = typer.Typer()
    plan.register(app)

    def run(*arguments):
        return CliRunner().invoke(app, ["plan", *map(str, arguments)])

    return run


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(GOOD)
    return path


def test_stages_are_shown_with_what_is_known(run, good):
    result = run("show", good, "--devices", 4, "--usd-per-device-hour", 2)
    assert result.exit_code == 0
    for words in (
        "gpu_hours=100",
        "1d1h",
        "200",
        "evaluation only",
        "warmup: moves on when accuracy at least 0.7; moves on when the budget is spent",
        "full: falls back to warmup when loss at least 10",
    ):
        assert words in result.output


def test_with_model_and_device_steps_are_costed(run, good):
    options = ["--parameters", "1e9", "--sequence-length", 128, "--device", "a100-sxm-80gb", "--rows", "1e5"]
    figures = json.loads(run("show", good, *options, "--eval-rows", 1000, "--json").output)
    full = figures["stages"][1]
    assert full["budget"] == {"wall_clock": 9000.0, "num_train_epochs": 3.0}
    assert full["predicted"]["ends_by"] == "num_train_epochs"
    assert full["predicted"]["steps"] == 3 * 12_500
    # 6·N·D and two evaluations at 2·N·D
    expected = 6e9 * 37_500 * 8 * 128 + 2 * 2e9 * 128_000
    assert full["predicted"]["flops"] == pytest.approx(expected)
    assert figures["total"]["wall_clock_seconds"] > 0
    assert figures["total"]["usd"] is None


def test_a_bad_plan_ends_with_two_and_tells_everything(run, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(BAD)
    result = run("show", path)
    assert result.exit_code == 2
    assert f"{path}:4: stages[0].budget.gpu_hour" in result.output
    assert f"{path}:17: stages[4].data_fraction" in result.output
    assert len(result.output.splitlines()) == 16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "h300"], "--peak-tflops"),
        (["--parameters", "many"], "--parameters is 'many'"),
        (["--rows", "all"], "--rows is 'all'"),
        (["--rows", "10.5"], "--rows is '10.5'; allowed are whole numbers. Write --rows 11"),
        (["--eval-rows", "0"], "--eval-rows is '0'; allowed are finite values above 0.\n"),
        (["--devices", "0"], "--devices is 0; allowed are whole numbers of at least 1"),
        (["--batch-size", "0"], "--batch-size is 0; allowed"),
        (["--sequence-length", "-3"], "--sequence-length is -3; allowed"),
        (["--usd-per-device-hour", "-1"], "usd_per_device_hour=-1.0; allowed are finite numbers above 0"),
        (["--model", "gpt2", "--parameters", "7B"], "give at most one of them"),
        (["--utilisation", "3"], "say nothing without a device; add --device"),
        (["--utilisation", "3", "--device", "l4"], "utilisation=3.0; allowed is a share"),
    ],
)
def test_wrong_use_ends_with_two(run, good, options, message):
    result = run("show", good, *options)
    assert result.exit_code == 2
    assert message in result.output


def test_nothing_is_cut_off_where_there_is_no_terminal_or_a_narrow_one(run, good, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    options = ("--parameters", "1e9", "--sequence-length", 128, "--device", "a100-sxm-80gb", "--rows", "1e5")
    piped = run("show", good, *options).output
    assert "wall_clock=2h30m, num_train_epochs=3" in piped
    assert "…" not in piped
    monkeypatch.setattr(plan.Console, "is_terminal", True)
    narrow = run("show", good, *options).output
    assert "…" not in narrow
    assert max(len(line) for line in narrow.splitlines()) <= 80


def test_a_missing_file_ends_with_two(run, tmp_path):
    result = run("show", tmp_path / "none.yaml")
    assert result.exit_code == 2
    assert "is no file" in result.output


def test_help_has_an_example(run):
    assert "Example: trainplus plan show plan.yaml" in " ".join(run("show", "--help").output.split())
