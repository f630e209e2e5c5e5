from hf_trainplus.monitor.diagnosis import Evidence, Verdict, diagnose, report_section


def test_problems_stand_before_notes_and_every_rule_is_named_once():
    verdicts = [
        Verdict("compute_bound", "found", "The device is busy.", severity="note"),
        Verdict("data_bound", "found", "41 % waits.", "more workers.", {"data_wait_share": 0.41234567}),
        Verdict("plateau", "clear", "Still falling."),
        Verdict("leak", "unknown", "Two readings."),
    ]
    text = report_section(verdicts, "A run")
    assert text.splitlines() == [
        "## A run",
        "",
        "| finding | what was seen | next | evidence |",
        "|---|---|---|---|",
        "| data_bound | 41 % waits. | more workers. | data_wait_share 0.4123 |",
        "| compute_bound | The device is busy. |  |  |",
        "",
        "Checked and clear:",
        "",
        "- plateau: Still falling.",
        "",
        "Not enough evidence:",
        "",
        "- leak: Two readings.",
    ]


def test_a_text_stays_inside_its_cell():
    row = report_section([Verdict("logging", "found", "a | b\nc", "d")]).splitlines()[-1]
    assert row == "| logging | a \\| b c | d |  |"


def test_without_evidence_nothing_is_found_and_nothing_is_called_clear():
    text = report_section(diagnose(Evidence()))
    assert "Nothing found." in text
    assert "Checked and clear" not in text
    assert text.count("\n- ") == len(diagnose(Evidence()))
