"""Metrics of texts and tags: ids are decoded safely, rows are additive, and what is refused."""

import pickle

import jiwer
import numpy as np
import pytest
import sacrebleu
import torch
from seqeval.metrics import classification_report

from hf_trainplus.evaluation.metrics import load_metric

TEXT_METRICS = ["exact_match", "bleu", "sacrebleu", "chrf", "rouge", "wer", "cer"]
WORDS = ["<pad>", "<s>", "the", "cat", "sat", "on", "a", "mat"]


class WordTokenizer:
    """Decodes ids to words and fails on what a real decoder fails on."""

    def batch_decode(self, sequences, *, skip_special_tokens):
        for row in sequences:
            if any(token < 0 or token >= len(WORDS) for token in row):
                raise OverflowError(f"out of range integral type conversion attempted: {row}")
        return [" ".join(WORDS[token] for token in row if token > 1 or not skip_special_tokens) for row in sequences]


PREDICTED = np.array([[1, 2, 3, 4, -100, -100], [2, 7, 4, 5, 2, 7], [6, 3, 0, 0, 0, 0]])
TRUE = np.array([[2, 3, 4, 5, -100, -100], [2, 7, 4, 5, 6, 7], [6, 3, -100, -100, -100, -100]])
PREDICTED_TEXTS = ["the cat sat", "the mat sat on the mat", "a cat"]
TRUE_TEXTS = ["the cat sat on", "the mat sat on a mat", "a cat"]


@pytest.mark.parametrize("name", TEXT_METRICS)
@pytest.mark.parametrize("kind", ["arrays", "tensors", "lists"])
def test_ids_are_decoded_and_no_negative_id_reaches_the_decoder(name, kind):
    make = {"arrays": np.array, "tensors": torch.tensor, "lists": np.ndarray.tolist}[kind]
    texts, ids = load_metric(name), load_metric(name, tokenizer=WordTokenizer())
    texts.update(PREDICTED_TEXTS, TRUE_TEXTS)
    ids.update(make(PREDICTED), make(TRUE))
    assert ids.compute() == texts.compute()
    mixed = load_metric(name)
    mixed.bind(tokenizer=WordTokenizer())
    mixed.update(make(PREDICTED), TRUE_TEXTS)
    assert mixed.compute() == texts.compute()


@pytest.mark.parametrize("name", TEXT_METRICS)
def test_ids_without_a_tokenizer_are_refused_with_the_line_that_helps(name):
    with pytest.raises(ValueError, match=rf'predictions as ids and knows no tokenizer; .* load_metric\("{name}", tok'):
        load_metric(name).update(PREDICTED, TRUE)


@pytest.mark.parametrize("name", TEXT_METRICS)
def test_texts_may_be_arrays_and_may_be_cleaned(name):
    plain, cleaned = load_metric(name), load_metric(name, postprocess=str.strip)
    plain.update(np.array(PREDICTED_TEXTS), np.array(TRUE_TEXTS, dtype=object))
    cleaned.update([f"  {text}\n" for text in PREDICTED_TEXTS], [f"\t{text} " for text in TRUE_TEXTS])
    assert cleaned.compute() == plain.compute()


@pytest.mark.parametrize("name", TEXT_METRICS)
def test_no_rows_and_unequal_rows(name):
    metric = load_metric(name)
    assert np.isnan(metric.compute()[metric.primary])
    assert metric.example_statistics([], []).shape == (0, metric.statistics)
    metric.update([], [])
    assert np.isnan(metric.compute()[metric.primary])
    with pytest.raises(ValueError, match=f"{name} was given 2 predictions and 1 references; give one each a row"):
        metric.update(["a", "b"], ["a"])


@pytest.mark.parametrize("name", ["exact_match", "wer", "cer"])
def test_several_references_are_refused_where_one_is_allowed(name):
    with pytest.raises(ValueError, match=rf"{name} was given several references for a row, e.g. \['a', 'b'\]"):
        load_metric(name).update(["a"], [["a", "b"]])


@pytest.mark.parametrize("name", ["bleu", "sacrebleu", "chrf"])
def test_rows_have_the_same_number_of_references(name):
    with pytest.raises(ValueError, match=rf"{name} was given rows of \[1, 2\] references"):
        load_metric(name).update(["a", "b"], [["a"], ["a", "b"]])


@pytest.mark.parametrize("name", ["sacrebleu", "chrf"])
def test_statistics_scored_by_sacrebleu_itself_agree(name):
    """The counts come from a method that sacrebleu does not call public; this fails when a release changes it."""
    rows = load_metric(name).example_statistics(PREDICTED_TEXTS, TRUE_TEXTS)
    corpus = {"sacrebleu": sacrebleu.corpus_bleu, "chrf": sacrebleu.corpus_chrf}[name]
    value = load_metric(name).from_totals(rows.sum(0))[name]
    assert value == pytest.approx(corpus(PREDICTED_TEXTS, [TRUE_TEXTS]).score, abs=1e-9)
    for row, text, target in zip(rows, PREDICTED_TEXTS, TRUE_TEXTS, strict=True):
        assert load_metric(name).from_totals(row)[name] == pytest.approx(corpus([text], [[target]]).score, abs=1e-9)


@pytest.mark.parametrize("name", ["sacrebleu", "bleu", "chrf", "wer", "cer"])
def test_the_score_is_smooth_in_weighted_totals(name):
    """A delta method asks for derivatives at weighted sums: no length may be cut to a whole number."""
    metric = load_metric(name)
    totals = metric.example_statistics(PREDICTED_TEXTS, TRUE_TEXTS).sum(0) + 0.37
    steps = np.eye(len(totals)) * 1e-6
    slopes = (metric.primary_from_totals(totals + steps) - metric.primary_from_totals(totals - steps)) / 2e-6
    coarse = (
        metric.primary_from_totals(totals + 100 * steps) - metric.primary_from_totals(totals - 100 * steps)
    ) / 2e-4
    np.testing.assert_allclose(slopes, coarse, rtol=1e-4, atol=1e-6)
    assert np.abs(slopes).max() > 0


@pytest.mark.parametrize("name", TEXT_METRICS)
def test_objects_can_be_pickled_after_use(name):
    metric = load_metric(name, tokenizer=WordTokenizer(), postprocess=str.strip)
    metric.update(PREDICTED, TRUE)
    copy = pickle.loads(pickle.dumps(metric))
    copy.update(PREDICTED_TEXTS, TRUE_TEXTS)
    metric.update(PREDICTED_TEXTS, TRUE_TEXTS)
    assert copy.compute() == metric.compute()


def test_error_rates_count_edits_of_the_corpus():
    metric = load_metric("wer")
    metric.update(PREDICTED_TEXTS, TRUE_TEXTS)
    assert metric.compute()["wer"] == pytest.approx(jiwer.wer(TRUE_TEXTS, PREDICTED_TEXTS))
    assert metric.example_statistics(PREDICTED_TEXTS, TRUE_TEXTS).tolist() == [[1, 4], [1, 6], [0, 2]]
    assert metric.greater_is_better is False
    silence = load_metric("wer")
    silence.update(["noise"], [""])
    assert np.isnan(silence.compute()["wer"])
    silence.update(["yes"], ["yes"])
    assert silence.compute()["wer"] == 1.0


def test_rouge_names_its_types_and_takes_a_word_tokenizer():
    metric = load_metric("rouge", rouge_types=["rouge2"], word_tokenizer=str.split)
    assert metric.primary == "rouge2"
    metric.update(["Ä ö ü", "x"], ["Ä ö y", "x"])
    assert metric.compute() == {"rouge2": pytest.approx((0.5 + 0) / 2)}
    with pytest.raises(ValueError, match="no rouge_types; give some of rouge1"):
        load_metric("rouge", rouge_types=[])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("sacrebleu", {"smooth_method": "magic"}, "smooth_method='magic' .* allowed are none, floor, add-k, exp"),
        ("sacrebleu", {"tokenize": "martian"}, "tokenize='martian'; allowed are"),
        ("bleu", {"max_order": 0}, "max_order=0; give the length of the longest n-gram"),
        ("seqeval", {"scheme": "XYZ"}, "scheme='XYZ' and mode=None; allowed are mode=None, and mode='strict' with"),
        ("seqeval", {"mode": "strict"}, "scheme=None and mode='strict'"),
        ("seqeval", {"zero_division": 2}, "zero_division=2; allowed are 0 and 1"),
    ],
)
def test_options_are_checked_when_the_metric_is_made(name, options, message):
    with pytest.raises(ValueError, match=message):
        load_metric(name, **options)


# ---- tags ----
NAMES = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def random_tag_ids(rng, rows=30, length=9):
    true = rng.integers(0, 5, (rows, length))
    predicted = np.where(rng.random(true.shape) < 0.7, true, rng.integers(0, 5, true.shape))
    true[rng.random(true.shape) < 0.2] = -100
    true[0] = -100
    return predicted, true


def as_tags(ids, true):
    return [
        [NAMES[i] for i, t in zip(row, wanted, strict=True) if t != -100] for row, wanted in zip(ids, true, strict=True)
    ]


def test_tag_ids_are_masked_named_and_counted_as_seqeval_counts_them():
    predicted, true = random_tag_ids(np.random.default_rng(0))
    report = classification_report(as_tags(true, true), as_tags(predicted, true), output_dict=True)
    metric = load_metric("seqeval", label_names=NAMES)
    for start in range(0, 30, 8):
        metric.update(torch.tensor(predicted[start : start + 8]), torch.tensor(true[start : start + 8]))
    values = metric.compute()
    for kind in ("PER", "LOC"):
        assert values[f"{kind}_precision"] == pytest.approx(report[kind]["precision"])
        assert values[f"{kind}_recall"] == pytest.approx(report[kind]["recall"])
        assert values[f"{kind}_f1"] == pytest.approx(report[kind]["f1-score"])
        assert values[f"{kind}_number"] == report[kind]["support"]
    assert values["overall_f1"] == pytest.approx(report["micro avg"]["f1-score"])
    assert values["overall_accuracy"] == pytest.approx((predicted == true)[true != -100].mean())


def test_tag_statistics_have_fixed_columns_once_the_names_are_known():
    predicted, true = random_tag_ids(np.random.default_rng(1))
    metric = load_metric("seqeval")
    assert metric.statistics is None
    with pytest.raises(ValueError, match=r'need the tags: load_metric\("seqeval", label_names'):
        metric.example_statistics(predicted, true)
    with pytest.raises(ValueError, match="class ids and no names"):
        metric.update(predicted, true)
    metric.bind(label_names=NAMES)
    assert metric.known_types == ["LOC", "PER"]
    rows = metric.example_statistics(predicted, true)
    assert rows.shape == (30, 8)
    assert rows[0].tolist() == [0] * 8
    metric.update(predicted, true)
    assert metric.from_totals(rows.sum(0)) == metric.compute()
    assert float(metric.primary_from_totals(rows.sum(0))) == pytest.approx(metric.compute()["overall_f1"])
    empty = metric.empty_copy()
    assert np.isnan(empty.compute()["overall_f1"])
    assert np.isnan(empty.primary_from_totals(np.zeros(8)))


def test_types_found_on_one_rank_only_are_merged():
    first, second = load_metric("seqeval"), load_metric("seqeval")
    first.update([["B-PER", "O"]], [["B-PER", "O"]])
    second.update([["B-LOC", "O"]], [["O", "B-ORG"]])
    first.merge_states([first.state_arrays(), second.state_arrays()])
    values = first.compute()
    assert {key for key in values if key.endswith("number")} == {"PER_number", "LOC_number", "ORG_number"}
    assert values["overall_precision"] == 0.5


@pytest.mark.parametrize(
    ("predicted", "true", "message"),
    [
        ([["O"]], [["O"], ["O"]], "1 predictions and 2 references"),
        ([["O"]], [["O", "O"]], "a row of 1 predicted and 2 true tags; give one each"),
    ],
)
def test_unequal_tags_are_refused(predicted, true, message):
    with pytest.raises(ValueError, match=message):
        load_metric("seqeval").update(predicted, true)
