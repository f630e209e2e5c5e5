"""What is known of a checkpoint beside it."""

import json
import math

import pytest

from hf_trainplus.training.checkpoints.record import (
    RECORDS,
    CheckpointRecord,
    LoopState,
    record_of,
    record_path,
    remove_orphans,
)

LOOP = LoopState([0.1, 0.2], 1.5, 4, 0, False, 0.25, 1e-3)


def checkpoint(tmp_path, step=3):
    folder = tmp_path / f"checkpoint-{step}"
    folder.mkdir()
    (folder / "trainer_state.json").write_text('{"global_step": 3}')
    (folder / "model.safetensors").write_bytes(b"12345")
    return folder


def test_what_is_written_is_read(tmp_path):
    folder = checkpoint(tmp_path)
    record = CheckpointRecord.describe(folder, LOOP)
    record.write(record_path(folder))
    assert record_of(folder) == record
    assert record.files == {"model.safetensors": 5, "trainer_state.json": 18}


def test_a_loss_that_is_not_finite_survives_strict_json(tmp_path):
    folder = checkpoint(tmp_path)
    CheckpointRecord.describe(folder, LoopState([math.nan, math.inf], 0.0, 0, 0, True)).write(record_path(folder))
    json.loads(record_path(folder).read_text(), parse_constant=pytest.fail)
    losses = record_of(folder).loop.losses
    assert math.isnan(losses[0])
    assert losses[1] == math.inf


def test_floats_come_back_bit_for_bit(tmp_path):
    folder = checkpoint(tmp_path)
    loop = LoopState([0.1 + 0.2, 1e-45], 1 / 3, 4, 0, True, 2 / 3, 1e-3 / 7)
    CheckpointRecord.describe(folder, loop).write(record_path(folder))
    assert record_of(folder).loop == loop


def test_a_checkpoint_that_was_written_again_has_no_record(tmp_path):
    folder = checkpoint(tmp_path)
    CheckpointRecord.describe(folder, LOOP).write(record_path(folder))
    (folder / "trainer_state.json").write_text('{"global_step": 3, "by": "another program"}')
    assert record_of(folder) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"checkpoint": "checkpoint-3"}', '{"loop": {"losses": []}}'])
def test_a_record_that_is_not_whole_counts_as_none(text, tmp_path):
    folder = checkpoint(tmp_path)
    (tmp_path / RECORDS).mkdir()
    record_path(folder).write_text(text)
    assert record_of(folder) is None


def test_records_of_deleted_checkpoints_go(tmp_path):
    kept = checkpoint(tmp_path)
    for name in ("checkpoint-3", "checkpoint-9"):
        CheckpointRecord(name, {}, None).write(tmp_path / RECORDS / f"{name}.json")
    remove_orphans(tmp_path)
    assert [path.stem for path in (tmp_path / RECORDS).iterdir()] == [kept.name]


def test_a_trailing_slash_changes_nothing(tmp_path):
    assert record_path(f"{tmp_path}/checkpoint-3/") == record_path(tmp_path / "checkpoint-3")


@pytest.mark.parametrize(("rank", "size", "loss"), [(0, 2, 0.1), (1, 2, 0.2), (0, 1, 0.15), (2, 3, 0.15)])
def test_another_number_of_ranks_gets_the_mean(rank, size, loss):
    assert LOOP.loss_of(rank, size) == pytest.approx(loss)
