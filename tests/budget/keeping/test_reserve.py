"""Another step, yes or no; when to measure a closing phase; the share of the budget that is used."""

import pytest

from hf_trainplus.budget.keeping.headroom import Headroom
from hf_trainplus.budget.keeping.measured import Measured
from hf_trainplus.budget.keeping.reserve import DEVIATIONS, exceeded, share_used, unmeasured


def steady(step=1.0, evaluation=5.0, save=2.0, count=50):
    """Costs so often measured, and so even, that hardly a margin is left."""
    measured = Measured()
    for _ in range(count):
        measured.add("step", {"seconds": step, "steps": 1, "epochs": 0.1, "tokens": 100})
        measured.add("evaluation", {"seconds": evaluation, "steps": 0})
        measured.add("save", {"seconds": save, "steps": 0})
    return measured


def seconds(left, total=100.0):
    return Headroom("wall_clock", "seconds", left, total)


def test_a_step_fits_while_the_closing_phases_fit_after_it():
    measured = steady()
    need = measured.upper(["step", "evaluation", "save"], "seconds", deviations=DEVIATIONS)
    assert need > 8.0
    assert exceeded([seconds(need + 0.01)], measured) is None
    assert exceeded([seconds(need - 0.01)], measured) == seconds(need - 0.01)


def test_phases_that_are_due_count_on_top():
    measured = steady()
    room = seconds(10.0)
    assert exceeded([room], measured) is None
    assert exceeded([room], measured, pending=["evaluation"]) == room


def test_without_closing_phases_only_the_step_must_fit():
    assert exceeded([seconds(2.0)], steady(), closing=()) is None
    assert exceeded([seconds(0.9)], steady(), closing=()) is not None


def test_the_margin_is_kept_back():
    measured = steady()
    assert exceeded([seconds(12.0)], measured, margin_seconds=0) is None
    assert exceeded([seconds(12.0)], measured, margin_seconds=4) is not None


def test_without_another_step_only_what_ends_the_run_must_fit():
    room = [Headroom("wall_clock", "seconds", 3.0, 100)]
    known = Measured()
    known.add("step", {"seconds": 10.0})
    known.add("save", {"seconds": 1.0})
    assert exceeded(room, known, closing=["save"]).limit == "wall_clock"
    assert exceeded(room, known, closing=["save"], another=()) is None
    assert exceeded(room, known, closing=["save"], another=(), margin_seconds=1.5).limit == "wall_clock"


def test_the_tightest_limit_is_named():
    rooms = [seconds(1.0), Headroom("gpu_hours", "seconds", -50.0, 3600.0), seconds(500.0)]
    assert exceeded(rooms, steady()).limit == "gpu_hours"


def test_a_deadline_in_the_past_ends_a_run_that_has_measured_nothing():
    assert exceeded([Headroom("deadline", "seconds", -1.0, None)], Measured()).limit == "deadline"
    assert exceeded([Headroom("deadline", "seconds", 5.0, None)], Measured()) is None


@pytest.mark.parametrize("left", [1, 2, 50])
def test_counted_limits_are_met_exactly(left):
    assert exceeded([Headroom("max_steps", "steps", left, 100)], steady()) is None


def test_no_step_is_left_at_a_counted_limit():
    assert exceeded([Headroom("max_steps", "steps", 0, 100)], steady()).limit == "max_steps"


def test_fractions_of_an_epoch_may_be_rounded():
    assert exceeded([Headroom("num_train_epochs", "epochs", 0.1 - 1e-12, 1.0)], steady()) is None
    assert exceeded([Headroom("num_train_epochs", "epochs", 0.09, 1.0)], steady()) is not None


def test_tokens_take_the_dearest_step():
    measured = steady()
    measured.add("step", {"tokens": 400})
    assert exceeded([Headroom("tokens", "tokens", 399, 10_000)], measured).limit == "tokens"
    assert exceeded([Headroom("tokens", "tokens", 400, 10_000)], measured) is None


def stepped(step=1.0):
    measured = Measured()
    measured.add("step", {"seconds": step})
    return measured


def test_an_unknown_evaluation_is_measured_after_a_quarter():
    first = [seconds(100.0)]
    assert unmeasured([seconds(76.0)], first, stepped(), ["evaluation", "save"]) == ()
    assert unmeasured([seconds(75.0)], first, stepped(), ["evaluation", "save"]) == ("evaluation", "save")


def test_the_quarter_is_one_of_the_training_time_not_of_the_start_up():
    assert unmeasured([seconds(38.0)], [seconds(50.0)], stepped(), ["save"]) == ()
    assert unmeasured([seconds(37.0)], [seconds(50.0)], stepped(), ["save"]) == ("save",)


def test_one_that_is_due_before_the_half_is_waited_for():
    now, first = [seconds(70.0)], [seconds(100.0)]
    assert unmeasured(now, first, stepped(), ["evaluation"], {"evaluation": 20}) == ()
    assert unmeasured(now, first, stepped(), ["evaluation"], {"evaluation": 21}) == ("evaluation",)
    assert unmeasured(now, first, stepped(), ["evaluation"], {"evaluation": None}) == ("evaluation",)


def test_what_is_known_is_not_probed_and_counts_of_steps_probe_nothing():
    assert unmeasured([seconds(1.0)], [seconds(100.0)], steady(), ["evaluation", "save"]) == ()
    steps = [Headroom("max_steps", "steps", left, 100) for left in (1, 100)]
    assert unmeasured(steps[:1], steps[1:], stepped(), ["evaluation"]) == ()


def test_the_share_ends_where_the_run_will_end():
    measured = steady()
    kept = measured.upper(["step", "evaluation", "save"], "seconds", deviations=DEVIATIONS) - 0.5
    first = [seconds(90.0)]
    assert share_used([seconds(90.0)], first, measured) == 0.0
    assert share_used([seconds(kept)], first, measured) == pytest.approx(1.0)
    assert share_used([seconds(90 - (90 - kept) / 2)], first, measured) == pytest.approx(0.5)


def test_the_share_is_the_largest_and_deadlines_do_not_count():
    now = [seconds(45.0), Headroom("max_steps", "steps", 20, 100), Headroom("deadline", "seconds", 1.0, None)]
    first = [seconds(90.0), Headroom("max_steps", "steps", 100, 100), Headroom("deadline", "seconds", 9.0, None)]
    assert share_used(now, first, steady(), closing=()) == pytest.approx(0.8)
    assert share_used(now[2:], first[2:], steady()) is None
    assert share_used([], [], steady()) is None


def test_the_share_stays_inside_zero_and_one():
    assert share_used([seconds(-5.0)], [seconds(90.0)], steady()) == 1.0
    assert share_used([seconds(3.0)], [seconds(4.0)], steady()) == 1.0
