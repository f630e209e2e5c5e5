"""Small inputs for the recipes, and a way to start them as a user does."""

import csv
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "recipes" / "text_classification.py"
CLASSES = {"fruit": ("apple", "pear", "plum"), "tool": ("hammer", "saw", "drill")}


def example_rows(count: int) -> list[tuple[str, str]]:
    """(text, label) of unequal length, classes in turn, every text another one."""
    rows = []
    for i in range(count):
        label = ("fruit", "tool")[i % 2]
        words = CLASSES[label]
        rows.append((" ".join(words[(i + j) % 3] for j in range(1 + i % 5)) + f" number {i}", label))
    return rows


def write_csv(path: Path, rows, columns=("text", "label")) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the checkout's root, without a network, with one thread a process."""
    quiet = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **quiet, **environment}, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return done


def launched(*words: object) -> list[str]:
    return [sys.executable, *map(str, words)]
