"""Metrics by name, what they have in common, missing libraries, and two real processes."""

import importlib
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest

from hf_trainplus.evaluation.metrics import AdditiveMetric, Metric, load_metric, metric_names
from tests.evaluation.two_ranks_metrics import made
from tests.support.launch import environment, torchrun

LIBRARIES = {
    "roc_auc": "sklearn",
    "spearmanr": "scipy",
    "seqeval": "seqeval",
    "bleu": "sacrebleu",
    "sacrebleu": "sacrebleu",
    "chrf": "sacrebleu",
    "rouge": "rouge_score",
    "wer": "jiwer",
    "cer": "jiwer",
}
ISSUE_NAMES = (
    "accuracy precision recall f1 matthews_correlation mcc roc_auc auc exact_match perplexity seqeval bleu sacrebleu chrf "
    "rouge wer cer mse mae pearson pearsonr spearman spearmanr token_accuracy"
)


@pytest.mark.parametrize("name", ISSUE_NAMES.split())
def test_every_name_makes_a_metric_with_the_whole_contract(name):
    metric = load_metric(name)
    assert isinstance(metric, Metric)
    assert name in metric_names()
    assert set(metric.compute()) >= {metric.primary}
    assert isinstance(metric.greater_is_better, bool)
    assert metric.form in {"argmax", "logits", "scores", "multihot", "losses"}
    assert metric.statistics is None or metric.statistics >= 2
    assert isinstance(metric, AdditiveMetric) or metric.statistics is None
    copy = pickle.loads(pickle.dumps(metric))
    assert repr(copy) == repr(metric)
    assert type(metric).__name__ in repr(metric)
    copy.load_state_arrays(metric.state_arrays())
    assert all(isinstance(array, np.ndarray) for array in copy.state_arrays().values())
    assert metric.empty_copy().options == metric.options


def test_short_names_are_the_same_metrics():
    for short, name in {"mcc": "matthews_correlation", "auc": "roc_auc", "pearson": "pearsonr"}.items():
        assert type(load_metric(short)) is type(load_metric(name))
        assert load_metric(short).primary == name


def test_directions():
    smaller = {name for name in metric_names() if not load_metric(name).greater_is_better}
    assert smaller == {"wer", "cer", "mse", "mae", "perplexity"}


def test_it_is_a_public_name():
    import hf_trainplus

    assert hf_trainplus.load_metric is load_metric


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="there is no metric 'bertscore'; allowed are accuracy, auc, bleu, cer"):
        load_metric("bertscore")


def test_an_unknown_option_lists_the_known_ones():
    with pytest.raises(TypeError, match="'f1' has no option 'avg'; allowed are average, labels, num_labels, pos_label"):
        load_metric("f1", avg="macro")
    with pytest.raises(TypeError, match="'mae' has no option 'squared'; allowed are none"):
        load_metric("mae", squared=True)


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_missing_library_is_named_when_the_metric_is_made(name, monkeypatch):
    library = LIBRARIES[name]
    for module in [module for module in sys.modules if module.partition(".")[0] == library]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, library, None)
    message = rf'load_metric\("{name}"\) needs {library}, .* run: pip install "hf-trainplus\[metrics\]"'
    with pytest.raises(ImportError, match=message):
        load_metric(name)


def test_metrics_without_a_library_load_none():
    names = [name for name in metric_names() if name not in {*LIBRARIES, "auc", "spearman"}]
    code = (
        "import sys; from hf_trainplus import load_metric\n"
        f"for name in {names}: load_metric(name)\n"
        "found = {'torch', 'transformers', 'sklearn', 'evaluate', 'datasets', 'sacrebleu', 'jiwer'} & set(sys.modules)\n"
        "print(sorted(found))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert done.stdout.strip() == "[]"


def test_options_are_seen_in_what_is_printed_and_a_tokenizer_is_not():
    metric = load_metric("rouge", use_stemmer=True, tokenizer=object())
    assert "use_stemmer=True" in repr(metric)
    assert "object at" not in repr(metric)


def test_a_metric_of_another_kind_is_not_merged():
    with pytest.raises(TypeError, match="Accuracy cannot merge MeanAbsoluteError"):
        load_metric("accuracy").merge(load_metric("mae"))


def test_loading_a_module_of_the_package_shadows_no_library():
    """Modules here are called seqeval and sacrebleu as the libraries are."""
    assert importlib.import_module("seqeval").__name__ == "seqeval"
    assert importlib.import_module("hf_trainplus.evaluation.metrics.seqeval").__name__.startswith("hf_trainplus")


def test_no_warning_is_given_for_what_is_defined():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metric = load_metric("precision")
        metric.update([0, 0], [1, 0])
        assert metric.compute() == {"precision": 0.0}


@pytest.mark.slow
@pytest.mark.distributed
def test_two_ranks_return_what_one_process_returns():
    done = torchrun("tests/evaluation/two_ranks_metrics.py", timeout=200)
    equal = [line.removeprefix("equal ") for line in done.stdout.splitlines() if line.startswith("equal ")]
    assert equal == [*made(), "failure"]
