"""Whether a single file of a checkpoint is whole, told from its own structure and without reading its tensors."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

_LEGACY_TORCH = bytes.fromhex("80028a0a6cfc9c46f920")  # torch.save before its zip format
_MOST_HEADER_BYTES = 100_000_000  # the limit of the safetensors format


def why_broken(path: Path) -> str | None:
    """Return what is wrong with a file, None when it is whole or when its kind tells nothing.

    safetensors say in their header where the last tensor ends; torch's archives end with their directory; JSON parses.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "scheduler.pt")
        >>> _ = path.write_bytes(b"PK")
        >>> why_broken(path)
        'is truncated: its archive has no end'
    """
    if not path.is_file():
        return "is missing"
    if path.stat().st_size == 0 and path.suffix in _CHECKS:
        return "is empty"
    check = _CHECKS.get(path.suffix)
    return None if check is None else check(path)


def _safetensors(path: Path) -> str | None:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _MOST_HEADER_BYTES):
            return "is truncated inside its header"
        try:
            header = json.loads(file.read(length))
        except ValueError:
            return "has a header that does not parse"
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    whole = 8 + length + max(ends, default=0)
    return None if size == whole else f"holds {size:,} of {whole:,} bytes"


def _archive(path: Path) -> str | None:
    if zipfile.is_zipfile(path):
        return None
    with path.open("rb") as file:
        legacy = file.read(len(_LEGACY_TORCH)) == _LEGACY_TORCH
    return None if legacy else "is truncated: its archive has no end"


def _json(path: Path) -> str | None:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return "is no JSON"
    return None


# None for files of which only this is known, that they are not empty
_CHECKS: dict[str, Callable[[Path], str | None] | None] = {
    ".safetensors": _safetensors,
    ".pt": _archive,
    ".pth": _archive,
    ".bin": _archive,
    ".distcp": None,
    ".json": _json,
}
