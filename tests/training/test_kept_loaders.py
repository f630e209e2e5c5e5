"""Workers are kept while what they copied is unchanged; a change in place is seen by the next evaluation."""

import psutil
import pytest
import torch
from datasets import Dataset

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from hf_trainplus.training.kept_loaders import KEPT_LOADERS, KeptLoaders
from hf_trainplus.training.source import EvaluationSource
from tests.support import tiny


class Flipping(torch.utils.data.Dataset):
    """Rows whose labels turn around when it is told to."""

    def __init__(self, rows):
        self.rows, self.flip = rows, False

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, at):
        row = self.rows[at]
        return dict(row, labels=1 - row["labels"]) if self.flip else dict(row)


class Collator(tiny.PaddingCollator):
    """Turns labels around when it is told to."""

    flip = False

    def __call__(self, rows):
        batch = super().__call__(rows)
        return {**batch, "labels": 1 - batch["labels"]} if self.flip else batch


class Unreadable(Collator):
    """Holds what cannot be looked into."""

    def __init__(self):
        super().__init__()
        self.held = (k for k in ())


def flip_rows(trainer):
    for row in trainer.eval_dataset:
        row["labels"] = 1 - row["labels"]


def flipped(batch):
    return {**batch, "labels": [1 - label for label in batch["labels"]]}


CHANGES = {
    "list": (list, flip_rows),
    "torch dataset": (Flipping, lambda trainer: setattr(trainer.eval_dataset, "flip", True)),
    "collator": (list, lambda trainer: setattr(trainer.data_collator, "flip", True)),
    "transform": (Dataset.from_list, lambda trainer: trainer.eval_dataset.set_transform(flipped)),
}


def make(folder, dataset, collator=None, model=None, **options):
    model = model or tiny.bert(2)
    torch.manual_seed(0)
    torch.nn.init.normal_(model.classifier.weight, std=3)
    return PlusTrainer(
        model,
        PlusTrainingArguments(**tiny.quiet(folder, **options)),
        eval_dataset=dataset,
        data_collator=collator or Collator(),
    )


def workers():
    return frozenset(child.pid for child in psutil.Process().children())


@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_in_place_is_evaluated(tmp_path, name, count, cache):
    build, change = CHANGES[name]
    folder = str(tmp_path / "kept") if cache else None
    trainer = make(tmp_path, build(tiny.rows(12, num_labels=2)), dataloader_num_workers=count, eval_cache=folder)
    before = trainer.evaluate()["eval_loss"]
    assert trainer.evaluate()["eval_loss"] == before
    change(trainer)
    after = trainer.evaluate()["eval_loss"]
    fresh = make(tmp_path, trainer.eval_dataset, trainer.data_collator).evaluate()["eval_loss"]
    assert after == pytest.approx(fresh, rel=1e-6)
    assert abs(after - before) > 0.01
    again = make(tmp_path, trainer.eval_dataset, trainer.data_collator, eval_cache=folder)
    assert again.evaluate()["eval_loss"] == pytest.approx(fresh, rel=1e-6)
    trainer._runner._batches.close()


@pytest.mark.parametrize("name", CHANGES)
def test_workers_and_files_are_the_same_while_nothing_changes(tmp_path, name):
    build, change = CHANGES[name]
    trainer = make(tmp_path, build(tiny.rows(12, num_labels=2)), dataloader_num_workers=1)
    seen = set()
    for evaluation in range(5):
        trainer.evaluate()
        if evaluation:
            seen.add((workers(), psutil.Process().num_fds()))
    assert len(seen) == 1, seen
    change(trainer)
    trainer.evaluate()
    (before, files) = seen.pop()
    assert workers() != before
    assert (len(workers()), psutil.Process().num_fds()) == (len(before), files)
    trainer._runner._batches.close()


@pytest.mark.parametrize("loader_workers", [0, 2])
def test_fifty_evaluations_leave_processes_and_open_files_constant(tmp_path, loader_workers):
    others = workers()  # children of other tests in this process
    trainer = make(tmp_path, tiny.rows(12, num_labels=2), dataloader_num_workers=loader_workers)
    seen = []
    for _ in range(50):
        trainer.evaluate()
        seen.append((workers() - others, psutil.Process().num_fds()))
    assert len(set(seen[1:])) == 1
    assert len(seen[-1][0]) == loader_workers
    trainer._runner._batches.close()


def test_workers_that_cannot_be_trusted_are_restarted_and_do_not_pile_up(tmp_path):
    trainer = make(tmp_path, tiny.rows(6, num_labels=2), Unreadable(), dataloader_num_workers=1)
    seen, counts = [], set()
    for evaluation in range(4):
        trainer.evaluate()
        seen.append(workers())
        if evaluation:
            counts.add((len(workers()), psutil.Process().num_fds()))
    assert len(set(seen)) == 4
    assert len(counts) == 1
    trainer._runner._batches.close()


def test_a_column_rule_of_ones_own_is_asked_at_every_evaluation(tmp_path):
    class Own(PlusTrainer):
        asked = 0

        def _remove_unused_columns(self, dataset, description=None):
            self.asked += 1
            return super()._remove_unused_columns(dataset, description)

    trainer = Own(
        tiny.bert(2),
        PlusTrainingArguments(**tiny.quiet(tmp_path)),
        eval_dataset=Dataset.from_list(tiny.rows(4, num_labels=2)),
        data_collator=Collator(),
    )
    trainer.evaluate()
    once = trainer.asked
    trainer.evaluate()
    assert trainer.asked > once


def test_a_table_is_kept_without_workers_until_the_arguments_change(tmp_path):
    closed, made = [], []
    trainer = make(tmp_path, Dataset.from_list(tiny.rows(4, num_labels=2)))
    kept = KeptLoaders(trainer, closed.append)
    source = EvaluationSource(trainer.eval_dataset, "Evaluation", list)

    def get(*also):
        from hf_trainplus.training.batches import loader_settings

        return kept.get(source, loader_settings(trainer), lambda: made.append(len(made)) or made[-1], *also)

    assert [get(), get(), get(1), get(1)] == [0, 0, 1, 1]
    trainer.args.remove_unused_columns = False
    assert get(1) == 2
    trainer.data_collator = Collator()
    assert (get(1), closed) == (3, [0, 1, 2])
    kept.close()
    assert (closed, kept.find(source)) == ([0, 1, 2, 3], None)


def test_the_number_of_kept_loaders_is_bounded(tmp_path):
    closed = []
    trainer = make(tmp_path, tiny.rows(2))
    kept = KeptLoaders(trainer, closed.append)
    sources = [EvaluationSource([k], "Evaluation", list) for k in range(KEPT_LOADERS + 2)]
    from hf_trainplus.training.batches import loader_settings

    for k, source in enumerate(sources):
        kept.get(source, loader_settings(trainer), lambda k=k: k)
    assert closed == [0, 1]
    assert kept.find(sources[0]) is None
    assert kept.find(sources[-1]) == KEPT_LOADERS + 1
