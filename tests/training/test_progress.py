"""Progress of an evaluation by hand: shares by tokens, halves of batches, other ranks, streams."""

import numpy as np
import pytest
import torch

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from hf_trainplus.evaluation.batching import plan_batches
from hf_trainplus.training.progress import EvaluationProgress, ProgressReading, tokens_of
from tests.support import tiny


def progress_at(times, total, **options):
    ticks = iter(times)
    return EvaluationProgress("Evaluating", total, clock=lambda: next(ticks), **options)


def test_time_left_goes_by_tokens_where_lengths_are_known():
    lengths = np.array([60, 20, 10, 10])
    progress = progress_at([0.0, 6.0, 7.0], 4)
    plan = plan_batches(range(4), lengths, batch_size=1)
    progress.expect(plan, lengths)
    progress.load_batch(plan.batches[0], plan.real[0], {})
    progress.done(1)
    assert progress.reading() == ProgressReading(1, 4, 10.0, pytest.approx(4.0))
    progress.load_batch(plan.batches[1], plan.real[1], {})
    assert progress.reading().examples == 1, "a batch that is loaded is not done"


def test_halves_of_a_batch_count_by_half():
    progress = progress_at([0.0, 1.0, 2.0], 4)
    progress.load(4, tokens=40)
    progress.done(2)
    assert progress.reading() == ProgressReading(2, 4, 20.0, 1.0)
    progress.done(2)
    assert progress.reading() == ProgressReading(4, 4, 20.0, 0.0)


def test_other_ranks_are_taken_to_be_as_far():
    lengths = np.array([9, 8, 2, 1, 1])
    shares = []
    for rank in range(2):
        progress = progress_at([0.0, 1.0], 5, ranks=2)
        plan = plan_batches(range(5), lengths, batch_size=2, rank=rank, world_size=2)
        progress.expect(plan, lengths)
        for positions, real in zip(plan.batches, plan.real, strict=True):
            progress.load_batch(positions, real, {})
            progress.done(int(real.sum()))
        shares.append(progress.reading())
    assert [reading.examples for reading in shares] == [5, 5]
    assert [reading.seconds_left for reading in shares] == [0.0, 0.0]


def test_a_stream_has_neither_total_nor_time_left():
    progress = progress_at([0.0, 2.0], None, ranks=2)
    progress.load(3, tokens=12)
    progress.done(3)
    assert progress.reading() == ProgressReading(6, None, 12.0, None)


def test_rows_without_tokens_have_no_speed():
    progress = progress_at([0.0, 2.0, 2.0], 4)
    assert progress.reading() == ProgressReading(0, 4, None, None)
    progress.load(1, tokens=0)
    progress.done(1)
    assert progress.reading() == ProgressReading(1, 4, None, 6.0)


def test_tokens_of_a_batch():
    assert tokens_of({"input_ids": torch.ones(2, 3), "attention_mask": torch.tensor([[1, 1, 0], [1, 0, 0]])}) == 3
    assert tokens_of({"input_ids": torch.ones(2, 3)}) == 6
    assert tokens_of({"pixel_values": torch.ones(2, 3)}) == tokens_of([1, 2]) == 0


@pytest.mark.parametrize("rows", [tiny.rows(7), tiny.rows(0)])
def test_a_trainer_counts_every_row_and_token(rows, tmp_path):
    args = PlusTrainingArguments(**tiny.quiet(tmp_path, per_device_eval_batch_size=2))
    trainer = PlusTrainer(tiny.bert(), args, eval_dataset=rows, data_collator=tiny.PaddingCollator())
    seen = []
    done = trainer._runner.on_batch
    trainer._runner.on_batch = lambda count: (done(count), seen.append(trainer._runner.progress.reading()))
    trainer.evaluate()
    assert [reading.examples_total for reading in seen] == [len(rows)] * len(seen)
    assert not rows or (seen[-1].examples, seen[-1].seconds_left) == (7, 0.0)
    assert not rows or trainer._runner.progress._loaded_tokens == sum(len(row["input_ids"]) for row in rows)
