"""The number of processes of a stage gets into whatever starts processes."""

import pytest

from hf_trainplus.launch.command import output_dir_of, stage_command


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("accelerate launch t.py --a 1", "accelerate launch --num_processes 3 t.py --a 1"),
        (
            "accelerate launch --num-processes=8 --config_file c.yaml t.py",
            "accelerate launch --num_processes 3 --config_file c.yaml t.py",
        ),
        (
            "/opt/bin/accelerate launch -m my.module --num_processes 5",
            "/opt/bin/accelerate launch --num_processes 3 -m my.module --num_processes 5",
        ),
        ("accelerate-launch t.py", "accelerate-launch --num_processes 3 t.py"),
        ("torchrun --standalone --nproc_per_node 2 t.py", "torchrun --nproc_per_node 3 --standalone t.py"),
        (
            "torchrun --nproc-per-node=gpu t.py --nproc_per_node 9",
            "torchrun --nproc_per_node 3 t.py --nproc_per_node 9",
        ),
        ("python -m torch.distributed.run t.py", "python -m torch.distributed.run --nproc_per_node 3 t.py"),
        ("python -m accelerate.commands.launch t.py", "python -m accelerate.commands.launch --num_processes 3 t.py"),
        ("env A=1 accelerate launch t.py", "env A=1 accelerate launch --num_processes 3 t.py"),
    ],
)
def test_the_launchers_own_option_is_set_and_the_scripts_are_left_alone(given, expected):
    assert stage_command(given.split(), 3) == expected.split()


def test_without_a_number_the_command_stays_as_it_is():
    words = ["accelerate", "launch", "--num_processes", "8", "t.py"]
    assert stage_command(words, None) == words


def test_a_script_alone_runs_one_process_and_no_more():
    assert stage_command(["python", "t.py"], 1) == ["python", "t.py"]
    with pytest.raises(
        ValueError, match="asks for 2 processes, and `python t.py` starts one. Write `accelerate launch"
    ):
        stage_command(["python", "t.py"], 2)


def test_a_word_of_the_script_is_no_launcher():
    with pytest.raises(ValueError, match="starts one"):
        stage_command(["python", "t.py", "accelerate", "launch"], 2)


def test_the_output_folder_is_read_from_the_command():
    assert output_dir_of(["t.py", "--output_dir", "runs/a"]) == "runs/a"
    assert output_dir_of(["t.py", "--output-dir=runs/a"]) == "runs/a"
    assert output_dir_of(["t.py", "--output_dir"]) is None
