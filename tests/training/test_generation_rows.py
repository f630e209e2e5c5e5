"""When an evaluation generates, and for which rows."""

import numpy as np
import pytest
import torch
from datasets import Dataset

from hf_trainplus import AdaptiveEvaluationCallback, PatienceCallback, PlusTrainer
from hf_trainplus.training.generation_rows import drawn_rows
from hf_trainplus.training.racing.session import RaceLimits
from tests.support import tiny
from tests.support.counting_model import counting_rows
from tests.support.generation import ENDS, Recorder, counting, exact_match


def logged(trainer, key):
    return [entry["step"] for entry in trainer.state.log_history if key in entry]


@pytest.mark.parametrize(("every", "steps"), [(1, [1, 2, 3, 4, 5, 6]), (2, [2, 4, 6]), (4, [4]), (9, [])])
def test_generation_has_its_own_interval(every, steps, tmp_path):
    options = {"max_steps": 6, "eval_strategy": "steps", "eval_steps": 1, "generation_eval_steps": every}
    trainer = counting(tmp_path, exact_match(), **options)
    trainer.train()
    assert logged(trainer, "eval_loss") == [1, 2, 3, 4, 5, 6]
    assert logged(trainer, "eval_generation_examples") == logged(trainer, "eval_exact_match") == steps
    assert "eval_exact_match" in trainer.evaluate(), "whom a person asks for is generated"


def test_intervals_that_do_not_meet_generate_at_the_next_evaluation(tmp_path):
    options = {"max_steps": 10, "eval_strategy": "steps", "eval_steps": 2, "generation_eval_steps": 5}
    trainer = counting(tmp_path, exact_match(), **options)
    trainer.train()
    assert logged(trainer, "eval_generation_examples") == [6, 10]


def test_a_resumed_run_keeps_the_interval(tmp_path):
    options = {"eval_strategy": "steps", "eval_steps": 2, "generation_eval_steps": 5, "save_strategy": "steps"}
    counting(tmp_path, exact_match(), max_steps=6, save_steps=2, **options).train()
    resumed = counting(tmp_path, exact_match(), max_steps=10, save_steps=2, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    assert logged(resumed, "eval_generation_examples") == [6, 10]


@pytest.mark.parametrize(("size", "rows"), [(3, 3), (0.5, 4), (100, 8), (None, 8)])
def test_the_same_rows_are_generated_for_every_time(size, rows, tmp_path):
    recorder = Recorder(own=1.0)
    trainer = counting(tmp_path, [recorder, exact_match()], generation_eval_size=size)
    metrics = [trainer.evaluate() for _ in range(2)]
    assert [found["eval_generation_examples"] for found in metrics] == [rows, rows]
    assert metrics[0]["eval_examples"] == 8, "the loss is that of all rows"
    assert metrics[0]["eval_exact_match_exact"] == float(rows == 8)
    assert np.array_equal(recorder.seen[0].label_ids, recorder.seen[1].label_ids)
    other = counting(tmp_path, Recorder(), generation_eval_size=size, seed=5)
    other.evaluate()
    assert np.array_equal(other.compute_metrics.seen[0].label_ids, recorder.seen[0].label_ids) == (rows == 8)


def test_a_subset_of_the_evaluation_is_generated_for_where_no_size_is_given(tmp_path):
    options = {"eval_mode": "subset", "eval_subset_size": 4, "max_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    trainer = counting(tmp_path, exact_match(), **options)
    trainer.train()
    entry = next(entry for entry in trainer.state.log_history if "eval_loss" in entry)
    assert (entry["eval_examples"], entry["eval_generation_examples"]) == (4, 4)
    assert entry["eval_exact_match_exact"] == 0.0


def test_nothing_is_generated_where_nothing_scores_it(tmp_path):
    trainer = counting(tmp_path, None)
    assert "eval_generation_examples" not in trainer.evaluate()
    assert all(shape[1] > 1 for shape in trainer.model.shapes)


def test_several_sets_have_their_interval_each(tmp_path):
    options = {"max_steps": 4, "eval_strategy": "steps", "eval_steps": 1, "generation_eval_steps": 2}
    sets = {"a": counting_rows(ENDS[:3]), "b": counting_rows(ENDS[3:])}
    trainer = counting(tmp_path, exact_match(), sets, **options)
    trainer.train()
    assert logged(trainer, "eval_a_exact_match") == logged(trainer, "eval_b_exact_match") == [2, 4]
    assert logged(trainer, "eval_b_loss") == [1, 2, 3, 4]


def test_patience_and_schedule_wait_for_what_is_generated(tmp_path):
    options = {"max_steps": 12, "eval_strategy": "steps", "eval_steps": 1, "generation_eval_steps": 2}
    watch = {"metric": "exact_match", "greater_is_better": True}
    patient = counting(tmp_path / "a", exact_match(), **options, learning_rate=0.0)
    patient.add_callback(PatienceCallback(2, **watch))
    patient.train()
    assert logged(patient, "eval_exact_match") == [2, 4, 6]
    assert patient.state.global_step == 6
    adaptive = counting(tmp_path / "b", exact_match(), **options, learning_rate=0.0)
    adaptive.add_callback(AdaptiveEvaluationCallback(1, 3, **watch))
    adaptive.train()
    assert logged(adaptive, "eval_loss") == [1, 2, 3, 4, 6, 9, 12]
    assert logged(adaptive, "eval_exact_match") == [2, 4, 6, 9, 12]


def test_patience_still_misses_what_is_never_generated(tmp_path):
    options = {"max_steps": 4, "eval_strategy": "steps", "eval_steps": 1, "generation_eval_steps": 2}
    trainer = counting(tmp_path, exact_match(), **options)
    trainer.add_callback(PatienceCallback(2, metric="rouge", greater_is_better=True))
    with pytest.raises(ValueError, match=r"watches 'eval_rouge' and the evaluation gave .*eval_exact_match"):
        trainer.train()
    assert trainer.state.global_step == 2


def test_the_best_is_chosen_where_its_metric_was_generated(tmp_path):
    class Rising(Recorder):
        def __call__(self, prediction):
            self.seen.append(prediction)
            return {"own": float(len(self.seen))}

    options = {"max_steps": 5, "eval_strategy": "steps", "eval_steps": 1, "generation_eval_steps": 2, "save_steps": 99}
    trainer = counting(
        tmp_path,
        Rising(),
        **options,
        save_strategy="steps",
        metric_for_best_model="own",
        greater_is_better=True,
        load_best_model_at_end=True,
    )
    trainer.train()
    assert (trainer.state.best_global_step, trainer.state.best_metric) == (4, 2.0)
    assert (tmp_path / "checkpoint-4").is_dir()


# ---- loaders ----
def test_a_stream_is_generated_for_up_to_its_limit(tmp_path):
    rows = Dataset.from_list(counting_rows(ENDS))
    recorder = Recorder()
    metrics = counting(tmp_path, recorder, rows.to_iterable_dataset(), generation_eval_size=5).evaluate()
    assert (metrics["eval_examples"], metrics["eval_generation_examples"]) == (8, 5)
    assert [int(row[0]) for row in recorder.seen[0].predictions] == [end + 1 for end in ENDS[:5]]
    with pytest.raises(ValueError, match=r"generation_eval_size=0.5 is a fraction and the dataset is a stream"):
        counting(tmp_path, recorder, rows.to_iterable_dataset(), generation_eval_size=0.5).evaluate()


def test_a_foreign_loader_is_generated_for_in_arrival_order(tmp_path):
    class Own(PlusTrainer):
        def get_eval_dataloader(self, eval_dataset=None):
            return torch.utils.data.DataLoader(
                self.eval_dataset, 3, sampler=range(7, -1, -1), collate_fn=tiny.PaddingCollator()
            )

    arriving = [end + 1 for end in ENDS[::-1]]
    for size, chosen in ((None, range(8)), (0.5, drawn_rows(range(8), 0.5, 42).indices)):
        recorder = Recorder()
        metrics = counting(tmp_path, recorder, cls=Own, generation_eval_size=size).evaluate()
        assert [int(row[0]) for row in recorder.seen[0].predictions] == [arriving[k] for k in chosen]
        assert metrics["eval_generation_examples"] == len(chosen)


def test_models_that_cannot_generate_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"BertForSequenceClassification has no generate"):
        counting(tmp_path, exact_match(), tiny.rows(4), tiny.bert()).evaluate()


def test_no_limit_is_said_once(tmp_path, caplog):
    trainer = counting(tmp_path, Recorder(), generation_max_new_tokens=None)
    trainer.evaluate()
    trainer.evaluate()
    assert len([record for record in caplog.records if "20 new tokens" in record.message]) == 1


# ---- a race ----
def raced(folder, watched, **options):
    rows = counting_rows([3 + k % 15 for k in range(120)], wrong=range(0, 120, 7))
    arguments = {"max_steps": 3, "eval_strategy": "steps", "eval_steps": 1, "eval_mode": "race", "learning_rate": 0.5}
    arguments |= {"generation_eval_size": 5, "metric_for_best_model": watched, "greater_is_better": watched != "loss"}
    trainer = counting(folder, exact_match(), rows, **{**arguments, **options})
    trainer._scheduled.race.limits = RaceLimits(min_rows=100, min_seconds=0.0)
    trainer.train()
    return trainer


def test_a_race_of_the_loss_generates_beside_it(tmp_path):
    trainer = raced(tmp_path, "loss")
    assert trainer._scheduled.racing
    assert logged(trainer, "eval_race_cost")[:3] == [1, 2, 3]
    assert logged(trainer, "eval_exact_match")[:3] == [1, 2, 3]
    entries = [entry for entry in trainer.state.log_history if "eval_exact_match" in entry]
    assert {entry["eval_generation_examples"] for entry in entries} == {5}


def test_a_generated_metric_of_some_rows_is_not_raced(tmp_path, caplog):
    trainer = raced(tmp_path, "exact_match")
    assert not trainer._scheduled.racing
    assert "generation_eval_size=5 leaves evaluations or rows without the watched metric" in caplog.text
    assert logged(trainer, "eval_exact_match") == [1, 2, 3]
