#!/usr/bin/env python
"""Fine-tune a text classifier with PlusTrainer: on a Hub dataset, on local files, or offline without any argument.

    python recipes/text_classification.py
    python recipes/text_classification.py --train_file train.csv.gz --validation_file dev.csv.gz --label_column label
    python recipes/text_classification.py --dataset_name ag_news --model_name_or_path distilbert-base-uncased
    accelerate launch --config_file recipes/accelerate/two_cpu.yaml recipes/text_classification.py
    torchrun --nproc_per_node 2 recipes/text_classification.py --use_cpu

Without data it learns which installed package a docstring comes from (offline_data.py); without a model it trains a
small BERT and its tokenizer from nothing (small_bert.py). Every field of PlusTrainingArguments is an option; one YAML
or JSON file of options may stand in their place. The figures of the closing table are also in ``train_results.json``,
``eval_results.json`` and ``test_results.json`` in ``--output_dir``.
"""

from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from accelerate.utils import broadcast_object_list
from datasets import ClassLabel, Dataset, DatasetDict, Value, load_dataset
from datasets.exceptions import DatasetGenerationError
from rich.console import Console
from rich.table import Table
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BatchEncoding,
    DataCollatorWithPadding,
    HfArgumentParser,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)

from hf_trainplus import PlusTrainer, PlusTrainingArguments, load_metric

FILE_KINDS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}


@dataclass
class DataArguments:
    """What to learn from."""

    dataset_name: str | None = field(default=None, metadata={"help": "A dataset of the Hub, or a folder of one."})
    dataset_config_name: str | None = field(default=None, metadata={"help": "Its configuration, if it has several."})
    train_file: str | None = field(default=None, metadata={"help": "CSV, TSV, JSON (lines) or Parquet, also as .gz."})
    validation_file: str | None = field(default=None, metadata={"help": "Without it a tenth of train is held out."})
    test_file: str | None = field(default=None, metadata={"help": "Evaluated once, after training."})
    text_column: str = field(default="text", metadata={"help": "The column that is read."})
    label_column: str = field(
        default="label", metadata={"help": "The column that is predicted: text or whole numbers."}
    )
    max_length: int | None = field(default=None, metadata={"help": "Tokens a text is cut to; unset: up to 128."})
    cache_dir: str | None = field(default=None, metadata={"help": "Where downloads and docstrings are kept."})

    def __post_init__(self) -> None:
        """Refuse what no data can make right."""
        if self.text_column == self.label_column:
            raise ValueError(f"--text_column and --label_column are both {self.text_column!r}; name two columns.")
        if self.max_length is not None and self.max_length < 1:
            raise ValueError(f"--max_length {self.max_length} holds no token; give at least 1, e.g. --max_length 128.")


@dataclass
class TrainArguments(PlusTrainingArguments):
    """PlusTrainingArguments with this recipe's defaults: evaluate and save once an epoch, keep the most accurate."""

    model_name_or_path: str | None = field(default=None, metadata={"help": "Without it a small BERT is built."})
    ignore_mismatched_sizes: bool = field(default=False, metadata={"help": "Build a head of other classes anew."})
    do_train: bool = field(default=True, metadata={"help": "False: only evaluate the named model."})
    output_dir: str | None = field(default="runs/text_classification", metadata={"help": "Checkpoints and metrics."})
    learning_rate: float | None = field(default=None, metadata={"help": "Unset: 1e-3 for the small BERT, else 2e-5."})
    per_device_train_batch_size: int = field(default=32, metadata={"help": "Rows a device and step."})
    per_device_eval_batch_size: int = field(default=64, metadata={"help": "Rows a device and evaluation batch."})
    eval_strategy: str = field(default="epoch", metadata={"help": "no, steps or epoch."})
    save_strategy: str = field(default="epoch", metadata={"help": "no, steps, epoch or best."})
    save_total_limit: int | None = field(default=1, metadata={"help": "Checkpoints kept beside the best one."})
    load_best_model_at_end: bool = field(default=True, metadata={"help": "Go back to the best epoch at the end."})
    metric_for_best_model: str | None = field(default="accuracy", metadata={"help": "What best means."})
    logging_steps: float = field(default=50, metadata={"help": "Steps between two logged training losses."})

    def __post_init__(self) -> None:
        """Fill the one default that depends on another option."""
        if not self.do_train and self.model_name_or_path is None:
            raise ValueError("--do_train False needs a trained model; name one, e.g. --model_name_or_path runs/mine.")
        if self.learning_rate is None:
            self.learning_rate = 2e-5 if self.model_name_or_path else 1e-3
        super().__post_init__()


class EarlierEntries(TrainerCallback):
    """Counts the entries of the history that a resumed run finds, so that its times are those of this session."""

    def __init__(self) -> None:
        self.count: int | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Count once: with a plan, training begins anew in each stage."""
        self.count = len(state.log_history) if self.count is None else self.count


def main(argv: Sequence[str]) -> None:
    """Train, go back to the best epoch, evaluate, and print where the time went."""
    data, args = parse(argv)
    set_seed(args.seed)
    with args.main_process_first(desc="reading the data"):
        parts, names = label_ids(load_parts(data), data)
    tokenizer, model = load_model(args, names, parts["train"][data.text_column], data.max_length or 128)
    with args.main_process_first(desc="tokenization"):
        parts = tokenized(parts, tokenizer, data)
    trainer = PlusTrainer(
        model,
        args,
        train_dataset=parts["train"],
        eval_dataset=parts["validation"],
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=load_metric("accuracy"),
        callbacks=[earlier := EarlierEntries()],
    )
    began = time.monotonic()
    metrics = {}
    if args.do_train:
        metrics["train"] = trainer.train(resume_from_checkpoint=args.resume_from_checkpoint).metrics
    trained = time.monotonic() - began - sum(evaluation_seconds(trainer.state.log_history[earlier.count :]))
    metrics |= evaluated_parts(trainer, parts)
    for part, values in metrics.items():
        trainer.save_metrics(part, values)
    if args.do_train:
        trainer.save_model()
    trainer.save_state()
    if trainer.is_world_process_zero():
        evaluated = evaluation_seconds(trainer.state.log_history[earlier.count :])
        Console().print(summary(metrics, trained, evaluated, args))
    trainer.accelerator.wait_for_everyone()
    trainer.accelerator.end_training()


def parse(argv: Sequence[str]) -> tuple[DataArguments, TrainArguments]:
    """Read options, or the one YAML or JSON file of options."""
    parser = HfArgumentParser((DataArguments, TrainArguments))
    if len(argv) == 1 and argv[0].endswith((".yaml", ".yml", ".json")):
        data, args = parser.parse_yaml_file(argv[0])  # JSON is YAML
    else:
        data, args = parser.parse_args_into_dataclasses(list(argv))
    return data, args


def load_parts(data: DataArguments) -> DatasetDict:
    """Read the parts train, validation and, where there is one, test."""
    if data.dataset_name and data.train_file:
        raise ValueError("--dataset_name and --train_file both name the training data; leave one of them out.")
    if data.dataset_name:
        parts = load_dataset(data.dataset_name, data.dataset_config_name, cache_dir=data.cache_dir)
    elif data.train_file or data.validation_file or data.test_file:
        parts = load_files(data)
    else:
        from offline_data import offline_dataset  # a copy of this script needs that file for this case only

        parts = offline_dataset(data.cache_dir)
    if "train" not in parts:
        raise ValueError(f"There is no part 'train' in {sorted(parts)}; give one, e.g. --train_file train.csv.")
    for part, rows in parts.items():
        check_texts(part, rows, data)
    if "validation" not in parts:
        parts["train"], parts["validation"] = hold_out(parts["train"], data.text_column)
    if empty := [part for part, rows in parts.items() if len(rows) == 0]:
        raise ValueError(f"No row in {' and '.join(empty)}: give more rows, or your own --validation_file.")
    return DatasetDict({part: parts[part] for part in ("train", "validation", "test") if part in parts})


def load_files(data: DataArguments) -> DatasetDict:
    """Read local files of one kind."""
    given = {"train": data.train_file, "validation": data.validation_file, "test": data.test_file}
    files = {part: name for part, name in given.items() if name is not None}
    suffixes = {Path(name.removesuffix(".gz")).suffix.lower() for name in files.values()}
    if len(suffixes) > 1 or not suffixes <= set(FILE_KINDS):
        raise ValueError(
            f"Cannot read {sorted(files.values())}: give files of one kind out of {', '.join(FILE_KINDS)}."
        )
    suffix = suffixes.pop()
    options = {"sep": "\t"} if suffix == ".tsv" else {}
    try:
        return load_dataset(FILE_KINDS[suffix], data_files=files, cache_dir=data.cache_dir, **options)
    except (DatasetGenerationError, StopIteration, ValueError) as error:  # each of them for some file without a row
        reason = str(error.__cause__ or error) or "no row"
        raise ValueError(f"Cannot read {sorted(files.values())} ({reason}): give UTF-8 files with rows.") from error


def check_texts(part: str, rows: Dataset, data: DataArguments) -> None:
    """Refuse a part that lacks a column or a text."""
    for option, column in (("--text_column", data.text_column), ("--label_column", data.label_column)):
        if column not in rows.column_names:
            raise ValueError(f"The {part} part has no column {column!r}; choose {option} from {rows.column_names}.")
    if not (kind := column_kind(rows, data.text_column)).endswith("string"):
        raise TypeError(f"--text_column {data.text_column} holds {kind} in the {part} part; name a column of text.")
    if not (kind := column_kind(rows, data.label_column)).endswith(("string", "bool", "class")) and "int" not in kind:
        raise TypeError(
            f"--label_column {data.label_column} holds {kind} in the {part} part; this recipe predicts text or whole "
            "numbers (which one row without a label turns into floats: remove such rows)."
        )
    if missing := rows.data.column(data.text_column).null_count:
        raise ValueError(f"{missing} of {len(rows)} rows of the {part} part have no {data.text_column}; remove them.")


def column_kind(rows: Dataset, column: str) -> str:
    """Name what a column holds: a type of single values, ``class``, or the name of a nested kind."""
    feature = rows.features[column]
    if isinstance(feature, ClassLabel):
        return "class"
    return str(feature.dtype) if isinstance(feature, Value) else type(feature).__name__


def hold_out(rows: Dataset, text_column: str) -> tuple[Dataset, Dataset]:
    """Hold a tenth out by the text itself, so that no text, however often it repeats, stands on both sides."""
    tenths = [zlib.crc32(" ".join(text.casefold().split()).encode()) % 10 for text in rows[text_column]]
    train = rows.select([i for i, tenth in enumerate(tenths) if tenth])
    return train, rows.select([i for i, tenth in enumerate(tenths) if not tenth])


def label_ids(parts: DatasetDict, data: DataArguments) -> tuple[DatasetDict, list[str]]:
    """Replace the label column by ``labels``, the number of the class, and return the classes' names."""
    column, feature = data.label_column, parts["train"].features[data.label_column]
    seen = {part: set(rows.unique(column)) for part, rows in parts.items()}
    if isinstance(feature, ClassLabel):
        ids, names = {i: i for i in range(feature.num_classes)}, list(feature.names)
    else:
        values = sorted(seen["train"] - {None})
        ids, names = {value: i for i, value in enumerate(values)}, [str(value) for value in values]
    if seen.get("test") == {-1}:  # how the Hub marks a test part whose labels are kept back
        del parts["test"]
    for part in parts:
        if unknown := seen[part] - set(ids):
            raise ValueError(
                f"Column {column!r} of the {part} part holds {sorted(map(repr, unknown))[:5]}, which are none of the "
                f"classes of the train part ({', '.join(names[:10])}): correct or remove these rows."
            )
    if len(names) < 2:
        raise ValueError(f"The train part has only the class {names[0]!r} in {column!r}; give rows of two or more.")
    numbered = {}
    for part, rows in parts.items():
        others = rows.remove_columns([name for name in rows.column_names if name in (column, "labels")])
        numbered[part] = others.add_column("labels", [ids[value] for value in rows[column]])
    return DatasetDict(numbered), names


def load_model(
    args: TrainArguments, names: list[str], texts: Sequence[str], max_length: int
) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """Load the named model, or build the small one and train its tokenizer on the training texts."""
    if args.model_name_or_path is None:
        from small_bert import small_bert, train_tokenizer  # a copy of this script needs that file for this case only

        trained = [train_tokenizer(texts, max_length=max_length) if args.process_index == 0 else None]
        broadcast_object_list(trained)  # all ranks need the same token ids
        return trained[0], small_bert(trained[0], names)
    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    model = AutoModelForSequenceClassification.from_pretrained(
        args.model_name_or_path,
        num_labels=len(names),
        id2label=dict(enumerate(names)),
        label2id={name: i for i, name in enumerate(names)},
        ignore_mismatched_sizes=args.ignore_mismatched_sizes,
    )
    if tokenizer.pad_token is None:  # decoders such as GPT-2 come without one
        tokenizer.pad_token = tokenizer.eos_token
    model.config.pad_token_id = tokenizer.pad_token_id
    return tokenizer, model


def tokenized(parts: DatasetDict, tokenizer: PreTrainedTokenizerBase, data: DataArguments) -> DatasetDict:
    """Turn texts into token ids; padding is left to the collator, a batch at a time."""
    limit = tokenizer.model_max_length
    length = data.max_length or min(128, limit)
    if length > limit:
        raise ValueError(
            f"--max_length {length} is more than the {limit} tokens that the model reads; give at most that."
        )

    def to_ids(batch: dict[str, list[str]]) -> BatchEncoding:
        return tokenizer(batch[data.text_column], truncation=True, max_length=length)

    return DatasetDict(
        {
            part: rows.map(
                to_ids,
                batched=True,
                remove_columns=[name for name in rows.column_names if name != "labels"],
                desc=f"Tokenizing {part}",
            )
            for part, rows in parts.items()
        }
    )


def evaluated_parts(trainer: PlusTrainer, parts: DatasetDict) -> dict[str, dict[str, float]]:
    """Evaluate the validation part and, where there is one, the test part."""
    metrics = {"eval": trainer.evaluate()}
    if "test" in parts:
        metrics["test"] = trainer.evaluate(parts["test"], metric_key_prefix="test")
    return metrics


def evaluation_seconds(history: list[dict[str, float]]) -> list[float]:
    """Return how long each evaluation of the history took."""
    return [entry[key] for entry in history for key in ("eval_seconds", "test_seconds") if key in entry]


def summary(
    metrics: dict[str, dict[str, float]], trained: float, evaluated: list[float], args: TrainArguments
) -> Table:
    """Lay out accuracy with its interval, where the time went, and where the files are."""
    table = Table(title="text_classification", show_header=False)
    for part, label in (("eval", "validation"), ("test", "test")):
        if values := metrics.get(part):
            low, high = values[f"{part}_accuracy_ci_low"], values[f"{part}_accuracy_ci_high"]
            table.add_row(
                f"accuracy, {label}",
                f"{values[f'{part}_accuracy']:.4f}  [{low:.4f}, {high:.4f}] at {args.eval_confidence:.0%}, "
                f"{values[f'{part}_examples']:.0f} examples",
            )
    table.add_row("time in training", f"{trained:.1f} s")
    table.add_row("time in evaluation", f"{sum(evaluated):.1f} s, {len(evaluated)} evaluations")
    table.add_row("files", f"{args.output_dir}")
    return table


if __name__ == "__main__":
    main(sys.argv[1:])
