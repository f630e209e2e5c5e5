"""When a run evaluates and saves, read from a Trainer's arguments."""

import pytest
from transformers import TrainerState, TrainingArguments

from hf_trainplus.callbacks._budget_progress import rhythm_of


def rhythm(loader=None, max_steps=1000, evaluations=0, step=0, **options):
    args = TrainingArguments("unused", use_cpu=True, report_to="none", **options)
    return rhythm_of(args, TrainerState(global_step=step, max_steps=max_steps), evaluations, loader)


@pytest.mark.parametrize(("accumulation", "expected"), [(1, 25), (4, 7)])
def test_an_epoch_is_a_pass_over_the_loader_whatever_max_steps_says(accumulation, expected):
    found = rhythm(
        range(25),
        max_steps=10**9,
        eval_strategy="epoch",
        save_strategy="epoch",
        gradient_accumulation_steps=accumulation,
    )
    assert (found.evaluate_every, found.save_every) == (expected, expected)


def test_of_a_stream_an_epoch_is_its_share_of_the_planned_steps():
    assert rhythm(iter(()), max_steps=300, eval_strategy="epoch", num_train_epochs=3).evaluate_every == 100


def test_what_only_a_callback_evaluates_counts_at_its_own_pace():
    assert rhythm(eval_strategy="no", evaluations=4, step=100).evaluate_every == 25
    assert rhythm(eval_strategy="no").evaluate_every is None
