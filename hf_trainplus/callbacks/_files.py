"""Write what a run leaves behind; a full disk costs one warning and no training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers.utils import logging

logger = logging.get_logger("hf_trainplus")


def write_json(path: Path, content: Any) -> bool:
    """Write strict JSON; on a file system error warn and return False.

    Raises:
        ValueError: the content holds NaN or infinity, which strict JSON has not.
    """
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        logger.warning(f"{path} cannot be written ({error}); training goes on without it.")
        return False
    return True


class LineFile:
    """Appends JSON lines; the first file system error costs one warning, and nothing is written from then on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._broken = False

    def append(self, content: Any) -> None:
        """Write one line."""
        if self._broken:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(content, allow_nan=False) + "\n")
        except OSError as error:
            self._broken = True
            logger.warning(f"{self._path} cannot be written ({error}); training goes on without it.")
