import subprocess
import sys

from tests.support.launch import ROOT, environment


def test_the_wing_needs_neither_torch_nor_transformers_nor_another_wing():
    code = (
        "import pkgutil, sys, importlib, hf_trainplus.monitor as wing\n"
        "names = [one.name for one in pkgutil.walk_packages(wing.__path__, 'hf_trainplus.monitor.')]\n"
        "assert len(names) > 40, names\n"
        "[importlib.import_module(name) for name in names]\n"
        "heavy = {'torch', 'transformers', 'datasets', 'accelerate', 'pynvml', 'amdsmi', 'typer'} & set(sys.modules)\n"
        "wings = [name for name in sys.modules if name.startswith(('hf_trainplus.decisions', 'hf_trainplus.budget',\n"
        "    'hf_trainplus.evaluation', 'hf_trainplus.callbacks'))]\n"
        "print(sorted(heavy), wings)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment())
    assert done.stdout.strip() == "[] []", done.stdout + done.stderr


def test_the_public_names_load():
    import hf_trainplus

    for name in ("GPUMonitorCallback", "StepClockCallback", "MemoryLeakCallback"):
        assert getattr(hf_trainplus, name).__name__ == name
