"""Whether a checkpoint is whole: stock's by its structure, ours by its record."""

import json
import os
import shutil

import pytest
from transformers import Trainer, TrainingArguments

from hf_trainplus import PlusTrainer
from hf_trainplus.training.checkpoints.record import RECORDS
from hf_trainplus.training.checkpoints.whole import why_torn
from tests.support import tiny


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with a checkpoint by stock and one by PlusTrainer."""
    root = tmp_path_factory.mktemp("written")
    for trainer_class in (Trainer, PlusTrainer):
        options = {"max_steps": 1, "save_strategy": "steps", "save_steps": 1}
        args = TrainingArguments(**tiny.quiet(root / trainer_class.__name__, **options))
        rows = tiny.rows(4)
        trainer_class(tiny.bert(), args, train_dataset=rows, data_collator=tiny.PaddingCollator()).train()
    return root


@pytest.fixture(params=["Trainer", "PlusTrainer"])
def checkpoint(request, written, tmp_path):
    shutil.copytree(written / request.param, tmp_path / "run")
    return tmp_path / "run" / "checkpoint-1"


def test_a_whole_one(checkpoint):
    assert why_torn(checkpoint) is None
    assert why_torn(str(checkpoint) + os.sep) is None


PARTS = ["model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json"]


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("harm", ["missing", "empty", "truncated"])
def test_a_part_that_is_harmed_is_named(name, harm, checkpoint):
    path = checkpoint / name
    if harm == "missing":
        path.unlink()
    else:
        os.truncate(path, 0 if harm == "empty" else path.stat().st_size // 2)
    why = why_torn(checkpoint)
    assert why is not None
    expected = "the weights are" if (name, harm) == ("model.safetensors", "missing") else name
    assert why.startswith(expected) or why.startswith(name)


def test_half_a_configuration_is_named(checkpoint):
    """Upstream reads it on a resume, and ends with an error in JSON."""
    path = checkpoint / "config.json"
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    assert why_torn(checkpoint) == "config.json is no JSON"
    path.write_text(json.dumps({**json.loads(whole), "name_of_mine": "kept"}))
    assert why_torn(checkpoint) is None


def test_without_its_record_ours_is_judged_by_its_structure(checkpoint):
    shutil.rmtree(checkpoint.parent / RECORDS, ignore_errors=True)
    assert why_torn(checkpoint) is None
    (checkpoint / "optimizer.pt").unlink()
    assert why_torn(checkpoint) == "optimizer.pt is missing"


def test_weights_alone_are_whole(checkpoint):
    shutil.rmtree(checkpoint.parent / RECORDS, ignore_errors=True)
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (checkpoint / name).unlink()
    assert why_torn(checkpoint) is None


def test_stock_writing_over_ours_is_judged_anew(written, tmp_path):
    shutil.copytree(written / "PlusTrainer", tmp_path / "run")
    shutil.copytree(written / "Trainer" / "checkpoint-1", tmp_path / "run" / "checkpoint-1", dirs_exist_ok=True)
    state = tmp_path / "run" / "checkpoint-1" / "trainer_state.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "train_batch_size": 99}))
    assert why_torn(tmp_path / "run" / "checkpoint-1") is None


def test_no_folder(tmp_path):
    assert why_torn(tmp_path / "checkpoint-9") == "there is no such folder"


def fake(folder, *names, **texts):
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text('{"global_step": 1}')
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"PK\x05\x06" + bytes(18))  # an empty archive
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("names", "texts", "why"),
    [
        (
            ["pytorch_model_fsdp_0/__0_0.distcp", "optimizer_0/__0_0.distcp", "scheduler.pt", "rng_state_0.pth"],
            {},
            None,
        ),
        (["pytorch_model_fsdp.bin", "optimizer.bin", "scheduler.pt"], {}, None),
        (["optimizer_0/__0_0.distcp", "scheduler.pt"], {}, "the weights are missing"),
        (["global_step1/mp_rank_00_model_states.pt", "rng_state_0.pth"], {"latest": "global_step1"}, None),
        (["pytorch_model.bin", "rng_state_0.pth"], {"latest": "global_step1"}, "the folder 'global_step1' is missing"),
        (["adapter_model.bin", "optimizer.pt", "scheduler.pt"], {}, None),
        (["pytorch_model.bin", "optimizer.pt"], {}, "scheduler.pt is missing"),
        (["pytorch_model.bin", "rng_state.pth"], {}, "optimizer.pt is missing"),
        (["training_args.bin"], {}, "the weights are missing"),
    ],
)
def test_other_kinds_of_checkpoint(names, texts, why, tmp_path):
    assert why_torn(fake(tmp_path / "checkpoint-1", *names, **texts)) == why


def test_a_shard_that_the_index_names(tmp_path):
    index = json.dumps({"weight_map": {"a": "pytorch_model-00001.bin", "b": "pytorch_model-00002.bin"}})
    folder = fake(tmp_path / "checkpoint-1", "pytorch_model-00001.bin", **{"pytorch_model.bin.index.json": index})
    assert why_torn(folder) == "pytorch_model-00002.bin is missing, which pytorch_model.bin.index.json names"


@pytest.mark.parametrize("text", ["{}", "[]", "null", "3", '"global_step"'])
def test_a_state_of_something_else(text, tmp_path):
    folder = fake(tmp_path / "checkpoint-1", "pytorch_model.bin")
    (folder / "trainer_state.json").write_text(text)
    assert why_torn(folder) == "trainer_state.json has no global_step"
