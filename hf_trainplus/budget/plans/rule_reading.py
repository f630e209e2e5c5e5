"""Rules of a plan, as they are written in YAML, turned into objects; what is wrong is collected."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from hf_trainplus.budget.advance import (
    AdvanceRule,
    AllOf,
    BudgetShare,
    GeneralizationGap,
    MetricAtLeast,
    MetricAtMost,
    OneOf,
    Plateau,
)
from hf_trainplus.budget.plans.problems import Path, Problems

RULE_FORMS = (
    "{metric: accuracy, at_least: 0.7}, {metric: loss, at_most: 0.5}, {plateau: {metric: loss, evaluations: 3}}, "
    "{generalization_gap: {at_least: 0.2}}, {budget_share: 0.8}, budget_spent, {any: [...]}, {all: [...]}"
)


def read_rule(given: Any, path: Path, problems: Problems) -> AdvanceRule | None:
    """Read one rule.

    Args:
        given: a rule object, a mapping, ``"budget_spent"``, or a list of rules of which one has to hold.
        path: where it stands.
        problems: what is wrong is noted here.

    Returns:
        The rule, None when it cannot be read.

    Example:
        >>> problems = Problems()
        >>> read_rule([{"metric": "accuracy", "at_least": 0.7}, {"plateau": 3}], (), problems).describe()
        'accuracy at least 0.7 or no better loss in 3 evaluations'
    """
    if isinstance(given, AdvanceRule):
        return given
    if given == "budget_spent":
        return BudgetShare()
    if isinstance(given, list):
        return _several(OneOf, given, path, problems)
    if not isinstance(given, Mapping) or not given:
        problems.add(path, f"is {given!r}, which is no rule; allowed: {RULE_FORMS}.")
        return None
    kinds = [kind for kind in _READERS if kind in given]
    unknown = [key for key in given if key not in _READERS and not ("metric" in given and key in _MARKS)]
    for key in unknown:
        problems.add((*path, str(key)), f"{key!r} is unknown in a rule; allowed: {RULE_FORMS}.")
    if len(kinds) > 1:
        problems.add(path, f"holds several rules at once ({', '.join(kinds)}); write {{any: [...]}} or {{all: [...]}}.")
    if unknown or len(kinds) != 1:
        return None
    return _READERS[kinds[0]](given, path, problems)


_MARKS = ("at_least", "at_most")


def _metric(given: Mapping[str, Any], path: Path, problems: Problems) -> AdvanceRule | None:
    marks = [mark for mark in _MARKS if mark in given]
    if len(marks) != 1:
        problems.add(path, f"has {' and '.join(marks) or 'no mark'}; give exactly one of at_least and at_most.")
        return None
    name = _name(given["metric"], (*path, "metric"), problems)
    mark = read_number(given[marks[0]], (*path, marks[0]), problems)
    if name is None or mark is None:
        return None
    return MetricAtLeast(name, mark) if marks[0] == "at_least" else MetricAtMost(name, mark)


def _plateau(given: Mapping[str, Any], path: Path, problems: Problems) -> AdvanceRule | None:
    path = (*path, "plateau")
    values = {"evaluations": given["plateau"]} if isinstance(given["plateau"], int) else given["plateau"]
    values = _known(values, ("metric", "evaluations", "threshold", "greater_is_better"), path, problems)
    if values is None:
        return None
    metric = _name(values.get("metric", "loss"), (*path, "metric"), problems)
    evaluations = read_integer(values.get("evaluations", 3), (*path, "evaluations"), problems)
    threshold = read_number(values.get("threshold", 0.0), (*path, "threshold"), problems, least=0.0)
    greater = values.get("greater_is_better", None if metric is None or not metric.endswith("loss") else False)
    if not isinstance(greater, bool):
        problems.add(path, f"watches {metric!r}, whose direction is not known; add greater_is_better: true or false.")
        return None
    if metric is None or evaluations is None or threshold is None:
        return None
    return Plateau(metric, evaluations, threshold, greater)


def _gap(given: Mapping[str, Any], path: Path, problems: Problems) -> AdvanceRule | None:
    path = (*path, "generalization_gap")
    values = _known(given["generalization_gap"], (*_MARKS, "metric"), path, problems)
    if values is None:
        return None
    marks = [mark for mark in _MARKS if mark in values]
    if len(marks) != 1:
        problems.add(path, f"has {' and '.join(marks) or 'no mark'}; give exactly one of at_least and at_most.")
        return None
    mark = read_number(values[marks[0]], (*path, marks[0]), problems)
    metric = _name(values.get("metric", "loss"), (*path, "metric"), problems)
    return None if mark is None or metric is None else GeneralizationGap(**{marks[0]: mark}, metric=metric)


def _share(given: Mapping[str, Any], path: Path, problems: Problems) -> AdvanceRule | None:
    share = read_number(given["budget_share"], (*path, "budget_share"), problems, least=0.0, most=1.0)
    if share == 0:
        problems.add((*path, "budget_share"), "is 0; allowed is a share above 0 and at most 1.")
    return BudgetShare(share) if share else None


def _spent(given: Mapping[str, Any], path: Path, problems: Problems) -> AdvanceRule | None:
    if given["budget_spent"] is not True:
        problems.add((*path, "budget_spent"), f"is {given['budget_spent']!r}; allowed: true. Leave it out for false.")
        return None
    return BudgetShare()


def _any(given: Mapping[str, Any], path: Path, problems: Problems) -> AdvanceRule | None:
    return _several(OneOf, given["any"], (*path, "any"), problems)


def _all(given: Mapping[str, Any], path: Path, problems: Problems) -> AdvanceRule | None:
    return _several(AllOf, given["all"], (*path, "all"), problems)


_READERS: dict[str, Callable[[Mapping[str, Any], Path, Problems], AdvanceRule | None]] = {
    "metric": _metric,
    "plateau": _plateau,
    "generalization_gap": _gap,
    "budget_share": _share,
    "budget_spent": _spent,
    "any": _any,
    "all": _all,
}


def _several(kind: type[AllOf], given: Any, path: Path, problems: Problems) -> AdvanceRule | None:
    if not isinstance(given, list) or not given:
        problems.add(path, f"is {given!r}; allowed is a list of rules, at least one.")
        return None
    rules = [read_rule(one, (*path, place), problems) for place, one in enumerate(given)]
    known = [rule for rule in rules if rule is not None]
    return kind(known) if len(known) == len(rules) else None


def _known(given: Any, allowed: tuple[str, ...], path: Path, problems: Problems) -> Mapping[str, Any] | None:
    if not isinstance(given, Mapping):
        problems.add(path, f"is {given!r}; allowed is a mapping with {', '.join(allowed)}.")
        return None
    unknown = [key for key in given if key not in allowed]
    for key in unknown:
        problems.add((*path, str(key)), f"{key!r} is unknown here; allowed: {', '.join(allowed)}.")
    return None if unknown else given


def _name(given: Any, path: Path, problems: Problems) -> str | None:
    if isinstance(given, str) and given.strip():
        return given.strip()
    problems.add(path, f"is {given!r}; allowed is the name of a metric, e.g. accuracy.")
    return None


def read_number(
    given: Any, path: Path, problems: Problems, *, least: float | None = None, most: float | None = None
) -> float | None:
    """Read a number; text such as ``1e-4`` counts, since YAML takes it for text.

    Args:
        given: what stands there.
        path: where.
        problems: what is wrong is noted here.
        least: smallest value allowed.
        most: largest value allowed.
    """
    try:
        number = float(given) if not isinstance(given, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isfinite(number) and (least is None or number >= least) and (most is None or number <= most):
        return number
    limits = [f"{word} {mark:g}" for word, mark in (("at least", least), ("at most", most)) if mark is not None]
    problems.add(path, f"is {given!r}; allowed is a number{', ' if limits else ''}{' and '.join(limits)}.")
    return None


def read_integer(given: Any, path: Path, problems: Problems, *, least: int = 1) -> int | None:
    """Read a whole number of at least ``least``."""
    if isinstance(given, int) and not isinstance(given, bool) and given >= least:
        return given
    if isinstance(given, (float, str)):
        try:
            if float(given).is_integer() and float(given) >= least:
                return int(float(given))
        except ValueError:
            pass
    problems.add(path, f"is {given!r}; allowed is a whole number of at least {least}.")
    return None
