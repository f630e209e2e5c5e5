"""What a trainer cannot run is refused when it is made, all of it at once."""

from types import SimpleNamespace

import pytest
import torch
from transformers import Trainer

from hf_trainplus import PlusTrainer, PlusTrainingArguments, StagePlan
from hf_trainplus.training.stages import checks
from hf_trainplus.training.stages.launched import set_launched_stage
from tests.support import stages, tiny


def plan(*given, **one):
    found = list(given) or [{"name": "a", "budget": "max_steps=2", **one}]
    return {"stages": found}


B = {"name": "b", "budget": "max_steps=2"}


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (plan(train_dataset="noisy"), {}, "train_dataset is 'noisy', and the trainer was given one data set"),
        (plan(eval={"extra_datasets": ["hard"]}), {}, "extra_datasets names hard; the trainer was given none"),
        (
            plan(num_processes=4),
            {},
            "num_processes is 4, and this run was started with 1. Start it with: trainplus run",
        ),
        (plan(freeze=["decoder.*"]), {}, r"freeze has 'decoder.\*', which fits no parameter"),
        (plan(freeze=["*"]), {}, "leaves nothing to train"),
        (plan(), {"save_only_model": True, "plan": plan(B, {**B, "name": "c"})}, "save_only_model=False"),
        (plan(), {"auto_find_batch_size": True}, "auto_find_batch_size=True changes what the plan says"),
        (plan(), {"restore_callback_states_from_checkpoint": True}, "those of hf_trainplus restore themselves"),
        (plan(), {"budget": "num_train_epochs=3"}, "put it into the stages' budgets"),
        (plan(budget="usd=3"), {}, "a budget in usd needs a price"),
        (plan(budget="tokens=1e6"), {}, "stage 'a': budget tokens=1e.06 is set, but the Trainer counts no tokens"),
        (plan(budget="wall_clock=1h", warmup_steps=50), {}, "warmup_steps is 50.*warmup_steps: 0.05"),
        (
            plan(budget="wall_clock=1h", lr_scheduler_type="greedy"),
            {"metric_for_best_model": "loss"},
            "take e.g. cosine",
        ),
        (plan(lr_scheduler_type="reduce_lr_on_plateau"), {}, "metric_for_best_model='loss'"),
        (plan(advance_when={"plateau": 3}), {"eval_strategy": "no"}, "has a rule on an evaluation .*evaluates nothing"),
        (plan(global_batch_size=6, per_device_train_batch_size=4), {}, "no multiple of 4"),
        (
            plan(B, {"name": "c", "budget": "max_steps=2", "lr_scheduler_type": "cosine_with_min_lr"}),
            {},
            r"stage 'c': lr_scheduler_type cosine_with_min_lr cannot be made with lr_scheduler_kwargs=\{\} .One of min_lr",
        ),
        (plan(lr_scheduler_kwargs={"cycles": 2}), {}, "lr_scheduler_type linear cannot be made with.*'cycles': 2"),
        (
            plan(data_fraction=0.05),
            {"dataloader_drop_last": True},
            "trains on 1 of 23 rows, and dataloader_drop_last=True leaves no batch of 2",
        ),
    ],
)
def test_it_is_refused_at_construction(given, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        stages.make(tmp_path, **{"plan": given, **options})


def test_settings_that_a_schedule_knows_are_not_refused(tmp_path):
    known = {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": 0.1}}
    trainer = stages.make(tmp_path, plan(**known, learning_rate=1e-2), logging_steps=1)
    trainer.train()
    assert dict(stages.learning_rates(trainer))[2] == pytest.approx(1e-2 * 0.55)


def test_steps_that_no_stage_goes_by_are_said(tmp_path, caplog):
    checks.logger.warning_once.cache_clear()
    with caplog.at_level("WARNING", logger="hf_trainplus"):
        stages.make(tmp_path, plan(B, {"name": "c", "advance_when": {"plateau": 1}}), max_steps=9)
        assert "ends nothing here" not in caplog.text
        stages.make(tmp_path, plan(), max_steps=9)
    assert "max_steps=9 ends nothing here: every stage" in caplog.text
    assert "Give budget='max_steps=9'" in caplog.text


def test_everything_is_told_at_once(tmp_path):
    given = plan({**B, "num_processes": 2}, {"name": "c", "budget": "usd=1", "train_dataset": "x"})
    with pytest.raises(ValueError, match="(?s)auto_find_batch_size.*num_processes.*train_dataset.*usd") as error:
        stages.make(tmp_path, given, auto_find_batch_size=True)
    assert len(str(error.value).splitlines()) == 4


def test_a_bad_line_of_a_file_is_told_with_all_others_and_their_numbers(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text("stages:\n  - name: a\n    bugdet: 3\n  - name: a\n    budget: {gpu_hours: many}\n")
    with pytest.raises(ValueError, match="(?s)plan.yaml:2:.*plan.yaml:3: .*'bugdet'.*plan.yaml:4: .*plan.yaml:5: "):
        stages.make(tmp_path / "never", str(path))
    assert not (tmp_path / "never").exists()


def test_evaluating_stages_need_data_to_evaluate(tmp_path):
    given = plan(B, {"name": "r", "preset": "production"})
    with pytest.raises(ValueError, match="stage 'r': evaluates, and there is no eval_dataset"):
        stages.make(tmp_path, given, trainer={"eval_dataset": None}, eval_strategy="no")


def test_several_data_sets_need_a_plan_that_names_them(tmp_path):
    sets = {"clean": tiny.rows(4), "noisy": tiny.rows(4)}
    with pytest.raises(ValueError, match="train_dataset holds clean, noisy, and no plan says which"):
        stages.make(tmp_path, None, trainer={"train_dataset": sets})
    with pytest.raises(ValueError, match="train_dataset is missing; the trainer was given clean, noisy"):
        stages.make(tmp_path, plan(), trainer={"train_dataset": sets})
    with pytest.raises(ValueError, match="train_dataset is 'other'; the trainer was given clean, noisy"):
        stages.make(tmp_path, plan(train_dataset="other"), trainer={"train_dataset": sets})


def test_a_share_of_a_stream_is_refused(tmp_path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(tiny.rows(4))

    with pytest.raises(ValueError, match="the training data is a stream; leave it out"):
        stages.make(tmp_path, plan(data_fraction=0.5), trainer={"train_dataset": Stream()}, max_steps=4)


def test_one_optimizer_is_not_enough_for_several_stages(tmp_path):
    model = tiny.bert()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    args = PlusTrainingArguments(**tiny.quiet(tmp_path, plan=plan(B, {**B, "name": "c"})))
    with pytest.raises(ValueError, match="optimizer_cls_and_kwargs"):
        PlusTrainer(model, args, train_dataset=tiny.rows(8), optimizers=(optimizer, None))


@pytest.mark.parametrize(("flag", "name"), [("is_deepspeed_enabled", "DeepSpeed"), ("is_fsdp_enabled", "FSDP")])
def test_a_sharded_run_of_several_stages_is_refused_with_the_line_to_start_it_with(flag, name, tmp_path, monkeypatch):
    make = Trainer.create_accelerator_and_postprocess

    def sharded(self):
        make(self)
        setattr(self, flag, True)

    monkeypatch.setattr(Trainer, "create_accelerator_and_postprocess", sharded)
    given = plan(B, {**B, "name": "c"})
    with pytest.raises(ValueError, match=f"under {name} a stage boundary is a new launch.*trainplus run plan.yaml --"):
        stages.make(tmp_path, given)
    assert stages.make(tmp_path, plan(B)) is not None
    monkeypatch.setenv("TRAINPLUS_STAGE", "c")
    assert stages.make(tmp_path, given) is not None


ZERO = {"zero_optimization": {"stage": 2}}
FROZEN = {**B, "name": "c", "freeze": ["bert.embeddings.*"]}


def under_deepspeed(monkeypatch, config):
    make = Trainer.create_accelerator_and_postprocess

    def sharded(self):
        make(self)
        self.is_deepspeed_enabled = True
        plugin = SimpleNamespace(deepspeed_config=config)
        monkeypatch.setattr(type(self.accelerator.state), "deepspeed_plugin", plugin)

    monkeypatch.setattr(Trainer, "create_accelerator_and_postprocess", sharded)
    monkeypatch.setenv("TRAINPLUS_STAGE", "b")


@pytest.mark.parametrize(
    ("config", "second", "message"),
    [
        ({"zero_optimization": {"stage": 0}}, FROZEN, "zero_optimization.stage is 0; set it to 2 or 3"),
        ({}, {**B, "name": "c", "num_processes": 2}, "zero_optimization.stage is None; set it to 2 or 3"),
        (
            {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}},
            FROZEN,
            "on NVMe or split by ratio cannot follow; set offload_optimizer.device to cpu",
        ),
        ({**ZERO, "optimizer": {"type": "AdamW"}}, FROZEN, "leave 'optimizer' out of it"),
    ],
)
def test_what_deepspeed_cannot_carry_over_is_refused(config, second, message, tmp_path, monkeypatch):
    under_deepspeed(monkeypatch, config)
    with pytest.raises(ValueError, match=message):
        stages.make(tmp_path, plan(B, second))


@pytest.mark.parametrize(
    ("config", "second"),
    [
        (ZERO, FROZEN),
        ({**ZERO, "optimizer": {"type": "AdamW"}}, {**B, "name": "c", "num_processes": 2}),
        ({}, {**B, "name": "c"}),
    ],
)
def test_what_deepspeed_carries_over_is_let_pass(config, second, tmp_path, monkeypatch):
    under_deepspeed(monkeypatch, config)
    assert stages.make(tmp_path, plan(B, second)) is not None


@pytest.mark.parametrize(
    ("version", "kind", "refused"),
    [(1, "FULL_STATE_DICT", True), (1, "SHARDED_STATE_DICT", False), (2, "FULL_STATE_DICT", False)],
)
def test_whole_checkpoints_of_fsdp1_keep_frozen_layers(version, kind, refused, tmp_path, monkeypatch):
    make = Trainer.create_accelerator_and_postprocess

    def sharded(self):
        make(self)
        self.is_fsdp_enabled = True
        plugin = SimpleNamespace(fsdp_version=version, state_dict_type=f"StateDictType.{kind}")
        monkeypatch.setitem(self.accelerator.state._shared_state, "fsdp_plugin", plugin)

    monkeypatch.setattr(Trainer, "create_accelerator_and_postprocess", sharded)
    monkeypatch.setattr("hf_trainplus.trainer.shard_input_embedding_once", lambda trainer: None)
    monkeypatch.setenv("TRAINPLUS_STAGE", "b")
    if not refused:
        assert stages.make(tmp_path, plan(B, FROZEN)) is not None
        return
    with pytest.raises(ValueError, match="set fsdp_version: 2, or fsdp_state_dict_type: SHARDED_STATE_DICT"):
        stages.make(tmp_path, plan(B, FROZEN))


def test_a_launched_stage_sets_the_arguments_as_they_are_made(tmp_path, monkeypatch):
    """DeepSpeed reads batch sizes and learning rate from the arguments before there is a trainer."""
    path = tmp_path / "plan.yaml"
    path.write_text(
        "stages:\n  - {name: a, budget: {max_steps: 2}}\n"
        "  - {name: b, budget: {max_steps: 2}, global_batch_size: 12, per_device_train_batch_size: 3, learning_rate: 0.5}\n"
    )
    args = PlusTrainingArguments(**tiny.quiet(tmp_path))
    set_launched_stage(args, {"TRAINPLUS_PLAN": str(path), "TRAINPLUS_STAGE": "b", "WORLD_SIZE": "2"})
    found = (args.plan, args.per_device_train_batch_size, args.gradient_accumulation_steps, args.learning_rate)
    assert found == (str(path), 3, 2, 0.5)
    monkeypatch.setenv("TRAINPLUS_PLAN", str(path))
    monkeypatch.setenv("TRAINPLUS_STAGE", "b")
    assert PlusTrainingArguments(**tiny.quiet(tmp_path)).gradient_accumulation_steps == 4


def test_a_launched_stage_must_be_one_of_the_plan_that_was_given(tmp_path, monkeypatch):
    path = tmp_path / "plan.yaml"
    path.write_text("stages:\n  - {name: a, budget: {max_steps: 2}}\n")
    monkeypatch.setenv("TRAINPLUS_PLAN", str(path))
    with pytest.raises(ValueError, match="is another plan than `trainplus run` was given"):
        PlusTrainingArguments(**tiny.quiet(tmp_path, plan=plan(B)))
    monkeypatch.setenv("TRAINPLUS_STAGE", "z")
    with pytest.raises(ValueError, match="the plan has no stage 'z'; it has a"):
        PlusTrainingArguments(**tiny.quiet(tmp_path))


def test_a_plan_object_is_no_field(tmp_path):
    with pytest.raises(ValueError, match=r"PlusTrainer\(plan=...\)"):
        PlusTrainingArguments(**tiny.quiet(tmp_path, plan=StagePlan([B])))


def test_a_search_for_hyper_parameters_is_refused(tmp_path):
    with pytest.raises(ValueError, match="search without plan=..., and run the plan with what was found"):
        stages.make(tmp_path, plan(B)).train(trial={"learning_rate": 0.1})
