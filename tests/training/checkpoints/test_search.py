"""The newest whole checkpoint, and what is newer and torn."""

from hf_trainplus.training.checkpoints.search import newest_first, newest_whole


def folders(tmp_path, *names):
    for name in names:
        (tmp_path / name).mkdir()
    return str(tmp_path)


def test_by_number_not_by_name(tmp_path):
    run_dir = folders(tmp_path, "checkpoint-9", "checkpoint-10", "checkpoint-100")
    (tmp_path / "checkpoint-200").write_text("no folder")
    assert newest_first(run_dir) == ["checkpoint-100", "checkpoint-10", "checkpoint-9"]


def test_names_that_upstream_does_not_count_either(tmp_path):
    run_dir = folders(tmp_path, "checkpoint-a", "best-checkpoint-4", "checkpoint-4-old", "_trainplus_saving-h-1-1")
    assert newest_first(run_dir) == []
    assert newest_whole(run_dir).folder is None


def test_torn_ones_are_skipped_and_older_ones_not_looked_at(tmp_path):
    run_dir = folders(tmp_path, "checkpoint-2", "checkpoint-4", "checkpoint-6", "checkpoint-8")
    asked = []

    def why(folder):
        asked.append(folder.rsplit("-", 1)[1])
        return {"8": "model.safetensors is empty", "6": "optimizer.pt is missing"}.get(asked[-1])

    found = newest_whole(run_dir, why)
    assert found.folder == str(tmp_path / "checkpoint-4")
    assert asked == ["8", "6", "4"]
    assert found.describe() == "checkpoint-8: model.safetensors is empty; checkpoint-6: optimizer.pt is missing"


def test_only_the_names_that_were_given(tmp_path):
    run_dir = folders(tmp_path, "checkpoint-2", "checkpoint-4")
    assert newest_whole(run_dir, lambda folder: None, ["checkpoint-2"]).folder == str(tmp_path / "checkpoint-2")


def test_no_folder_no_checkpoint(tmp_path):
    assert newest_whole(str(tmp_path / "never")).folder is None
