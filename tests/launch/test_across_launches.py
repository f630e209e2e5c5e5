"""Real launches of two processes cross a boundary: DDP bit-equal to one launch, ZeRO-2 and FSDP2 to rounding."""

import json
import shutil
import subprocess
import sys

import pytest
import yaml
from safetensors.torch import load_file

from tests.support.launch import ROOT, environment, torchrun

SCRIPT = ROOT / "tests" / "support" / "staged_launch.py"
PLAN = {
    "stages": [
        {"name": "look", "budget": {"max_steps": 3}, "learning_rate": 1e-2, "per_device_train_batch_size": 4},
        {
            "name": "tune",
            "budget": {"max_steps": 3},
            "learning_rate": 5e-3,
            "per_device_train_batch_size": 2,
            "global_batch_size": 8,
        },
    ]
}


@pytest.fixture(scope="module")
def one_launch(tmp_path_factory):
    """Returns a plan's file and the folder of its run in one launch of two processes."""
    made = {}

    def of(freeze):
        if freeze not in made:
            folder = tmp_path_factory.mktemp("one")
            stages = [{**PLAN["stages"][0], "freeze": [freeze]} if freeze else PLAN["stages"][0], PLAN["stages"][1]]
            (folder / "plan.yaml").write_text(yaml.safe_dump({"stages": stages}))
            assert "step 6 on 2" in torchrun(SCRIPT, folder, folder / "plan.yaml").stdout
            made[freeze] = folder / "plan.yaml", folder
        return made[freeze]

    return of


def run_plan(plan, folder, config, steps=("step 3 on 2", "step 6 on 2")):
    trainplus = [sys.executable, "-c", "from hf_trainplus.cli import main; main()", "run", str(plan), "--json"]
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--config_file"]
    launch += [str(ROOT / "recipes" / "accelerate" / f"{config}.yaml"), "--main_process_port", "0"]
    command = [*trainplus, "--output-dir", str(folder), "--", *launch, str(SCRIPT), str(folder)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(DS_ACCELERATOR="cpu"),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    assert [line for line in done.stdout.splitlines() if line.startswith("step ")] == list(steps)
    return json.loads(done.stdout.splitlines()[-1])


def weights(folder):
    return load_file(folder / "checkpoint-6" / "model.safetensors")


def rates(folder):
    history = json.loads((folder / "checkpoint-6" / "trainer_state.json").read_text())["log_history"]
    return [entry["learning_rate"] for entry in history if "learning_rate" in entry]


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize(
    ("config", "freeze", "tolerance"),
    # DeepSpeed's optimizer cannot take other parameters in
    [("two_cpu", "bert.embeddings.*", 0.0), ("fsdp2", "bert.embeddings.*", 1e-5), ("zero2", None, 1e-5)],
)
def test_a_boundary_is_crossed_by_a_relaunch(config, freeze, tolerance, one_launch, tmp_path):
    """Moments that were lost at the boundary would move weights by about a learning rate, a thousand times more."""
    if config == "zero2":
        pytest.importorskip("deepspeed")
        if shutil.which("c++") is None:
            pytest.skip("DeepSpeed compiles its CPU communication on first use, and there is no C++ compiler")
    plan, whole = one_launch(freeze)
    outcome = run_plan(plan, tmp_path, config)
    assert [launch["stage"] for launch in outcome["launches"]] == ["look", "tune"]
    assert outcome["place"] == {"stage": None, "step": 6, "reason": "plan_finished"}
    expected, found = weights(whole), weights(tmp_path)
    worst = max((expected[name] - found[name]).abs().max().item() for name in expected)
    assert worst <= tolerance
    assert rates(tmp_path) == pytest.approx(rates(whole))
    assert rates(tmp_path) == pytest.approx([1e-2, 1e-2 * 2 / 3, 1e-2 / 3, 5e-3, 5e-3 * 2 / 3, 5e-3 / 3])


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize(("config", "first"), [("two_cpu", 1), ("fsdp2", 2)])
def test_a_stage_goes_on_with_another_number_of_processes(config, first, tmp_path):
    """Equal global batches give the weights of one process, to rounding."""
    counts = (first, 3 - first)
    limits = {"budget": {"max_steps": 3}, "learning_rate": 1e-2}
    alone = [{"name": name, **limits, "per_device_train_batch_size": 8} for name in ("look", "tune")]
    split = [
        {**stage, "per_device_train_batch_size": 8 // count, "num_processes": count}
        for stage, count in zip(alone, counts, strict=True)
    ]
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole.yaml").write_text(yaml.safe_dump({"stages": alone}))
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump({"stages": split}))
    command = [sys.executable, str(SCRIPT), str(tmp_path / "whole"), str(tmp_path / "whole.yaml")]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    outcome = run_plan(
        tmp_path / "plan.yaml", tmp_path / "split", config, steps=[f"step 3 on {counts[0]}", f"step 6 on {counts[1]}"]
    )
    assert outcome["place"] == {"stage": None, "step": 6, "reason": "plan_finished"}
    expected, found = weights(tmp_path / "whole"), weights(tmp_path / "split")
    # a key's bias has no gradient but rounding, of which Adam makes whole steps
    apart = {name: (expected[name] - found[name]).abs().max().item() for name in expected if "key.bias" not in name}
    assert max(apart.values()) <= 1e-5, apart
    assert rates(tmp_path / "split") == pytest.approx(rates(tmp_path / "whole"))
