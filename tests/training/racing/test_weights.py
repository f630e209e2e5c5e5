import os

import pytest
import torch

from hf_trainplus.training.racing.weights import (
    CandidateWeights,
    changing_tensors,
    referenced_candidates,
    write_references,
)
from tests.support import tiny


def disturb(model):
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter))


def copy_of(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("memory_bytes", [2**31, 0], ids=["memory", "disk"])
def test_loading_and_putting_back_are_bit_exact(tmp_path, memory_bytes):
    model = tiny.bert()
    kept = CandidateWeights(model, str(tmp_path / "candidates"), memory_bytes=memory_bytes)
    first = copy_of(model)
    kept.keep(1)
    disturb(model)
    second = copy_of(model)
    addresses = [parameter.data_ptr() for parameter in model.parameters()]
    with kept.loaded(1):
        assert all(torch.equal(value, first[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(value, second[name]) for name, value in model.state_dict().items())
    assert [parameter.data_ptr() for parameter in model.parameters()] == addresses
    assert kept.in_memory == (memory_bytes > 0)
    assert (tmp_path / "candidates").exists() == (memory_bytes == 0)


def test_the_live_weights_come_back_after_an_error(tmp_path):
    model = tiny.bert()
    kept = CandidateWeights(model, str(tmp_path))
    kept.keep(1)
    disturb(model)
    second = copy_of(model)
    with pytest.raises(RuntimeError, match="stop"), kept.loaded(1):
        raise RuntimeError("stop")
    assert all(torch.equal(value, second[name]) for name, value in model.state_dict().items())


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_only_adapters_are_kept_under_peft():
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(tiny.llama(), LoraConfig(target_modules=["q_proj"], r=2))
    assert all("lora" in name for name in changing_tensors(model))


def test_another_process_takes_candidates_over(tmp_path):
    model = tiny.bert()
    kept = CandidateWeights(model, str(tmp_path / "c"))
    first = copy_of(model)
    kept.keep(3)
    kept.persist()
    other = CandidateWeights(tiny.bert(seed=1), str(tmp_path / "c"))
    other.restore([3])
    other.load(3)
    assert all(torch.equal(value, first[name]) for name, value in other._model.state_dict().items())
    with pytest.raises(FileNotFoundError, match="candidate 4"):
        other.restore([4])


def test_files_go_when_no_checkpoint_names_them(tmp_path):
    kept = CandidateWeights(tiny.bert(), str(tmp_path / "c"))
    for step in (1, 2, 3):
        kept.keep(step)
    kept.persist()
    write_references(str(tmp_path / "checkpoint-5"), [2])
    kept.drop(1)
    kept.drop(2)
    kept.remove_unreferenced(referenced_candidates(str(tmp_path)))
    assert sorted(os.listdir(tmp_path / "c")) == ["step-2.safetensors", "step-3.safetensors"]


def test_ranks_wait_equally_often_whatever_is_on_the_disk_already(tmp_path):
    """A rank that comes late finds the file that the first one has just written, and must wait all the same."""
    waits = {True: 0, False: 0}

    def waiting(writes):
        waits[writes] += 1

    for writes in (True, False):
        model = torch.nn.Linear(2, 1)
        kept = CandidateWeights(model, str(tmp_path), writes=writes, barrier=lambda writes=writes: waiting(writes))
        kept.keep(1)
        kept.keep(2)
        kept.persist()
        kept.persist()
    assert waits[True] == waits[False] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-1.safetensors", "step-2.safetensors"]
