"""Every Plus option refuses what it cannot mean when it is made, with what was given, what is allowed and the fix."""

import dataclasses
import re

import pytest
from transformers import TrainingArguments

from hf_trainplus import PlusTrainingArguments
from hf_trainplus.training.field_ranges import COLUMNS, RANGES, SWITCHES

STOCK = {field.name for field in dataclasses.fields(TrainingArguments)}
OURS = sorted(field.name for field in dataclasses.fields(PlusTrainingArguments) if field.name not in STOCK)
# an option that is only read beside another one
NEEDS = {"eval_time_share": {"eval_schedule": "adaptive"}}


def arguments(folder, **options):
    return PlusTrainingArguments(str(folder / "never"), use_cpu=True, report_to="none", **options)


@pytest.mark.parametrize("value", [object(), b"x", 1 + 2j], ids=["object", "bytes", "complex"])
@pytest.mark.parametrize("name", OURS)
def test_a_value_of_no_kind_that_the_option_knows_is_refused(name, value, tmp_path):
    with pytest.raises((ValueError, TypeError), match=rf"{name}[= ].*allowed"):
        arguments(tmp_path, **{name: value}, **NEEDS.get(name, {}))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", ["", "many", True, float("nan"), float("inf"), "inf", "-3", -1, [], [2], {}])
@pytest.mark.parametrize("name", [*RANGES, "eval_subset_size", "generation_eval_size"])
def test_what_is_no_number_in_range_is_refused(name, value, tmp_path):
    with pytest.raises(ValueError, match=rf"^{name}={re.escape(repr(value))}; allowed are .*, e\.g\. {name}="):
        arguments(tmp_path, **{name: value}, **NEEDS.get(name, {}))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eval_min_steps": 2.5}, "eval_min_steps=2.5; allowed are whole numbers >= 1"),
        ({"eval_schedule": "adaptive", "eval_max_steps": 50}, "eval_min_steps=100 with eval_max_steps=50"),
        ({"eval_schedule": "adaptive", "eval_time_share": 1}, "numbers above 0 and below 1, and None"),
        ({"usd_per_device_hour": 0}, "numbers above 0, and None, e.g. usd_per_device_hour=2.5"),
        ({"eval_group_columns": "topic,"}, "eval_group_columns='topic,'; allowed are names of columns and None"),
        ({"eval_group_columns": ["topic", 3]}, "eval_group_columns=\\['topic', 3\\]"),
        ({"eval_label_column": " "}, "eval_label_column=' '; allowed are names of columns and None"),
        ({"eval_race_strict": "yes"}, "eval_race_strict='yes'; allowed are True and False"),
        ({"budget": ""}, "gpu_hours=8,wall_clock=2h30m"),
        ({"budget": {}}, "budget={} sets no limit"),
        ({"budget": "gpu_hour=8"}, "'gpu_hour' is no budget"),
        ({"stop_signals": "SIGKILL"}, "stop_signals='SIGTERM,SIGUSR1'"),
        ({"stop_signals": ""}, "stop_signals='' names no signal"),
        ({"gpu_monitor": []}, "gpu_monitor=\\[\\]; allowed are true, false or seconds"),
        ({"eval_tokens_per_batch": float("inf")}, "eval_tokens_per_batch=inf; allowed are 'auto'"),
    ],
)
def test_the_message_says_what_is_allowed(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        arguments(tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_numbers_that_yaml_reads_as_text_are_numbers(tmp_path):
    args = arguments(tmp_path, eval_improvement_threshold="1e-3", eval_tolerance="0.5", eval_min_steps="1e1")
    assert (args.eval_improvement_threshold, args.eval_tolerance, args.eval_min_steps) == (0.001, 0.5, 10)
    assert isinstance(args.eval_min_steps, int)


def test_none_as_text_is_none_where_none_is_allowed(tmp_path):
    optional = [name for name, allowed in RANGES.items() if allowed.is_optional]
    optional += ["eval_subset_size", "generation_eval_size", "budget", "stop_signals"]
    args = arguments(tmp_path, **dict.fromkeys(optional, "none"))
    assert all(getattr(args, name) is None for name in optional)


def test_the_tables_name_fields_of_the_arguments():
    assert set(RANGES) | set(SWITCHES) | set(COLUMNS) <= set(OURS)
