"""BudgetCallback under the real Trainer, on an injected clock: where runs end, and what is done there."""

import gc
import json
import logging
import signal

import pytest
import torch
from transformers import EarlyStoppingCallback

import hf_trainplus
from hf_trainplus.budget.from_run import read_run
from hf_trainplus.budget.stops import StopCondition, StopReason
from hf_trainplus.callbacks.budget import BudgetCallback
from tests.callbacks.budget_runs import Clock, Linear, Rows, Slow, make_trainer


@pytest.fixture(scope="module", autouse=True)
def _nothing_old_to_collect():
    """Every train() begins with a full garbage collection, most of which goes over modules imported long ago."""
    gc.freeze()
    yield
    gc.unfreeze()


class Run:
    """One call of train() with its own clock, costs and callback."""

    def __init__(self, folder, budget=None, *, costs=None, resume=None, train=None, before=(), **options):
        self.clock = Clock()
        self.slow = Slow(self.clock, **(costs or {"step": 1.0, "evaluation": 2.0, "save": 1.0}))
        options = {"margin_seconds": 0, "count_from_process_start": False, "clock": self.clock, **options}
        self.callback = BudgetCallback(budget, **options)
        self.trainer = make_trainer(folder, [*before, self.slow, self.callback], **(train or {}))
        self.output = self.trainer.train(resume_from_checkpoint=resume)
        self.reason, self.limit = self.callback.stop_reason, self.callback.stop_limit
        self.steps = self.slow.steps_of("step")
        self.evaluations = self.slow.steps_of("evaluation")
        self.saves = self.slow.steps_of("save")
        self.rates = [entry["learning_rate"] for entry in self.trainer.state.log_history if "learning_rate" in entry]

    @property
    def end(self):
        return self.trainer.state.global_step


def weights(run):
    return torch.cat([parameter.detach().flatten() for parameter in run.trainer.model.parameters()])


def saved_state(folder, step):
    return json.loads((folder / f"checkpoint-{step}" / "trainer_state.json").read_text())


def test_the_public_name_loads_it():
    assert hf_trainplus.BudgetCallback is BudgetCallback


# ---- where a run ends ------------------------------------------------------------------------------------------------


def test_a_run_ends_inside_its_limit_with_evaluation_and_checkpoint_done(tmp_path):
    run = Run(tmp_path, "wall_clock=36")
    assert (run.reason, run.limit) == (StopReason.BUDGET_SPENT, "wall_clock")
    assert run.clock.now <= 36
    assert 36 - run.clock.now <= 5
    assert run.evaluations[-1] == run.saves[-1] == run.end == run.steps[-1]
    assert run.evaluations[:-1] == [10, 20]


def test_the_reason_is_in_the_last_checkpoint_as_a_value(tmp_path):
    run = Run(tmp_path, "wall_clock=36")
    saved = saved_state(tmp_path, run.end)["stateful_callbacks"]["BudgetCallback"]["attributes"]["saved"]
    assert (saved["reason"], saved["limit"]) == ("budget_spent", "wall_clock")
    assert saved["keeper"]["meter"]["wall_clock_seconds"] == run.clock.now - 1.0


def test_without_a_limit_the_planned_end_is_the_reason(tmp_path):
    run = Run(tmp_path)
    assert (run.end, run.reason, run.limit) == (40, StopReason.MAX_STEPS, None)
    assert (run.evaluations, run.saves) == ([10, 20, 30, 40], [10, 20, 30, 40])


def test_without_a_limit_nothing_changes(tmp_path):
    stock = make_trainer(tmp_path / "stock", [])
    stock.train()
    run = Run(tmp_path / "ours")
    theirs = torch.cat([parameter.detach().flatten() for parameter in stock.model.parameters()])
    assert torch.equal(weights(run), theirs)
    timed = ("runtime", "per_second")
    histories = [
        [{k: v for k, v in entry.items() if not any(t in k for t in timed)} for entry in trainer.state.log_history]
        for trainer in (stock, run.trainer)
    ]
    assert histories[0] == histories[1]


def test_a_budget_that_is_wide_enough_changes_no_weight(tmp_path):
    assert torch.equal(weights(Run(tmp_path / "a")), weights(Run(tmp_path / "b", "wall_clock=1h,gpu_hours=1")))


@pytest.mark.parametrize(
    ("budget", "limit", "steps"),
    [
        ("max_steps=13", "max_steps", 13),
        ("num_train_epochs=1.5", "num_train_epochs", 24),
        ("tokens=1000", "tokens", 31),
        ("gpu_hours=0.01", "gpu_hours", None),
        ("wall_clock=36", "wall_clock", None),
        ("usd=0.09", "usd", None),
        ("energy_kwh=0.001", "energy_kwh", None),
    ],
)
def test_every_limit_ends_a_run_inside_it(tmp_path, budget, limit, steps):
    clock = Clock()
    run = Run(
        tmp_path,
        budget,
        usd_per_device_hour=9.0,
        clock=clock,
        # a hundred watts
        energy=lambda: 100.0 * clock.now,
        before=[Slow(clock, 1.0, 2.0, 1.0)],
        costs={"step": 0.0, "evaluation": 0.0, "save": 0.0},
        train={"include_num_input_tokens_seen": "all"},
    )
    assert (run.reason, run.limit) == (StopReason.BUDGET_SPENT, limit)
    assert run.evaluations[-1] == run.saves[-1] == run.end
    assert run.end == steps or 31 <= clock.now <= 36


class TokenLinear(Linear):
    main_input_name = "x"


@pytest.fixture(autouse=True)
def _tokens_are_numbers_of_x(monkeypatch):
    monkeypatch.setattr("tests.callbacks.budget_runs.Linear", TokenLinear)


def test_the_tightest_of_several_limits_holds(tmp_path):
    run = Run(tmp_path, "wall_clock=1h,max_steps=7,num_train_epochs=30")
    assert (run.end, run.limit) == (7, "max_steps")


def test_the_planned_end_wins_over_an_equal_budget(tmp_path):
    assert Run(tmp_path, "max_steps=40").reason is StopReason.MAX_STEPS


# ---- evaluation and save ---------------------------------------------------------------------------------------------


def test_an_evaluation_never_measured_is_run_once_at_a_quarter(tmp_path):
    run = Run(tmp_path, "wall_clock=36", train={"eval_steps": 1000})
    assert run.evaluations == [9, run.end]
    assert run.clock.now <= 36


def test_one_that_is_due_soon_is_waited_for(tmp_path):
    assert Run(tmp_path, "wall_clock=36", train={"eval_steps": 12}).evaluations[0] == 12


def test_a_known_cost_needs_no_early_evaluation(tmp_path):
    run = Run(
        tmp_path,
        "wall_clock=36",
        train={"eval_steps": 1000, "save_steps": 1000},
        expected_seconds={"evaluation": 2, "save": 1},
    )
    assert run.evaluations == run.saves == [run.end]
    assert run.clock.now <= 36


def test_an_evaluation_due_close_to_the_end_moves_there_and_that_is_said(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, logger="hf_trainplus"):
        run = Run(tmp_path, "wall_clock=43")
    assert 30 not in run.evaluations
    assert run.end > 30
    assert run.evaluations[-1] == run.saves[-1] == run.end
    assert [record.message for record in caplog.records if "moves to the end" in record.message] == [
        "evaluation and save due at step 30 moves to the end of the budget, which is close: no further step would fit "
        "after it."
    ]


EPOCHS = {"eval_strategy": "epoch", "save_strategy": "epoch", "num_train_epochs": 3, "max_steps": -1}


def test_epoch_strategies(tmp_path):
    run = Run(tmp_path, "wall_clock=36", train=EPOCHS)
    assert run.evaluations == run.saves == [16, run.end]
    assert run.clock.now <= 36


def test_an_epoch_that_ends_where_the_budget_does_is_evaluated_once(tmp_path):
    run = Run(tmp_path, "wall_clock=38.9", train=EPOCHS)
    assert len(run.evaluations) == len(set(run.evaluations))
    assert len(run.saves) == len(set(run.saves))
    assert run.clock.now <= 38.9


def test_a_run_over_whole_epochs_keeps_its_own_end(tmp_path):
    run = Run(tmp_path, "wall_clock=1h", train=EPOCHS)
    assert run.evaluations == run.saves == [16, 32, 48]
    assert run.reason is StopReason.MAX_STEPS


def test_saving_only_the_best_still_saves_the_end(tmp_path):
    train = {"save_strategy": "best", "metric_for_best_model": "eval_runtime", "greater_is_better": False}
    run = Run(tmp_path, "wall_clock=36", train=train)
    assert run.saves[-1] == run.end
    assert run.clock.now <= 36


@pytest.mark.parametrize("strategy", ["no", "steps"])
def test_a_run_that_evaluates_nothing_does_not_do_so_at_its_end(tmp_path, strategy):
    run = Run(tmp_path, "wall_clock=20", train={"eval_strategy": "no", "save_strategy": strategy})
    assert run.evaluations == []
    assert run.saves[-1] == run.end


@pytest.mark.parametrize("budget", ["wall_clock=20", "max_steps=7"])
def test_a_spent_budget_is_saved_though_nothing_else_is(budget, tmp_path):
    """Without it the same command would begin again, and what was spent would be lost."""
    train = {"eval_strategy": "no", "save_strategy": "no"}
    first = Run(tmp_path, budget, train=train)
    assert first.reason is StopReason.BUDGET_SPENT
    assert first.saves[-1] == first.end
    assert first.clock.now <= 20
    again = Run(tmp_path, budget, resume=True, train=train)
    assert again.steps == again.saves == []
    assert torch.equal(weights(first), weights(again))


def test_a_save_at_the_stop_can_be_refused(tmp_path):
    run = Run(tmp_path, "wall_clock=20", save_at_stop=False, train={"save_strategy": "no"})
    assert run.reason is StopReason.BUDGET_SPENT
    assert run.saves == []


def test_what_to_do_at_the_stop_can_be_said(tmp_path):
    run = Run(tmp_path, "wall_clock=20", train={"save_strategy": "no"}, evaluate_at_stop=False)
    assert run.saves[-1] == run.end
    assert run.evaluations == [10]


def test_several_evaluation_sets_are_reserved_together(tmp_path):
    clock = Clock()
    slow = Slow(clock, step=1.0, evaluation=2.0, save=1.0)
    callback = BudgetCallback("wall_clock=40", clock=clock, margin_seconds=0, count_from_process_start=False)
    trainer = make_trainer(tmp_path, [slow, callback])
    trainer.eval_dataset = {"a": Rows(8), "b": Rows(8)}
    trainer.train()
    end = trainer.state.global_step
    assert slow.steps_of("evaluation")[-2:] == [end, end]
    assert clock.now <= 40
    assert callback.saved["keeper"]["measured"]["evaluation"]["seconds"]["mean"] == 4.0


def test_the_best_model_is_loaded_at_the_end(tmp_path):
    run = Run(tmp_path, "wall_clock=36", train={"load_best_model_at_end": True, "metric_for_best_model": "loss"})
    assert run.trainer.state.best_model_checkpoint is not None
    assert run.end == run.evaluations[-1]


def test_another_callback_that_stops_is_left_alone(tmp_path):
    train = {"metric_for_best_model": "eval_loss", "greater_is_better": True, "load_best_model_at_end": True}
    run = Run(tmp_path, "wall_clock=1h", train=train, before=[EarlyStoppingCallback(1)])
    assert run.end == 20
    assert run.reason is None


# ---- resume ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [36, 20.5], ids=["in the middle of an epoch", "early"])
def test_a_spent_budget_returns_at_once(tmp_path, limit, caplog):
    first = Run(tmp_path, {"wall_clock": limit})
    with caplog.at_level(logging.WARNING):
        again = Run(tmp_path, {"wall_clock": limit}, resume=True)
    assert (again.steps, again.evaluations, again.saves, again.clock.now) == ([], [], [], 0.0)
    assert (again.end, again.reason, again.limit) == (first.end, StopReason.BUDGET_SPENT, "wall_clock")
    assert torch.equal(weights(first), weights(again))
    told = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert told[-1].startswith("No step taken: budget_spent (wall_clock: ")


def test_a_spent_budget_returns_at_once_at_the_end_of_an_epoch(tmp_path):
    Run(tmp_path, "num_train_epochs=1", train=EPOCHS)
    again = Run(tmp_path, "num_train_epochs=1", train=EPOCHS, resume=True)
    assert (again.end, again.steps, again.evaluations, again.saves) == (16, [], [], [])


def test_after_a_spent_run_the_loader_has_its_batches_again(tmp_path):
    Run(tmp_path, "max_steps=10")
    again = Run(tmp_path, "max_steps=10", resume=True)
    loader = again.trainer.callback_handler.train_dataloader
    assert len(list(loader)) == 16


def test_a_raised_limit_goes_on(tmp_path):
    first = Run(tmp_path, "wall_clock=36")
    more = Run(tmp_path, "wall_clock=60", resume=True)
    assert more.steps[0] == first.end + 1
    assert more.end > first.end
    assert first.clock.now + more.clock.now <= 60


def test_time_adds_up_over_resumes(tmp_path):
    first = Run(tmp_path, "wall_clock=100", train={"max_steps": 20})
    second = Run(tmp_path, "wall_clock=100", resume=True)
    assert second.end == 40
    spent = second.callback.saved["keeper"]["meter"]["wall_clock_seconds"]
    assert spent == pytest.approx(first.clock.now + second.clock.now)


def test_resumed_in_steps_it_equals_the_uninterrupted_run(tmp_path):
    whole = Run(tmp_path / "whole", "max_steps=25")
    Run(tmp_path / "parts", "max_steps=10")
    rest = Run(tmp_path / "parts", "max_steps=25", resume=True)
    assert (rest.end, rest.evaluations) == (25, [20, 25])
    assert torch.equal(weights(whole), weights(rest))


def test_a_stock_checkpoint_can_be_resumed_with_it(tmp_path):
    make_trainer(tmp_path, [], max_steps=10).train()
    run = Run(tmp_path, "max_steps=15", resume=True)
    assert (run.end, run.saves) == (15, [15])


def test_stock_can_resume_from_its_checkpoint(tmp_path):
    Run(tmp_path, "max_steps=10")
    trainer = make_trainer(tmp_path, [])
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.global_step == 40


def test_upstreams_own_restore_works_too(tmp_path):
    Run(tmp_path, "max_steps=10")
    clock = Clock()
    callback = BudgetCallback("max_steps=20", clock=clock, margin_seconds=0, count_from_process_start=False)
    trainer = make_trainer(tmp_path, [callback], restore_callback_states_from_checkpoint=True)
    trainer.train(resume_from_checkpoint=True)
    # upstream builds the callback anew from the checkpoint, old limit included
    assert trainer.state.global_step == 10
    (restored,) = [one for one in trainer.callback_handler.callbacks if isinstance(one, BudgetCallback)]
    assert restored is not callback
    assert restored.stop_limit == "max_steps"


def test_a_stop_by_signal_or_deadline_goes_on_in_the_next_job(tmp_path):
    Run(tmp_path, before=[RaiseAt(5)])
    assert Run(tmp_path, resume=True).end == 40


def test_a_second_fresh_run_of_one_callback_starts_anew(tmp_path):
    run = Run(tmp_path, "max_steps=5")
    run.trainer.train()
    assert run.slow.steps_of("step") == [1, 2, 3, 4, 5] * 2


class Numbers(torch.utils.data.IterableDataset):
    def __init__(self, rows):
        self.rows, self.read = rows, 0

    def __iter__(self):
        for row in range(len(self.rows)):
            self.read += 1
            yield self.rows[row]


@pytest.mark.parametrize("dispatch", [True, False])
def test_a_spent_budget_reads_no_row_of_a_stream(tmp_path, dispatch):
    config = {"dispatch_batches": dispatch}
    for resume in (None, True):
        callback = BudgetCallback("max_steps=5", margin_seconds=0)
        trainer = make_trainer(tmp_path, [callback], accelerator_config=config)
        trainer.train_dataset = Numbers(Rows(64))
        trainer.train(resume_from_checkpoint=resume)
        assert trainer.state.global_step == 5
    assert trainer.train_dataset.read == 0


# ---- signals, files, deadlines, conditions ---------------------------------------------------------------------------


class RaiseAt(Slow):
    def __init__(self, step, one=signal.SIGUSR1):
        super().__init__(Clock())
        self.step, self.one = step, one

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step + 1 == self.step:
            signal.raise_signal(self.one)


@pytest.mark.parametrize("one", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_saves_and_leaves_at_the_step_boundary(tmp_path, one):
    before = signal.getsignal(one)
    run = Run(tmp_path, before=[RaiseAt(10, one)])
    assert (run.end, run.reason) == (10, StopReason.SIGNAL)
    assert run.saves == [10]
    assert run.evaluations == [], "an evaluation that is due would outlast the sender's patience"
    assert signal.getsignal(one) is before


def test_a_signal_before_the_end_of_an_epoch_does_not_evaluate_there(tmp_path):
    run = Run(tmp_path, before=[RaiseAt(5)], train=EPOCHS)
    assert (run.end, run.evaluations, run.saves) == (5, [], [5])


def test_signals_can_be_turned_off(tmp_path):
    heard = []
    signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    try:
        run = Run(tmp_path, before=[RaiseAt(5)], stop_signals=None)
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    assert run.end == 40
    assert heard == [signal.SIGUSR1]


class Fail(Slow):
    def on_step_end(self, args, state, control, **kwargs):
        raise RuntimeError("broken")


def test_after_training_raised_a_signal_does_what_it_did_before(tmp_path):
    heard = []
    signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    try:
        with pytest.raises(RuntimeError, match="broken"):
            Run(tmp_path, before=[Fail(Clock())])
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert heard == [signal.SIGUSR1]


class TouchAt(Slow):
    def __init__(self, path, step):
        super().__init__(Clock())
        self.path, self.step = path, step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            self.path.touch()


def test_a_stop_file_ends_the_run_with_evaluation_and_checkpoint(tmp_path):
    path = tmp_path / "STOP"
    run = Run(tmp_path / "out", before=[TouchAt(path, 7)], stop_file=str(path))
    assert (run.end, run.reason, run.evaluations, run.saves) == (7, StopReason.STOP_FILE, [7], [7])
    again = Run(tmp_path / "out", stop_file=str(path), resume=True)
    assert (again.end, again.steps, again.reason) == (7, [], StopReason.STOP_FILE)
    path.unlink()
    assert Run(tmp_path / "out", stop_file=str(path), resume=True).end == 40


NOW = 1_700_000_000.0


def test_slurms_end_of_job_is_a_deadline(tmp_path, monkeypatch):
    monkeypatch.setattr("hf_trainplus.callbacks._budget_session.time.time", lambda: NOW)
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(NOW + 36))
    run = Run(tmp_path)
    assert (run.reason, run.limit) == (StopReason.DEADLINE, "deadline")
    assert run.evaluations[-1] == run.saves[-1] == run.end
    assert 31 <= run.clock.now <= 36
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(NOW + 99_999))
    assert Run(tmp_path, resume=True).end == 40


def test_the_earlier_of_two_deadlines_holds(tmp_path, monkeypatch):
    monkeypatch.setattr("hf_trainplus.callbacks._budget_session.time.time", lambda: NOW)
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(NOW + 36))
    assert Run(tmp_path, deadline=NOW + 20).clock.now <= 20


def test_a_job_that_is_over_takes_no_step_and_says_since_when(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("hf_trainplus.callbacks._budget_session.time.time", lambda: NOW)
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(NOW - 100))
    with caplog.at_level(logging.WARNING):
        run = Run(tmp_path)
    assert (run.end, run.reason) == (0, StopReason.DEADLINE)
    assert "No step taken: deadline (1m40s past it)." in caplog.text


def test_an_end_of_job_that_is_no_time_is_refused_when_the_trainer_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_END_TIME", "soon")
    with pytest.raises(ValueError, match="SLURM_JOB_END_TIME is 'soon'.*unset SLURM_JOB_END_TIME"):
        make_trainer(tmp_path, [BudgetCallback("max_steps=5")])


class After(StopCondition):
    def __init__(self, loss):
        self.loss = loss

    def check(self, moment):
        return StopReason.PATIENCE if moment.metrics.get("eval_loss", 9) < self.loss else None


def test_a_condition_of_ones_own(tmp_path):
    run = Run(tmp_path, conditions=[After(1.0)])
    assert (run.end, run.reason) == (11, StopReason.PATIENCE)


def test_what_one_rank_sees_can_be_asked_between_boundaries(tmp_path):
    seen = []

    class Ask(Slow):
        def on_prediction_step(self, args, state, control, **kwargs):
            seen.append(callback.check(state))

    class Send(RaiseAt):
        def on_log(self, args, state, control, logs=None, **kwargs):
            if state.global_step == 10 and "loss" in logs:
                signal.raise_signal(signal.SIGUSR1)

    callback = BudgetCallback(margin_seconds=0)
    trainer = make_trainer(tmp_path, [Ask(Clock()), Send(0), callback], max_steps=20)
    trainer.train()
    assert seen[0] is StopReason.SIGNAL
    assert trainer.state.global_step == 11
    assert callback.check(trainer.state) is None


# ---- learning rate, time left, meters --------------------------------------------------------------------------------


def test_the_learning_rate_ends_where_it_was_planned_to(tmp_path):
    train = {"max_steps": 1000, "logging_steps": 1, "warmup_steps": 100, "eval_strategy": "no", "save_strategy": "no"}
    followed = Run(tmp_path / "a", "wall_clock=50", lr_follows_budget=True, save_at_stop=False, train=train)
    assert followed.end == 50 or followed.end == 49
    assert max(followed.rates) == pytest.approx(0.1, rel=0.03)
    assert followed.rates[0] == 0.0
    assert 3 <= followed.rates.index(max(followed.rates)) <= 6
    assert followed.rates[-1] <= 0.1 / 30
    left_alone = Run(tmp_path / "b", "wall_clock=50", save_at_stop=False, train=train)
    assert left_alone.rates[-1] == pytest.approx(0.1 * 48 / 100, rel=0.05)


def test_the_learning_rate_goes_on_falling_after_a_resume(tmp_path):
    train = {"max_steps": 1000, "logging_steps": 1, "save_steps": 5, "eval_strategy": "no"}
    first = Run(tmp_path, "max_steps=20", lr_follows_budget=True, train=train)
    second = Run(tmp_path, "max_steps=40", lr_follows_budget=True, resume=True, train=train)
    assert first.rates[-1] == pytest.approx(0.1 / 20)
    assert second.rates[20:] == pytest.approx([0.1 * (1 - step / 40) for step in range(20, 40)])


def test_a_schedule_that_is_no_function_of_the_step_is_refused(tmp_path):
    train = {"lr_scheduler_type": "reduce_lr_on_plateau", "metric_for_best_model": "eval_loss"}
    with pytest.raises(ValueError, match="lr_scheduler is a ReduceLROnPlateau. Set .*lr_scheduler_type='linear'"):
        Run(tmp_path, "max_steps=5", lr_follows_budget=True, train=train)


class Logs(Slow):
    def __init__(self):
        super().__init__(Clock())
        self.seen = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.seen.append((state.global_step, dict(logs)))


def test_the_progress_line_shows_the_time_left_from_twenty_measured_steps_on(tmp_path):
    clock, logs = Clock(), Logs()
    callback = BudgetCallback("wall_clock=200", clock=clock, margin_seconds=0, count_from_process_start=False)
    trainer = make_trainer(tmp_path, [Slow(clock, 1.0, 2.0, 1.0), callback, logs])
    trainer.train()
    training = {step: seen for step, seen in logs.seen if "loss" in seen}
    assert "time_left_seconds" not in training[20]
    # 15 steps, evaluations and saves at 30 and 40
    assert training[25]["time_left_seconds"] == 15 + 2 * 2 + 2 * 1
    assert training[40]["time_left_seconds"] == 0
    assert 0 < training[25]["budget_used"] < training[40]["budget_used"] < 0.5
    assert not any("time_left_seconds" in entry for entry in trainer.state.log_history)


def test_what_a_run_measured_can_be_read_from_its_checkpoint(tmp_path):
    Run(tmp_path, "wall_clock=1h", train={"max_steps": 30})
    run = read_run(tmp_path)
    assert (run.step, run.measured.mean("step"), run.stop_reason) == (30, 1.0, "max_steps")
    assert run.rhythm.evaluate_every == run.rhythm.save_every == 10
    assert run.time_left().seconds == 0.0


def test_the_evaluation_of_a_checkpoints_own_step_is_in_it(tmp_path):
    Run(tmp_path, "wall_clock=1h")
    costs = read_run(tmp_path / "checkpoint-10").measured
    assert (costs.count("evaluation"), costs.mean("evaluation"), costs.count("save")) == (1, 2.0, 0)


def test_later_stages_are_part_of_the_time_left(tmp_path):
    clock, logs = Clock(), Logs()
    callback = BudgetCallback(clock=clock, margin_seconds=0)
    callback.later_stages = lambda: 1000.0
    make_trainer(tmp_path, [Slow(clock, 1.0, 2.0, 1.0), callback, logs]).train()
    left = {step: seen.get("time_left_seconds") for step, seen in logs.seen if "loss" in seen}
    assert left[40] == 1000.0


class ReadAtEnd(Slow):
    def __init__(self, callback):
        super().__init__(Clock())
        self.callback = callback

    def on_step_end(self, args, state, control, **kwargs):
        self.reading = self.callback.reading(state)


def test_meters_count_examples_tokens_and_devices(tmp_path):
    clock = Clock()
    callback = BudgetCallback(clock=clock, usd_per_device_hour=3.0, count_from_process_start=False)
    read = ReadAtEnd(callback)
    train = {"max_steps": 20, "include_num_input_tokens_seen": "all"}
    trainer = make_trainer(tmp_path, [Slow(clock, 1.0), callback, read], rows=62, **train)
    trainer.train()
    progress = read.reading.progress
    # 16 batches an epoch, the last one of two rows; then four more
    assert (progress.steps, progress.examples, progress.tokens) == (20, 62 + 16, (62 + 16) * 8)
    assert progress.flops is None
    assert read.reading.wall_clock_seconds == 20.0
    assert read.reading.usd == pytest.approx(20 / 3600 * 3.0)
    assert callback.reading(trainer.state) is None


def test_time_counts_from_the_start_of_the_process(tmp_path):
    callback = BudgetCallback("wall_clock=0.01s", margin_seconds=0)
    trainer = make_trainer(tmp_path, [callback])
    trainer.train()
    assert (trainer.state.global_step, callback.stop_reason) == (0, StopReason.BUDGET_SPENT)


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": "gpu_hour=8"}, "'gpu_hour' is no budget; allowed"),
        ({"budget": "usd=5"}, "needs a price. Set usd_per_device_hour=2.5"),
        ({"usd_per_device_hour": -1}, "allowed are prices above 0"),
        ({"deadline": "soon"}, "allowed: an ISO 8601 time"),
        ({"deadline": 3600}, "deadline is 3600; that is a time before 2001"),
        ({"stop_signals": "SIGNOPE"}, "is unknown here"),
        ({"lr_follows_budget": True}, "lr_follows_budget=True without a budget"),
        ({"margin_seconds": -1}, "margin_seconds=-1; allowed are seconds >= 0"),
        ({"expected_seconds": {"step": 1}}, "allowed are 'evaluation' and 'save'"),
        ({"expected_seconds": {"save": 0}}, "seconds above 0"),
    ],
)
def test_bad_options_are_refused_at_construction(options, message):
    with pytest.raises(ValueError, match=message):
        BudgetCallback(**options)


def test_a_limit_in_tokens_that_no_one_counts_is_refused_when_the_trainer_is_made(tmp_path):
    with pytest.raises(ValueError, match="counts no tokens. Set TrainingArguments.include_num_input_tokens_seen"):
        make_trainer(tmp_path, [BudgetCallback("tokens=1e9")])


def test_a_limit_in_tokens_of_which_none_is_counted_does_not_go_on_for_ever(tmp_path):
    """No batch has what the model names as its input: upstream warns at every step and counts nothing."""
    model, options = Linear(), {"include_num_input_tokens_seen": "all"}
    model.main_input_name = "input_ids"
    trainer = make_trainer(tmp_path, [BudgetCallback("tokens=100")], model=model, **options)
    with pytest.raises(ValueError, match=r"no token was counted in step 1.*Set model.main_input_name"):
        trainer.train()
    model.main_input_name = "x"
    trainer = make_trainer(tmp_path, [BudgetCallback("tokens=100")], model=model, **options)
    trainer.train()
    assert (trainer.state.global_step, trainer.state.num_input_tokens_seen) == (3, 96)


def test_a_limit_in_energy_that_nothing_measures_is_refused_when_the_trainer_is_made(tmp_path):
    with pytest.raises(ValueError, match="nothing measures energy on this machine"):
        make_trainer(tmp_path, [BudgetCallback("energy_kwh=5")])


def test_a_callback_added_later_is_checked_when_training_begins(tmp_path):
    trainer = make_trainer(tmp_path, [])
    trainer.add_callback(BudgetCallback("tokens=1e9"))
    with pytest.raises(ValueError, match="counts no tokens"):
        trainer.train()
