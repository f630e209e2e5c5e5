"""What a stranger installs: the project file, the tested versions, the make goals and the script that CI runs."""

import ast
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import hf_trainplus

ROOT = Path(__file__).parents[1]
if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

PROJECT_TEXT = (ROOT / "pyproject.toml").read_text()
PROJECT = tomllib.loads(PROJECT_TEXT)["project"]
EXTRAS = PROJECT["optional-dependencies"]
PINS = {
    canonicalize_name(pin.name): pin
    for pin in (
        Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"
    )
}


# ---- pyproject.toml ----
def test_the_project_file_stays_readable():
    assert len(PROJECT_TEXT.splitlines()) < 150


def test_the_version_is_said_once_and_the_changelog_begins_with_it():
    assert hf_trainplus.__version__ == PROJECT["version"]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest.group(1) == hf_trainplus.__version__


def test_python_and_upstream_have_lower_bounds():
    assert PROJECT["requires-python"] == ">=3.10"
    for line in PROJECT["dependencies"]:
        assert re.match(r"[A-Za-z0-9-]+>=\d", line), line


def test_the_deprecated_pynvml_package_is_not_asked_for():
    names = {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]}
    assert "nvidia-ml-py" in names
    assert "pynvml" not in names


def test_the_licence_and_the_type_marker_ship():
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert (ROOT / "hf_trainplus" / "py.typed").is_file()


def imported_by(folder: str) -> set[tuple[str, str]]:
    """(file, top-level module) of what a folder's sources import from outside the standard library and the project."""
    own = {"hf_trainplus", "tests", "recipes", *(path.stem for path in (ROOT / "recipes").glob("*.py"))}
    found = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            found |= {(path.name, name.partition(".")[0]) for name in names}
    return {(name, root) for name, root in found if root not in sys.stdlib_module_names | own}


@pytest.mark.parametrize("folder", ["hf_trainplus", "recipes", "tests"])
def test_every_module_that_is_imported_is_a_dependency_or_an_extra(folder):
    """Read from the source, so that a forgotten requirement does not hide behind a developer's full environment."""
    distributions = metadata.packages_distributions()
    lines = [*PROJECT["dependencies"], *(line for extra in EXTRAS.values() for line in extra)]
    asked = {canonicalize_name(Requirement(line).name) for line in lines}
    asked |= {"tokenizers"}  # part of transformers' own interface
    looked_for = {"amdsmi", "my_rules", "my_unloaded"}  # comes with AMD's driver, never required; written by a test
    missing = {
        (name, root)
        for name, root in imported_by(folder)
        if root not in looked_for
        and not {canonicalize_name(owner) for owner in distributions.get(root, [root])} & asked
    }
    assert not missing


# ---- constraints.txt ----
def walk(lines: list[str], asker: str, extras: frozenset[str], seen: dict[str, frozenset[str]]) -> list[str]:
    """Follow requirements through what is installed; say which has no pin, or a pin that a requirement excludes."""
    problems = []
    for requirement in map(Requirement, lines):
        name = canonicalize_name(requirement.name)
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in extras | {""}):
            continue
        if asker == "torch" and name.startswith(("cuda-", "nvidia-", "triton")):
            continue  # a CUDA build pins its own libraries; the CPU build has none
        if name not in PINS:
            problems += [] if name == "hf-trainplus" else [f"{asker} needs {name}, which has no pin"]
            continue
        if not requirement.specifier.contains(str(PINS[name].specifier).removeprefix("=="), prereleases=True):
            problems.append(f"{asker} needs {requirement}, the pin is {PINS[name]}")
        wanted = frozenset(requirement.extras)
        if name not in seen or not wanted <= seen[name]:
            seen[name] = seen.get(name, frozenset()) | wanted
            problems += walk(metadata.requires(name) or [], name, seen[name], seen)
    return problems


def test_every_requirement_of_every_extra_is_pinned_and_the_pins_agree():
    seen = {}
    lines = [*PROJECT["dependencies"], *(line for extra in EXTRAS.values() for line in extra)]
    assert walk(lines, "hf-trainplus", frozenset(), seen) == []
    assert set(PINS) <= set(seen), "pins that nothing asks for"


def test_each_pin_is_exact_and_names_no_local_build():
    for pin in PINS.values():
        assert re.fullmatch(r"==[0-9][0-9a-z.]*", str(pin.specifier)), pin


@pytest.mark.skipif(Path(sys.prefix) != ROOT / ".venv", reason="another environment than the one that make builds")
def test_what_is_installed_is_what_is_pinned():
    for name, pin in PINS.items():
        assert pin.specifier.contains(metadata.version(name).partition("+")[0], prereleases=True), name


# ---- Makefile and .ci/run ----
@pytest.fixture
def checkout(tmp_path):
    """The files that decide an installation, in a folder without .venv."""
    for name in ("Makefile", "constraints.txt", "pyproject.toml", ".ci/run"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def make(folder, *words, path=None):
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"]}
    environment.pop("MAKEFLAGS", None)
    return subprocess.run(
        ["make", *words], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("goal", ["demo", "test", "lint"])
def test_each_goal_installs_first_and_torch_before_everything_else(goal, checkout):
    lines = make(checkout, "-n", goal).stdout.splitlines()
    installs = [line for line in lines if "pip install" in line]
    assert "torch" in installs[0]
    assert all("--constraint constraints.txt" in line for line in installs)
    work = {"demo": "recipes/text_classification.py", "test": "-m pytest -n 2", "lint": "mypy"}[goal]
    assert any(work in line for line in lines[lines.index(installs[-1]) :])


def test_a_second_run_installs_nothing_until_a_pin_changes(checkout):
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / ".installed").touch()
    assert "pip install" not in make(checkout, "-n", "test").stdout
    later = (checkout / ".venv" / ".installed").stat().st_mtime + 10
    os.utime(checkout / "constraints.txt", (later, later))
    assert "pip install" in make(checkout, "-n", "test").stdout


def test_an_old_python_is_refused_with_the_line_that_helps(checkout):
    old = checkout / "old-python"
    old.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'import sys; sys.version_info = (3, 9, 0)\nexec(sys.argv[1])' \"$2\"\n"
    )
    old.chmod(0o755)
    done = make(checkout, "demo", f"PYTHON={old}")
    assert done.returncode != 0
    assert "hf_trainplus needs Python 3.10 or newer: make PYTHON=python3.12" in done.stderr
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize(("tests", "lint", "code"), [(0, 0, 0), (1, 0, 1), (0, 1, 1), (2, 2, 1)])
def test_ci_runs_both_goals_whatever_one_says_and_ends_with_the_closing_line(tests, lint, code, checkout):
    closing = "=========== 7 passed, 1 skipped in 3.21s ==========="
    fake = checkout / "bin" / "make"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\necho "ran $1"\n[ "$1" = test ] && echo "{closing}" && exit {tests}\nexit {lint}\n')
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{fake.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", ".ci/run"], cwd=checkout, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    lines = done.stdout.splitlines()
    assert done.returncode == code
    assert {"ran test", "ran lint"} <= set(lines)
    assert lines[-1] == closing


# ---- the console script ----
def test_the_console_script_answers():
    (name, target) = next(iter(PROJECT["scripts"].items()))
    module, _, function = target.partition(":")
    code = f"import sys; sys.argv = ['{name}', '--version']; from {module} import {function}; sys.exit({function}())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.strip().split()[-1]) == (0, hf_trainplus.__version__)
