"""Run by torchrun: what a metric function is given when batches stay apart, on two ranks."""

import json
import sys

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from hf_trainplus.evaluation.ranks import Ranks
from tests.support import tiny
from tests.support.launch import leave


def main(folder):
    given = []

    def metric(prediction):
        pairs = zip(prediction.predictions, prediction.label_ids, strict=True)
        given.append([(logits.tolist(), labels.tolist()) for logits, labels in pairs])
        return {"rows": sum(map(len, prediction.label_ids))}

    options = {"per_device_eval_batch_size": 2, "eval_do_concat_batches": False}
    trainer = PlusTrainer(
        tiny.bert(),
        PlusTrainingArguments(**tiny.quiet(folder, **options)),
        eval_dataset=tiny.rows(9),
        data_collator=tiny.PaddingCollator(),
        compute_metrics=metric,
    )
    rows = trainer.evaluate()["eval_rows"]
    ranks = Ranks.current()
    everywhere = ranks.gather(given[0])
    if ranks.index == 0:
        print("FOUND " + json.dumps({"rows": rows, "alike": everywhere[0] == everywhere[1], "batches": everywhere[0]}))


if __name__ == "__main__":
    main(sys.argv[1])
    leave()
