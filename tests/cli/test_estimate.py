"""`trainplus estimate` as a command: what it prints, and how it ends."""

import json
import zipfile

import pytest
import typer
from transformers import LlamaConfig
from typer.testing import CliRunner

from hf_trainplus.cli import estimate
from tests.budget.test_from_run import write

KNOWN = ["--parameters", "175e9", "--tokens", "300B", "--eval-tokens", "1e6", "--peak-tflops", "312"]


@pytest.fixture(scope="module")
def app():
    app = typer.Typer()
    estimate.register(app)
    # with one command alone typer drops its name
    app.command(name="nothing")(lambda: None)
    return app


@pytest.fixture
def run(app, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "dumb")

    def run(*arguments):
        return CliRunner().invoke(app, ["estimate", *map(str, arguments)])

    return run


def test_the_right_values_are_printed(run):
    result = run(*KNOWN)
    assert result.exit_code == 0
    for figure in ("3.15e+23 FLOPs", "7.01e+05 GPU-hours", "3.5e+17 FLOPs", "0.779 GPU-hours", "9e+05 : 1"):
        assert figure in result.output


def test_json_has_the_same_figures(run):
    figures = json.loads(run(*KNOWN, "--json").output)
    assert figures["training_flops"] == pytest.approx(3.15e23)
    assert figures["training_gpu_hours"] == pytest.approx(7.0e5, rel=0.005)
    assert figures["training_to_evaluation"] == pytest.approx(9.0e5)
    assert figures["usd"] is None
    assert figures["fits"] is None


def test_a_model_by_its_folder(run, tmp_path):
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "vocab_size": 200}
    LlamaConfig(num_hidden_layers=2, **sizes, architectures=["LlamaForCausalLM"]).save_pretrained(tmp_path)
    options = ["--tokens", "1e6", "--sequence-length", 128, "--device", "a100-sxm-80gb", "--devices", 8]
    result = run(tmp_path, *options, "--usd-per-device-hour", 2, "--sharding", "zero2", "--gradient-checkpointing")
    assert result.exit_code == 0
    for words in ("fits", "kWh", "USD", "recomputation", "312 TFLOP/s (NVIDIA A100", "8 devices", "activations"):
        assert words in result.output


def test_an_unknown_device_ends_with_two_and_asks_for_its_peak(run):
    result = run("--parameters", "7e9", "--tokens", "1e9", "--device", "h300")
    assert result.exit_code == 2
    assert "--peak-tflops" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tokens", "1e9"], "give exactly one of them"),
        (["gpt2", "--parameters", "7e9", "--tokens", "1e9"], "give exactly one of them"),
        (["--parameters", "7e9"], "--tokens is missing"),
        (["--parameters", "many", "--tokens", "1e9", "--peak-tflops", "1"], "--parameters is 'many'"),
        (["--parameters", "7e9", "--tokens", "1e9"], "no device is given"),
        ([*KNOWN, "--utilisation", "40"], "utilisation=40"),
        ([*KNOWN, "--optimizer", "adam"], "optimizer='adam'"),
        (
            ["--parameters", "7e9", "--tokens", "0", "--peak-tflops", "1"],
            "--tokens is '0'; allowed are finite values above 0. ",
        ),
        (["--parameters", "7e9", "--tokens", "1", "--peak-tflops", "1", "--evaluations", "5"], "evaluations=5 without"),
        ([*KNOWN, "--master-weights"], "master_weights=True with weight_bytes=4"),
        ([*KNOWN, "--from-run", "runs", "--devices", "1"], "leave out --parameters, --tokens,"),
        (["gpt2", "--from-run", "runs"], "--from-run reads all figures from the run; leave out MODEL."),
    ],
)
def test_wrong_use_ends_with_two(run, arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_help_has_an_example(run):
    result = run("--help")
    assert result.exit_code == 0
    assert "Example: trainplus estimate --parameters 175e9" in " ".join(result.output.split())


def test_from_a_run(run, tmp_path):
    write(tmp_path, 60)
    result = run("--from-run", tmp_path)
    assert result.exit_code == 0
    for words in (
        "60 of 100",
        "a step",
        "an evaluation",
        "a save",
        "time left",
        "1m44s",
        "0.0744 GPU-hours, 0.0744 USD",
    ):
        assert words in result.output
    figures = json.loads(run("--from-run", tmp_path, "--json").output)
    assert figures["time_left"]["seconds"] == pytest.approx(104.0)
    assert figures["step_seconds"] == pytest.approx(2.0)
    assert figures["spent"]["max_steps"] == 60


def test_from_a_run_whose_newest_checkpoint_is_torn(run, tmp_path):
    """It would go on from the one before, and so does the forecast."""
    for step in (40, 60):
        folder = write(tmp_path, step)
        (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
        for name in ("optimizer.pt", "scheduler.pt"):
            with zipfile.ZipFile(folder / name, "w") as archive:
                archive.writestr("x", "y")
    assert "60 of 100" in run("--from-run", tmp_path).output
    (folder / "optimizer.pt").write_bytes(b"PK")
    assert "40 of 100" in run("--from-run", tmp_path).output


def test_from_a_run_that_measured_too_little(run, tmp_path):
    write(tmp_path, 10)
    assert "9 of 20 steps measured" in run("--from-run", tmp_path).output
    assert json.loads(run("--from-run", tmp_path, "--json").output)["time_left"] is None


def test_from_a_run_that_ended(run, tmp_path):
    write(tmp_path, 30, reason="budget_spent")
    assert "budget_spent" in run("--from-run", tmp_path).output


def test_from_a_folder_without_a_run(run, tmp_path):
    result = run("--from-run", tmp_path)
    assert result.exit_code == 2
    assert "has no checkpoint" in " ".join(result.output.split())
