"""Plan files: what a good one gives, and every error of a bad one with its line."""

import pytest

from hf_trainplus.budget.plan_file import read_plan
from hf_trainplus.budget.plans.problems import PlanError
from hf_trainplus.budget.stages import StagePlan

GOOD = """\
name: three steps up
stages:
  - name: warmup
    budget: {gpu_hours: 100}              # or max_steps: 4, num_train_epochs, tokens, wall_clock
    per_device_train_batch_size: 32       # or global_batch_size
    learning_rate: 1e-4                   # YAML takes this for text
    data_fraction: 0.1
    eval: {mode: subset, subset_size: 512, schedule: adaptive}
    advance_when: {metric: accuracy, at_least: 0.7}
  - name: full
    preset: tuning
    budget: {wall_clock: 2h30m, num_train_epochs: 3}
    freeze: ["*.embeddings.*"]
    fall_back_when: {metric: loss, at_least: 10}
    fall_back_to: warmup
  - name: release
    preset: production
"""

BAD = """\
nmae: x
stages:
  - name: warmup
    budget: {gpu_hour: 100, wall_clock: 2h30x}
    per_device_train_batch_size: 32
    global_batch_size: 100
  - name: warmup
    steps: [0, 10]
    learnin_rate: 3
    eval: {mode: subset, shedule: adaptive}
    advance_when: {metric: accuracy, at_least: high}
  - name: empty
  -
  - name: last
    steps: [5, 20]
    steps: [5, 30]
    data_fraction: 0
"""


@pytest.fixture
def write(tmp_path):
    def write(text, name="plan.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_a_good_file(write):
    plan = read_plan(write(GOOD))
    warmup, full, release = plan
    assert plan.name == "three steps up"
    assert (warmup.learning_rate, warmup.data_fraction, warmup.budget.gpu_hours) == (1e-4, 0.1, 100.0)
    assert (full.budget.wall_clock, full.eval.every, full.fall_back_to) == (9000.0, 2, "warmup")
    assert not release.trains
    assert StagePlan.read(write(GOOD)) == plan


def test_mapping_file_and_json_agree(write):
    mapping = {"stages": [{"name": "a", "budget": {"wall_clock": "2h"}, "learning_rate": 1e-4}]}
    text = "stages:\n  - {name: a, budget: {wall_clock: 2h}, learning_rate: 1.0e-4}\n"
    json_text = '{"stages": [{"name": "a", "budget": {"wall_clock": "2h"}, "learning_rate": 1e-4}]}'
    assert read_plan(mapping) == read_plan(write(text)) == read_plan(write(json_text, "plan.json"))
    plan = read_plan(mapping)
    assert read_plan(plan) is plan


def test_all_errors_of_one_read_are_told_together_with_their_lines(write):
    path = write(BAD)
    with pytest.raises(PlanError) as caught:
        read_plan(path)
    told = [line.removeprefix(f"{path}:") for line in str(caught.value).splitlines()]
    expected = [
        "1: nmae: 'nmae' is unknown in a plan; did you mean 'name'?",
        "3: stages[0]: has no steps, and other stages have",
        "4: stages[0].budget.gpu_hour: 'gpu_hour' is no budget",
        "4: stages[0].budget.wall_clock: wall_clock is '2h30x', which is no duration",
        "6: stages[0].global_batch_size: is 100, which 32 rows a device cannot make up",
        "7: stages[1].name: is 'warmup', the name of stage 1 too",
        "9: stages[1].learnin_rate: 'learnin_rate' is unknown in a stage; did you mean 'learning_rate'?",
        "10: stages[1].eval.shedule: 'shedule' is unknown",
        "10: stages[1].eval.mode: is subset without subset_size",
        "11: stages[1].advance_when.at_least: is 'high'",
        "12: stages[2]: is empty: nothing says when it ends",
        "12: stages[2]: has no steps",
        "13: stages[3]: is None; a stage is a mapping",
        "16: stages[4].steps: 'steps' is given twice, first on line 15",
        "16: stages[4].steps: overlaps stage 'warmup', which ends at step 10",
        "17: stages[4].data_fraction: is 0",
    ]
    assert len(told) == len(expected)
    for line, start in zip(told, expected, strict=True):
        assert line.startswith(start)


def test_batch_sizes_are_checked_against_the_number_of_processes(write):
    path = write("stages:\n  - {name: a, budget: {max_steps: 5}, global_batch_size: 6}\n")
    assert read_plan(path, world_size=2).stages[0].global_batch_size == 6
    with pytest.raises(PlanError, match="on 4 devices cannot make up: it is no multiple of 4. Write 8"):
        read_plan(path, world_size=4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "plan: is empty; allowed is a mapping with the key stages"),
        ("- a\n- b\n", "is a list; allowed is a mapping with the key stages"),
        ("stages: []\n", "1: stages: is missing or empty"),
        ("name: x\n", "stages: is missing or empty"),
        ("name: 3\nstages:\n  - {name: a, budget: {usd: 1}}\n", "1: name: is 3; allowed is text"),
        ("stages: [1\n", "is no YAML"),
        ("stages:\n- {name: on, budget: {usd: 1}}\n", r"name: is True; .*Put it in quotes: YAML takes it for a truth"),
        ("stages:\n- {name: 2, budget: {usd: 1}}\n", r"name: is 2; .*Put it in quotes: YAML takes it for a number"),
        ("stages: &s [*s]\n", "an anchor stands inside of itself"),
        ("stages:\n- {name: [a, b], budget: {usd: 1}}\n", r"2: stages\[0\].name: is \['a', 'b'\]; allowed are letters"),
        ("stages:\n- {name: a, budget: {wall_clock: 2:30}}\n", "wall_clock is '2:30', which is no duration"),
        (f"stages:\n- {{name: a, budget: {{tokens: {10**400}}}}}\n", "allowed are finite values above 0"),
    ],
)
def test_files_that_are_no_plan(write, text, message):
    with pytest.raises(PlanError, match=message):
        read_plan(write(text))


def test_a_file_that_is_no_text(tmp_path):
    (tmp_path / "plan.yaml").write_bytes(b"stages: \xff")
    with pytest.raises(PlanError, match=r"is no text in UTF-8 \(byte 8\). Save it as UTF-8"):
        read_plan(tmp_path / "plan.yaml")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="is no file; give the path of a YAML or JSON file"):
        read_plan(tmp_path / "plan.yaml")


def test_without_a_file_places_are_named_without_lines():
    with pytest.raises(PlanError, match=r"^stages\[0\].budget.usd: usd is -1"):
        read_plan({"stages": [{"name": "a", "budget": {"usd": -1}}]})
