"""Old checkpoints go as upstream chooses them, each at once."""

import os

import pytest
from transformers.trainer_utils import rotate_checkpoints

from hf_trainplus.training.checkpoints.rotation import rotate, surplus


def folders(root, steps, spacing=10.0):
    for place, step in enumerate(steps):
        folder = root / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        os.utime(folder, (1000 + spacing * place, 1000 + spacing * place))
    return str(root)


@pytest.mark.parametrize("limit", [None, 0, 1, 2, 3, 9])
@pytest.mark.parametrize("best", [None, 2, 6, 8])
@pytest.mark.parametrize("steps", [(2, 4, 6, 8), (4, 6, 8, 2), ()])
def test_the_same_are_kept_as_upstream_keeps(limit, best, steps, tmp_path):
    ours, theirs = folders(tmp_path / "a", steps), folders(tmp_path / "b", steps)
    rotate(ours, limit, None if best is None else os.path.join(ours, f"checkpoint-{best}"))
    rotate_checkpoints(
        theirs, limit, None if best is None else os.path.join(theirs, f"checkpoint-{best}"), use_mtime=True
    )
    kept = sorted(os.listdir(theirs)) if os.path.isdir(theirs) else []
    assert (sorted(os.listdir(ours)) if os.path.isdir(ours) else []) == kept


def test_a_kill_in_the_deletion_leaves_no_half(tmp_path, monkeypatch):
    import shutil

    run_dir = folders(tmp_path, (2, 4))

    def killed(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        rotate(run_dir, 1, None)
    assert not (tmp_path / "checkpoint-2").exists()
    assert (tmp_path / "checkpoint-4").is_dir()


def test_nothing_to_do_makes_no_folder(tmp_path):
    run_dir = folders(tmp_path, (2, 4))
    assert surplus(run_dir, 2, None) == []
    rotate(run_dir, 2, None)
    assert sorted(os.listdir(tmp_path)) == ["checkpoint-2", "checkpoint-4"]
