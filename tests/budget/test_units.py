"""Durations and counts as people write them."""

import pytest

from hf_trainplus.budget.units import format_count, format_duration, parse_count, parse_duration


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (90, 90.0),
        (0.5, 0.5),
        ("90", 90.0),
        ("1e3", 1000.0),
        ("90s", 90.0),
        ("15m", 900.0),
        ("2h30m", 9000.0),
        ("2H 30M", 9000.0),
        ("1.5h", 5400.0),
        ("1d12h", 129600.0),
        ("02:30:00", 9000.0),
        ("1-12:00:00", 129600.0),
        ("100:00:00", 360000.0),
    ],
)
def test_durations(given, seconds):
    assert parse_duration(given) == seconds


@pytest.mark.parametrize(
    "given", ["2:30", "30m2h", "2h2h", "2x", "", "h", "two hours", "1_", None, True, [1], "1:99:00"]
)
def test_what_is_no_duration_is_refused_with_the_forms(given):
    with pytest.raises(ValueError, match=r"wall_clock is .*no duration; allowed: seconds as a number.*2h30m"):
        parse_duration(given, "wall_clock")


@pytest.mark.parametrize("given", [0, -1, "0s", float("nan"), float("inf"), 10**400])
def test_durations_are_above_zero_and_finite(given):
    with pytest.raises(ValueError, match="allowed are finite values above 0"):
        parse_duration(given)


@pytest.mark.parametrize(
    ("given", "number"),
    [(5, 5.0), ("1e9", 1e9), ("1_000_000", 1e6), ("300B", 3e11), ("2.5k", 2500.0), ("7m", 7e6), ("1T", 1e12)],
)
def test_counts(given, number):
    assert parse_count(given) == number


@pytest.mark.parametrize("given", ["many", "1x", "", None, False, "1e", "k", "1_", "1__0"])
def test_what_is_no_count_is_refused_with_the_forms(given):
    with pytest.raises(ValueError, match="tokens is .*no number; allowed: a number such as 1000"):
        parse_count(given, "tokens")


@pytest.mark.parametrize("given", [0, -3, "0", float("inf"), 10**400])
def test_counts_are_above_zero_and_finite(given):
    with pytest.raises(ValueError, match="count is .*; allowed are finite values above 0\\."):
        parse_count(given)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.25s"), (59.6, "1m"), (61, "1m1s"), (3600, "1h"), (9000, "2h30m"), (90061, "1d1h"), (86400 * 3, "3d")],
)
def test_durations_are_written_with_two_units(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize("seconds", [42, 60, 3600, 9000, 129600])
def test_what_is_written_can_be_read(seconds):
    assert parse_duration(format_duration(seconds)) == seconds


def test_counts_are_written_exactly_when_small():
    assert [format_count(n) for n in (7, 99_999, 100_000, 0.5)] == ["7", "99,999", "1e+05", "0.5"]
