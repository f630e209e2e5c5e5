"""Whatever a user passes as compute_metrics, through what the evaluation loop does with it."""

import os
import pickle
import re

import datasets
import evaluate
import numpy as np
import pytest
import torch
import torchmetrics
from sklearn import metrics as sk
from torchmetrics.classification import BinaryAccuracy, BinaryAUROC, MulticlassF1Score, MultilabelF1Score
from torchmetrics.text import BLEUScore, CharErrorRate

from hf_trainplus.evaluation.generated_ids import FilledIds
from hf_trainplus.evaluation.metrics import load_metric
from hf_trainplus.evaluation.metrics.adapters import CollectedMetric, MetricReducer, StreamingMetric, as_metric
from hf_trainplus.evaluation.metrics.adapters.reducer import select_rows
from hf_trainplus.evaluation.rows import RowCollector

ROWS, CLASSES = 23, 4


def make(shape=(ROWS, CLASSES), seed=0, masked=0.0):
    rng = np.random.default_rng(seed)
    logits = torch.tensor(rng.normal(size=shape), dtype=torch.float32)
    labels = torch.tensor(np.where(rng.random(shape[:-1]) < masked, -100, rng.integers(0, shape[-1], shape[:-1])))
    return logits, labels


def loop(metric, logits, labels, size=5, fillers=2, **extra):
    """Run a metric as the evaluation loop does: batches with filler rows at their end that do not count.

    Returns the metric's values, and its columns (streaming) or the predictions that were kept (collected).
    """
    collector = RowCollector()
    reducer = MetricReducer([metric]) if isinstance(metric, StreamingMetric) else None
    for start in range(0, len(labels), size):
        rows = np.arange(start, min(start + size, len(labels)))
        filled = np.concatenate([rows, np.full(fillers, rows[0])])
        keep = np.arange(len(filled)) < len(rows)
        batch_logits, batch_labels = logits[filled], labels[filled]
        if reducer is not None:
            reducer.add(rows, keep, batch_logits, batch_labels)
        else:
            collector.add(rows, (metric.reduce(batch_logits, batch_labels), batch_labels), keep)
    if reducer is not None:
        columns = reducer.columns()
        return columns.metrics, columns
    predictions, kept_labels = collector.finish()
    return metric.compute_rows(predictions, kept_labels, **extra), predictions


# ---- our own ----
@pytest.mark.parametrize("name", ["accuracy", "f1", "mcc", "auc"])
def test_own_metrics_are_reduced_a_batch_at_a_time(name):
    logits, labels = make()
    options = {"f1": {"average": "macro"}, "auc": {"multi_class": "ovr"}}.get(name, {})
    adapted = as_metric(load_metric(name, **options), num_labels=CLASSES)
    assert isinstance(adapted, StreamingMetric)
    assert (adapted.sharing, adapted.greater_is_better) == ("states", True)
    ids, true = logits.argmax(-1).numpy(), labels.numpy()
    expected = {
        "accuracy": lambda: sk.accuracy_score(true, ids),
        "f1": lambda: sk.f1_score(true, ids, average="macro"),
        "mcc": lambda: sk.matthews_corrcoef(true, ids),
        "auc": lambda: sk.roc_auc_score(true, logits.double().softmax(-1).numpy(), multi_class="ovr"),
    }[name]()
    for _ in range(2):  # a second evaluation starts anew
        values, columns = loop(adapted, logits, labels)
        assert values == {adapted.primary: pytest.approx(expected)}
    assert columns.index.tolist() == list(range(ROWS))
    if name == "auc":
        payload = columns.statistics["roc_auc"]  # what a race ranks again for some of the rows
        assert payload.shape == (ROWS, CLASSES + 1)
        assert adapted.metric.from_payload(payload) == pytest.approx(expected)
    else:
        totals = columns.statistics[adapted.primary].sum(0)
        assert adapted.metric.from_totals(totals) == pytest.approx(values)
    assert set(columns.scores) == ({"accuracy"} if name == "accuracy" else set())
    if name == "accuracy":
        assert columns.scores["accuracy"].mean() == pytest.approx(expected)


def test_several_metrics_share_one_pass():
    logits, labels = make()
    metrics = [as_metric(load_metric("accuracy")), as_metric(load_metric("f1", average="micro"))]
    reducer = MetricReducer(metrics)
    for start in range(0, ROWS, 6):
        rows = np.arange(start, min(start + 6, ROWS))
        reducer.add(rows, np.ones(len(rows), bool), logits[rows], labels[rows])
    columns = reducer.columns()
    expected = sk.accuracy_score(labels, logits.argmax(-1))
    assert columns.metrics == {"accuracy": pytest.approx(expected), "f1": pytest.approx(expected)}
    assert columns.statistics["f1"].shape == (ROWS, 3)


def test_statistics_too_wide_to_keep_are_summed_only():
    logits, labels = make((ROWS, 60))
    adapted = as_metric(load_metric("f1", average="macro"), num_labels=60)
    values, columns = loop(adapted, logits, labels)
    assert columns.statistics == {}
    assert values["f1"] == pytest.approx(sk.f1_score(labels, logits.argmax(-1), average="macro"))


def test_labels_that_nobody_named_are_found_batch_by_batch():
    logits, labels = make()
    values, columns = loop(as_metric(load_metric("f1", average="weighted")), logits, labels)
    assert columns.statistics == {}
    assert values["f1"] == pytest.approx(sk.f1_score(labels, logits.argmax(-1), average="weighted"))


def test_a_regression_head_is_no_classifier():
    with pytest.raises(ValueError, match=r"shape \(5, 1\), one value a row: that is a regression head"):
        as_metric(load_metric("accuracy")).reduce(torch.zeros(5, 1), torch.zeros(5))


@pytest.mark.parametrize(
    "wrap", [lambda x: (x, torch.zeros(5, 2, 3)), lambda x: {"hidden": 1, "logits": x}, lambda x: [x]]
)
def test_the_main_logits_of_several_outputs_count(wrap):
    logits, labels = make((5, 3))
    reduced = as_metric(load_metric("accuracy")).reduce(wrap(logits), labels)
    assert torch.equal(reduced, logits.argmax(-1))


def test_generated_ids_pass_the_reduction():
    ids = torch.tensor([[3, 4], [5, -100]])
    assert torch.equal(as_metric(load_metric("exact_match")).reduce(ids, None), ids)


def test_multi_hot_labels_are_the_logits_above_zero():
    logits = torch.tensor([[2.0, -1.0], [-3.0, 0.5]])
    adapted = as_metric(load_metric("f1", average="micro", multilabel=True))
    adapted.update(adapted.reduce(logits, None), torch.tensor([[1, 0], [1, 1]]))
    assert adapted.compute()["f1"] == pytest.approx(sk.f1_score([[1, 0], [1, 1]], [[1, 0], [0, 1]], average="micro"))


# ---- functions ----
def tutorial(eval_pred):
    logits, labels = eval_pred
    predictions = np.argmax(logits, axis=-1)
    return {"accuracy": float((predictions == labels).mean()), "zeros": float((predictions == 0).mean())}


def of_logits(eval_pred):
    return {"mean": float(eval_pred.predictions.mean())}


def of_ids(eval_pred):
    return {"kind": eval_pred.predictions.dtype.kind == "i", "mean": float(eval_pred.predictions.mean())}


@pytest.mark.parametrize("masked", [0.0, 0.4])
@pytest.mark.parametrize("shape", [(ROWS, CLASSES), (ROWS, 6, CLASSES)])
def test_an_inferred_function_gets_ids_and_returns_what_it_would_have(shape, masked):
    from transformers import EvalPrediction

    logits, labels = make(shape, masked=masked)
    adapted = as_metric(tutorial)
    assert isinstance(adapted, CollectedMetric)
    values, kept = loop(adapted, logits, labels)
    assert kept.shape == shape[:-1]
    assert kept.dtype == np.int64
    assert adapted.form == "argmax"
    assert values == tutorial(EvalPrediction(logits.numpy(), labels.numpy()))


def test_padding_between_batches_counts_as_it_does_with_logits():
    """Rows of the last batch are shorter; a function that ignores masks sees class 0 there, with ids as with logits."""
    from transformers import EvalPrediction

    collector, full = RowCollector(), RowCollector()
    adapted = as_metric(tutorial)
    for start, length in ((0, 6), (3, 2)):
        logits, labels = make((3, length, CLASSES), seed=start)
        where = np.arange(start, start + 3)
        collector.add(where, (adapted.reduce(logits, labels), labels))
        full.add(where, (logits, labels))
    values = adapted.compute_rows(*collector.finish())
    assert values == tutorial(EvalPrediction(*full.finish()))


def test_a_function_of_the_logits_gets_them():
    logits, labels = make()
    values, kept = loop(as_metric(of_logits), logits, labels)
    assert kept.shape == (ROWS, CLASSES)
    assert values == {"mean": pytest.approx(float(logits.mean()))}


def test_named_reductions_are_done_as_named():
    logits, labels = make()
    values, kept = loop(as_metric(of_ids, eval_predictions="argmax"), logits, labels)
    assert values == {"kind": True, "mean": pytest.approx(float(logits.argmax(-1).double().mean()))}
    _, kept = loop(as_metric(tutorial, eval_predictions="logits"), logits, labels)
    assert kept.shape == (ROWS, CLASSES)


def test_several_heads_ids_and_regression_pass_whole():
    adapted = as_metric(tutorial)
    heads = (torch.zeros(3, 4), torch.ones(3, 4))
    assert adapted.reduce(heads, None) is heads
    assert adapted.form == "logits"
    ids = torch.zeros(3, 4, dtype=torch.int64)
    assert adapted.reduce(ids, None) is ids
    scores = torch.zeros(3)
    assert adapted.reduce(scores, None) is scores


def test_inputs_and_losses_reach_the_function():
    def function(p):
        return {"inputs": float(p.inputs.sum()), "losses": float(p.losses.sum())}

    values = as_metric(function).compute_rows(np.zeros(2), np.zeros(2), inputs=np.ones(2), losses=np.full(2, 0.5))
    assert values == {"inputs": 2.0, "losses": 1.0}


@pytest.mark.parametrize("result", [None, 0.5, [("a", 1)]])
def test_a_function_that_returns_no_dictionary_is_told_so(result):
    with pytest.raises(TypeError, match=f"compute_metrics returned {type(result).__name__}; allowed is a dictionary"):
        as_metric(lambda p: result).compute_rows(np.zeros(2), np.zeros(2))


class BatchAccuracy:
    """A function with state of its own, in upstream's batch_eval_metrics style."""

    def __init__(self):
        self.right, self.rows, self.calls = 0, 0, []

    def __call__(self, eval_pred, compute_result):
        self.calls.append((len(eval_pred.label_ids), compute_result))
        self.right += int((eval_pred.predictions.argmax(-1) == eval_pred.label_ids).sum())
        self.rows += len(eval_pred.label_ids)
        if not compute_result:
            return {}
        result = {"accuracy": self.right / self.rows}
        self.right = self.rows = 0
        return result


def test_batch_functions_see_each_row_once_and_the_last_batch_last():
    logits, labels = make()
    function = BatchAccuracy()
    adapted = as_metric(function)
    assert adapted.sharing == "rows"
    expected = float((logits.argmax(-1) == labels).double().mean())
    for _ in range(2):
        values, _ = loop(adapted, logits, labels)
        assert values == {"accuracy": pytest.approx(expected)}
    assert function.calls == ([(5, False)] * 4 + [(3, True)]) * 2


def test_batch_functions_without_labels_or_rows_are_left_alone():
    function = BatchAccuracy()
    reducer = MetricReducer([as_metric(function)])
    reducer.add(np.array([0]), np.array([True]), torch.zeros(1, 3), None)
    assert reducer.columns().metrics == {}
    assert as_metric(function).compute() == {}
    assert function.calls == []


def test_a_batch_function_is_known_by_its_signature_or_by_name():
    assert as_metric(tutorial).__class__.__name__ == "FunctionMetric"
    assert as_metric(tutorial, batch_eval_metrics=True).__class__.__name__ == "BatchFunctionMetric"
    assert as_metric(lambda p, compute_result=True: {}).__class__.__name__ == "FunctionMetric"


# ---- the evaluate library ----
FEATURES = {
    "ids": {"predictions": datasets.Value("int32"), "references": datasets.Value("int32")},
    "scores": {"predictions": datasets.Value("float"), "references": datasets.Value("float")},
    "class_scores": {
        "prediction_scores": datasets.Sequence(datasets.Value("float")),
        "references": datasets.Value("int32"),
    },
    "labels": {key: datasets.Sequence(datasets.Value("int32")) for key in ("predictions", "references")},
    "texts": {key: datasets.Value("string") for key in ("predictions", "references")},
    "tags": {key: datasets.Sequence(datasets.Value("string")) for key in ("predictions", "references")},
    "images": {key: datasets.Value("binary") for key in ("predictions", "references")},
}


class Recorded(evaluate.Metric):
    """An object of the evaluate library that returns what it was given."""

    def _info(self):
        features = datasets.Features(FEATURES[self.config_name])
        return evaluate.MetricInfo(description="", citation="", inputs_description="", features=features)

    def _compute(self, references, **inputs):
        (predictions,) = inputs.values()
        return {"predictions": np.asarray(predictions).tolist(), "references": np.asarray(references).tolist()}


def recorded(kind, folder, **options):
    return Recorded(config_name=kind, cache_dir=str(folder), **options)


def files_of(folder):
    return [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names]


def test_evaluate_objects_get_ids_once_and_touch_no_file(tmp_path, monkeypatch):
    logits, labels = make((ROWS, 6, CLASSES), masked=0.3)
    metric = recorded("ids", tmp_path, num_process=2, process_id=1)
    before = dict(vars(metric))
    opened = []
    monkeypatch.setattr(evaluate.module.FileLock, "acquire", lambda *args, **kwargs: opened.append(args))
    for _ in range(2):
        values, kept = loop(as_metric(metric), logits, labels)
    assert opened == []
    assert files_of(tmp_path) == []
    assert kept.shape == (ROWS, 6)
    assert {key: vars(metric)[key] for key in ("keep_in_memory", "num_process", "process_id")} == {
        key: before[key] for key in ("keep_in_memory", "num_process", "process_id")
    }
    counted = labels != -100
    assert values["references"] == labels[counted].tolist()
    assert values["predictions"] == logits.argmax(-1)[counted].tolist()


def test_evaluate_objects_get_scores(tmp_path):
    logits, labels = make((ROWS, 1))
    values, _ = loop(as_metric(recorded("scores", tmp_path)), logits, labels.float())
    np.testing.assert_array_equal(values["predictions"], logits[:, 0])

    logits, labels = make((ROWS, 3))
    values, _ = loop(as_metric(recorded("class_scores", tmp_path)), logits, labels)
    np.testing.assert_allclose(values["predictions"], logits.softmax(-1), rtol=1e-6)


def test_evaluate_objects_get_multi_hot_labels(tmp_path):
    logits, labels = torch.tensor([[0.3, -2.0], [-1.0, 4.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    values, _ = loop(as_metric(recorded("labels", tmp_path)), logits, labels)
    assert values == {"predictions": [[1, 0], [0, 1]], "references": [[1, 0], [0, 1]]}


class Letters:
    def batch_decode(self, rows, *, skip_special_tokens):
        if any(token < 0 for row in rows for token in row):
            raise OverflowError("a negative id reached the decoder")
        return ["".join("abcdefgh"[token] for token in row) for row in rows]


def test_evaluate_objects_get_texts_and_tags(tmp_path):
    ids, labels = torch.tensor([[0, 1, 2], [3, 0, -100]]), torch.tensor([[0, 1, -100], [3, 3, 3]])
    values, _ = loop(as_metric(recorded("texts", tmp_path), tokenizer=Letters()), ids, labels)
    assert values == {"predictions": ["abc", "da"], "references": ["ab", "ddd"]}
    with pytest.raises(
        ValueError, match=r"recorded takes texts and no tokenizer is known; use as_metric\(metric, token"
    ):
        as_metric(recorded("texts", tmp_path))

    names = ["O", "B-X", "I-X", "B-Y"]
    predicted = torch.tensor([[0, 1, 2], [3, 0, 1]])
    metric = as_metric(recorded("tags", tmp_path), label_names=names)
    rows = metric.compute_rows(predicted.numpy(), np.array([[0, 1, -100], [3, -100, 2]]))
    assert rows["predictions"] == [["O", "B-X"], ["B-Y", "B-X"]]
    assert rows["references"] == [["O", "B-X"], ["B-Y", "I-X"]]
    with pytest.raises(ValueError, match="takes tags and no tag names is known"):
        as_metric(recorded("tags", tmp_path))


def test_combined_evaluate_objects_are_computed_together(tmp_path):
    logits, labels = make()
    both = evaluate.combine({"one": recorded("ids", tmp_path), "two": recorded("ids", tmp_path)})
    values, _ = loop(as_metric(both), logits, labels)
    assert set(values) == {"one_predictions", "one_references", "two_predictions", "two_references"}
    assert values["two_predictions"] == logits.argmax(-1).tolist()
    mixed = evaluate.combine([recorded("ids", tmp_path), recorded("scores", tmp_path)])
    with pytest.raises(ValueError, match=r"take different inputs \(ids, scores\); combine metrics of one kind"):
        as_metric(mixed)


def test_evaluate_objects_of_unknown_inputs_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"declared as .*'binary'.* which is none of class ids, scores"):
        as_metric(recorded("images", tmp_path))


# ---- torchmetrics ----
def test_torchmetrics_objects_see_one_batch_at_a_time():
    logits, labels = make()
    given = MulticlassF1Score(CLASSES, average="macro")
    adapted = as_metric(given)
    assert (adapted.sharing, adapted.primary, adapted.greater_is_better) == ("itself", "f1_score", True)
    for _ in range(2):
        values, _ = loop(adapted, logits, labels)
        assert float(values["f1_score"]) == pytest.approx(sk.f1_score(labels, logits.argmax(-1), average="macro"))
    assert given.update_count == 0  # the user's own object is left alone


def test_torchmetrics_drop_masked_tokens():
    logits, labels = make((ROWS, 6, CLASSES), masked=0.4)
    labels[:5] = -100  # a batch without a target
    values, _ = loop(
        as_metric(torchmetrics.Accuracy(task="multiclass", num_classes=CLASSES, average="micro")), logits, labels
    )
    counted = labels != -100
    expected = (logits.argmax(-1) == labels)[counted].double().mean()
    assert float(values["accuracy"]) == pytest.approx(float(expected))


def test_torchmetrics_binary_metrics_take_two_columns():
    logits, labels = make((ROWS, 2))
    values, _ = loop(as_metric(BinaryAUROC()), logits, labels)
    assert float(values["auroc"]) == pytest.approx(sk.roc_auc_score(labels, logits.softmax(-1)[:, 1]), abs=1e-6)
    values, _ = loop(as_metric(torchmetrics.MetricCollection([BinaryAccuracy()])), logits, labels)
    assert float(values["BinaryAccuracy"]) == pytest.approx(sk.accuracy_score(labels, logits.argmax(-1)))


def test_torchmetrics_regression_and_multi_label():
    logits, labels = make((ROWS, 1))
    values, _ = loop(as_metric(torchmetrics.MeanSquaredError()), logits, labels.float() + 0.5)
    assert float(values["mean_squared_error"]) == pytest.approx(
        float(((logits[:, 0] - labels - 0.5) ** 2).mean()), rel=1e-5
    )
    logits = make((ROWS, CLASSES))[0]
    targets = (make((ROWS, CLASSES), seed=5)[0] > 0).float()
    values, _ = loop(as_metric(MultilabelF1Score(CLASSES)), logits, targets)
    assert float(values["f1_score"]) == pytest.approx(sk.f1_score(targets, logits > 0, average="macro"), abs=1e-6)


def test_torchmetrics_of_texts_get_decoded_texts():
    ids, labels = torch.tensor([[0, 1, 2], [3, 0, -100]]), torch.tensor([[0, 1, -100], [3, 3, 3]])
    adapted = as_metric(CharErrorRate(), tokenizer=Letters())
    values, _ = loop(adapted, ids, labels)
    assert float(values["char_error_rate"]) == pytest.approx((1 + 2) / 5)
    assert adapted.greater_is_better is False
    with pytest.raises(ValueError, match="BLEUScore takes texts and no tokenizer is known"):
        as_metric(BLEUScore())


# ---- what is passed and what is not ----
@pytest.mark.parametrize("given", [None, 3, "accuracy", MulticlassF1Score, {"accuracy": 1}])
def test_anything_else_is_refused_with_what_is_allowed(given):
    with pytest.raises(
        TypeError, match=re.escape(f"compute_metrics was given {given!r}; allowed are load_metric(...)")
    ):
        as_metric(given)


def test_an_unknown_reduction_is_refused():
    with pytest.raises(
        ValueError, match="eval_predictions was given 'softmax'; allowed are None, 'argmax' and 'logits'"
    ):
        as_metric(tutorial, eval_predictions="softmax")


def test_states_are_gathered_of_those_that_have_them_only():
    def gathered(adapted):
        asked = []
        adapted.bring_together(lambda value: asked.append(value) or [value, value])
        return asked

    assert gathered(as_metric(BatchAccuracy())) == []  # it is given the rows of all ranks
    own = as_metric(load_metric("accuracy"))
    own.update(np.array([1, 0, 1]), np.array([1, 1, 1]))
    for metric in (own, FilledIds(own, pad_id=0)):
        before = own.metric.state_arrays()
        assert len(gathered(metric)) == 1
        after = own.metric.state_arrays()
        assert all(np.array_equal(2 * before[name], after[name]) for name in before)


def test_rows_are_selected_in_any_tree():
    keep = np.array([True, False, True])
    tree = {"a": (torch.tensor([1, 2, 3]), np.array([4, 5, 6])), "b": ["x", "y", "z"], "c": None}
    chosen = select_rows(tree, keep)
    assert chosen["a"][0].tolist() == [1, 3]
    assert chosen["a"][1].tolist() == [4, 6]
    assert chosen["b"] == ["x", "z"]
    assert chosen["c"] is None
    assert select_rows(tree, np.array([True] * 3)) is tree


def test_a_batch_of_fillers_alone_counts_nothing():
    adapted = as_metric(load_metric("accuracy"))
    reducer = MetricReducer([adapted])
    reducer.add(np.empty(0, int), np.array([False, False]), torch.tensor([1, 1]), torch.tensor([1, 1]))
    columns = reducer.columns()
    assert (columns.metrics, columns.statistics, columns.scores, len(columns.index)) == ({}, {}, {}, 0)


def test_one_process_raises_where_the_metric_fails():
    reducer = MetricReducer([as_metric(load_metric("f1"))])
    with pytest.raises(ValueError, match=r"classes \[0, 1, 2\] occur"):
        reducer.add(np.arange(3), np.ones(3, bool), torch.tensor([0, 1, 2]), torch.tensor([0, 1, 2]))


def test_the_state_of_a_metric_is_small_whatever_the_rows():
    adapted = as_metric(load_metric("f1", average="macro", num_labels=CLASSES))
    sizes = set()
    for rows in (50, 5000):
        loop(adapted, *make((rows, CLASSES)), size=500)
        sizes.add(len(pickle.dumps(adapted.metric.state_arrays())))
    assert len(sizes) == 1
    assert sizes.pop() < 1000
