"""Which metric functions may be given the argmax: those of the usual tutorials, and none whose result could change."""

import functools
import importlib.util
import sys

import numpy as np
import numpy as renamed
import pytest
from numpy import argmax as imported_argmax
from sklearn.metrics import accuracy_score, f1_score
from transformers import EvalPrediction

from hf_trainplus.evaluation.metrics.adapters.functions import ArgmaxPredictions
from hf_trainplus.evaluation.metrics.inference import infer_reduction

LABELS = ["O", "B-PER", "I-PER"]


def accuracy(p):
    logits, labels = p
    predictions = np.argmax(logits, axis=-1)
    return {"accuracy": (predictions == labels).mean()}


def several_metrics(eval_pred):
    """A docstring is no use of anything."""
    labels = eval_pred.label_ids
    preds = eval_pred.predictions.argmax(-1)
    return {
        "accuracy": accuracy_score(labels.ravel(), preds.ravel()),
        "f1": f1_score(labels.ravel(), preds.ravel(), average="macro"),
    }


def same_name_again(eval_pred):
    predictions, labels = eval_pred
    predictions = np.argmax(predictions, -1)
    keep = labels != -100
    predictions[~keep] = 0
    return {"x": float(predictions.sum() + labels[keep].sum())}


def out_of_a_tuple(p):
    preds = p.predictions[0] if isinstance(p.predictions, tuple) else p.predictions
    preds = np.argmax(preds, axis=-1)
    return {"x": float((preds == p.label_ids).mean())}


def out_of_a_tuple_by_statement(p):
    preds, labels = p.predictions, p.label_ids
    if isinstance(preds, (tuple, list)):
        preds = preds[0]
    ids = preds.argmax(axis=-1)
    return {"x": float((ids == labels).mean())}


def by_index(p):
    return {"x": float((p[0].argmax(-1) == p[1]).mean())}


def with_own_import(p):
    import numpy as own

    return {"x": float(own.argmax(p.predictions, axis=-1).sum())}


def renamed_module(p):
    return {"x": float(renamed.argmax(p.predictions, -1).sum())}


def imported_function(p):
    return {"x": float(imported_argmax(p.predictions, -1).sum())}


def typed(p: EvalPrediction) -> dict[str, float]:
    ids: np.ndarray = np.argmax(p.predictions, axis=-1)
    total: float
    total = 0.0
    total += float(ids.sum())
    if total < 0:
        raise ValueError(total)
    return {"x": total}


def with_loops_and_helpers(p):
    logits, labels = p
    ids = np.argmax(logits, axis=-1)

    def share(truth, wanted):
        return float((truth == wanted).mean())

    result = {}
    for label in range(2):
        result[f"share_{label}"] = share(ids, label)
    with np.errstate(all="ignore"):
        result["ratio"] = float(ids.sum() / max(labels.sum(), 1))
    if result["ratio"] > 1:
        result["large"] = 1.0
    return result


def token_classification(p):
    predictions, labels = p
    predictions = np.argmax(predictions, axis=-1)
    true_predictions = [
        [LABELS[p] for (p, l) in zip(prediction, label) if l != -100]  # noqa: B905, E741
        for prediction, label in zip(predictions, labels)  # noqa: B905
    ]
    return {"x": float(sum(tag != "O" for row in true_predictions for tag in row))}


class Holder:
    def method(self, p):
        return {"x": float(np.argmax(p.predictions, axis=-1).sum())}


def make_closure(scale, module):
    def closure(p):
        return {"x": scale * float(module.argmax(p.predictions, axis=-1).sum())}

    return closure


ARGMAX = [
    *(
        accuracy,
        several_metrics,
        same_name_again,
        out_of_a_tuple,
        out_of_a_tuple_by_statement,
        by_index,
        with_own_import,
    ),
    *(renamed_module, imported_function, typed, with_loops_and_helpers, token_classification, Holder().method),
    make_closure(2.0, np),
]


@pytest.mark.parametrize("function", ARGMAX, ids=lambda f: f.__name__)
@pytest.mark.parametrize("shape", [(7, 3), (4, 5, 3)])
def test_a_function_of_the_argmax_is_found_and_returns_the_same(function, shape):
    rng = np.random.default_rng(0)
    if function is token_classification and len(shape) == 2:
        return
    assert infer_reduction(function) == "argmax"
    logits, labels = rng.normal(size=shape), rng.integers(0, 3, shape[:-1])
    expected = function(EvalPrediction(logits, labels))
    assert function(EvalPrediction(ArgmaxPredictions(logits.argmax(-1)), labels)) == expected


def axis_one(p):
    predictions, labels = p
    return {"x": float((np.argmax(predictions, axis=1) == labels).mean())}


def axis_two(p):
    predictions, labels = p
    return {"x": float((np.argmax(predictions, axis=2) == labels).mean())}


@pytest.mark.parametrize(("function", "fits"), [(axis_one, 2), (axis_two, 3)])
def test_a_counted_axis_is_the_last_one_only_for_known_dimensions(function, fits):
    assert infer_reduction(function) == "logits"
    assert [ndim for ndim in (1, 2, 3, 4) if infer_reduction(function, ndim=ndim) == "argmax"] == [fits]


def regression(p):
    predictions = p.predictions.squeeze(-1)
    return {"mse": float(((predictions - p.label_ids) ** 2).mean())}


def multi_label(p):
    probabilities = 1 / (1 + np.exp(-p.predictions))
    return {"x": float(((probabilities > 0.5) == p.label_ids).mean())}


def binary_auc(p):
    return {"x": float(p.predictions[:, 1].mean())}


def argmax_and_more(p):
    predictions, labels = p
    ids = np.argmax(predictions, axis=-1)
    return {"accuracy": float((ids == labels).mean()), "mean": float(predictions.mean())}


def asks_for_the_shape(p):
    logits, labels = p
    classes = logits.shape[-1]
    return {"x": float((np.argmax(logits, -1) == labels).mean() / classes)}


def over_the_first_axis(p):
    return {"x": float(np.argmax(p.predictions, axis=0).sum())}


def over_everything(p):
    return {"x": float(np.argmax(p.predictions))}


def over_a_variable_axis(p):
    axis = -1
    return {"x": float(np.argmax(p.predictions, axis=axis).sum())}


def keeps_dimensions(p):
    return {"x": float(np.argmax(p.predictions, axis=-1, keepdims=True).sum())}


def two_heads(p):
    start_logits, end_logits = p.predictions
    return {"x": float(np.argmax(start_logits, -1).sum() + np.argmax(end_logits, -1).sum())}


def second_of_a_tuple(p):
    return {"x": float(np.argmax(p.predictions[1], -1).sum())}


def first_of_anything(p):
    return {"x": float(np.argmax(p.predictions[0], -1).sum())}


def scaled_first(p):
    return {"x": float(np.argmax(p.predictions / 2, axis=-1).sum())}


def in_a_loop(p):
    return {"x": float(sum(np.argmax(row, axis=-1).sum() for row in p.predictions))}


def helper_reads(p):
    return accuracy(p)


def handed_to_a_helper(p):
    logits, labels = p
    return {"x": some_helper(logits) + float(np.argmax(logits, -1).sum())}


def some_helper(logits):
    return float(logits.max())


def only_on_one_path(p):
    logits, labels = p
    if labels.sum() > 3:
        logits = np.argmax(logits, axis=-1)
    return {"x": float(np.argmax(logits, axis=-1).sum())}


def read_by_an_inner_function(p):
    logits, labels = p
    ids = np.argmax(logits, axis=-1)

    def confidence():
        return float(logits.max())

    return {"x": float(ids.sum()) + confidence()}


def read_by_a_lambda(p):
    read = lambda: logits.max()  # noqa: E731
    logits = p.predictions
    return {"x": float(np.argmax(logits, axis=-1).sum() + read())}


def read_by_a_comprehension(p):
    logits, labels = p
    ids = np.argmax(logits, axis=-1)
    return {"x": float(ids.sum()), "rows": float(len([row for row in logits]))}


def through_the_frame(p):
    logits, labels = p
    ids = np.argmax(logits, axis=-1)
    return {"x": float(ids.sum()), "y": float(locals()["logits"].max())}


def stored_elsewhere(p):
    store = {}
    store["logits"] = p.predictions
    return {"x": float(np.argmax(p.predictions, axis=-1).sum()) + float(store["logits"].max())}


def walrus(p):
    if (logits := p.predictions) is not None:
        return {"x": float(np.argmax(logits, -1).sum())}
    return {}


def unused(p):
    return {"labels": float(p.label_ids.sum())}


def no_parameters():
    return {}


def generator(p):
    yield np.argmax(p.predictions, axis=-1)


def a_local_module(p):
    np = some_module  # noqa: F841
    return {"x": float(np.argmax(p.predictions, axis=-1).sum())}


class SomeModule:
    @staticmethod
    def argmax(values, axis):
        return values.max(axis)


some_module = SomeModule()


def decorator(function):
    @functools.wraps(function)
    def wrapper(p):
        return function(p) | {"max": float(p.predictions.max())}

    return wrapper


@decorator
def decorated(p):
    return {"x": float(np.argmax(p.predictions, axis=-1).sum())}


class Callable:
    def __call__(self, p):
        return {"x": float(np.argmax(p.predictions, axis=-1).sum())}


exec_scope = {}
exec("def from_text(p):\n    return {'x': p.predictions.argmax(-1).sum()}", exec_scope)

LOGITS = [
    *(regression, multi_label, binary_auc, argmax_and_more, asks_for_the_shape, over_the_first_axis, over_everything),
    *(over_a_variable_axis, keeps_dimensions, two_heads, second_of_a_tuple, first_of_anything, scaled_first, in_a_loop),
    *(helper_reads, handed_to_a_helper, only_on_one_path, read_by_an_inner_function, read_by_a_lambda),
    *(read_by_a_comprehension, through_the_frame, stored_elsewhere, walrus, unused, no_parameters, generator),
    *(a_local_module, decorated, Callable(), make_closure(1.0, some_module), exec_scope["from_text"], len, print),
    functools.partial(accuracy),
    lambda p: {"x": float(np.argmax(p.predictions, axis=-1).sum())},
]


@pytest.mark.parametrize("function", LOGITS, ids=lambda f: getattr(f, "__name__", type(f).__name__))
@pytest.mark.parametrize("ndim", [None, 2, 3])
def test_any_other_function_keeps_the_logits(function, ndim):
    assert infer_reduction(function, ndim=ndim) == "logits"


def test_a_file_that_was_edited_after_its_import_is_not_trusted(tmp_path):
    body = "import numpy as np\ndef metric(p):\n    {}\n    return {{'x': float(ids.sum())}}\n"
    path = tmp_path / "edited_metric.py"
    path.write_text(body.format("ids = p.predictions.max(axis=-1)"))
    spec = importlib.util.spec_from_file_location("edited_metric", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["edited_metric"] = module
    spec.loader.exec_module(module)
    path.write_text(body.format("ids = np.argmax(p.predictions, axis=-1)"))
    try:
        assert infer_reduction(module.metric) == "logits"
    finally:
        del sys.modules["edited_metric"]


def test_the_function_is_never_called():
    def fails(p):
        raise RuntimeError(str(np.argmax(p.predictions, axis=-1)))

    assert infer_reduction(fails) == "argmax"


def test_argmax_predictions_refuse_every_other_use():
    shown = ArgmaxPredictions(np.array([[1, -100], [2, 0]]))
    assert shown.argmax(-1).tolist() == [[1, 0], [2, 0]]
    assert np.argmax(shown, 2).tolist() == [[1, 0], [2, 0]]
    shown.argmax(-1)[0, 0] = 9
    assert shown.argmax(-1)[0, 0] == 1
    with pytest.raises(ValueError, match=r"argmax over axis 0 .* set eval_predictions=\"logits\""):
        np.argmax(shown, axis=0)
    with pytest.raises(ValueError, match="argmax over axis None"):
        shown.argmax()
    with pytest.raises(TypeError, match=r"max needs more; set eval_predictions=\"logits\""):
        np.max(shown)
    with pytest.raises(TypeError, match="reading them as an array needs more"):
        np.asarray(shown)
