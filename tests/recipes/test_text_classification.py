"""The main recipe: what it reads, what it refuses, what it writes, and that it runs on real files and without any."""

import gzip
import json
import math
import os
import shutil
from pathlib import Path

import datasets
import pytest
import text_classification as recipe
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tests.support.recipe_runs import ROOT, SCRIPT, example_rows, launched, run, write_csv

SHARED = Path(os.environ.get("TRAINPLUS_SHARED", ROOT / ".." / "shared")) / "data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data sets are not here")
SHORT = ["--use_cpu", "--max_steps", "2", "--eval_strategy", "steps", "--eval_steps", "1", "--disable_tqdm", "True"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")


def data_of(**options):
    return recipe.DataArguments(**options)


def parts_of(**columns):
    return DatasetDict({part: Dataset.from_dict(rows) for part, rows in columns.items()})


# ---- options ----
def test_options_may_stand_in_a_yaml_or_json_file(tmp_path):
    options = {"train_file": "t.csv", "max_length": 64, "eval_precision": "bf16", "use_cpu": True}
    (tmp_path / "o.json").write_text(json.dumps(options))
    (tmp_path / "o.yaml").write_text("".join(f"{key}: {value}\n" for key, value in options.items()))
    for name in ("o.json", "o.yaml"):
        data, args = recipe.parse([str(tmp_path / name)])
        assert (data.train_file, data.max_length, args.eval_precision, args.use_cpu) == ("t.csv", 64, "bf16", True)


def test_every_field_of_the_plus_arguments_is_an_option():
    _, args = recipe.parse(["--use_cpu", "--eval_confidence", "0.9", "--eval_tokens_per_batch", "none", "--seed", "7"])
    assert (args.eval_confidence, args.eval_tokens_per_batch, args.seed) == (0.9, None, 7)


def test_the_learning_rate_fits_the_model_unless_it_is_given():
    rates = [
        recipe.parse(["--use_cpu", *words])[1].learning_rate
        for words in ([], ["--model_name_or_path", "m"], ["--learning_rate", "0.5"])
    ]
    assert rates == [1e-3, 2e-5, 0.5]


# ---- reading ----
@pytest.mark.parametrize("kind", ["csv", "csv.gz", "tsv", "json", "jsonl", "jsonl.gz", "parquet"])
def test_every_kind_of_file_gives_the_same_rows(kind, tmp_path):
    rows = example_rows(6)
    path = tmp_path / f"train.{kind}"
    if kind.startswith("csv"):
        write_csv(tmp_path / "train.csv", rows)
    elif kind == "tsv":
        path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    elif kind == "parquet":
        Dataset.from_dict({"text": [t for t, _ in rows], "label": [label for _, label in rows]}).to_parquet(path)
    else:
        lines = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)
        (tmp_path / f"train.{kind.removesuffix('.gz')}").write_text(lines)
    if kind.endswith(".gz"):
        with gzip.open(path, "wb") as packed:
            packed.write((tmp_path / path.stem).read_bytes())
    parts = recipe.load_files(data_of(train_file=str(path), cache_dir=str(tmp_path / "cache")))
    assert list(zip(parts["train"]["text"], parts["train"]["label"], strict=True)) == rows


def test_a_local_dataset_folder_is_read_by_name(tmp_path):
    (tmp_path / "set").mkdir()
    write_csv(tmp_path / "set" / "train.csv", example_rows(60))
    write_csv(tmp_path / "set" / "test.csv", example_rows(4))
    parts = recipe.load_parts(data_of(dataset_name=str(tmp_path / "set"), cache_dir=str(tmp_path / "cache")))
    assert len(parts["train"]) + len(parts["validation"]) == 60
    assert len(parts["test"]) == 4


def test_a_text_that_repeats_stands_on_one_side_of_a_held_out_tenth():
    texts = [f"text {i % 50}" for i in range(200)] + [f"TEXT  {i}" for i in range(50)]
    train, held_out = recipe.hold_out(Dataset.from_dict({"text": texts}), "text")
    sides = [{" ".join(text.lower().split()) for text in part["text"]} for part in (train, held_out)]
    assert not sides[0] & sides[1]
    assert len(train) + len(held_out) == 250
    assert 0 < len(held_out) < 75


@pytest.mark.parametrize(
    ("labels", "names", "ids"),
    [
        (["b", "a", "b"], ["a", "b"], [1, 0, 1]),
        ([7, -3, 10], ["-3", "7", "10"], [1, 0, 2]),
        ([True, False, True], ["False", "True"], [1, 0, 1]),
    ],
)
def test_labels_become_class_numbers(labels, names, ids):
    parts, found = recipe.label_ids(parts_of(train={"text": ["x"] * 3, "label": labels}), data_of())
    assert found == names
    assert parts["train"]["labels"][:] == ids
    assert "label" not in parts["train"].column_names


def test_class_labels_keep_their_names_and_a_test_part_without_labels_is_left_out():
    features = Features({"text": Value("string"), "label": ClassLabel(names=["no", "yes"])})
    parts = DatasetDict(
        {
            "train": Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features=features),
            "test": Dataset.from_dict({"text": ["c", "d"], "label": [-1, -1]}, features=features),
        }
    )
    numbered, names = recipe.label_ids(parts, data_of())
    assert (names, numbered["train"]["labels"][:], list(numbered)) == (["no", "yes"], [1, 0], ["train"])


# ---- refusals ----
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dataset_name": "d", "train_file": "t.csv"}, r"--dataset_name and --train_file both name the training data"),
        ({"train_file": "t.csv", "test_file": "t.parquet"}, r"Cannot read .*t\.parquet.*one kind out of \.csv, \.tsv"),
        ({"train_file": "t.xlsx"}, r"Cannot read \['t\.xlsx'\]: give files of one kind out of"),
    ],
)
def test_impossible_data_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        recipe.load_parts(data_of(**options))


def test_files_without_a_train_part_are_refused(tables, tmp_path):
    with pytest.raises(ValueError, match=r"There is no part 'train' in \['validation'\].*--train_file"):
        recipe.load_parts(data_of(validation_file=str(tables / "validation.csv"), cache_dir=str(tmp_path)))


def test_a_part_without_a_row_is_refused(tmp_path):
    path = write_csv(tmp_path / "train.csv", [("one text", "a")] * 3)
    with pytest.raises(
        ValueError, match=r"No row in (train|validation): give more rows, or your own --validation_file"
    ):
        recipe.load_parts(data_of(train_file=str(path), cache_dir=str(tmp_path / "cache")))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b""),
        ("a.csv", b"text,label\n"),
        ("a.json", b""),
        ("a.json", b"[]"),
        ("a.jsonl", b"{no json"),
        ("a.csv", "text,label\ncaf\xe9,a\n".encode("latin-1")),
        ("a.parquet", b"PAR1"),
    ],
)
def test_a_file_without_readable_rows_is_refused(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"Cannot read \['.*{name}'\] \(.+\): give UTF-8 files with rows"):
        recipe.load_parts(data_of(train_file=str(tmp_path / name), cache_dir=str(tmp_path / "cache")))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text_column": "label"}, r"--text_column and --label_column are both 'label'; name two columns"),
        ({"max_length": 0}, r"--max_length 0 holds no token; give at least 1"),
        ({"max_length": -3}, r"--max_length -3 holds no token"),
    ],
)
def test_options_that_no_data_can_make_right_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        data_of(**options)


def test_a_column_named_labels_gives_way_to_the_classes():
    rows = {"text": ["x", "y"], "labels": ["old", "old"], "label": ["b", "a"]}
    parts, names = recipe.label_ids(parts_of(train=rows), data_of())
    assert (names, parts["train"]["labels"][:], parts["train"].column_names) == (["a", "b"], [1, 0], ["text", "labels"])


def test_an_ending_in_capitals_is_the_same_kind(tables, tmp_path):
    shutil.copy(tables / "train.csv", tmp_path / "TRAIN.CSV")
    parts = recipe.load_parts(data_of(train_file=str(tmp_path / "TRAIN.CSV"), cache_dir=str(tmp_path / "cache")))
    assert len(parts["train"]) + len(parts["validation"]) == 24


@pytest.mark.parametrize(
    ("rows", "options", "error", "message"),
    [
        (
            {"words": ["a"], "label": [0]},
            {},
            ValueError,
            r"no column 'text'; choose --text_column from \['words', 'label'\]",
        ),
        ({"text": ["a"], "y": [0]}, {}, ValueError, r"no column 'label'; choose --label_column from \['text', 'y'\]"),
        (
            {"text": [1], "label": [0]},
            {},
            TypeError,
            r"--text_column text holds int64 in the train part; name a column of text",
        ),
        ({"text": [["a"]], "label": [0]}, {}, TypeError, r"--text_column text holds List in the train part"),
        ({"text": ["a"], "label": [0.5]}, {}, TypeError, r"--label_column label holds float64 .* or whole numbers"),
        ({"text": ["a"], "label": [[0]]}, {}, TypeError, r"--label_column label holds List in the train part"),
        ({"text": ["a"], "label": [{"id": 0}]}, {}, TypeError, r"--label_column label holds .* in the train part"),
        (
            {"text": ["a", None], "label": [0, 1]},
            {},
            ValueError,
            r"1 of 2 rows of the train part have no text; remove them",
        ),
    ],
)
def test_rows_that_cannot_be_read_are_refused(rows, options, error, message):
    with pytest.raises(error, match=message):
        recipe.check_texts("train", Dataset.from_dict(rows), data_of(**options))


@pytest.mark.parametrize(
    ("train", "other", "error", "message"),
    [
        (
            ["a", "b"],
            ["c", "a"],
            ValueError,
            r"'label' of the validation part holds \[\"'c'\"\].*classes of the train part \(a, b\)",
        ),
        (["a", None], ["a", "a"], ValueError, r"'label' of the train part holds \['None'\]"),
        (["a", "a"], ["a", "a"], ValueError, r"The train part has only the class 'a' in 'label'; give rows of two"),
    ],
)
def test_labels_that_no_class_has_are_refused(train, other, error, message):
    parts = parts_of(train={"text": ["x", "y"], "label": train}, validation={"text": ["z", "u"], "label": other})
    with pytest.raises(error, match=message):
        recipe.label_ids(parts, data_of())


def test_a_text_longer_than_the_model_reads_is_refused_if_asked_for_and_cut_otherwise(tiny_model):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    parts = parts_of(train={"text": ["apple " * 100], "labels": [0], "other": ["x"]})
    with pytest.raises(ValueError, match=r"--max_length 33 is more than the 32 tokens that the model reads"):
        recipe.tokenized(parts, tokenizer, data_of(max_length=33))
    for asked, length in ((None, 32), (8, 8)):
        rows = recipe.tokenized(parts, tokenizer, data_of(max_length=asked))["train"]
        assert len(rows[0]["input_ids"]) == length
        assert {"labels", "input_ids"} <= set(rows.column_names)
        assert not {"text", "other"} & set(rows.column_names)


# ---- running ----
def results(folder, part):
    def refuse(constant):
        raise AssertionError(f"{part}_results.json is not strict JSON: {constant}")

    return json.loads((folder / f"{part}_results.json").read_text(), parse_constant=refuse)


def test_it_trains_on_files_and_ends_with_the_table(tables, tmp_path, capsys):
    files = [
        word for part in ("train", "validation", "test") for word in (f"--{part}_file", str(tables / f"{part}.csv"))
    ]
    recipe.main([*SHORT, *files, "--output_dir", str(tmp_path / "out"), "--cache_dir", str(tmp_path / "cache")])
    printed = capsys.readouterr().out
    found = {part: results(tmp_path / "out", part) for part in ("eval", "test")}
    assert (found["eval"]["eval_examples"], found["test"]["test_examples"]) == (7, 5)
    for part, values in found.items():
        accuracy, low, high = (values[f"{part}_accuracy{end}"] for end in ("", "_ci_low", "_ci_high"))
        assert 0 <= low <= accuracy <= high <= 1
        assert low < high
        assert f"{accuracy:.4f}  [{low:.4f}, {high:.4f}] at 95%, {values[f'{part}_examples']} examples" in printed
    assert "time in training" in printed
    assert "4 evaluations" in printed
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert model.config.id2label == {0: "fruit", 1: "tool"}
    assert len(AutoTokenizer.from_pretrained(tmp_path / "out")) == model.config.vocab_size


def test_the_table_holds_accuracy_and_times():
    history = [
        {"loss": 1.0},
        {"eval_seconds": 2.0},
        {"eval_seconds": 3.0},
        {"train_runtime": 20.0},
        {"test_seconds": 9.0},
    ]
    _, args = recipe.parse(["--use_cpu", "--output_dir", "somewhere"])
    metrics = {
        "eval": {"eval_accuracy": 0.5, "eval_accuracy_ci_low": 0.25, "eval_accuracy_ci_high": 0.75, "eval_examples": 9},
    }
    table = recipe.summary(metrics, 15.0, recipe.evaluation_seconds(history), args)
    cells = [list(column.cells) for column in table.columns]
    assert dict(zip(*cells, strict=True)) == {
        "accuracy, validation": "0.5000  [0.2500, 0.7500] at 95%, 9 examples",
        "time in training": "15.0 s",
        "time in evaluation": "14.0 s, 3 evaluations",
        "files": "somewhere",
    }


def test_a_resumed_run_tells_the_times_of_its_own_session(tables, tiny_model, tmp_path, capsys):
    def table(*more):
        capsys.readouterr()
        recipe.main(
            [
                "--use_cpu",
                "--train_file",
                str(tables / "train.csv"),
                "--validation_file",
                str(tables / "validation.csv"),
            ]
            + ["--model_name_or_path", str(tiny_model), "--num_train_epochs", "3", "--disable_tqdm", "True"]
            + ["--save_total_limit", "2", "--output_dir", str(tmp_path / "out"), *more]
        )
        lines = capsys.readouterr().out.splitlines()
        training, evaluation = (next(x for x in lines if f"time in {part}" in x) for part in ("training", "evaluation"))
        return float(training.split("│")[2].split()[0]), int(evaluation.split(",")[1].split()[0])

    trained, first = table()
    resumed, again = table("--resume_from_checkpoint", "True")
    assert (first, again) == (4, 1)  # three epochs and the end; the finished run takes no step
    assert trained >= 0
    assert resumed >= 0


def test_a_model_can_be_named_and_learns(tables, tiny_model, tmp_path):
    recipe.main(
        ["--use_cpu", "--train_file", str(tables / "train.csv"), "--validation_file", str(tables / "validation.csv")]
        + ["--model_name_or_path", str(tiny_model), "--learning_rate", "0.02", "--num_train_epochs", "8"]
        + ["--per_device_train_batch_size", "8", "--disable_tqdm", "True", "--output_dir", str(tmp_path / "out")]
    )
    assert results(tmp_path / "out", "eval")["eval_accuracy"] == 1.0


def test_a_trained_model_can_be_evaluated_alone(tables, tiny_model, tmp_path, capsys):
    files = ["--train_file", str(tables / "train.csv"), "--validation_file", str(tables / "validation.csv")]
    words = [
        "--use_cpu",
        *files,
        "--disable_tqdm",
        "True",
        "--output_dir",
        str(tmp_path / "out"),
        "--do_train",
        "False",
    ]
    with pytest.raises(ValueError, match=r"--do_train False needs a trained model; name one, e\.g\. --model_name"):
        recipe.main(words)
    assert not (tmp_path / "out").exists()
    recipe.main([*words, "--model_name_or_path", str(tiny_model)])
    assert results(tmp_path / "out", "eval")["eval_examples"] == 7
    assert {path.name for path in (tmp_path / "out").iterdir()} & {"model.safetensors", "train_results.json"} == set()
    assert "time in training" in capsys.readouterr().out


def test_the_best_epoch_is_what_is_saved_and_reported(tables, tiny_model, tmp_path):
    recipe.main(
        ["--use_cpu", "--train_file", str(tables / "train.csv"), "--validation_file", str(tables / "validation.csv")]
        + ["--model_name_or_path", str(tiny_model), "--learning_rate", "0.05", "--num_train_epochs", "4"]
        + ["--per_device_train_batch_size", "8", "--disable_tqdm", "True", "--output_dir", str(tmp_path / "out")]
    )
    state = json.loads((tmp_path / "out" / "trainer_state.json").read_text())
    seen = [entry["eval_accuracy"] for entry in state["log_history"] if "eval_accuracy" in entry][:-1]
    assert len(seen) == 4
    assert results(tmp_path / "out", "eval")["eval_accuracy"] == max(seen) == state["best_metric"]


def test_resuming_a_finished_run_gives_the_same_result(tables, tiny_model, tmp_path):
    words = ["--use_cpu", "--train_file", str(tables / "train.csv"), "--model_name_or_path", str(tiny_model)]
    words += ["--num_train_epochs", "2", "--disable_tqdm", "True", "--output_dir", str(tmp_path / "out")]
    recipe.main(words)
    first = results(tmp_path / "out", "eval")
    checkpoint = max((tmp_path / "out").glob("checkpoint-*"), key=lambda path: int(path.name.partition("-")[2]))
    recipe.main([*words, "--resume_from_checkpoint", str(checkpoint)])
    again = results(tmp_path / "out", "eval")
    assert math.isclose(again["eval_loss"], first["eval_loss"], abs_tol=1e-5)  # batches follow a measured limit


@needs_shared
@pytest.mark.parametrize(
    ("words", "examples"),
    [
        (["--train_file", "ag_news/subset_train.csv.gz", "--max_length", "32"], None),
        (
            [
                "--train_file",
                "sst2/train.csv.gz",
                "--validation_file",
                "sst2/dev.csv.gz",
                "--test_file",
                "sst2/test.csv.gz",
                "--max_length",
                "32",
            ],
            872,
        ),
        (
            [
                "--train_file",
                "trec6/train.csv.gz",
                "--validation_file",
                "trec6/test.csv.gz",
                "--label_column",
                "label_coarse",
            ],
            500,
        ),
    ],
    ids=["ag_news", "sst2", "trec6"],
)
def test_it_runs_on_real_files(words, examples, tiny_model, tmp_path):
    words = [str(SHARED / word) if word.endswith(".gz") else word for word in words]
    words += ["--model_name_or_path", str(tiny_model), "--ignore_mismatched_sizes"]
    recipe.main([*SHORT, *words, "--output_dir", str(tmp_path / "out")])
    found = results(tmp_path / "out", "eval")
    assert found["eval_examples"] == (examples or found["eval_examples_total"]) > 400
    assert found["eval_accuracy_ci_low"] < found["eval_accuracy"] < found["eval_accuracy_ci_high"]


@pytest.mark.slow
def test_without_arguments_it_runs_offline_and_says_nothing_it_need_not(tmp_path):
    """The very file, copied with its two neighbours to another folder, with an empty home and no network."""
    for name in ("text_classification.py", "offline_data.py", "small_bert.py"):
        shutil.copy(SCRIPT.with_name(name), tmp_path / name)
    done = run(
        launched(
            tmp_path / "text_classification.py",
            *SHORT,
            "--output_dir",
            tmp_path / "out",
            "--dataloader_pin_memory",
            "False",
        ),
        HOME=str(tmp_path / "home"),
        XDG_CACHE_HOME=str(tmp_path / "home" / "cache"),
    )
    assert "accuracy, test" in done.stdout
    assert len(list((tmp_path / "home" / "cache" / "hf_trainplus").glob("docstrings-*.parquet"))) == 1
    noise = [
        line for line in (done.stdout + done.stderr).splitlines() if "warning" in line.lower() or "torchvision" in line
    ]
    assert noise == []
