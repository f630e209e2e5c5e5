"""Tokenizers, collators, metrics and models inside functions are told apart by what they do."""

import functools
import os
import subprocess
import sys

import evaluate
import pytest
import torch
import torchmetrics
from datasets import Dataset, Features, Value
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    DataCollatorForLanguageModeling,
    DataCollatorForSeq2Seq,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
)

from hf_trainplus import load_metric
from hf_trainplus.evaluation.fingerprints import ObjectFingerprints
from hf_trainplus.identity import UnknownIdentityError
from tests.support import tiny
from tests.support.launch import ROOT, environment


def of(value, **options):
    return ObjectFingerprints().of(value, **options)


def tokenizer(words=("a", "b"), **options):
    vocabulary = {word: k for k, word in enumerate(["[PAD]", "[UNK]", *words])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, **{"pad_token": "[PAD]", "unk_token": "[UNK]", "padding_side": "right", **options}
    )


def test_tokenizers_differ_by_vocabulary_and_options():
    versions = [tokenizer(), tokenizer(("b", "a")), tokenizer(("a", "c")), tokenizer(padding_side="left")]
    versions += [tokenizer(pad_token="a"), tokenizer(model_max_length=3), tokenizer(chat_template="{{ messages }}")]
    found = [of(version) for version in versions]
    assert len(set(found)) == len(found)
    grown = tokenizer()
    grown.add_tokens(["c"])
    assert of(grown) not in found


def test_using_a_tokenizer_does_not_change_it():
    used = tokenizer()
    before = of(used)
    used(["a b", "a"], padding=True, truncation=True, max_length=2)
    used.pad([{"input_ids": [2]}, {"input_ids": [2, 3]}], return_tensors="pt")
    used.decode([2, 3])
    assert of(used) == before == of(tokenizer())


def test_collators_differ_by_class_options_and_tokenizer():
    one, left = tokenizer(), tokenizer(padding_side="left")
    versions = [DataCollatorWithPadding(one), DataCollatorWithPadding(left), DataCollatorWithPadding(one, max_length=3)]
    versions += [
        DataCollatorWithPadding(one, pad_to_multiple_of=8),
        DataCollatorForSeq2Seq(one),
        DataCollatorForSeq2Seq(left),
    ]
    versions += [DataCollatorForSeq2Seq(one, label_pad_token_id=0), DataCollatorForLanguageModeling(one, mlm=False)]
    versions += [tiny.PaddingCollator(), tiny.PaddingCollator("left"), tiny.PaddingCollator(extra=1), len, None]
    found = [of(version) for version in versions]
    assert len(set(found)) == len(found)


def test_a_collator_that_masks_at_random_is_refused():
    with pytest.raises(UnknownIdentityError, match="DataCollatorForLanguageModeling masks at random"):
        of(DataCollatorForLanguageModeling(tokenizer(mask_token="a")))


def test_the_evaluated_model_counts_once_and_another_one_by_its_weights():
    model = tiny.bert()
    collators = [DataCollatorForSeq2Seq(tokenizer(), model=each) for each in (model, tiny.bert(seed=1))]
    assert of(collators[0], model=model) == of(collators[0], model=model)
    with torch.no_grad():
        next(model.parameters()).add_(1)
    inside, before = of(collators[0], model=model), of(collators[1], model=model)
    with torch.no_grad():
        next(model.parameters()).add_(1)
        next(collators[1].model.parameters()).add_(1)
    assert of(collators[0], model=model) == inside
    assert of(collators[1], model=model) != before


def test_metrics_differ_by_name_and_options_not_by_rows_seen():
    versions = [
        load_metric("accuracy"),
        load_metric("f1"),
        load_metric("f1", average="macro"),
        load_metric("precision"),
    ]
    versions += [
        load_metric("f1", num_labels=3),
        load_metric("f1", labels=[1], average="micro"),
        load_metric("mse"),
        load_metric("mae"),
    ]
    versions += [[load_metric("accuracy"), load_metric("f1")], [load_metric("f1"), load_metric("accuracy")]]
    found = [of(version) for version in versions]
    assert len(set(found)) == len(found)
    used = load_metric("f1", average="macro")
    used.update([0, 1], [1, 1])
    assert of(used) == found[2]


def test_a_function_among_the_options_of_a_metric_counts():
    texts = [load_metric("exact_match", **({"postprocess": f} if f else {})) for f in (None, str.lower, str.upper)]
    functions = [load_metric("exact_match", postprocess=lambda text, k=k: text[k:]) for k in (1, 2)]
    found = [of(metric) for metric in texts + functions]
    assert len(set(found)) == len(found)


def test_a_users_own_metric_class_counts_by_its_code():
    def version(factor):
        class Scaled(type(load_metric("accuracy"))):
            def compute(self):
                return {name: factor * value for name, value in super().compute().items()}

        return Scaled()

    assert of(version(1)) != of(version(2))
    assert of(version(1)) == of(version(1))


def test_torchmetrics_objects_differ_by_their_options():
    scores = torchmetrics.classification
    versions = [scores.MulticlassF1Score(3), scores.MulticlassF1Score(4), scores.MulticlassF1Score(3, average="micro")]
    versions += [scores.MulticlassAccuracy(3), torchmetrics.MetricCollection([scores.MulticlassAccuracy(3)])]
    found = [of(version) for version in versions]
    assert len(set(found)) == len(found)
    assert of(scores.MulticlassF1Score(3)) == found[0]


class Shares(evaluate.Metric):
    """A metric of the evaluate library, as its scripts are written."""

    def _info(self):
        features = Features({"predictions": Value("int64"), "references": Value("int64")})
        return evaluate.MetricInfo(description="", citation="", features=features)

    def _compute(self, predictions, references):
        return {"share": sum(map(int.__eq__, predictions, references)) / len(references)}


def test_objects_of_the_evaluate_library_differ_by_class_and_configuration(tmp_path):
    class Others(Shares):
        def _compute(self, predictions, references):
            return {"share": 1 - super()._compute(predictions, references)["share"]}

    make = functools.partial(Shares, cache_dir=str(tmp_path))
    found = [of(make()), of(make(config_name="b")), of(Others(cache_dir=str(tmp_path)))]
    assert len(set(found)) == 3
    assert of(make(experiment_id="x")) == found[0]


def test_data_inside_a_function_counts_by_content():
    def scored(examples):
        return lambda prediction: {"rows": len(examples)}

    one, two = (Dataset.from_dict({"x": [1, k]}) for k in (1, 2))
    assert of(scored(one)) != of(scored(two))
    assert of(scored(one)) == of(scored(Dataset.from_dict({"x": [1, 1]})))


LINES = """
from tests.evaluation.fingerprints.test_kinds import mixed, of
print(*[of(value) for value in mixed()])
"""


def mixed():
    function = lambda p: {"x": {1, "a", "b"} | {p}, "y": torch.argmax(p)}  # noqa: E731
    return [DataCollatorWithPadding(tokenizer()), tiny.PaddingCollator(), tiny.bert(), function]


@pytest.mark.slow
def test_fingerprints_are_the_same_in_another_process():
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    command, environ = [sys.executable, "-c", LINES], environment(PYTHONHASHSEED=seed)
    done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [of(value) for value in mixed()]
