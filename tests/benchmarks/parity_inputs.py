"""Seeded inputs and options of the cases that record_metric_parity.py records."""

from __future__ import annotations

from typing import Any

import numpy as np

_SENTENCES = """
the a cat dog sat ran on under mat river bank, quickly. slowly! 3.5 1,000 don't well-known (maybe) "yes" New York
café naïve x-ray U.S. e.g. twenty-one; and or not is was were
cats running runs banks
"""
_WORDS = _SENTENCES.split()
_TYPES = ("PER", "LOC", "ORG-X", "MISC")
TEXTS = ["the cat sat on the mat", "a dog ran", "the river bank was not well-known", "x-ray", "New York is twenty-one"]


def make_inputs() -> dict[str, dict[str, Any]]:
    """Return name -> predictions and references as plain lists; real numbers are float32, which the scripts cast to."""
    rng = np.random.default_rng(20240)
    return {
        "binary": _classes(rng, 97, 2),
        "one_class_predicted": {"predictions": [0] * 40, "references": rng.integers(0, 2, 40).tolist()},
        "multiclass": _classes(rng, 151, 5),
        "rare_class": _classes(rng, 60, 4, [0.6, 0.3, 0.08, 0.02]),
        "multilabel": {key: rng.integers(0, 2, (63, 4)).tolist() for key in ("predictions", "references")},
        "binary_scores": _binary_scores(rng, 120),
        "class_probabilities": _probabilities(rng, 120, 4),
        "label_scores": {
            "predictions": rng.random((80, 3), dtype=np.float32).tolist(),
            "references": rng.integers(0, 2, (80, 3)).tolist(),
        },
        "regression": _regression(rng, (111,), 0.0),
        "regression_offset": _regression(rng, (111,), 1000.0),
        "regression_outputs": _regression(rng, (57, 3), 0.0),
        "tied_scores": {key: np.round(rng.normal(size=90) * 2).tolist() for key in ("predictions", "references")},
        "texts": _texts(rng, 60, 1),
        "two_references": _texts(rng, 40, 2),
        "short_texts": {"predictions": ["yes", "the cat", "no"], "references": ["yes", "the cat", "on"]},
        "answers": {
            "predictions": ["The cat.", "12 dogs", "a  b", "New York!", "é", "x1"],
            "references": ["the cat", "13 dogs", "a b", "New York", "É", "x2"],
        },
        "tags": _tags(rng, 70, "{mark}-{kind}"),
        "tags_suffix": _tags(rng, 40, "{kind}-{mark}"),
    }


def _classes(rng: np.random.Generator, n: int, classes: int, shares: list[float] | None = None) -> dict[str, Any]:
    true = rng.choice(classes, n, p=shares)
    predicted = np.where(rng.random(n) < 0.6, true, rng.integers(0, classes, n))
    return {"predictions": predicted.tolist(), "references": true.tolist()}


def _binary_scores(rng: np.random.Generator, n: int) -> dict[str, Any]:
    true = rng.integers(0, 2, n)
    scores = np.round(rng.normal(size=n) + true, 1).astype(np.float32)
    return {"predictions": scores.tolist(), "references": true.tolist()}


def _probabilities(rng: np.random.Generator, n: int, classes: int) -> dict[str, Any]:
    true = rng.integers(0, classes, n)
    powers = np.exp(rng.normal(size=(n, classes)) + np.eye(classes)[true])
    return {
        "predictions": (powers / powers.sum(1, keepdims=True)).astype(np.float32).tolist(),
        "references": true.tolist(),
    }


def _regression(rng: np.random.Generator, shape: tuple[int, ...], offset: float) -> dict[str, Any]:
    true = rng.normal(size=shape) + offset
    predicted = true + rng.normal(size=shape)
    return {
        "predictions": predicted.astype(np.float32).tolist(),
        "references": true.astype(np.float32).tolist(),
    }


def _texts(rng: np.random.Generator, n: int, references: int) -> dict[str, Any]:
    predicted, true = [], []
    for _ in range(n):
        words = rng.choice(_WORDS, rng.integers(3, 15)).tolist()
        versions = [_edited(rng, words) for _ in range(references)]
        predicted.append(" ".join(words))
        true.append(versions[0] if references == 1 else versions)
    return {"predictions": predicted, "references": true}


def _edited(rng: np.random.Generator, words: list[str]) -> str:
    kept = [str(rng.choice(_WORDS)) if rng.random() < 0.25 else word for word in words if rng.random() > 0.1]
    return " ".join([*kept, str(rng.choice(_WORDS))])


def _tags(rng: np.random.Generator, n: int, pattern: str) -> dict[str, Any]:
    rows: dict[str, Any] = {"predictions": [], "references": []}
    for _ in range(n):
        true = [_tag(rng, pattern) for _ in range(rng.integers(1, 14))]
        rows["references"].append(true)
        rows["predictions"].append([_tag(rng, pattern) if rng.random() < 0.25 else tag for tag in true])
    return rows


def _tag(rng: np.random.Generator, pattern: str) -> str:
    if rng.random() < 0.4:
        return "O"
    return pattern.format(mark=rng.choice(["B", "I"]), kind=rng.choice(_TYPES))


def _case(metric: str, inputs: str, config: str | None = None, **options: Any) -> dict[str, Any]:
    """Return a case whose options have the same names on both sides; ``config`` is the script's configuration."""
    ours = options | ({"multilabel": True} if config == "multilabel" else {})
    return {"metric": metric, "inputs": inputs, "config": config, "options": ours, "evaluate_options": options}


def _averaged(metric: str) -> list[dict[str, Any]]:
    cases = [_case(metric, "binary"), _case(metric, "one_class_predicted"), _case(metric, "binary", pos_label=0)]
    for average in ("micro", "macro", "weighted"):
        cases += [_case(metric, name, average=average) for name in ("multiclass", "rare_class", "binary")]
        cases += [_case(metric, "multiclass", average=average, labels=[1, 3])]
        cases += [_case(metric, "multilabel", "multilabel", average=average)]
    return [*cases, _case(metric, "multilabel", "multilabel", average="samples")]


CASES: list[dict[str, Any]] = [
    _case("accuracy", "binary"),
    _case("accuracy", "multiclass"),
    _case("accuracy", "multilabel", "multilabel"),
    *(case for metric in ("precision", "recall", "f1") for case in _averaged(metric)),
    _case("precision", "one_class_predicted", zero_division=1),
    _case("matthews_correlation", "binary"),
    _case("matthews_correlation", "multiclass"),
    _case("matthews_correlation", "one_class_predicted"),
    _case("roc_auc", "binary_scores"),
    _case("roc_auc", "binary_scores", max_fpr=0.3),
    *(
        _case("roc_auc", "class_probabilities", "multiclass", multi_class=way, average=average)
        for way in ("ovr", "ovo")
        for average in ("macro", "weighted")
    ),
    *(_case("roc_auc", "label_scores", "multilabel", average=average) for average in ("macro", "micro", "weighted")),
    _case("mse", "regression"),
    _case("mse", "regression", squared=False),
    _case("mse", "regression_outputs", "multilist"),
    _case("mae", "regression"),
    _case("mae", "regression_outputs", "multilist"),
    *(_case(metric, name) for metric in ("pearsonr", "spearmanr") for name in ("regression", "regression_offset")),
    _case("pearsonr", "tied_scores"),
    _case("spearmanr", "tied_scores"),
    _case("exact_match", "answers"),
    _case("exact_match", "answers", ignore_case=True, ignore_punctuation=True, ignore_numbers=True),
    _case("exact_match", "answers", regexes_to_ignore=["[Tt]he ", "\\d"]),
    _case("seqeval", "tags"),
    _case("seqeval", "tags", mode="strict", scheme="IOB2"),
    _case("seqeval", "tags", scheme="IOB2"),
    _case("seqeval", "tags_suffix", suffix=True),
    *(_case(metric, name) for metric in ("bleu", "sacrebleu", "chrf") for name in ("texts", "two_references")),
    _case("bleu", "short_texts"),
    _case("bleu", "short_texts", smooth=True),
    _case("bleu", "two_references", max_order=2),
    _case("sacrebleu", "short_texts"),
    _case("sacrebleu", "texts", lowercase=True, tokenize="intl", smooth_method="add-k", smooth_value=0.5),
    _case("sacrebleu", "short_texts", use_effective_order=True, smooth_method="floor"),
    _case("chrf", "texts", word_order=2, lowercase=True, whitespace=True),
    _case("chrf", "short_texts", eps_smoothing=True),
    *(_case("rouge", name, use_stemmer=stem) for name in ("texts", "two_references") for stem in (False, True)),
    _case("wer", "texts"),
    _case("cer", "texts"),
]
# the aggregated value is a median of unseeded bootstrap means, so that the rows are recorded beside it
CASES += [
    case | {"evaluate_options": case["evaluate_options"] | {"use_aggregator": False}}
    for case in CASES
    if case["metric"] == "rouge"
]
