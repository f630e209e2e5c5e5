"""A plateau scheduler beside a race lowers the learning rate where it does under full evaluation."""

from __future__ import annotations

import math
import types
from contextlib import contextmanager
from unittest import mock

import pytest
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from hf_trainplus.decisions.race import LevelVerdict, RaceVerdict
from hf_trainplus.training.racing import plateau
from tests.training.test_race import evaluations, finished, make

PLATEAU = {"lr_scheduler_type": "reduce_lr_on_plateau", "max_steps": 14}


class Recorder(ReduceLROnPlateau):
    """Only to be named in a refusal: a scheduler whose judgement is its own."""


@contextmanager
def watch():
    """Record what a scheduler sees and decides at each of its steps."""
    seen, step = [], ReduceLROnPlateau.step

    def stepped(scheduler, value, *rest):
        step(scheduler, value, *rest)
        seen.append((value, scheduler.best, scheduler.num_bad_epochs, scheduler.get_last_lr()[0]))

    with mock.patch.object(ReduceLROnPlateau, "step", stepped):
        yield seen


def run(folder, mode, **options):
    with watch() as seen:
        return finished(make(folder, mode, **{**PLATEAU, **options})), seen


@pytest.mark.parametrize(
    ("metric", "kwargs"),
    [
        ("loss", {"patience": 0, "factor": 0.5}),
        pytest.param("loss", {"patience": 1, "factor": 0.3, "threshold": 0.02, "cooldown": 1}, marks=pytest.mark.slow),
        pytest.param("accuracy", {"patience": 0, "factor": 0.5, "mode": "max"}, marks=pytest.mark.slow),
    ],
    ids=["loss", "cooldown", "accuracy"],
)
def test_the_learning_rate_falls_where_it_does_under_full_evaluation(metric, kwargs, tmp_path):
    full, wanted = run(tmp_path / "full", "full", metric=metric, lr_scheduler_kwargs=kwargs)
    race, seen = run(tmp_path / "race", "race", metric=metric, lr_scheduler_kwargs=kwargs)
    assert race._scheduled.race.session is not None
    assert [line[2:] for line in seen] == [line[2:] for line in wanted]
    # the best is what the next question is about, so it is exact
    assert [line[1] for line in seen] == pytest.approx([line[1] for line in wanted], abs=1e-9)
    rates = [line[3] for line in wanted]
    assert len(set(rates)) >= 3
    assert race.state.best_global_step == full.state.best_global_step
    for name, value in full.model.state_dict().items():
        assert torch.equal(value, race.model.state_dict()[name])
    state = race._scheduled.race.session.race.state
    assert state.pairs < state.observations * state.size


def test_what_is_logged_is_what_the_scheduler_sees(tmp_path):
    race, seen = run(tmp_path, "race", lr_scheduler_kwargs={"patience": 1})
    logged = evaluations(race)
    assert [entry["eval_loss"] for entry in logged] == [line[0] for line in seen]
    improved = [line[2] == 0 and line[0] == line[1] for line in seen]
    assert all(entry["eval_loss_exact"] == 1.0 for entry, better in zip(logged, improved, strict=True) if better)
    assert any(entry["eval_loss_exact"] == 0.0 for entry in logged)


def test_it_resumes_to_the_same_learning_rates(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 6, "lr_scheduler_kwargs": {"patience": 1, "factor": 0.5}}
    whole, wanted = run(tmp_path / "whole", "race", **options)
    run(tmp_path / "part", "race", **options)
    resumed = make(tmp_path / "part", "race", **{**PLATEAU, **options})
    with watch() as seen:
        resumed.train(resume_from_checkpoint=str(tmp_path / "part" / "checkpoint-6"))
    assert seen == wanted[6:]
    assert resumed.state.best_global_step == whole.state.best_global_step


def scheduler_of(trainer, made):
    trainer.create_scheduler = lambda *args, **kwargs: trainer.lr_scheduler
    trainer.create_optimizer()
    trainer.lr_scheduler = made(trainer.optimizer)
    return trainer


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda optimizer: Recorder(optimizer), "through Recorder"),
        (lambda optimizer: ReduceLROnPlateau(optimizer, mode="max"), "looks for the worst loss"),
    ],
    ids=["subclass", "other direction"],
)
def test_what_cannot_be_answered_by_a_side_goes_to_full(made, reason, tmp_path, caplog):
    trainer = scheduler_of(make(tmp_path, "race", max_steps=3), made)
    trainer.train()
    said = [record.message for record in caplog.records if "evaluates every row here" in record.message]
    assert len(said) == 1
    assert reason in said[0]
    assert [entry["eval_examples"] for entry in evaluations(trainer)] == [400] * 3


def test_greedy_learning_rates_and_perplexity_go_to_full(tmp_path):
    trainer = make(tmp_path, "race", max_steps=2, lr_scheduler_type="greedy")
    trainer.train()
    assert "GreedyLR" in plateau.why_not(trainer, "loss", greater_is_better=False)
    scheduler_of(trainer, ReduceLROnPlateau)
    assert "perplexity" in plateau.why_not(trainer, "perplexity", greater_is_better=False)
    assert plateau.why_not(trainer, "loss", greater_is_better=False) is None


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("kind", ["rel", "abs"])
@pytest.mark.parametrize("best", [2.0, 0.1 + 0.2, -0.7, 0.0])
def test_the_level_is_the_least_improvement_to_the_last_bit(mode, kind, best):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler = ReduceLROnPlateau(optimizer, mode=mode, threshold_mode=kind, threshold=0.013)
    assert plateau.improvement_level(scheduler) == scheduler.best
    scheduler.step(best)
    level = plateau.improvement_level(scheduler)
    worse = math.nextafter(level, -math.inf if mode == "max" else math.inf)
    outcomes = []
    for value in (level, worse):
        other = ReduceLROnPlateau(optimizer, mode=mode, threshold_mode=kind, threshold=0.013)
        other.step(best)
        other.step(value)
        outcomes.append(other.num_bad_epochs)
    assert outcomes == [0, 1]


def test_a_value_that_is_not_finite_never_improves():
    def verdict(value, exact, level):
        return RaceVerdict(1, None, (1,), False, value, 0.1, 10, 100, exact, None, (), (level,))

    lost = LevelVerdict(0.5, False, None, None, False)
    assert plateau.value(verdict(None, False, lost)) != plateau.value(verdict(None, False, lost))
    sided = LevelVerdict(0.5, False, 0.51, 0.1, False)
    assert plateau.value(verdict(0.49, False, sided)) == 0.51
    assert plateau.value(verdict(0.49, True, sided)) == 0.49


def test_nothing_is_asked_before_the_first_step_or_of_another_schedule():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    other = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    for scheduler, step in ((ReduceLROnPlateau(optimizer), 0), (other, 5)):
        trainer = types.SimpleNamespace(lr_scheduler=scheduler, state=types.SimpleNamespace(global_step=step))
        assert plateau.levels(trainer) == ()
