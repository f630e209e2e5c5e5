"""Budget: one value from text, mapping or keywords; every wrong limit named at once."""

import pickle

import pytest

from hf_trainplus.budget.budget import LIMIT_NAMES, Budget, read_limits


def test_text_mapping_and_keywords_agree():
    text = Budget.parse("gpu_hours=8,wall_clock=2h30m,tokens=1e9,energy_kwh=5,usd=40")
    mapping = Budget.parse({"gpu_hours": 8, "wall_clock": 9000, "tokens": "1B", "energy_kwh": 5, "usd": "40"})
    assert text == mapping == Budget(gpu_hours=8, wall_clock="2h30m", tokens=1e9, energy_kwh=5.0, usd=40)
    assert Budget.parse(text) is text


def test_limits_are_numbers_in_the_order_of_the_fields():
    budget = Budget(usd=1, wall_clock="1h")
    assert list(budget.limits().items()) == [("wall_clock", 3600.0), ("usd", 1.0)]


def test_nothing_is_no_limit():
    assert not Budget()
    assert not Budget.parse(None)
    assert not Budget.parse("wall_clock=0.1s").limits().keys() ^ {"wall_clock"}


def test_it_survives_text_pickle_and_comparison():
    budget = Budget(wall_clock="2h30m", max_steps=100, num_train_epochs=1.5, tokens=1e9)
    assert Budget.parse(str(budget)) == budget
    assert pickle.loads(pickle.dumps(budget)) == budget
    assert hash(budget) == hash(Budget.parse(str(budget)))


def test_every_wrong_limit_is_named_at_once():
    with pytest.raises(ValueError, match="wall_clock is '2x'") as caught:
        Budget.parse({"wall_clock": "2x", "gpu_hour": 3, "tokens": -1, "max_steps": 2.5})
    message = str(caught.value)
    assert len(message.splitlines()) == 4
    assert "'gpu_hour' is no budget; allowed: " + ", ".join(LIMIT_NAMES) in message
    assert "tokens is -1" in message
    assert "max_steps is 2.5; allowed are whole numbers. Write max_steps=2." in message


def test_keywords_are_checked_too():
    with pytest.raises(ValueError, match="wall_clock is 'soon'"):
        Budget(wall_clock="soon", gpu_hours=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu_hours", "is not name=value"),
        ("gpu_hours=", "is not name=value"),
        ("=8", "is not name=value"),
        ("gpu_hours=8,,usd=1", "budget part '' is not name=value"),
        ("gpu_hours=8,gpu_hours=9", "gpu_hours is given twice, '8' and '9'; give it once"),
    ],
)
def test_text_that_does_not_parse(text, message):
    with pytest.raises(ValueError, match=message):
        Budget.parse(text)


def test_other_kinds_are_refused():
    with pytest.raises(TypeError, match="budget is 8; allowed: text such as"):
        Budget.parse(8)


def test_problems_are_kept_by_name_for_callers_that_know_lines():
    numbers, problems = read_limits({"usd": 3, "tokens": "x", 5: 1})
    assert numbers == {"usd": 3.0}
    assert set(problems) == {"tokens", "5"}
