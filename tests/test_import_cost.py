"""``import hf_trainplus`` stays cheap, and each public name loads from where it says."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import hf_trainplus

FORBIDDEN = {
    "torch",
    "transformers",
    "accelerate",
    "datasets",
    "evaluate",
    "pyarrow",
    "numpy",
    "pandas",
    "sklearn",
    "scipy",
}
FORBIDDEN |= {"matplotlib", "plotly", "sqlalchemy", "rich", "typer", "pynvml", "psutil", "deepspeed"}


def loaded_by(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after ``code``."""
    line = f"{code}\nimport json, sys\nprint(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True, timeout=200)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_the_package_loads_no_library():
    loaded = loaded_by("import hf_trainplus")
    assert "hf_trainplus" in loaded
    assert not loaded & FORBIDDEN


def test_listing_the_public_names_loads_no_library():
    assert not loaded_by("import hf_trainplus\ndir(hf_trainplus)\nhf_trainplus.__all__") & FORBIDDEN


def test_results_and_decisions_load_neither_torch_nor_transformers():
    names = sorted(
        name
        for name, module in hf_trainplus._MODULE_OF.items()
        if module.startswith(("hf_trainplus.results", "hf_trainplus.decisions"))
    )
    assert "ExampleResults" in names
    loaded = loaded_by(f"from hf_trainplus import {', '.join(names)}")
    assert "numpy" in loaded
    assert not loaded & (FORBIDDEN - {"numpy"})


def test_plus_trainer_adds_few_modules_to_trainer():
    code = (
        "import sys\nfrom transformers import Trainer\nbefore = set(sys.modules)\nfrom hf_trainplus import PlusTrainer\n"
        "print('\\n'.join(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=200)
    added = done.stdout.split()
    assert "hf_trainplus.trainer" in added
    assert len(added) <= 60, added


@pytest.mark.parametrize("name", sorted(hf_trainplus._MODULE_OF))
def test_each_public_name_loads_from_its_module(name):
    value = getattr(hf_trainplus, name)
    assert value.__name__ == name
    assert value.__doc__
    assert name in hf_trainplus.__all__
    assert name in dir(hf_trainplus)


def test_an_unknown_name_lists_the_public_ones():
    with pytest.raises(AttributeError, match=r"no attribute 'PlusTrainr'; public names: .*PlusTrainer"):
        _ = hf_trainplus.PlusTrainr


def test_a_type_checker_sees_every_public_name():
    source = Path(hf_trainplus.__file__).read_text()
    for name, module in hf_trainplus._MODULE_OF.items():
        assert f"from {module} import {name} as {name}" in source
