"""Whether one file is whole, from its own structure."""

import pytest
import torch
from safetensors.torch import save_file

from hf_trainplus.training.checkpoints.structure import why_broken


def write(kind, path):
    if kind == "safetensors":
        save_file({"a": torch.ones(40), "b": torch.zeros(3, dtype=torch.int8)}, path, metadata={"format": "pt"})
    elif kind == "json":
        path.write_text('{"weight_map": {"a": "model-00001-of-00001.safetensors"}}')
    else:
        torch.save({"a": torch.ones(40)}, path, _use_new_zipfile_serialization=kind != "legacy.bin")


KINDS = ["safetensors", "json", "pt", "pth", "bin"]


@pytest.mark.parametrize("kind", [*KINDS, "legacy.bin"])
def test_a_whole_file_is_whole(kind, tmp_path):
    path = tmp_path / f"file.{kind}"
    write(kind, path)
    assert why_broken(path) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_truncated_file_is_told(kind, share, tmp_path):
    path = tmp_path / f"file.{kind}"
    write(kind, path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    assert why_broken(path) is not None


@pytest.mark.parametrize("kind", [*KINDS, "distcp"])
def test_an_empty_or_missing_file_is_told(kind, tmp_path):
    path = tmp_path / f"file.{kind}"
    assert why_broken(path) == "is missing"
    path.touch()
    assert why_broken(path) == "is empty"


def test_what_is_missing_of_tensors_is_counted(tmp_path):
    path = tmp_path / "model.safetensors"
    write("safetensors", path)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-7])
    assert why_broken(path) == f"holds {size - 7:,} of {size:,} bytes"


def test_a_header_of_rubbish(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes((4).to_bytes(8, "little") + b"{{{{")
    assert why_broken(path) == "has a header that does not parse"


def test_a_kind_that_tells_nothing_is_left_alone(tmp_path):
    path = tmp_path / "vocab.txt"
    path.touch()
    assert why_broken(path) is None
