"""Every Plus field is read from a command line, a YAML file and keywords, and survives JSON and pickle."""

import dataclasses
import json
import pickle

import pytest
import yaml
from transformers import HfArgumentParser, TrainingArguments

from hf_trainplus import PlusSeq2SeqTrainingArguments, PlusTrainingArguments

STAGE = '{"name": "all", "budget": {"gpu_hours": 8}}'
GIVEN = {
    "eval_mode": ("race", "race"),
    "eval_subset_size": ("512", 512),
    "eval_subset_strategy": ("random", "random"),
    "eval_label_column": ("topic", "topic"),
    "eval_group_columns": ("topic, source", ["topic", "source"]),
    "eval_cluster_column": ("document", "document"),
    "eval_race_strict": ("true", True),
    "eval_tolerance": ("0.25", 0.25),
    "eval_schedule": ("adaptive", "adaptive"),
    "eval_min_steps": ("10", 10),
    "eval_max_steps": ("20", 20),
    "eval_improvement_threshold": ("0.5", 0.5),
    "eval_time_share": ("0.05", 0.05),
    "budget": ("gpu_hours=8,wall_clock=2h", "gpu_hours=8,wall_clock=2h"),
    "plan": (f'{{"stages": [{STAGE}]}}', {"stages": [json.loads(STAGE)]}),
    "plan_on_resume": ("replace", "replace"),
    "usd_per_device_hour": ("2.5", 2.5),
    "deadline": ("2026-05-01T18:00", "2026-05-01T18:00"),
    "stop_signals": ("SIGTERM", "SIGTERM"),
    "gpu_monitor": ("0.5", 0.5),
    "eval_predictions": ("argmax", "argmax"),
    "eval_confidence": ("0.9", 0.9),
    "eval_tokens_per_batch": ("4096", 4096),
    "eval_precision": ("bf16", "bf16"),
    "eval_cache": ("true", True),
    "predict_with_generate": ("true", True),
    "generation_eval_steps": ("7", 7),
    "generation_eval_size": ("0.5", 0.5),
    "generation_max_new_tokens": ("9", 9),
    "on_eval_error": ("continue", "continue"),
    "ddp_comm_hook": ("fp16", "fp16"),
}
QUIET = ["--use_cpu", "true", "--report_to", "none"]


def own_fields():
    stock = {field.name for field in dataclasses.fields(TrainingArguments)}
    return {field.name for field in dataclasses.fields(PlusTrainingArguments)} - stock


def test_the_table_names_every_field():
    assert set(GIVEN) == own_fields()


@pytest.mark.parametrize("kind", [PlusTrainingArguments, PlusSeq2SeqTrainingArguments])
def test_command_line(kind, tmp_path):
    line = [*QUIET, "--output_dir", str(tmp_path)]
    for name, (text, _) in GIVEN.items():
        line += [f"--{name}", text]
    (args,) = HfArgumentParser(kind).parse_args_into_dataclasses(line)
    for name, (_, value) in GIVEN.items():
        assert getattr(args, name) == value, name


def test_yaml_json_and_pickle(tmp_path):
    path = tmp_path / "args.yaml"
    options = {"output_dir": str(tmp_path), "use_cpu": True, "report_to": "none"}
    path.write_text(yaml.safe_dump({**options, **{name: yaml.safe_load(text) for name, (text, _) in GIVEN.items()}}))
    (args,) = HfArgumentParser(PlusTrainingArguments).parse_yaml_file(str(path))
    for copy in (args, pickle.loads(pickle.dumps(args))):
        assert all(getattr(copy, name) == value for name, (_, value) in GIVEN.items())
    written = json.loads(args.to_json_string())
    assert all(written[name] == value for name, (_, value) in GIVEN.items())
    rebuilt = PlusTrainingArguments(**{name: getattr(args, name) for name in GIVEN}, **options)
    assert all(getattr(rebuilt, name) == value for name, (_, value) in GIVEN.items())


def test_a_whole_fraction_is_all_rows_and_a_whole_number_is_rows(tmp_path):
    sizes = [PlusTrainingArguments(str(tmp_path), eval_subset_size=size).eval_subset_size for size in (1.0, 1, 300.0)]
    assert [(type(size), size) for size in sizes] == [(float, 1.0), (int, 1), (int, 300)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eval_mode": "fast"}, "allowed are 'full', 'subset', 'race'"),
        ({"eval_subset_size": 1.5}, "eval_subset_size=512"),
        ({"eval_subset_size": -1}, "eval_subset_size=-1"),
        ({"eval_tolerance": -0.1}, "eval_tolerance=0.25"),
        ({"eval_confidence": 95}, "eval_confidence=0.95"),
        ({"eval_tokens_per_batch": "many"}, "eval_tokens_per_batch=16384"),
        ({"eval_precision": "int8"}, "'bf16', 'fp16', 'fp32', None"),
        ({"eval_schedule": "sometimes"}, "'fixed', 'adaptive'"),
        ({"eval_time_share": 0.1}, "eval_schedule='adaptive'"),
        ({"deadline": "tomorrow"}, "deadline='2026-05-01T18:00' or deadline=1777651200"),
        ({"deadline": True}, "deadline is True"),
        ({"gpu_monitor": "-1"}, "gpu_monitor=1.0"),
        ({"ddp_comm_hook": "zip"}, "'power_sgd'"),
        ({"plan_on_resume": "ask"}, "'keep', 'replace'"),
        ({"plan": '{"stages": ['}, "is no JSON"),
        ({"plan": 7}, "plan='plan.yaml'"),
        ({"plan": {"stages": [{"name": "a", "bugdet": 1}, {"learning_rate": -1}]}}, "(?s)'bugdet' is unknown.*-1"),
    ],
)
def test_bad_values_are_refused_at_construction(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        PlusTrainingArguments(str(tmp_path / "never"), use_cpu=True, report_to="none", **options)
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1777651200", "1777651200"),
        ("2026-05-01T18:00:00", "2026-05-01T18:00:00"),
        ("2026-05-01T18:00:00Z", "2026-05-01T18:00:00+00:00"),
        ("2026-05-01", "2026-05-01"),
    ],
)
def test_a_deadline_of_a_yaml_file_is_text_whatever_yaml_makes_of_it(written, value, tmp_path):
    args = PlusTrainingArguments(str(tmp_path), use_cpu=True, report_to="none", deadline=yaml.safe_load(written))
    assert args.deadline == value
    assert json.loads(args.to_json_string())["deadline"] == value


@pytest.mark.parametrize("word", ["True", "true"])
def test_true_of_a_command_line_resumes_from_the_newest_checkpoint(tmp_path, monkeypatch, word):
    monkeypatch.chdir(tmp_path)
    assert PlusTrainingArguments("out", use_cpu=True, resume_from_checkpoint=word).resume_from_checkpoint is True
    (tmp_path / word).mkdir()
    assert PlusTrainingArguments("out", use_cpu=True, resume_from_checkpoint=word).resume_from_checkpoint == word
