"""Where the loop stands, and how a resumed loop is put there."""

from types import SimpleNamespace

import pytest

from hf_trainplus.training.checkpoints.boundary import Boundary


def trainer(step, epoch, max_steps=100):
    return SimpleNamespace(state=SimpleNamespace(global_step=step, epoch=epoch, max_steps=max_steps))


def at(step, times):
    boundary = Boundary()
    for _ in range(times):
        boundary.enter(step, 0.5, 1e-3)
    return boundary


@pytest.mark.parametrize(
    ("times", "epoch", "max_steps", "owes"),
    [
        (1, 2.0, 100, True),  # written after the step, before the epoch's end
        (2, 2.0, 100, False),  # written at the epoch's end
        (1, 1.5, 100, False),  # in the middle of an epoch nothing follows
        (1, 1.5, 8, True),  # but for the last step of all
        (2, 1.5, 8, False),
        (1, None, 100, False),
    ],
)
def test_an_epochs_end_is_owed(times, epoch, max_steps, owes):
    assert at(8, times).owes_epoch_end(trainer(8, epoch, max_steps)) is owes


def test_a_boundary_of_another_step_owes_nothing():
    assert not at(7, 1).owes_epoch_end(trainer(8, 2.0))


def test_steps_follow_each_other():
    boundary = Boundary()
    seen = []
    for step in (1, 2, 2, 3):
        boundary.enter(step, None, 1e-3)
        seen.append(boundary.at_epoch_end)
    assert seen == [False, False, True, False]
    assert boundary.grad_norm is None


def test_outside_training_there_is_nothing_to_remember():
    assert Boundary().state(SimpleNamespace(is_in_train=False)) is None
    assert Boundary().train_loss(SimpleNamespace(is_in_train=False)) is None
