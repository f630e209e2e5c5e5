"""Functions are told apart by their code and all that it reads, or refused; never shared."""

import functools
import json
import math
import os
import random
import sys
import time
from datetime import datetime

import numpy as np
import pytest
import sklearn
import torch
from sklearn import metrics as sklearn_metrics
from sklearn.metrics import accuracy_score, f1_score

from hf_trainplus.evaluation.fingerprints import ObjectFingerprints
from hf_trainplus.evaluation.fingerprints.code import NOTHING, uses_of
from hf_trainplus.evaluation.fingerprints.libraries import library_of
from hf_trainplus.identity import UnknownIdentityError


def of(value):
    return ObjectFingerprints().of(value)


def defined(source, name="metric", **namespace):
    """Define a function as a user's module would, with globals of its own."""
    exec(source, namespace)
    return namespace[name]


BASE = """
THRESHOLD = 0.5
WEIGHTS = [1, 2]
def scale(x):
    return 2 * x
class Rule:
    limit = 3
    def apply(self, x):
        return x + self.limit
RULE = Rule()
def metric(p, k=1, *, beta=1.0):
    inner = lambda x: x + THRESHOLD
    return {"score": scale(inner(p)) + RULE.apply(k) + sum(WEIGHTS) + beta}
"""

CHANGES = {
    "a constant in the body": ("+ beta", "+ 2 * beta"),
    "a key of the result": ('"score"', '"other"'),
    "a default value": ("k=1", "k=2"),
    "a keyword's default value": ("beta=1.0", "beta=2.0"),
    "a function inside": ("x + THRESHOLD", "x - THRESHOLD"),
    "a global number": ("THRESHOLD = 0.5", "THRESHOLD = 0.6"),
    "the type of a global number": ("THRESHOLD = 0.5", "THRESHOLD = 1"),
    "a global list": ("[1, 2]", "[1, 3]"),
    "a global function": ("2 * x", "3 * x"),
    "a method of a global object's class": ("x + self.limit", "x - self.limit"),
    "a class attribute": ("limit = 3", "limit = 4"),
    "a global object's state": ("RULE = Rule()", "RULE = Rule(); RULE.limit = 5"),
    "a builtin": ("sum(WEIGHTS)", "max(WEIGHTS)"),
    "which global is read": ("sum(WEIGHTS)", "len(WEIGHTS)"),
    "whether a global is defined": ("WEIGHTS = [1, 2]", ""),
}


@pytest.mark.parametrize("change", CHANGES)
def test_functions_that_differ_in_one_place_never_share_a_fingerprint(change):
    old, new = CHANGES[change]
    assert BASE.count(old) == 1
    assert of(defined(BASE.replace(old, new))) != of(defined(BASE))


def test_equal_functions_share_a_fingerprint():
    assert of(defined(BASE)) == of(defined(BASE))
    assert of(defined("\n\n# moved down\n" + BASE)) == of(defined(BASE))


def closure(captured):
    def metric(p):
        return {"x": p + captured}

    return metric


CAPTURED = [
    1,
    2,
    1.0,
    "1",
    None,
    [1],
    [[1]],
    {"a": 1},
    {"a": [1]},
    np.arange(2),
    np.arange(3),
    torch.zeros(1),
    abs,
    {1},
]
CAPTURED += [closure(1), closure(2), torch.zeros(1, dtype=torch.int64), np.float32(1), np.float64(1), (1,), lambda x: x]


def test_captured_values_tell_closures_apart():
    found = [of(closure(value)) for value in CAPTURED]
    assert len(set(found)) == len(found)
    assert of(closure([1, [2]])) == of(closure([1, [2]]))


def test_lambdas_on_one_line_are_told_apart():
    one, two = (lambda p: {"x": p + 1}), (lambda p: {"x": p + 2})
    assert of(one) != of(two)
    made = [lambda p, k=k: {"x": p + k} for k in range(3)]
    assert len({of(each) for each in made}) == 3


def test_a_captured_value_that_changes_changes_the_fingerprint():
    history = []
    function = closure(history)
    before = of(function)
    history.append(1)
    assert of(function) != before


def test_partials_methods_and_callable_objects_count_with_their_state():
    class Scored:
        def __init__(self, k):
            self.k = k

        def __call__(self, p):
            return {"x": p * self.k}

        def score(self, p):
            return {"x": p - self.k}

    values = [Scored(1), Scored(2), Scored(1).score, Scored(2).score]
    values += [functools.partial(closure, 1), functools.partial(closure, 2), functools.partial(closure, captured=1)]
    found = [of(value) for value in values]
    assert len(set(found)) == len(found)
    assert of(Scored(1)) == of(Scored(1))


def test_a_wrapped_function_counts_with_what_it_wraps():
    def doubled(function):
        @functools.wraps(function)
        def wrapper(p):
            return function(2 * p)

        return wrapper

    found = [of(doubled(closure(1))), of(doubled(closure(2))), of(closure(1)), of(functools.lru_cache(closure(1)))]
    found += [of(functools.lru_cache(closure(2))), of(torch.no_grad()(closure(1))), of(torch.no_grad()(closure(2)))]
    assert len(set(found)) == len(found)


def test_a_wrapper_does_not_pass_for_the_library_function_that_it_names():
    @functools.wraps(f1_score)
    def one(*args):
        return 1

    @functools.wraps(f1_score)
    def two(*args):
        return 2

    assert len({of(one), of(two), of(f1_score)}) == 3


def test_recursion_ends():
    source = "def even(n):\n    return n == 0 or odd(n - 1)\ndef odd(n):\n    return n != 0 and even(n - 1)\n"
    assert of(defined(source, "even")) != of(defined(source, "odd"))
    assert of(defined(source, "even")) == of(defined(source, "even"))


def test_library_functions_count_by_name_and_version(monkeypatch):
    def metric(p):
        return {"f1": f1_score(p.label_ids, np.argmax(p.predictions, -1)), "n": np.linalg.norm(p.predictions)}

    assert {use.name for use in uses_of(metric)} == {"f1_score", "np.argmax", "np.linalg.norm"}
    assert library_of("sklearn.metrics") == f"sklearn {sklearn.__version__}"
    before = of(metric)
    assert before == of(metric)
    monkeypatch.setattr("hf_trainplus.evaluation.fingerprints.objects.library_of", lambda name: f"{name} of tomorrow")
    assert of(metric) != before


def test_attributes_of_modules_are_followed():
    one = lambda p: sklearn_metrics.f1_score(p, p)  # noqa: E731
    two = lambda p: sklearn_metrics.accuracy_score(p, p)  # noqa: E731
    assert of(one) != of(two)


def test_a_replaced_library_function_is_seen(monkeypatch):
    metric = lambda p: sklearn_metrics.f1_score(p, p)  # noqa: E731
    before = of(metric)
    monkeypatch.setattr(sklearn_metrics, "f1_score", lambda a, b: 0.0)
    assert of(metric) != before


def test_imports_inside_a_function_are_seen():
    def one(p):
        from sklearn.metrics import accuracy_score

        return accuracy_score(p, p)

    def two(p):
        from sklearn.metrics import f1_score

        return f1_score(p, p)

    assert of(one) != of(two)
    assert [use.value for use in uses_of(one)] == [accuracy_score]


def test_a_library_is_loaded_to_see_what_is_imported_and_a_module_of_ones_own_is_not(tmp_path, monkeypatch):
    (tmp_path / "my_unloaded.py").write_text("raise RuntimeError('loaded')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)

    def of_a_library(p):
        from colorsys import hsv_to_rgb

        return hsv_to_rgb(*p)

    def of_ones_own(p):
        import my_unloaded

        return my_unloaded.score(p)

    assert of(of_a_library) == of(of_a_library)
    assert "colorsys" in sys.modules
    with pytest.raises(UnknownIdentityError, match="in .*of_ones_own, it imports my_unloaded, which is not loaded yet"):
        of(of_ones_own)


COUNT = 0


def reads_a_file(p):
    return {"x": len(open("labels.txt").read())}


def reads_the_environment(p):
    return {"x": float(os.environ["X"])}


def asks_the_time(p):
    return {"x": time.time()}


def asks_the_date(p):
    return {"x": datetime.now().year}


def draws(p):
    return {"x": random.random()}


def draws_with_numpy(p):
    return {"x": np.random.rand()}


def draws_with_a_numpy_generator(p):
    import numpy

    return {"x": numpy.random.default_rng().normal()}


def draws_with_torch(p):
    return {"x": torch.rand(1).item()}


def draws_in_place(p):
    return {"x": p.bernoulli_(0.5)}


def loads(p):
    return {"x": np.load("weights.npy")}


def loads_a_metric(p):
    import evaluate

    return evaluate.load("accuracy").compute(predictions=p, references=p)


def counts_calls(p):
    global COUNT
    COUNT += 1
    return {"x": COUNT}


def counting():
    count = 0

    def metric(p):
        nonlocal count
        count += 1
        return {"x": count}

    return metric


def calls_what_draws(p):
    return draws(p)


def evaluates_a_text(p):
    return eval("p")


def hashes_a_text(p):
    return {"x": hash("a")}


UNSAFE = [reads_a_file, reads_the_environment, asks_the_time, asks_the_date, draws, draws_with_numpy, draws_in_place]
UNSAFE += [draws_with_a_numpy_generator, draws_with_torch, loads, loads_a_metric, counts_calls, counting()]
UNSAFE += [calls_what_draws, evaluates_a_text, hashes_a_text, lambda p: [draws(q) for q in p], functools.partial(draws)]


@pytest.mark.parametrize("function", UNSAFE, ids=lambda function: getattr(function, "__name__", "partial"))
def test_functions_of_more_than_their_arguments_are_refused(function):
    with pytest.raises(UnknownIdentityError, match=r"it (uses|calls|writes) "):
        of(function)


def test_paths_and_mathematics_are_no_part_of_the_world():
    def described(p):
        return {"x": math.sqrt(p), "name": os.path.join("a", "b"), "text": json.dumps(p)}

    assert of(described) == of(described)


def test_what_builds_an_object_may_read_a_file():
    class Scored:
        def __init__(self, path):
            with open(path) as file:
                self.words = file.read()

        def __call__(self, p):
            return {"x": len(self.words)}

    first, second = Scored(os.devnull), Scored(os.devnull)
    second.words = "more"
    assert of(first) != of(second)


def test_a_helper_of_construction_and_of_the_call_is_judged_by_the_call():
    class Scored:
        def __init__(self):
            self.start = draws(None)

        def compute(self, p):
            return draws(p)

    with pytest.raises(UnknownIdentityError, match=r"in draws, it uses random"):
        of(Scored())


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (open, "open"),
        ((number for number in ()), "what a generator holds cannot be read"),
        (__import__("threading").Lock(), "what a lock holds cannot be read"),
        ({(("a",), 1)}, "has no order"),
    ],
)
def test_what_cannot_be_read_is_refused(value, reason):
    with pytest.raises(UnknownIdentityError, match=reason):
        of(value)


def test_a_module_of_the_users_own_is_refused_as_a_whole_and_read_by_its_attributes(tmp_path, monkeypatch):
    (tmp_path / "my_rules.py").write_text("LIMIT = 1\ndef rule(x):\n    return x + LIMIT\n")
    monkeypatch.syspath_prepend(tmp_path)
    import my_rules

    followed, whole = (lambda p: my_rules.rule(p)), closure(my_rules)
    before = of(followed)
    monkeypatch.setattr(my_rules, "LIMIT", 2)
    assert of(followed) != before
    with pytest.raises(UnknownIdentityError, match="it uses the module my_rules as a whole"):
        of(whole)


def test_a_list_that_holds_itself_is_refused():
    endless = [object]
    endless.append(endless)
    with pytest.raises(UnknownIdentityError, match="refers to itself"):
        of(endless)


def test_names_that_are_not_defined_are_told_from_those_that_are():
    metric = defined("def metric(p):\n    return missing(p)\n")
    assert uses_of(metric)[0].value is NOTHING
    assert of(metric) != of(defined("def metric(p):\n    return missing(p)\nmissing = None\n"))
