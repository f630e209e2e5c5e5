"""Train the same tiny model with two trainers and compare every bit that a run leaves behind.

As a script (under torchrun), with a folder and the names of cases: prints ``equal CASE`` for each.
"""

import hashlib
import json
import sys
from pathlib import Path

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from hf_trainplus import PlusTrainer, PlusTrainingArguments
from tests.support import tiny
from tests.support.launch import leave


def summed_cross_entropy(outputs, labels, num_items_in_batch=None):
    loss = torch.nn.functional.cross_entropy(outputs["logits"], labels, reduction="sum")
    return loss / num_items_in_batch


CASES = {
    "plain": {},
    "gradient_accumulation": {"arguments": {"gradient_accumulation_steps": 3}},
    "gradient_checkpointing": {"arguments": {"activation_checkpointing": True}},
    "bf16": {"arguments": {"bf16": True}},
    "label_smoothing": {"arguments": {"label_smoothing_factor": 0.1}},
    "compute_loss_func": {"trainer": {"compute_loss_func": summed_cross_entropy}},
    "causal_lm": {"causal": True, "arguments": {"gradient_accumulation_steps": 2}},
}


class EventRecorder(TrainerCallback):
    """Keeps the order of the events that callbacks see."""

    def __init__(self):
        self.events = []

    def __getattribute__(self, name):
        if name.startswith("on_"):
            return lambda args, state, control, **kwargs: self.events.append((name, state.global_step))
        return super().__getattribute__(name)


def train(trainer_class, arguments_class, folder, case):
    options = tiny.quiet(
        folder,
        max_steps=30,
        per_device_train_batch_size=2,
        save_strategy="steps",
        save_steps=10,
        learning_rate=1e-2,
        **case.get("arguments", {}),
    )
    args = arguments_class(**options)
    causal = case.get("causal", False)
    model = tiny.llama(attention_dropout=0.1) if causal else tiny.bert(dropout=0.1)
    recorder = EventRecorder()
    trainer = trainer_class(
        model,
        args,
        train_dataset=tiny.causal_rows(23) if causal else tiny.rows(23),
        data_collator=tiny.PaddingCollator(),
        callbacks=[recorder],
        **case.get("trainer", {}),
    )
    trainer.train()
    return {
        "weights": {name: value.detach().clone() for name, value in trainer.model.state_dict().items()},
        "logs": [_without_times(entry) for entry in trainer.state.log_history],
        "events": recorder.events,
        "files": _checkpoint_files(Path(folder)),
    }


def _without_times(entry):
    times = ("train_runtime", "train_samples_per_second", "train_steps_per_second")
    return {key: value for key, value in entry.items() if key not in times}


def _checkpoint_files(folder):
    contents = {}
    for path in sorted(folder.glob("checkpoint-*/*")):
        name = str(path.relative_to(folder))
        if path.name == "training_args.bin":  # holds the output folder itself
            contents[name] = None
        elif path.name == "trainer_state.json":
            state = json.loads(path.read_text())
            state["log_history"] = [_without_times(entry) for entry in state["log_history"]]
            contents[name] = json.dumps(state).replace(str(folder), "")
        elif path.suffix in (".pt", ".pth"):
            contents[name] = _digest_of_tensors(torch.load(path, weights_only=False))
        else:
            contents[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return contents


def _digest_of_tensors(value):
    """Zip archives hold the file's own name; what they contain is compared instead."""
    if isinstance(value, torch.Tensor):
        return (tuple(value.shape), hashlib.sha256(value.detach().cpu().numpy().tobytes()).hexdigest())
    if isinstance(value, dict):
        return {str(key): _digest_of_tensors(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_digest_of_tensors(inner) for inner in value]
    return repr(value)


def differences(first, second):
    found = [name for name in first["weights"] if not torch.equal(first["weights"][name], second["weights"][name])]
    found += [key for key in ("logs", "events", "files") if first[key] != second[key]]
    return found


def compare(case, folder):
    """Return what differs between stock's run and ours."""
    stock = train(Trainer, TrainingArguments, Path(folder) / "stock", case)
    plus = train(PlusTrainer, PlusTrainingArguments, Path(folder) / "plus", case)
    assert len(stock["events"]) > 60
    return differences(stock, plus)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        found = compare(CASES[name], Path(sys.argv[1]) / name)
        print(f"{found or 'equal'} {name}", flush=True)
    if torch.distributed.is_initialized():
        leave()
