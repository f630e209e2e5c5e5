"""Rules to advance: on the interval's safe side, and silent without evidence."""

import math

import pytest

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
from hf_trainplus.budget.plans.stage_history import Evaluation, StageHistory


def history(*values, metric="eval_loss", training_loss=None, **options):
    points = [Evaluation(step, {metric: value}, training_loss) for step, value in enumerate(values)]
    return StageHistory(tuple(points), **options)


def interval(low, value, high, metric="eval_accuracy", training_loss=None):
    metrics = {metric: value, f"{metric}_ci_low": low, f"{metric}_ci_high": high}
    return StageHistory((Evaluation(10, metrics, training_loss),))


RULES = [
    MetricAtLeast("accuracy", 0.7),
    MetricAtMost("loss", 0.5),
    Plateau("loss", 2),
    GeneralizationGap(at_least=0.2),
    BudgetShare(0.5),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_without_evidence_no_rule_holds(rule):
    assert rule.should_advance(StageHistory()) is False
    assert rule.describe()


def test_at_least_goes_by_the_lower_end():
    rule = MetricAtLeast("accuracy", 0.7)
    assert not rule.should_advance(interval(0.69, 0.75, 0.81))
    assert rule.should_advance(interval(0.70, 0.75, 0.80))
    assert rule.should_advance(history(0.7, metric="eval_accuracy"))


def test_at_most_goes_by_the_upper_end():
    rule = MetricAtMost("loss", 0.5)
    assert not rule.should_advance(interval(0.4, 0.45, 0.51, metric="eval_loss"))
    assert rule.should_advance(interval(0.4, 0.45, 0.50, metric="eval_loss"))
    assert rule.should_advance(history(0.9, 0.5))
    assert not rule.should_advance(history(0.4, 0.6)), "the last evaluation counts, not the best"


@pytest.mark.parametrize("rule", [MetricAtLeast("loss", 0.0), MetricAtMost("loss", 9.0)])
def test_nan_reaches_no_mark(rule):
    assert not rule.should_advance(history(math.nan))


def test_metrics_are_found_with_and_without_their_prefix():
    point = history(0.9, metric="eval_f1")
    assert MetricAtLeast("f1", 0.9).should_advance(point)
    assert MetricAtLeast("eval_f1", 0.9).should_advance(point)


def test_a_metric_that_no_evaluation_gives_is_named_with_those_there_are():
    with pytest.raises(ValueError, match="watches 'accuracy', and the evaluation at step 0 gave: eval_loss. Name one"):
        MetricAtLeast("accuracy", 0.7).should_advance(history(0.5))


@pytest.mark.parametrize(
    ("values", "over"),
    [
        ([3.0, 2.0, 1.0], False),
        ([1.0, 1.0, 1.0], True),
        ([1.0, 1.2], False),
        ([2.0, 1.0, 1.1, 1.05], True),
        ([2.0, 1.0, 1.1, 0.99], False),
        ([1.0, math.nan, math.nan], True),
        ([math.nan, math.nan, math.nan], False),
    ],
)
def test_a_plateau_is_k_evaluations_without_a_new_best(values, over):
    assert Plateau("loss", 2).should_advance(history(*values)) is over


def test_a_plateau_knows_its_direction_and_its_threshold():
    rising = history(0.5, 0.6, 0.7, metric="eval_accuracy")
    assert not Plateau("accuracy", 2, greater_is_better=True).should_advance(rising)
    assert Plateau("accuracy", 2, greater_is_better=False).should_advance(rising)
    assert Plateau("accuracy", 2, threshold=0.25, greater_is_better=True).should_advance(rising)


def test_the_gap_is_validation_minus_training():
    over_fitted, healthy = history(1.0, training_loss=0.5), history(0.5, training_loss=1.0)
    assert GeneralizationGap(at_least=0.4).should_advance(over_fitted)
    assert not GeneralizationGap(at_least=0.4).should_advance(healthy)
    assert GeneralizationGap(at_most=0.1).should_advance(healthy)
    assert not GeneralizationGap(at_most=0.1).should_advance(over_fitted)


def test_the_gap_is_on_the_safe_side_too():
    noisy = interval(0.6, 0.9, 1.2, metric="eval_loss", training_loss=0.5)
    assert not GeneralizationGap(at_least=0.3).should_advance(noisy)
    assert GeneralizationGap(at_least=0.09).should_advance(noisy)
    assert not GeneralizationGap(at_most=0.5).should_advance(noisy)
    assert GeneralizationGap(at_most=0.7).should_advance(noisy)


def test_the_budget():
    assert BudgetShare(0.5).should_advance(StageHistory(budget_share=0.5))
    assert not BudgetShare(0.5).should_advance(StageHistory(budget_share=0.49))
    assert not BudgetShare().should_advance(StageHistory(budget_share=0.999))
    assert BudgetShare().should_advance(StageHistory(budget_spent=True))


def test_several_rules():
    half, sure = BudgetShare(0.5), MetricAtLeast("loss", 0.0)
    seen = StageHistory((Evaluation(1, {"eval_loss": 1.0}),), budget_share=0.2)
    assert OneOf([half, sure]).should_advance(seen)
    assert not AllOf([half, sure]).should_advance(seen)
    assert OneOf([half, sure]).describe() == "50% of the budget used or loss at least 0"
    assert AllOf([half]) == AllOf([half])
    assert AllOf([half]) != OneOf([half])
    assert hash(AllOf([half])) == hash(AllOf([half]))


class EverySecond(AdvanceRule):
    def should_advance(self, history):
        return len(history.evaluations) % 2 == 0

    def describe(self):
        return "every second evaluation"


@pytest.mark.parametrize(
    ("rule", "other"),
    [
        (MetricAtLeast("f1", 0.7), MetricAtLeast("f1", 0.7000001)),
        (MetricAtMost("loss", 0.123456789), MetricAtMost("loss", 0.12345678)),
        (Plateau("loss"), Plateau("loss", threshold=0.1)),
        (Plateau("f1", greater_is_better=True), Plateau("f1", greater_is_better=False)),
        (Plateau("loss"), Plateau("loss", greater_is_better=True)),
        (GeneralizationGap(at_least=0.3), GeneralizationGap(at_least=0.30000001)),
        (GeneralizationGap(at_least=0.3), GeneralizationGap(at_most=0.3)),
        (BudgetShare(0.80), BudgetShare(0.804)),
        (
            AllOf([OneOf([BudgetShare(0.1), BudgetShare(0.2)]), BudgetShare(0.3)]),
            OneOf([BudgetShare(0.1), AllOf([BudgetShare(0.2), BudgetShare(0.3)])]),
        ),
    ],
)
def test_two_rules_have_two_descriptions(rule, other):
    """A checkpoint keeps the description: what it left out could be changed on a resume without a word."""
    assert rule.describe() != other.describe()


def test_a_share_is_written_as_it_was_given():
    assert [BudgetShare(share).describe()[:5] for share in (0.07, 0.29, 0.57)] == ["7% of", "29% o", "57% o"]


def test_a_rule_of_ones_own_stands_beside_the_others():
    rule = AllOf([EverySecond(), MetricAtMost("loss", 5)])
    assert rule.should_advance(history(1.0, 2.0))
    assert not rule.should_advance(history(1.0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Plateau("loss", 0), "allowed: evaluations >= 1"),
        (lambda: Plateau("loss", 1, threshold=-1), "threshold >= 0"),
        (lambda: GeneralizationGap(), "give exactly one of them"),
        (lambda: GeneralizationGap(at_least=1, at_most=2), "give exactly one of them"),
        (lambda: BudgetShare(0), "a share above 0 and at most 1"),
        (lambda: BudgetShare(80), "a share above 0 and at most 1"),
    ],
)
def test_marks_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
