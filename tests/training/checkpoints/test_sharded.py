"""Checkpoints of sharded weights and optimizers take their place whole, with every rank's part in them."""

import json
import shutil

import pytest

from tests.support.launch import ROOT, torchrun

PARTS = {
    "fsdp2": {"pytorch_model_fsdp_0/.metadata", "pytorch_model_fsdp_0/__1_0.distcp", "optimizer_0/__1_0.distcp"},
    "zero2": {"global_step4/zero_pp_rank_1_mp_rank_00_optim_states.pt", "latest", "model.safetensors"},
}


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("kind", PARTS)
def test_two_ranks_save_and_resume(kind, tmp_path):
    if kind == "zero2":
        pytest.importorskip("deepspeed")
        if shutil.which("c++") is None:
            pytest.skip("DeepSpeed compiles its CPU communication on first use, and there is no C++ compiler")
    done = torchrun(ROOT / "tests/support/sharded_checkpoints.py", tmp_path, kind, timeout=150, DS_ACCELERATOR="cpu")
    line = next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    found = json.loads(line.removeprefix("FOUND "))
    assert found["names"] == ["checkpoint-3", "checkpoint-4"]
    assert found["torn"] == [None, None]
    assert PARTS[kind] | {"trainer_state.json", "rng_state_0.pth", "rng_state_1.pth"} <= set(found["files"])
    assert found["losses_and_weights_equal"] == [[True, True], [True, True]]
