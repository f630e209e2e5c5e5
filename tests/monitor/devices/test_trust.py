import pytest

from hf_trainplus.monitor.devices.trust import UseTrust


def test_wsl_zero_for_ever_is_not_measurable_and_never_idle():
    trust = UseTrust(suspect=True, proof=5)
    assert [trust.judge(0.0, working=False) for _ in range(3)] == [None] * 3
    assert trust.status == "unknown"
    assert [trust.judge(0.0, working=True) for _ in range(20)] == [None] * 20
    assert trust.status == "not measurable"


def test_a_missing_use_for_ever_is_not_measurable():
    trust = UseTrust(suspect=False, proof=5)
    assert {trust.judge(None, working=True) for _ in range(5)} == {None}
    assert trust.status == "not measurable"


def test_a_bare_metal_device_that_shows_zero_while_steps_advance_is_not_idle():
    trust = UseTrust(suspect=False, proof=4)
    assert [trust.judge(0.0, working=True) for _ in range(4)] == [None] * 4
    assert trust.status == "not measurable"


def test_a_healthy_device_reports_its_zeros():
    trust = UseTrust(suspect=False, proof=3)
    assert trust.judge(0.0, working=False) == 0.0
    assert trust.judge(62.0, working=True) == 62.0
    assert [trust.judge(0.0, working=True) for _ in range(9)] == [0.0] * 9
    assert trust.status == "measured"


def test_a_suspect_device_that_does_measure_is_believed_from_then_on():
    trust = UseTrust(suspect=True)
    assert trust.judge(0.0, working=False) is None
    assert trust.judge(3.0, working=True) == 3.0
    assert trust.judge(0.0, working=False) == 0.0


def test_a_proof_of_nothing_is_refused():
    with pytest.raises(ValueError, match="proof=0"):
        UseTrust(suspect=False, proof=0)
