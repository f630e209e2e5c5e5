"""What two ranks must agree on, in one pair of processes; prints one JSON line of named findings on rank 0."""

import json
import sys
from pathlib import Path

import torch
from datasets import Dataset

from hf_trainplus import PlusTrainer, PlusTrainingArguments, load_metric
from tests.support import tiny
from tests.support.launch import leave


def make(model, rows, folder, metric=None, collator=None, **options):
    args = PlusTrainingArguments(**tiny.quiet(folder, per_device_eval_batch_size=2, **options))
    return PlusTrainer(
        model,
        args,
        train_dataset=rows,
        eval_dataset=rows,
        data_collator=collator or tiny.PaddingCollator(),
        compute_metrics=metric,
    )


def loss_and_rows(folder, found):
    for n in (1, 7, 8, 9):
        metrics = make(tiny.gpt2(), tiny.causal_rows(n, low=3), folder).evaluate()
        found[f"loss_{n}"] = [metrics["eval_loss"], metrics["eval_examples"], metrics["eval_targets"]]


def predictions(folder, found):
    rows = tiny.rows(9)
    output = make(tiny.bert(), rows, folder).predict(rows)
    found["labels"] = [output.label_ids.tolist(), [row["labels"] for row in rows]]
    found["predictions"] = output.predictions.tolist()
    metrics = make(tiny.bert(), rows, folder, load_metric("accuracy")).evaluate()
    found["accuracy"] = [metrics["eval_accuracy"], metrics["eval_examples"]]


def streams(folder, found):
    data = Dataset.from_list(tiny.rows(11))
    for dispatch in (True, False):
        options = {"accelerator_config": {"dispatch_batches": dispatch}}
        metrics = make(tiny.bert(), tiny.rows(4), folder, **options).evaluate(data.to_iterable_dataset())
        found[f"stream_{dispatch}"] = [metrics["eval_loss"], metrics["eval_examples"]]


def foreign_loader(folder, found):
    trainer = make(tiny.bert(), tiny.rows(9), folder)
    loader = torch.utils.data.DataLoader(tiny.rows(9), batch_size=2, collate_fn=tiny.PaddingCollator())
    loader = trainer.accelerator.prepare(loader)
    output = trainer.evaluation_loop(loader, "Evaluation")
    found["foreign"] = [output.metrics["eval_loss"], output.metrics["eval_examples"]]


def training_with_evaluation(folder, found):
    weights = {}
    for strategy in ("no", "steps"):
        trainer = make(tiny.bert(dropout=0.1), tiny.rows(10), folder, max_steps=4, eval_strategy=strategy, eval_steps=1)
        trainer.train()
        weights[strategy] = [value.clone() for value in trainer.model.state_dict().values()]
    found["weights_equal"] = all(map(torch.equal, weights["no"], weights["steps"]))


def failing_metric(folder, found):
    def broken(prediction):
        if torch.distributed.get_rank() == 1:
            raise RuntimeError("rank 1 only")
        return {"accuracy": 1.0}

    options = {"max_steps": 2, "eval_strategy": "steps", "eval_steps": 1, "on_eval_error": "continue"}
    trainer = make(tiny.bert(), tiny.rows(6), folder / "failing", broken, **options)
    trainer.train()
    found["failing_steps"] = trainer.state.global_step
    found["failing_logged"] = sum("eval_loss" in entry for entry in trainer.state.log_history)


def communication_hooks(folder, found):
    # torch lets the bfloat16 hook pass with NCCL only; gloo reduces bfloat16 just as well
    torch.nn.parallel.DistributedDataParallel._check_comm_hook = lambda self, hook: None
    for hook in (None, "fp16", "bf16", "power_sgd"):
        options = {"max_steps": 3, "ddp_comm_hook": hook, "learning_rate": 1e-2, "logging_steps": 1}
        trainer = make(tiny.bert(), tiny.rows(8), folder, **options)
        trainer.train()
        handler = trainer.accelerator.ddp_handler
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        found[f"hook_{hook}"] = [str(getattr(handler.comm_hook, "value", handler.comm_hook)), losses[-1]]


CASES = (
    loss_and_rows,
    predictions,
    streams,
    foreign_loader,
    training_with_evaluation,
    failing_metric,
    communication_hooks,
)

if __name__ == "__main__":
    results = {}
    for case in CASES:
        case(Path(sys.argv[1]), results)
    everywhere = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(everywhere, json.dumps(results))
    results["ranks_agree"] = len(set(everywhere)) == 1
    print("FOUND " + json.dumps(results), flush=True)
    leave()
