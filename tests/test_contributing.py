"""The lists of CONTRIBUTING.md hold for what is in the repository: so many files, and no others, for one more of a kind."""

import re
from pathlib import Path

import pytest

import hf_trainplus

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
ROWS = {
    kind: (re.findall(r"`([^`]+)`", touch), re.findall(r"`([^`]+)`", examples))
    for kind, touch, examples in re.findall(r"^\| (an? [^|]+) \| ([^|]+) \| ([^|]+) \|$", TEXT, re.MULTILINE)
}
CASES = [(kind, files, example) for kind, (files, examples) in ROWS.items() for example in examples]


def class_of(example: str) -> re.Pattern[str]:
    """How a shared file may name the module ``gpu_monitor``: itself, ``gpu-monitor``, or a class ``GPUMonitor...``."""
    return re.compile(r"[_-]?".join(example.split("_")), re.IGNORECASE)


def test_the_kinds_that_people_add_are_listed():
    assert {"a callback", "a subset strategy", "a diagnosis rule", "a recipe"} <= set(ROWS)


@pytest.mark.parametrize("kind", ROWS)
def test_at_most_four_files_each(kind):
    files, examples = ROWS[kind]
    assert 1 < len(files) <= 4
    assert examples
    assert any("NAME" in name for name in files)
    assert any(name.startswith("tests/") for name in files)


@pytest.mark.parametrize(("kind", "files", "example"), CASES, ids=[f"{kind}-{example}" for kind, _, example in CASES])
def test_the_examples_touch_the_listed_files(kind, files, example):
    for name in files:
        path = ROOT / name.replace("NAME", example)
        assert path.is_file(), f"{kind}: {path} is missing"
        assert "NAME" in name or class_of(example).search(path.read_text()), f"{kind}: {name} does not name {example}"


@pytest.mark.parametrize(("kind", "files", "example"), CASES, ids=[f"{kind}-{example}" for kind, _, example in CASES])
def test_no_other_file_registers_an_example(kind, files, example):
    """A module outside its own folder that imports the example would be a fifth file to touch."""
    own = ROOT / files[0].replace("NAME", example)
    module = own.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    imports = re.compile(rf"^(from|import) {re.escape(module)}\b", re.MULTILINE)
    listed = {(ROOT / name.replace("NAME", example)) for name in files}
    siblings = set(own.parent.glob("*.py"))
    others = {path for path in (ROOT / "hf_trainplus").rglob("*.py") if imports.search(path.read_text())}
    assert others - listed - siblings == set()


@pytest.mark.parametrize("name", [name for name, module in hf_trainplus._MODULE_OF.items() if ".callbacks." in module])
def test_every_public_callback_follows_the_list(name):
    module = hf_trainplus._MODULE_OF[name].rpartition(".")[2]
    for listed in ROWS["a callback"][0]:
        assert (ROOT / listed.replace("NAME", module)).is_file(), listed


def test_the_drawing_of_the_floors_is_the_one_that_is_tested():
    from tests.test_layers import FLOORS

    drawn = "".join(line for line in TEXT.splitlines(keepends=True) if line.startswith("    "))
    floors = [{name.strip() for name in floor.split(",")} for floor in drawn.split("→")]
    assert floors == [floor - {"launch"} for floor in reversed(FLOORS)]
