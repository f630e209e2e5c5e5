"""Early stopping in a race: the same step as under full evaluation, whoever judges and whatever is asked."""

import pytest
from transformers import EarlyStoppingCallback, TrainerCallback

from hf_trainplus import PatienceCallback
from tests.training.test_race import evaluations, finished, make


class NotFinite(TrainerCallback):
    """Makes the model's outputs NaN in the evaluations of some steps."""

    def __init__(self, *steps):
        self.steps = steps

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step in self.steps:
            model.classifier.bias.data += float("nan")

    def on_evaluate(self, args, state, control, model=None, **kwargs):
        if state.global_step in self.steps:
            model.classifier.bias.data.zero_()


def both(folder, stoppers, **options):
    """Train with full evaluation and with a race; return both trainers."""
    options = {"max_steps": 14, **options}
    full = finished(make(folder / "full", "full", callbacks=stoppers(), **options))
    return full, finished(make(folder / "race", "race", callbacks=stoppers(), **options))


def decisions(trainer):
    return trainer.state.global_step, trainer.state.best_global_step


@pytest.mark.parametrize(
    ("stoppers", "options"),
    [
        (lambda: [PatienceCallback(None, stopping_threshold=0.6880)], {}),
        (lambda: [PatienceCallback(None, divergence_threshold=2.0)], {"learning_rate": 0.3}),
        (lambda: [NotFinite(4, 5), PatienceCallback(9, nonfinite="stop")], {}),
        (lambda: [NotFinite(1, 4), PatienceCallback(None, divergence_threshold=0.8)], {"max_steps": 8}),
    ],
    ids=["good enough", "diverged", "not finite", "not finite is not diverged"],
)
def test_thresholds_stop_where_they_do_under_full_evaluation(stoppers, options, tmp_path):
    full, race = both(tmp_path, stoppers, **options)
    assert decisions(race) == decisions(full)
    assert race.state.global_step < 14
    assert min(entry["eval_examples"] for entry in evaluations(race)) < 400


@pytest.mark.parametrize("ours", [False, True], ids=["EarlyStoppingCallback", "PatienceCallback"])
def test_the_evaluation_before_the_first_step_is_no_part_of_it(ours, tmp_path):
    full, race = both(
        tmp_path,
        lambda: [PatienceCallback(3) if ours else EarlyStoppingCallback(early_stopping_patience=3)],
        eval_on_start=True,
        learning_rate=0.3,  # every step is worse than none
    )
    first = evaluations(full)[0]
    assert first["step"] == 0
    assert first["eval_loss"] < full.state.best_metric
    assert decisions(race) == decisions(full) == (4, 1)


@pytest.mark.parametrize(
    ("stoppers", "reason"),
    [
        (lambda: [PatienceCallback(3, metric="runtime", greater_is_better=False)], "watches 'eval_runtime'"),
        (lambda: [PatienceCallback(3), EarlyStoppingCallback(2)], "a race judges one of them"),
    ],
)
def test_what_a_race_cannot_judge_is_evaluated_fully(stoppers, reason, tmp_path, caplog):
    race = finished(make(tmp_path, "race", callbacks=stoppers(), max_steps=3))
    assert reason in caplog.text
    assert {entry["eval_examples"] for entry in evaluations(race)} == {400}


def test_thresholds_of_a_perplexity_are_not_those_of_its_loss(tmp_path, caplog):
    stopper = PatienceCallback(None, stopping_threshold=1.0)
    finished(make(tmp_path, "race", metric="perplexity", callbacks=[stopper], max_steps=2))
    assert "units of perplexity" in caplog.text


def test_a_second_training_is_judged_again(tmp_path):
    trainers = [
        make(tmp_path / mode, mode, callbacks=[EarlyStoppingCallback(3)], max_steps=30) for mode in ("full", "race")
    ]
    for _ in range(2):
        full, race = map(finished, trainers)
        assert decisions(race) == decisions(full)
        assert race.state.global_step < 30
    race.args.eval_mode = "full"
    finished(race)
    assert race.state.global_step < 30


def test_a_run_that_the_race_stopped_takes_no_step(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 1, "max_steps": 30}
    whole = finished(make(tmp_path, "race", callbacks=[PatienceCallback(3)], **options))
    resumed = make(tmp_path, "race", callbacks=[PatienceCallback(3)], **options)
    resumed.train(resume_from_checkpoint=True)
    assert decisions(resumed) == decisions(whole)
    assert resumed.state.best_metric == pytest.approx(whole.state.best_metric)


@pytest.mark.parametrize("spared", [None, 3])
def test_a_race_in_which_nothing_is_finite_names_no_best_and_says_so(spared, tmp_path, caplog):
    steps = [step for step in range(1, 7) if step != spared]
    full, race = both(tmp_path, lambda: [NotFinite(*steps)], max_steps=6)
    assert decisions(race) == decisions(full) == (6, spared)
    assert ("no evaluated checkpoint has a finite eval_loss" in caplog.text) is (spared is None)
    assert (race.state.best_model_checkpoint is None) is (spared is None)
