"""Verdicts as a section of a report in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from hf_trainplus.monitor.diagnosis.verdict import Verdict

_TITLES = {"clear": "Checked and clear", "unknown": "Not enough evidence"}


def report_section(verdicts: Sequence[Verdict], title: str = "Diagnosis") -> str:
    """Write verdicts as a section for a report, a model card or the summary of a CI job.

    It judges nothing and draws nothing; rules without enough evidence are named, so that nobody takes them for clear.

    Args:
        verdicts: one a rule, as ``diagnose`` returns them.
        title: heading of the section.

    Returns:
        Markdown that ends with a line break: a table of findings, problems first, then the other rules by outcome.

    Example:
        >>> print(report_section([Verdict("data_bound", "found", "41 % waits for data.", "more workers.")]), end="")
        ## Diagnosis
        <BLANKLINE>
        | finding | what was seen | next | evidence |
        |---|---|---|---|
        | data_bound | 41 % waits for data. | more workers. |  |
    """
    found = sorted((one for one in verdicts if one.outcome == "found"), key=lambda one: one.severity == "note")
    lines = [f"## {title}", ""]
    if found:
        lines += ["| finding | what was seen | next | evidence |", "|---|---|---|---|"]
        lines += [_row(one) for one in found]
    else:
        lines.append("Nothing found.")
    for outcome, heading in _TITLES.items():
        others = [one for one in verdicts if one.outcome == outcome]
        if others:
            lines += ["", f"{heading}:", "", *(f"- {one.rule}: {_cell(one.message)}" for one in others)]
    return "\n".join(lines) + "\n"


def _row(verdict: Verdict) -> str:
    figures = ", ".join(f"{name} {value:.4g}" for name, value in verdict.evidence.items())
    return f"| {verdict.rule} | {_cell(verdict.message)} | {_cell(verdict.next_step)} | {_cell(figures)} |"


def _cell(text: str) -> str:
    """Keep a text inside its cell."""
    return " ".join(text.split()).replace("|", "\\|")
