"""What an urgent stop tells those that evaluate where a run ends."""

import pytest
from transformers import TrainerControl

from hf_trainplus.training.urgent import clear_urgent, is_urgent, keeps_due_evaluations, mark_urgent


def test_nobody_has_marked_a_new_one():
    control = TrainerControl(should_training_stop=True)
    assert (is_urgent(control), keeps_due_evaluations(control)) == (False, False)


@pytest.mark.parametrize("keeps_due", [True, False])
def test_a_mark_counts_while_training_stops_until_it_is_cleared(keeps_due):
    control = TrainerControl(should_training_stop=True)
    mark_urgent(control, keeps_due=keeps_due)
    assert (is_urgent(control), keeps_due_evaluations(control)) == (True, keeps_due)
    control.should_training_stop = False
    assert not is_urgent(control)
    control.should_training_stop = True
    clear_urgent(control)
    assert (is_urgent(control), keeps_due_evaluations(control)) == (False, False)


def test_a_checkpoint_knows_nothing_of_it():
    control = TrainerControl(should_training_stop=True)
    mark_urgent(control, keeps_due=True)
    assert control.state() == TrainerControl(should_training_stop=True).state()
