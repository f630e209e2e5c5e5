"""Real launches of two processes cross a boundary: DDP bit-equal to one launch, ZeRO and FSDP to rounding."""

import json
import shutil
import subprocess
import sys

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from tests.support.launch import ROOT, environment, torchrun

SCRIPT = ROOT / "tests" / "support" / "staged_launch.py"
FSDP = ("fsdp2", "fsdp2_shards", "fsdp1_shards")
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


def configuration(name, folder):
    """Return the recipes' configuration; of a sharded one, a copy whose checkpoints are shards, under FSDP1 or 2."""
    path = ROOT / "recipes" / "accelerate" / f"{name.removesuffix('_shards').replace('fsdp1', 'fsdp2')}.yaml"
    if path.stem == name:
        return path
    found = yaml.safe_load(path.read_text())
    settings = found["fsdp_config"]
    settings["fsdp_state_dict_type"] = "SHARDED_STATE_DICT"
    if name.startswith("fsdp1"):
        del settings["fsdp_reshard_after_forward"]
        settings |= {"fsdp_version": 1, "fsdp_sharding_strategy": "FULL_SHARD", "fsdp_use_orig_params": True}
        settings |= {"fsdp_sync_module_states": False, "fsdp_cpu_ram_efficient_loading": False}  # those need a device
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(found))
    return folder / "config.yaml"


def run_plan(plan, folder, config, steps=("step 3 on 2", "step 6 on 2"), *options):
    trainplus = [sys.executable, "-c", "from hf_trainplus.cli import main; main()", "run", str(plan), "--json"]
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--config_file"]
    launch += [str(configuration(config, folder)), "--main_process_port", "0", *options]
    # on the CPU Accelerate passes over what is asked of FSDP, and trains under DDP
    script = [str(ROOT / "tests" / "support" / "fsdp_on_cpu.py"), str(SCRIPT)] if config in FSDP else [str(SCRIPT)]
    command = [*trainplus, "--output-dir", str(folder), "--", *launch, *script, str(folder)]
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
    assert done.stdout.count("trained under FSDPModule") == len(steps) * (config in FSDP)
    return json.loads(done.stdout.splitlines()[-1])


def skip_without_deepspeed(config):
    if config.startswith("zero"):
        pytest.importorskip("deepspeed")
        if shutil.which("c++") is None:
            pytest.skip("DeepSpeed compiles its CPU communication on first use, and there is no C++ compiler")


def weights(folder, step=6):
    shards = folder / f"checkpoint-{step}" / "pytorch_model_fsdp_0"
    if not shards.is_dir():
        return load_file(folder / f"checkpoint-{step}" / "model.safetensors")
    dcp_to_torch_save(shards, folder / "whole.pt")
    return torch.load(folder / "whole.pt", weights_only=True)["model"]


def rates(folder, step=6):
    history = json.loads((folder / f"checkpoint-{step}" / "trainer_state.json").read_text())["log_history"]
    return [entry["learning_rate"] for entry in history if "learning_rate" in entry]


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize(
    ("config", "freeze", "tolerance"),
    [
        ("two_cpu", "bert.embeddings.*", 0.0),
        ("fsdp2", "bert.embeddings.*", 1e-5),
    ],
)
def test_a_boundary_is_crossed_by_a_relaunch(config, freeze, tolerance, one_launch, tmp_path):
    """Moments that were lost at the boundary would move weights by about a learning rate, a thousand times more."""
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
def test_shards_of_fsdp1_keep_their_moments(one_launch, tmp_path):
    """Over a boundary with other parameters, and in the middle of a stage, where Accelerate loads none.

    Whole checkpoints of FSDP1 end in a segmentation fault of PyTorch's on the CPU.
    """
    plan, whole = one_launch("bert.embeddings.*")
    run_plan(plan, tmp_path, "fsdp1_shards")
    assert_close(weights(whole), weights(tmp_path))
    shutil.rmtree(tmp_path / "checkpoint-6")
    run_plan(plan, tmp_path, "fsdp1_shards", ["step 6 on 2"])
    assert_close(weights(whole), weights(tmp_path))
    assert rates(tmp_path) == pytest.approx(rates(whole))


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize(("config", "first"), [("two_cpu", 1), ("fsdp2_shards", 2)])
def test_a_stage_goes_on_with_another_number_of_processes(config, first, in_one_process, tmp_path):
    """Equal global batches give the weights of one process, to rounding; for DeepSpeed the next test says so."""
    limits = {"budget": {"max_steps": 3}, "learning_rate": 1e-2}
    stages = [{"name": name, **limits} for name in ("look", "tune")]
    compare_with_one_process(in_one_process, stages, (first, 3 - first), config, tmp_path)


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize(
    ("config", "frozen", "counts"),
    [
        # first with equal processes and parameters, which DeepSpeed loads itself, then with others
        ("zero2", ("bert.embeddings.*", "bert.embeddings.*", "classifier.*"), (2, 2, 1)),
        # at the end there are three ages of moments: of the whole run, of the second stage on, and fresh ones
        ("zero3", ("bert.embeddings.*", "classifier.*", None), (2, 1, None)),
    ],
)
def test_deepspeed_goes_on_with_other_processes_and_other_parameters(config, frozen, counts, in_one_process, tmp_path):
    """Under ZeRO-3 the last stage is then resumed from its middle with one process in place of two."""
    skip_without_deepspeed(config)
    stages = [
        {"name": name, "budget": {"max_steps": 2}, "learning_rate": 1e-2} | ({"freeze": [names]} if names else {})
        for name, names in zip(("look", "tune", "finish"), frozen, strict=True)
    ]
    if counts[-1] is None:
        stages[-1] |= {"global_batch_size": 8, "gradient_accumulation_steps": 1}
    whole = compare_with_one_process(in_one_process, stages, counts, config, tmp_path)
    if config == "zero3":
        folder = tmp_path / "split"
        shutil.rmtree(folder / "checkpoint-6")
        run_plan(tmp_path / "plan.yaml", folder, config, ["step 6 on 1"], "--num_processes", "1")
        assert_close(weights(whole), weights(folder))
        assert rates(folder) == pytest.approx(rates(whole))


@pytest.fixture(scope="module")
def in_one_process(tmp_path_factory):
    """Returns the folder of a plan's run in one process, made once."""
    made = {}

    def of(stages):
        text = yaml.safe_dump({"stages": stages})
        if text not in made:
            folder = made[text] = tmp_path_factory.mktemp("alone")
            (folder / "plan.yaml").write_text(text)
            command = [sys.executable, str(SCRIPT), str(folder), str(folder / "plan.yaml")]
            done = subprocess.run(
                command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=200, check=False
            )
            assert done.returncode == 0, done.stderr[-3000:]
        return made[text]

    return of


def compare_with_one_process(in_one_process, stages, counts, config, folder):
    """Hold launches of ``counts`` processes against the weights of one process; None leaves it two.

    Returns the folder of the run in one process.
    """
    alone = [stage if "global_batch_size" in stage else {**stage, "per_device_train_batch_size": 8} for stage in stages]
    # without a number of processes: two, that of the configuration
    split = [
        {**stage, "per_device_train_batch_size": 8 // count, "num_processes": count} if count else stage
        for stage, count in zip(stages, counts, strict=True)
    ]
    (folder / "plan.yaml").write_text(yaml.safe_dump({"stages": split}))
    whole = in_one_process(alone)
    step = sum(stage["budget"]["max_steps"] for stage in stages)
    ends = [step // len(stages) * (number + 1) for number in range(len(stages))]
    told = [f"step {end} on {count or 2}" for end, count in zip(ends, counts, strict=True)]
    outcome = run_plan(folder / "plan.yaml", folder / "split", config, steps=told)
    assert outcome["place"] == {"stage": None, "step": step, "reason": "plan_finished"}
    assert_close(weights(whole, step), weights(folder / "split", step))
    assert rates(folder / "split", step) == pytest.approx(rates(whole, step))
    return whole


def assert_close(expected, found):
    # a key's bias has no gradient but rounding, of which Adam makes whole steps
    apart = {name: (expected[name] - found[name]).abs().max().item() for name in expected if "key.bias" not in name}
    assert max(apart.values()) <= 1e-5, apart
