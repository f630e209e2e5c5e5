import json
import os
import re
import sys

import pytest
import torch
import typer
from transformers import Trainer, TrainingArguments
from typer.testing import CliRunner

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from hf_trainplus.cli import _environment_checks as checks
from hf_trainplus.cli import doctor as command
from tests.support import tiny
from tests.support.fake_nvml import FakeGpu, FakeNvml

CLOCK = {
    "seconds": {"data_wait": 41.0, "forward_backward": 55.0, "optimizer": 4.0, "evaluation": 0.0, "callbacks": None},
    "total_seconds": 100.0,
    "steps": 200,
    "device_idle_share": None,
    "settings": {"dataloader_num_workers": 2, "cpus_per_process": 16},
    "ranks": None,
}


@pytest.fixture
def app():
    app = typer.Typer()

    @app.callback()
    def main():
        """Stand in for the main command."""

    command.register(app)
    return app


def run(app, *arguments):
    return CliRunner().invoke(app, ["doctor", *map(str, arguments)])


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def history(values):
    return [{"step": 10 * (place + 1), "loss": value} for place, value in enumerate(values)]


def test_a_run_is_told_what_to_do_next(app, tmp_path):
    write(tmp_path / "trainplus/step_clock.json", CLOCK)
    result = run(app, tmp_path)
    assert result.exit_code == 0, result.output
    assert "data_bound: 41 % of each step waits for data. Next: dataloader_num_workers 2 -> 5." in result.output
    assert "1 found, " in result.output


def test_a_section_for_a_report(app, tmp_path):
    run_folder = tmp_path / "my-run"
    write(run_folder / "trainplus/step_clock.json", CLOCK)
    text = run(app, run_folder, "--markdown").output
    lines = text.splitlines()
    assert lines[:4] == [
        "## Diagnosis of my-run",
        "",
        "| finding | what was seen | next | evidence |",
        "|---|---|---|---|",
    ]
    row = next(line for line in lines if line.startswith("| data_bound |"))
    assert "41 % of each step waits for data." in row
    assert "dataloader_num_workers 2 -> 5." in row
    assert "- saving_bound: " in text[text.index("Checked and clear:") :]
    assert "- divergence: " in text[text.index("Not enough evidence:") :]
    told = sum(line.startswith(("- ", "| ")) for line in lines) - 1
    assert told == len(json.loads(run(app, run_folder, "--json").output)["verdicts"])


def test_what_only_the_run_itself_could_tell_is_told(app, tmp_path):
    write(tmp_path / "trainplus/step_clock.json", CLOCK)
    kept = [
        {"rule": "plateau", "outcome": "found", "message": "The loss is flat.", "next_step": "stop.", "evidence": {}},
        {"rule": "data_bound", "outcome": "clear", "message": "of an earlier moment", "severity": "note"},
    ]
    write(tmp_path / "trainplus/diagnosis.json", kept)
    output = run(app, tmp_path).output
    assert "plateau: The loss is flat. Next: stop." in output
    assert "data_bound: 41 % of each step" in output
    assert "of an earlier moment" not in output
    write(tmp_path / "checkpoint-5/trainer_state.json", {"global_step": 5, "log_history": history([1.0])})
    os.utime(tmp_path / "trainplus/diagnosis.json", (0, 0))
    assert "plateau: The loss is flat." not in run(app, tmp_path).output


@pytest.mark.parametrize("torn", ['[{"rule": "pla', '[{"rule": 3, "odd": 4}]', "[7]"])
def test_a_torn_record_of_the_runs_own_diagnosis_ends_nothing(torn, app, tmp_path):
    write(tmp_path / "trainplus/step_clock.json", CLOCK)
    write(tmp_path / "trainplus/diagnosis.json", torn)
    result = run(app, tmp_path)
    assert result.exit_code == 0
    assert "diagnosis.json is not read" in result.output
    assert "data_bound: 41 % of each step" in result.output


@pytest.mark.parametrize("given", [["--markdown"], ["RUN", "--markdown", "--json"]])
def test_a_section_is_of_one_run_and_no_json(given, app, tmp_path):
    write(tmp_path / "trainplus/step_clock.json", CLOCK)
    result = run(app, *[tmp_path if one == "RUN" else one for one in given])
    assert result.exit_code == 2
    assert "trainplus doctor RUN" in " ".join(re.sub(r"[^\w.-]", " ", result.output).split())


def test_a_healthy_run_has_nothing(app, tmp_path):
    seconds = {"data_wait": 1.0, "forward_backward": 70.0, "optimizer": 4.0, "evaluation": 5.0, "other": 20.0}
    write(tmp_path / "trainplus/step_clock.json", {**CLOCK, "seconds": seconds})
    result = run(app, tmp_path, "--all")
    assert result.exit_code == 0
    assert result.output.startswith("nothing found.")
    assert "clear: data_bound: 1 % of each step waits for data." in result.output
    assert "unknown: divergence" in result.output


def test_the_newest_checkpoints_history_is_read(app, tmp_path):
    write(tmp_path / "checkpoint-9/trainer_state.json", {"global_step": 9, "log_history": history([1.0])})
    diverged = [2.0] * 5 + [1.0] * 10 + [8.0] * 10
    newest = {"global_step": 250, "log_history": history(diverged)}
    write(tmp_path / "checkpoint-250/trainer_state.json", newest)
    result = run(app, tmp_path, "--json")
    verdicts = {one["rule"]: one for one in json.loads(result.output)["verdicts"]}
    assert verdicts["divergence"]["outcome"] == "found"
    assert verdicts["data_bound"]["outcome"] == "unknown"
    assert len(verdicts) == 18


def test_beside_a_torn_checkpoint_the_newest_whole_one_is_read(app, tmp_path):
    write(tmp_path / "checkpoint-9/trainer_state.json", {"global_step": 9, "log_history": history([1.0])})
    write(tmp_path / "checkpoint-12/trainer_state.json", '{"global_step": 12, "log_his')
    result = run(app, tmp_path, "--json")
    assert result.exit_code == 0
    outcomes = {one["rule"]: one["outcome"] for one in json.loads(result.stdout)["verdicts"]}
    assert outcomes["nonfinite_loss"] == "clear"
    assert "checkpoint-12/trainer_state.json is no JSON" in result.stderr
    assert "Step 9 is read in its place." in result.stderr


def test_losses_that_are_no_numbers_survive_the_state_file(app, tmp_path):
    state = json.dumps({"global_step": 20, "log_history": history([1.0, float("nan")])})
    assert "NaN" in state
    write(tmp_path / "trainer_state.json", state)
    assert "nonfinite_loss: 1 training losses are NaN or infinite, first at step 20." in run(app, tmp_path).output


@pytest.mark.parametrize("make_trainer", [Trainer, PlusTrainer])
def test_losses_that_are_no_numbers_are_found_in_what_a_run_writes(app, tmp_path, make_trainer):
    make_args = TrainingArguments if make_trainer is Trainer else PlusTrainingArguments
    options = {"max_steps": 4, "save_strategy": "steps", "save_steps": 4, "logging_nan_inf_filter": False}
    args = make_args(**tiny.quiet(tmp_path, **options))
    trainer = make_trainer(tiny.bert(), args, train_dataset=tiny.rows(32), data_collator=tiny.PaddingCollator())
    passes = []

    def spoil(module, inputs, output):
        passes.append(output)
        if len(passes) >= 3:
            output.loss = output.loss * float("nan")
        return output

    trainer.model.register_forward_hook(spoil)
    trainer.train()
    assert "2 training losses, 2 gradient norms are NaN or infinite, first at step 3." in run(app, tmp_path).output


@pytest.mark.parametrize("content", [None, "{torn"])
def test_wrong_folders_have_exit_code_two(app, tmp_path, content):
    if content is not None:
        write(tmp_path / "trainer_state.json", content)
    result = run(app, tmp_path)
    assert result.exit_code == 2
    # the terminal's width breaks the message anywhere, inside a box
    told = re.sub(r"[\s│]", "", result.output)
    assert ("isnoJSON" if content else "holdsnotrainer_state.json") in told


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("trainer_state.json", "null"),
        ("trainer_state.json", "[1]"),
        ("trainer_state.json", {"global_step": 3, "log_history": None}),
        ("trainer_state.json", {"global_step": "x", "log_history": [1, 2]}),
        ("trainer_state.json", {"global_step": 3, "log_history": [{"step": "a", "loss": 1.0}]}),
        ("trainplus/step_clock.json", {"steps": 3}),
        ("trainplus/step_clock.json", [CLOCK]),
        ("trainplus/devices.json", {"devices": [{}], "statistics": {}}),
        ("trainplus/memory.json", {"allocator": {"no such": 1}}),
    ],
)
def test_records_that_are_none_have_exit_code_two_and_name_a_file(app, tmp_path, name, content):
    write(tmp_path / "trainer_state.json", {"global_step": 1, "log_history": []})
    write(tmp_path / name, content)
    result = run(app, tmp_path)
    assert result.exit_code == 2, result.output
    told = re.sub(r"[\s│]", "", result.output)
    assert ".json" in told
    assert "remove" in told


def test_a_stock_run_and_a_plus_run_are_read(app, tmp_path):
    for kind, make_trainer, make_args in (
        ("stock", Trainer, TrainingArguments),
        ("plus", PlusTrainer, PlusTrainingArguments),
    ):
        args = make_args(**tiny.quiet(tmp_path / kind, max_steps=6, save_strategy="steps", save_steps=3))
        make_trainer(tiny.bert(), args, train_dataset=tiny.rows(48), data_collator=tiny.PaddingCollator()).train()
        result = run(app, tmp_path / kind, "--json")
        assert result.exit_code == 0, result.output
        outcomes = {one["rule"]: one["outcome"] for one in json.loads(result.output)["verdicts"]}
        assert outcomes["nonfinite_loss"] == "clear"
        assert (outcomes["straggler"], outcomes["saving_bound"] == "unknown") == (
            ("unknown", True) if kind == "stock" else ("clear", False)
        )


def test_without_a_run_the_machine_is_checked(app):
    result = run(app, "--json")
    assert result.exit_code == 0, result.output
    found = {one["name"]: one for one in json.loads(result.output)["checks"]}
    for name in ("python", "torch", "transformers", "accelerate config", "disk", "shared memory", "backends", "cpu"):
        assert found[name]["message"], name
    assert found["torch"]["message"] == torch.__version__
    text = run(app).output
    assert "transformers" in text
    assert "gloo" in text


def test_help_has_an_example(app):
    assert "Example: trainplus doctor" in run(app, "--help").output


def test_small_shared_memory_and_a_full_disk_are_warned_about(tmp_path):
    assert checks.check_shared_memory(tmp_path, least_gib=1e9).status == "warning"
    assert "--shm-size" in checks.check_shared_memory(tmp_path, least_gib=1e9).next_step
    assert checks.check_shared_memory(tmp_path / "none").status == "ok"
    assert checks.check_disk(tmp_path, least_gib=1e9).status == "warning"
    assert checks.check_disk(tmp_path, least_gib=0.0).status == "ok"
    assert checks.check_limits(least_files=2**60)[-1].status in ("warning", "ok")


def test_accelerates_file_is_told_and_compared_with_the_devices(tmp_path, monkeypatch):
    path = tmp_path / "default_config.yaml"
    assert checks.check_accelerate(path).message.startswith("none")
    path.write_text("distributed_type: MULTI_GPU\nnum_processes: 8\nmixed_precision: bf16\n")
    assert "MULTI_GPU, 8 processes, bf16" in checks.check_accelerate(path).message
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    check = checks.check_accelerate(path)
    assert (check.status, check.next_step) == ("warning", "accelerate launch --num_processes 4")
    path.write_text("a: [")
    assert checks.check_accelerate(path).status == "warning"


@pytest.mark.parametrize("content", ["- a list", "5", "num_processes: many", "num_machines: x", "\x00"])
def test_a_file_that_is_none_of_accelerates_is_warned_about(tmp_path, content):
    path = tmp_path / "default_config.yaml"
    path.write_text(content)
    check = checks.check_accelerate(path)
    assert (check.status, check.next_step) == ("warning", "accelerate config")
    assert str(path) in check.message


def test_numbers_in_accelerates_file_may_be_text_or_absent(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    path = tmp_path / "default_config.yaml"
    path.write_text("num_processes: '8'\nnum_machines: 2\n")
    assert checks.check_accelerate(path).message.startswith("NO, 8 processes, no (")
    path.write_text("mixed_precision: bf16\n")
    assert checks.check_accelerate(path).message.startswith("NO, num_processes not set, bf16 (")


def test_cuda_devices_without_nccl_are_warned_about(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    assert checks.check_backends().status == "warning"


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(checks, "_PACKAGES", ("no-such-package-here",))
    missing = [check for check in checks.check_versions() if check.status == "missing"]
    assert [check.next_step for check in missing] == ["pip install no-such-package-here"]


def test_devices_are_told_with_what_ties_them_to_their_index(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([FakeGpu(uuid="GPU-a0")]))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (check,) = checks.check_devices()
    assert check.message == "NVIDIA H200, GPU-a0, matched by single device"
