"""The configurations of recipes/accelerate: each loads, and two CPU processes report what one reports."""

import json
import shutil

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.utils import DistributedType

from tests.support.recipe_runs import ROOT, SCRIPT, launched, run

FOLDER = ROOT / "recipes" / "accelerate"
EXPECTED = {
    "one_gpu": (DistributedType.NO, 1),
    "ddp": (DistributedType.MULTI_GPU, 2),
    "two_cpu": (DistributedType.MULTI_GPU, 2),
    "fsdp2": (DistributedType.FSDP, 2),
    "zero2": (DistributedType.DEEPSPEED, 2),
    "zero3": (DistributedType.DEEPSPEED, 2),
}
DECIDING = (
    "eval_loss",
    "eval_accuracy",
    "eval_accuracy_ci_low",
    "eval_accuracy_ci_high",
    "eval_examples",
    "eval_targets",
)


def test_the_folder_holds_what_is_listed_here():
    assert {path.stem for path in FOLDER.iterdir()} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_each_configuration_loads(name):
    config = load_config_from_file(str(FOLDER / f"{name}.yaml"))
    assert (config.distributed_type, config.num_processes) == EXPECTED[name]
    assert config.mixed_precision == "no"


@pytest.mark.parametrize("name", EXPECTED)
def test_each_configuration_says_how_it_is_launched(name):
    text = (FOLDER / f"{name}.yaml").read_text()
    assert f"#     accelerate launch --config_file recipes/accelerate/{name}.yaml" in text
    assert "recipes/text_classification.py" in text


def test_the_sharded_configurations_write_whole_weights():
    fsdp, zero3 = (yaml.safe_load((FOLDER / f"{name}.yaml").read_text()) for name in ("fsdp2", "zero3"))
    assert fsdp["fsdp_config"]["fsdp_version"] == 2
    assert fsdp["fsdp_config"]["fsdp_state_dict_type"] == "FULL_STATE_DICT"
    assert zero3["deepspeed_config"]["zero3_save_16bit_model"] is True


@pytest.fixture(scope="module")
def words(tables, tiny_model):
    """Options of one short run: 7 validation rows on two ranks, so one rank repeats a row that must not count."""
    found = ["--use_cpu", "--model_name_or_path", tiny_model, "--learning_rate", "0.01", "--max_steps", "4"]
    found += [word for part in ("train", "validation", "test") for word in (f"--{part}_file", tables / f"{part}.csv")]
    return [
        *found,
        "--eval_strategy",
        "steps",
        "--eval_steps",
        "2",
        "--save_strategy",
        "steps",
        "--save_steps",
        "2",
        "--disable_tqdm",
        "True",
    ]


def reported(folder):
    found = {name: json.loads((folder / f"{name}_results.json").read_text()) for name in ("eval", "test")}
    history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    return found, [entry for entry in history if "eval_loss" in entry]


@pytest.fixture(scope="module")
def one_process(words, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    run(launched(SCRIPT, *words, "--per_device_train_batch_size", 8, "--output_dir", folder))
    return reported(folder)


def same_evaluation(one, two):
    """The figures that decide, of every evaluation on the way and at the end; times differ."""
    for first, second in zip(one[1], two[1], strict=True):
        assert {key: second[key] for key in DECIDING} == pytest.approx({key: first[key] for key in DECIDING}, abs=1e-4)
    for part, values in one[0].items():
        assert two[0][part][f"{part}_loss"] == pytest.approx(values[f"{part}_loss"], abs=1e-4)
        assert two[0][part][f"{part}_examples"] == values[f"{part}_examples"]


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("name", ["two_cpu", "fsdp2", "zero2", "zero3"])
def test_two_processes_give_the_one_process_evaluation(name, words, one_process, tmp_path):
    if name.startswith("zero"):
        pytest.importorskip("deepspeed")
        if shutil.which("c++") is None:
            pytest.skip("DeepSpeed compiles its CPU communication on first use, and there is no C++ compiler")
    launch = launched(
        "-m", "accelerate.commands.launch", "--config_file", FOLDER / f"{name}.yaml", "--main_process_port", 0
    )
    # on the CPU Accelerate passes over what is asked of FSDP, and trains under DDP
    script = [SCRIPT] if name != "fsdp2" else [ROOT / "tests" / "support" / "fsdp_on_cpu.py", SCRIPT]
    done = run([*launch, *launched(*script, *words, "--per_device_train_batch_size", 4, "--output_dir", tmp_path)[1:]])
    same_evaluation(one_process, reported(tmp_path))
    assert ("trained under FSDPModule" in done.stdout) is (name == "fsdp2")
    assert done.stdout.count("time in evaluation") == 1
    assert (tmp_path / "model.safetensors").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.distributed
def test_torchrun_gives_the_one_process_evaluation(words, one_process, tmp_path):
    launch = launched("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", 2)
    done = run([*launch, *launched(SCRIPT, *words, "--per_device_train_batch_size", 4, "--output_dir", tmp_path)[1:]])
    same_evaluation(one_process, reported(tmp_path))
    assert done.stdout.count("time in evaluation") == 1


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize(
    ("options", "processes"),
    [
        (["--multi_gpu", "--num_processes", 2], 2),
        (["--use_fsdp", "--fsdp_version", 2, "--num_processes", 2], 2),
        (["--cpu", "--num_processes", 2], 1),
    ],
)
def test_the_launchers_own_options_start_so_many_cpu_processes(options, processes, words, tmp_path):
    launch = launched("-m", "accelerate.commands.launch", *options, "--main_process_port", 0)
    short = ["--max_steps", 2, "--eval_strategy", "no", "--save_strategy", "no", "--load_best_model_at_end", False]
    run([*launch, *map(str, [SCRIPT, *words, *short, "--per_device_train_batch_size", 4, "--output_dir", tmp_path])])
    state = json.loads((tmp_path / "trainer_state.json").read_text())
    assert state["epoch"] == pytest.approx(2 * 4 * processes / 24)
