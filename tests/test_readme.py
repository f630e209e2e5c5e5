"""The README says what is so: its programs print what it shows, its commands run, its links and names exist."""

import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import hf_trainplus
from tests.support.recipe_runs import ROOT, example_rows, run, write_csv

PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
}
README = PAGES["README.md"]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def blocks(text, kind):
    return [body for found, body in FENCE.findall(text) if found == kind]


def programs(text):
    """(program, what the page shows below it), for each Python block that a text block follows."""
    found = FENCE.findall(text)
    return [
        (body, shown)
        for (kind, body), (after, shown) in zip(found, found[1:], strict=False)
        if (kind, after) == ("python", "text")
    ]


def commands():
    return sorted(
        {line for block in blocks(README, "sh") for line in block.splitlines() if line and not line.startswith("#")}
    )


def test_the_readme_is_short():
    assert len(README.splitlines()) < 250


def test_the_before_and_after_is_short_and_shown_with_its_output():
    assert len(programs(README)) >= 1
    assert len(programs(README)[0][0].strip().splitlines()) <= 15


@pytest.mark.slow
@pytest.mark.parametrize(("program", "shown"), programs(README), ids=lambda text: text[:20].strip())
def test_a_program_prints_what_the_readme_shows(program, shown, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(program)
    done = run([sys.executable, str(script)])
    assert done.stdout.strip().splitlines() == shown.strip().splitlines()


def test_the_two_commands_are_there():
    assert {"make demo", "make test"} <= set(commands())


@pytest.mark.parametrize("command", [line for line in commands() if line.startswith("make ")])
def test_a_make_goal_exists(command):
    goal = command.split()[1]
    done = subprocess.run(["make", "-n", goal], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", [line for line in commands() if not line.startswith(("make ", "pip "))])
def test_a_command_runs(command, tmp_path):
    words = shlex.split(command)
    here = {name: write_csv(tmp_path / name, example_rows(60)) for name in ("train.csv", "validation.csv")}
    words = [str(here.get(word, word)) for word in words]
    start = {"python": [sys.executable], "accelerate": [sys.executable, "-m", "accelerate.commands.accelerate_cli"]}
    start["trainplus"] = [sys.executable, "-c", "import sys; from hf_trainplus.cli import main; sys.exit(main())"]
    short = (
        ["--max_steps", "1", "--output_dir", str(tmp_path / "out")] if "recipes/text_classification.py" in words else []
    )
    assert run([*start[words[0]], *words[1:], *short]).returncode == 0


@pytest.mark.parametrize("page", PAGES)
def test_every_local_link_leads_somewhere(page):
    for target in LINK.findall(PAGES[page]):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"


def test_every_page_is_in_the_index():
    listed = set(LINK.findall(PAGES["docs/index.md"]))
    assert {Path(page).name for page in PAGES if page.startswith("docs/")} - {"index.md"} == listed


def test_every_public_name_in_the_readme_exists_and_none_is_forgotten():
    names = {
        word for line in README.splitlines() if line.startswith("|") for word in re.findall(r"`([A-Za-z_]\w*)`", line)
    }
    public = set(hf_trainplus.__all__) - {"__version__"}
    fields = set(hf_trainplus.PlusTrainingArguments.__dataclass_fields__)
    assert names <= public | fields, sorted(names - public - fields)
    assert public <= set(re.findall(r"`([A-Za-z_]\w*)", README)), sorted(public - names)


def test_every_module_in_the_documentation_exists():
    for page, text in PAGES.items():
        for name in re.findall(r"`(hf_trainplus(?:\.\w+)+)`", text):
            module, _, attribute = name.rpartition(".")
            assert hasattr(importlib.import_module(module), attribute) or importlib.util.find_spec(name), (
                f"{page}: {name}"
            )
