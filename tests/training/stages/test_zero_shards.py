"""ZeRO checkpoints are read by the names of parameters; files of the same form as DeepSpeed's are written here.

Real ones are read in tests/launch/test_across_launches.py.
"""

import pytest
import torch

from hf_trainplus.training.stages.zero_crossing import split_by_step
from hf_trainplus.training.stages.zero_shards import ZeroShards, written_by_zero

pytest.importorskip("deepspeed")

# group 0 has a matrix that two processes share and a bias; group 1 has one odd vector
WEIGHTS = {"w": torch.arange(6.0).view(2, 3), "b": torch.tensor([6.0, 7.0, 8.0]), "odd": torch.arange(10.0, 15.0)}
GROUPS = [["w", "b"], ["odd"]]
FROZEN = torch.arange(20.0, 23.0)
STEPS = (7, 2)


def write(folder, stage, parts, models):
    inner = folder / "global_step7"
    inner.mkdir(parents=True)
    (folder / "latest").write_text("global_step7")
    prefix = "" if stage <= 2 else "zero_pp_rank_{}_"
    for rank, part in enumerate(parts):
        torch.save({"optimizer_state_dict": part}, inner / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    for rank, model in enumerate(models):
        torch.save(model, inner / f"{prefix.format(rank)}mp_rank_00_model_states.pt")
    return str(folder)


def scaling(stage):
    return {"zero_stage": stage, "loss_scaler": 1.0, "dynamic_loss_scale": False}


def model_states(**more):
    shapes = [{name: WEIGHTS[name].shape for name in names} for names in GROUPS]
    counted = {"global_steps": 7, "global_samples": 56, "skipped_steps": 0}
    return {"param_shapes": shapes, "buffer_names": ["ids"], **counted, **more}


def states(flats):
    return {
        "state": {
            group: {"step": torch.tensor(float(STEPS[group])), "exp_avg": flat / 10, "exp_avg_sq": flat * 100}
            for group, flat in enumerate(flats)
        },
        "param_groups": [{"lr": 0.1 * (group + 1), "params": [group]} for group in range(len(flats))],
    }


def zero2(folder, paddings=None):
    """Flat groups in equal parts over two processes; the last part is padded in the moments alone."""
    rows = []
    for number, names in enumerate(GROUPS):
        pieces = []
        for place, name in enumerate(names):
            pieces += [WEIGHTS[name].flatten(), torch.zeros(paddings[number][place] if paddings else 0)]
        rows.append(torch.cat(pieces))
    length = [-(-len(row) // 2) + 1 for row in rows]
    parts = []
    for rank in range(2):
        own = [row[rank * size : (rank + 1) * size] for row, size in zip(rows, length, strict=True)]
        padded = [torch.nn.functional.pad(one, (0, size - len(one))) for one, size in zip(own, length, strict=True)]
        part = {**scaling(2), "single_partition_of_fp32_groups": own, "base_optimizer_state": states(padded)}
        parts.append({**part, **({"param_alignment_paddings": paddings} if paddings else {})})
    module = {**{name: value.half() for name, value in WEIGHTS.items()}, "frozen": FROZEN, "ids": torch.arange(4)}
    return write(folder, 2, parts, [model_states(module=module)])


def zero3(folder):
    """Every parameter is in two equal parts, the second one padded."""

    def part_of(value, rank):
        size = -(-value.numel() // 2)
        return torch.nn.functional.pad(value.flatten(), (0, 2 * size - value.numel()))[rank * size : (rank + 1) * size]

    parts, models = [], []
    for rank in range(2):
        flats = [torch.cat([part_of(WEIGHTS[name], rank) for name in names]) for names in GROUPS]
        parts.append({**scaling(3), "fp32_flat_groups": flats, "optimizer_state_dict": states(flats)})
        frozen = {"frozen": part_of(FROZEN, rank)}
        shapes = {"frozen": FROZEN.shape}
        module = {"ids": torch.arange(4)}
        models.append(model_states(module=module, frozen_param_shapes=shapes, frozen_param_fragments=frozen))
    return write(folder, 3, parts, models)


@pytest.fixture(params=["zero2", "zero2 aligned", "zero3"])
def shards(request, tmp_path):
    if request.param == "zero3":
        return ZeroShards(zero3(tmp_path / "run"))
    return ZeroShards(zero2(tmp_path / "run", [[2, 1], [3]] if "aligned" in request.param else None))


def test_weights_are_whole_and_in_full_precision(shards):
    assert shards.names == set(WEIGHTS)
    for name, value in WEIGHTS.items():
        assert torch.equal(shards.weight(name), value)
    assert torch.equal(shards.weight("frozen"), FROZEN)
    assert shards.weight("never heard of") is None


def test_moments_go_by_parameter_and_steps_by_group(shards):
    for name, value in WEIGHTS.items():
        found = shards.moments(name)
        assert list(found) == ["exp_avg", "exp_avg_sq"]
        assert torch.allclose(found["exp_avg"], value / 10)
        assert torch.equal(found["exp_avg_sq"], value * 100)
    assert [shards.step(name) for name in ("w", "b", "odd", "frozen")] == [7, 7, 2, 0]
    assert list(shards.counts("w")) == ["step"]


def test_what_is_kept_beside_parameters(shards):
    assert shards.world_size == 2
    assert shards.settings == [{"lr": 0.1}, {"lr": 0.2}]
    assert shards.counters == {"global_steps": 7, "global_samples": 56, "skipped_steps": 0}
    assert shards.scaling == {"loss_scaler": 1.0, "dynamic_loss_scale": False}
    assert {name: value.tolist() for name, value in shards.buffers.items()} == {"ids": [0, 1, 2, 3]}


def test_a_checkpoint_before_the_first_step_has_no_moments(tmp_path):
    folder = zero2(tmp_path / "run")
    path = tmp_path / "run" / "global_step7" / "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    part = torch.load(path, weights_only=False)
    part["optimizer_state_dict"]["base_optimizer_state"]["state"] = {}
    torch.save(part, path)
    found = ZeroShards(folder)
    assert found.moments("w") == {}
    assert found.step("w") == 0
    assert torch.equal(found.weight("w"), WEIGHTS["w"])


def test_other_checkpoints_are_told_apart(tmp_path):
    assert written_by_zero(zero2(tmp_path / "run"))
    (tmp_path / "stock").mkdir()
    assert not written_by_zero(str(tmp_path / "stock"))
    with pytest.raises(ValueError, match="holds no optimizer that ZeRO has split; set zero_optimization.stage"):
        ZeroShards(str(tmp_path / "stock"))


def test_parameters_of_other_ages_get_groups_of_their_own(shards):
    model = torch.nn.ParameterDict({name: torch.nn.Parameter(value) for name, value in WEIGHTS.items()})
    model["fresh"] = torch.nn.Parameter(torch.zeros(2))
    groups = [
        {"params": [model["odd"], model["fresh"], model["w"]], "lr": 0.5},
        {"params": [model["b"]], "lr": 0.25},
        {"params": []},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1.0)
    split_by_step(optimizer, model, shards)
    found = [([id(one) for one in group["params"]], group["lr"]) for group in optimizer.param_groups]
    assert found == [([id(model[name])], lr) for name, lr in (("w", 0.5), ("odd", 0.5), ("fresh", 0.5), ("b", 0.25))]


def test_an_optimizer_of_deepspeeds_own_is_left_as_it_is(shards):
    class Dummy:
        param_groups = ("untouched",)

    split_by_step(Dummy, torch.nn.Linear(1, 1), shards)
    assert Dummy.param_groups == ("untouched",)
