"""A plan in one process: what each stage trains on, for how long, how fast, and what goes on counting."""

import logging
from copy import deepcopy

import pytest
import torch
from transformers import TrainerCallback

from hf_trainplus import StagePlan
from tests.support import stages, tiny


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    folder = tmp_path_factory.mktemp("three")
    trainer = stages.make(folder)
    trainer.train()
    return folder, trainer


def test_each_stage_is_as_long_as_it_says(three):
    """23 rows: half of them in steps of 2; one and a half epochs of six steps of 4; seven steps of 3."""
    folder, trainer = three
    assert trainer.state.global_step == 3 + 9 + 7
    assert stages.steps_of(folder) == [3, 12, 19]
    sizes = [len(batch) for batch in trainer.rows]
    # upstream's last batch of an epoch is short, and so is an accumulated step of one batch
    assert sizes[:3] == [2, 2, 2]
    assert sizes[3:15] == [2] * 11 + [1]
    assert sizes[-7:] == [3] * 7


def test_learning_rates_follow_each_stages_own_schedule(three):
    rates = [rate for _, rate in stages.learning_rates(three[1])]
    assert rates[:3] == pytest.approx([1e-2, 1e-2 * 2 / 3, 1e-2 / 3])
    cosine = [0.5 * (1 + torch.cos(torch.tensor(torch.pi * step / 7)).item()) for step in range(7)]
    assert rates[3:12] == pytest.approx([0.0, 2.5e-3, *(5e-3 * share for share in cosine)])
    assert rates[12:] == pytest.approx([2e-3 * (7 - step) / 7 for step in range(7)])


def test_the_first_stage_trains_half_of_the_rows_and_the_next_ones_all(three):
    rows = three[1].rows
    texts = [tuple(row) for row in (entry["input_ids"] for entry in tiny.rows(23))]
    first = {tuple(row) for batch in rows[:3] for row in batch}
    assert len(first) == 6
    assert {tuple(row) for batch in rows[3:15] for row in batch} == set(texts)


def test_frozen_layers_stay_and_the_others_move(tmp_path):
    trainer = stages.make(tmp_path, stages.without(stages.THREE, "look"))
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.train()
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(before[name], value) == (name.startswith("bert.embeddings.")), name
    assert all(parameter.requires_grad for parameter in trainer.model.parameters())


def test_steps_logs_and_the_best_metric_go_on_counting(tmp_path):
    trainer = stages.make(tmp_path, metric_for_best_model="loss", load_best_model_at_end=True)
    trainer.train()
    logged = [entry["step"] for entry in trainer.state.log_history if "loss" in entry]
    assert logged == list(range(1, 20))
    evaluated = {}
    for entry in trainer.state.log_history:
        if "eval_loss" in entry:  # the best is evaluated once more at the end, on all rows
            evaluated.setdefault(entry["step"], entry["eval_loss"])
    # every second step in the first two stages, every third in the last, and at each boundary
    assert sorted(evaluated) == [2, 3, 4, 6, 8, 10, 12, 15, 18, 19]
    assert trainer.state.best_metric == min(evaluated.values())
    assert evaluated[trainer.state.best_global_step] == trainer.state.best_metric


def test_a_stage_evaluates_as_it_says(three):
    by_step = {entry["step"]: entry["eval_examples"] for entry in three[1].state.log_history if "eval_loss" in entry}
    assert [by_step[step] for step in (3, 12, 15, 19)] == [11, 11, 6, 6]


def test_arguments_and_data_are_put_back(three):
    trainer = three[1]
    args = trainer.args
    found = (args.per_device_train_batch_size, args.gradient_accumulation_steps, args.max_steps, args.eval_mode)
    assert found == (2, 1, -1, "full")
    assert len(trainer.train_dataset) == 23


def test_a_boundary_is_saved_though_nothing_else_is(tmp_path):
    trainer = stages.make(
        tmp_path, save_strategy="no", eval_strategy="no", plan=stages.without(stages.THREE, "look", "tune")
    )
    trainer.train()
    assert stages.steps_of(tmp_path) == [3, 12]
    assert not any("eval_loss" in entry for entry in trainer.state.log_history)


def test_the_reason_is_recorded(three):
    folder, trainer = three
    assert [stages.record(folder, step)["next_stage"] for step in (3, 12, 19)] == [1, 2, None]
    assert [stages.record(folder, step)["reason"] for step in (3, 12, 19)] == [None, None, "plan_finished"]
    callback = next(one for one in trainer.callback_handler.callbacks if type(one).__name__ == "StageCallback")
    assert callback.stop_reason == "plan_finished"


def test_moments_carry_over_by_name_and_unfrozen_parameters_start_fresh(tmp_path):
    at_begin = {}

    class Look(TrainerCallback):
        def on_train_begin(self, args, state, control, model, optimizer, **kwargs):
            names = {id(parameter): name for name, parameter in model.named_parameters()}
            inner = optimizer.optimizer
            at_begin[state.global_step] = {names[id(one)]: deepcopy(value) for one, value in inner.state.items()}

    trainer = stages.make(tmp_path, callbacks=[Look()])
    trainer.train()
    saved = torch.load(tmp_path / "checkpoint-3" / "optimizer.pt", weights_only=True)
    names = [name for group in saved["param_groups"] for name in group["param_names"]]
    moments = dict(zip(names, (saved["state"][place] for place in range(len(names))), strict=True))
    assert not any(name.startswith("bert.embeddings.") for name in names)
    assert set(at_begin[3]) == set(names)
    for name in names:
        assert torch.equal(at_begin[3][name]["exp_avg"], moments[name]["exp_avg"]), name
    assert any(name.startswith("bert.embeddings.") for name in at_begin[12])


def test_data_order_is_a_function_of_seed_stage_and_epoch(tmp_path):
    """The same stage draws the same rows after another stage before it, and others than its neighbour."""
    plan = {"stages": [{"name": name, "budget": {"num_train_epochs": 2}} for name in ("a", "b")]}
    run = stages.make(tmp_path / "one", plan)
    run.train()
    a, b = run.rows[:24], run.rows[24:]
    assert a[:12] != a[12:]
    assert a != b
    longer = stages.without(plan, a={"budget": {"num_train_epochs": 1}})
    other = stages.make(tmp_path / "two", longer, seed=7)
    other.train()
    assert other.rows[:12] != a[:12]
    given = stages.make(tmp_path / "four", longer, seed=7, data_seed=42)  # the seed of the data alone decides
    given.train()
    assert given.rows == [*a[:12], *b]
    same = stages.make(tmp_path / "three", longer)
    same.train()
    assert same.rows == [*a[:12], *b]


def test_named_data_sets_by_stage(tmp_path):
    sets = {"clean": tiny.rows(8), "noisy": tiny.rows(8, seed=9)}
    plan = {
        "stages": [
            {"name": "a", "budget": {"num_train_epochs": 1}, "train_dataset": "noisy"},
            {"name": "b", "budget": {"num_train_epochs": 1}, "train_dataset": "clean"},
        ]
    }
    trainer = stages.make(tmp_path, plan, trainer={"train_dataset": sets})
    trainer.train()
    rows = [row for batch in trainer.rows for row in batch]
    assert sorted(rows[:8]) == sorted(row["input_ids"] for row in sets["noisy"])
    assert sorted(rows[8:]) == sorted(row["input_ids"] for row in sets["clean"])


def test_presets_explore_tune_and_evaluate_for_production(tmp_path):
    plan = {
        "stages": [
            {"name": "look", "preset": "exploration", "budget": {"num_train_epochs": 2}, "eval": {"subset_size": 5}},
            {"name": "tune", "preset": "tuning", "budget": {"num_train_epochs": 3}},
            {"name": "release", "preset": "production"},
        ]
    }
    extra = {"hard": tiny.rows(4, seed=5), "long": tiny.rows(3, seed=6)}
    trainer = stages.make(tmp_path, plan, trainer={"extra_eval_datasets": extra}, eval_strategy="no")
    trainer.train()
    seen = [(entry["step"], entry["eval_examples"]) for entry in trainer.state.log_history if "eval_loss" in entry]
    assert seen == [(12, 5), (24, 5), (48, 11), (60, 11), (60, 11)]
    last = trainer.state.log_history[-4:]
    assert [entry.get("eval_hard_examples", entry.get("eval_long_examples")) for entry in last] == [None, 4, 3, None]
    assert stages.record(tmp_path, 60)["reason"] == "plan_finished"
    assert stages.record(tmp_path, 60)["name"] == "release"


def test_production_evaluates_the_best_when_it_is_to_be_handed_over(tmp_path):
    plan = {
        "stages": [
            {"name": "train", "budget": "max_steps=6", "learning_rate": 0.5},
            {"name": "r", "preset": "production"},
        ]
    }
    trainer = stages.make(tmp_path, plan, load_best_model_at_end=True)
    trainer.train()
    seen = [(entry["step"], entry["eval_loss"]) for entry in trainer.state.log_history if "eval_loss" in entry]
    assert seen[-1][1] == min(loss for _, loss in seen)
    assert seen[-1][1] != seen[-2][1]


def test_a_plan_may_begin_with_an_evaluation(tmp_path):
    plan = {"stages": [{"name": "before", "preset": "production"}, {"name": "train", "budget": "max_steps=2"}]}
    trainer = stages.make(tmp_path, plan)
    trainer.train()
    seen = [entry["step"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert seen == [0, 2]
    assert stages.steps_of(tmp_path) == [0, 2]


def test_a_plan_object_is_an_argument_of_the_trainer(tmp_path):
    plan = StagePlan([{"name": "only", "budget": "max_steps=2"}])
    trainer = stages.make(tmp_path, None, trainer={"plan": plan})
    assert trainer.train().global_step == 2


def test_trackers_stay_open_between_stages(tmp_path, monkeypatch):
    ends = []

    class Tracker(TrainerCallback):
        def on_train_end(self, args, state, control, **kwargs):
            ends.append(state.global_step)

    monkeypatch.setattr(Tracker, "__module__", "transformers.integrations.made_up")
    plain = type(
        "Plain",
        (TrainerCallback,),
        {"on_train_end": lambda self, args, state, *_, **__: plains.append(state.global_step)},
    )
    plains = []
    stages.make(tmp_path, callbacks=[Tracker(), plain()]).train()
    assert ends == [19]
    assert plains == [3, 12, 19]


def test_a_boundary_warns_of_nothing(tmp_path, caplog):
    """Upstream compares arguments with the checkpoint's and would find those of the stage before."""
    logging.getLogger("transformers").addHandler(caplog.handler)
    try:
        stages.make(tmp_path).train()
    finally:
        logging.getLogger("transformers").removeHandler(caplog.handler)
    assert not [record for record in caplog.records if "do not match" in record.getMessage()]
