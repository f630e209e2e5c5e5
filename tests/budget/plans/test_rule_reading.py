"""Rules as they are written, and everything that can be wrong with them."""

import pytest

from hf_trainplus.budget.advance import (
    AllOf,
    BudgetShare,
    GeneralizationGap,
    MetricAtLeast,
    MetricAtMost,
    OneOf,
    Plateau,
)
from hf_trainplus.budget.plans.problems import Problems
from hf_trainplus.budget.plans.rule_reading import read_integer, read_number, read_rule


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"metric": "accuracy", "at_least": 0.7}, MetricAtLeast("accuracy", 0.7)),
        ({"metric": "loss", "at_most": "5e-1"}, MetricAtMost("loss", 0.5)),
        ({"plateau": 4}, Plateau("loss", 4)),
        ({"plateau": {"metric": "f1", "evaluations": 2, "greater_is_better": True}}, Plateau("f1", 2, 0.0, True)),
        ({"plateau": {"threshold": 0.01}}, Plateau("loss", 3, 0.01)),
        ({"generalization_gap": {"at_least": 0.2}}, GeneralizationGap(at_least=0.2)),
        ({"generalization_gap": {"at_most": 0.1, "metric": "a_loss"}}, GeneralizationGap(at_most=0.1, metric="a_loss")),
        ({"budget_share": 0.8}, BudgetShare(0.8)),
        ({"budget_spent": True}, BudgetShare()),
        ("budget_spent", BudgetShare()),
        ({"all": [{"budget_share": 0.5}, {"plateau": 3}]}, AllOf([BudgetShare(0.5), Plateau("loss", 3)])),
        ([{"budget_share": 0.5}, {"plateau": 3}], OneOf([BudgetShare(0.5), Plateau("loss", 3)])),
        ({"any": [{"all": ["budget_spent"]}]}, OneOf([AllOf([BudgetShare()])])),
        (BudgetShare(0.3), BudgetShare(0.3)),
    ],
)
def test_forms(given, rule):
    problems = Problems()
    assert read_rule(given, (), problems) == rule
    assert problems.found == []


@pytest.mark.parametrize(
    ("given", "place", "message"),
    [
        (None, "plan", "is None, which is no rule; allowed: {metric"),
        ({}, "plan", "is {}, which is no rule"),
        ("soon", "plan", "is 'soon', which is no rule"),
        ({"metric": "f1"}, "plan", "has no mark; give exactly one of at_least and at_most"),
        ({"metric": "f1", "at_least": 1, "at_most": 2}, "plan", "has at_least and at_most; give exactly one"),
        ({"metric": "f1", "at_least": "high"}, "at_least", "is 'high'; allowed is a number."),
        ({"metric": "", "at_least": 1}, "metric", "allowed is the name of a metric"),
        ({"metric": "f1", "at_leest": 1}, "at_leest", "'at_leest' is unknown in a rule"),
        ({"at_least": 1}, "at_least", "'at_least' is unknown in a rule"),
        ({"metric": "f1", "at_least": 1, "plateau": 3}, "plan", "holds several rules at once (metric, plateau)"),
        ({"plateau": {"metric": "f1"}}, "plateau", "add greater_is_better: true or false"),
        ({"plateau": {"evaluations": 0}}, "plateau.evaluations", "allowed is a whole number of at least 1"),
        ({"plateau": {"threshold": -1}}, "plateau.threshold", "allowed is a number, at least 0"),
        ({"plateau": "long"}, "plateau", "allowed is a mapping with metric, evaluations"),
        ({"plateau": {"patience": 3}}, "plateau.patience", "'patience' is unknown here"),
        ({"generalization_gap": {}}, "generalization_gap", "has no mark"),
        ({"generalization_gap": {"at_least": "x"}}, "generalization_gap.at_least", "is 'x'; allowed is a number"),
        ({"budget_share": 80}, "budget_share", "at least 0 and at most 1"),
        ({"budget_share": 0}, "budget_share", "is 0; allowed is a share above 0"),
        ({"budget_spent": False}, "budget_spent", "allowed: true. Leave it out for false"),
        ({"any": []}, "any", "allowed is a list of rules, at least one"),
        ({"all": {"plateau": 3}}, "all", "allowed is a list of rules"),
        ([{"plateau": 3}, "soon"], "[1]", "is 'soon', which is no rule"),
    ],
)
def test_what_is_wrong_is_noted_with_its_place(given, place, message):
    problems = Problems()
    assert read_rule(given, (), problems) is None
    texts = [problem.text() for problem in problems.found]
    assert any(text.startswith(f"{place}: ") and message in text for text in texts), texts


def test_all_that_is_wrong_in_a_list_is_noted():
    problems = Problems()
    read_rule([{"metric": "f1"}, {"budget_share": 2}, {"plateau": {"evaluations": 0}}], ("rule",), problems)
    assert [problem.path[1] for problem in problems.found] == [0, 1, 2]


@pytest.mark.parametrize("given", [None, True, "x", float("nan"), float("inf"), [1], -(10**400)])
def test_what_is_no_number(given):
    problems = Problems()
    assert read_number(given, (), problems) is None
    assert read_integer(given, (), problems) is None
    assert len(problems.found) == 2


@pytest.mark.parametrize("given", [4, 4.0, "4", "4e0"])
def test_whole_numbers(given):
    assert read_integer(given, (), Problems()) == 4
