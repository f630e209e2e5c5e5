"""Trainers that generate in evaluation, and a metric function that keeps what it was given."""

from hf_trainplus import PlusTrainer, PlusTrainingArguments, load_metric
from tests.support import tiny
from tests.support.counting_model import CountingModel, WordDecoder, counting_rows

ENDS = [5, 17, 19, 8, 11, 14, 3, 16]


class Recorder:
    """An ordinary ``compute_metrics`` function that keeps what it was given."""

    def __init__(self, **values):
        self.seen, self.values = [], values

    def __call__(self, prediction):
        self.seen.append(prediction)
        return dict(self.values)


def counting(folder, metric, rows=None, model=None, cls=PlusTrainer, **options):
    rows = counting_rows(ENDS, wrong=[1, 2]) if rows is None else rows
    defaults = {"per_device_eval_batch_size": 3, "predict_with_generate": True, "generation_max_new_tokens": 30}
    args = PlusTrainingArguments(**tiny.quiet(folder, **{**defaults, **options}))
    return cls(
        model or CountingModel(),
        args,
        train_dataset=counting_rows([4, 9, 12, 7]),
        eval_dataset=rows,
        data_collator=tiny.PaddingCollator(),
        compute_metrics=metric,
    )


def exact_match():
    return load_metric("exact_match", tokenizer=WordDecoder())


def completion_rows(n=7):
    rows = tiny.causal_rows(n, low=5)
    for k, row in enumerate(rows):
        row["labels"] = [-100] * (len(row["input_ids"]) - 1 - k % 3) + row["labels"][-1 - k % 3 :]
    return rows


def sampling_llama(seed=0):
    model = tiny.llama(seed)
    model.generation_config.do_sample = True
    return model
