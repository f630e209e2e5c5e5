"""YAML with lines."""

import pytest

from hf_trainplus.budget.plans.located_yaml import load_located
from hf_trainplus.budget.plans.problems import PlanError, Problem, Problems, path_text, unknown_key


def test_every_key_and_entry_has_its_line():
    problems = Problems()
    text = "name: x\nstages:\n  - name: a\n    budget: {usd: 3,\n      tokens: 5}\n  - name: b\n"
    assert load_located(text, problems) == {
        "name": "x",
        "stages": [{"name": "a", "budget": {"usd": 3, "tokens": 5}}, {"name": "b"}],
    }
    lines = problems.lines
    assert lines[("name",)] == 1
    assert lines[("stages", 0)] == 3
    assert lines[("stages", 0, "budget")] == 4
    assert lines[("stages", 0, "budget", "tokens")] == 5
    assert lines[("stages", 1, "name")] == 6


def test_json_is_yaml_too():
    assert load_located('{"a": [1, 2.5, null, true]}', Problems()) == {"a": [1, 2.5, None, True]}


def test_anchors_and_merge_keys_work():
    text = "base: &base\n  rate: 1\n  size: 2\nown:\n  <<: *base\n  size: 3\n"
    problems = Problems()
    assert load_located(text, problems)["own"] == {"rate": 1, "size": 3}
    assert problems.found == []


def test_keys_given_twice_are_noted_at_every_level():
    problems = Problems()
    load_located("a: 1\nb:\n  c: 1\n  c: 2\na: 3\n", problems)
    assert sorted((problem.line, path_text(problem.path)) for problem in problems.found) == [(4, "b.c"), (5, "a")]


@pytest.mark.parametrize(("text", "line"), [("a: [1\nb: 2\n", 2), ("a: 'x\n", 2), ("a: 1\n\tb: 2\n", 2)])
def test_a_syntax_error_has_its_line(text, line):
    problems = Problems()
    assert load_located(text, problems) is None
    (problem,) = problems.found
    assert problem.line == line
    assert problem.message.startswith("is no YAML: ")


def test_no_code_is_run():
    problems = Problems()
    assert load_located("a: !!python/object/apply:os.system ['true']\nb: !!python/name:os.system x", problems) is None
    assert [problem.line for problem in problems.found] == [1, 2]
    assert "has the tag" in problems.found[0].message
    assert "could not determine a constructor" in problems.found[1].message


def test_an_empty_file_is_none():
    assert load_located("", Problems()) is None


def test_numbers_with_colons_stay_text():
    """YAML 1.1 reads them in sixties: half past two would be 150."""
    assert load_located("a: 2:30\nb: 1:30:00\nc: 1:30.5\nd: 12", Problems()) == {
        "a": "2:30",
        "b": "1:30:00",
        "c": "1:30.5",
        "d": 12,
    }


@pytest.mark.parametrize("text", ["a: &x [*x]", "stages: &s\n- {name: a, eval: *s}", "[" * 5000])
def test_what_has_no_end_is_told(text):
    problems = Problems()
    assert load_located(text, problems) is None
    assert "is too deep to be a plan, or an anchor stands inside of itself" in problems.found[0].message


def test_a_character_that_yaml_does_not_allow_has_its_line():
    problems = Problems()
    assert load_located("a: 1\nb: \x00", problems) is None
    assert (problems.found[0].line, problems.found[0].message[:28]) == (2, r"holds the character '\x00', w"[:28])


def test_problems_are_told_in_the_order_of_the_file():
    error = PlanError([Problem(("b",), "second", 9), Problem(("a",), "first", 2)], "plan.yaml")
    assert str(error) == "plan.yaml:2: a: first\nplan.yaml:9: b: second"
    assert str(PlanError([Problem((), "wrong")])) == "plan: wrong"
    assert str(PlanError([Problem(("a", 0, "b"), "wrong")], "plan.yaml")) == "plan.yaml: a[0].b: wrong"


def test_unknown_keys_name_what_was_likely_meant():
    assert "did you mean 'budget'?" in unknown_key("budgt", "a stage", ["budget", "name"])
    assert "did you mean" not in unknown_key("zzz", "a stage", ["budget", "name"])
