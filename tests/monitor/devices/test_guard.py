import pytest

from hf_trainplus.monitor.devices.guard import ValueGuard


class DriverError(Exception):
    pass


class NotThereError(DriverError):
    pass


class Value:
    """Fails as told, then answers 7; counts how often it was asked."""

    def __init__(self, *errors):
        self.errors, self.asked = list(errors), 0

    def __call__(self):
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)
        return 7


@pytest.fixture
def notices():
    return []


@pytest.fixture
def guard(notices):
    return ValueGuard(
        "cuda:0", notices, errors=(DriverError,), permanent=lambda error: isinstance(error, NotThereError), attempts=3
    )


def test_a_value_is_asked_for_a_few_times_and_then_never_again(guard, notices):
    broken = Value(*[DriverError("Unknown Error")] * 50)
    assert [guard.ask("power_watts", broken) for _ in range(10)] == [None] * 10
    assert broken.asked == 3
    assert guard.given_up == ("power_watts",)
    assert len(notices) == 1
    assert "power_watts cannot be read (Unknown Error)" in notices[0]


def test_a_value_that_comes_back_starts_afresh(guard, notices):
    shaky = Value(DriverError(), DriverError())
    assert [guard.ask("use", shaky) for _ in range(3)] == [None, None, 7]
    shaky.errors = [DriverError(), DriverError()]
    assert [guard.ask("use", shaky) for _ in range(3)] == [None, None, 7]
    assert notices == []
    assert guard.given_up == ()


def test_a_value_that_does_not_exist_is_asked_for_once_without_a_word(guard, notices):
    absent = Value(*[NotThereError()] * 9)
    assert [guard.ask("ecc", absent) for _ in range(4)] == [None] * 4
    assert absent.asked == 1
    assert notices == []


def test_one_warning_a_device_however_many_values_fail(guard, notices):
    for name in ("use", "power", "temperature"):
        for _ in range(5):
            guard.ask(name, Value(DriverError("lost")))
    assert len(notices) == 1


def test_values_are_guarded_alone(guard):
    for _ in range(5):
        guard.ask("power", Value(DriverError()))
    assert guard.ask("temperature", Value()) == 7


def test_an_error_of_another_library_is_not_swallowed(guard):
    with pytest.raises(ZeroDivisionError, match="division"):
        guard.ask("use", lambda: 1 / 0)


def test_attempts_below_one_are_refused():
    with pytest.raises(ValueError, match=r"attempts=0; allowed is 1 or more"):
        ValueGuard("x", [], errors=(OSError,), permanent=lambda error: False, attempts=0)
