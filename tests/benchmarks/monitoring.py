"""What monitoring costs and how true its figures are, on this machine.

Prints one finding a line, with the target it is held to; ``--json`` prints them as one object. On the CPU; the devices
of the sampler's measurements are fakes behind the real NVML code.

    python tests/benchmarks/monitoring.py [--pairs 8] [--steps 40] [--samples 10000] [--seconds 20] [--json]
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import random
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from statistics import median
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_callback import CallbackHandler, DefaultFlowCallback
from transformers.utils import logging

from hf_trainplus.callbacks.diagnosis import DiagnosisCallback
from hf_trainplus.callbacks.gpu_monitor import GPUMonitorCallback
from hf_trainplus.callbacks.memory_leak import MemoryLeakCallback
from hf_trainplus.callbacks.step_clock import StepClockCallback
from hf_trainplus.monitor.devices import Host, OpenDevices, UseTrust
from hf_trainplus.monitor.devices.nvml import NvmlSource
from hf_trainplus.monitor.sampler import Sampler
from tests.support import tiny
from tests.support.fake_nvml import FakeGpu, FakeNvml

logging.set_verbosity_error()


class Rows(torch.utils.data.Dataset):
    """Rows of 64 tokens that take a time to come; ``spent`` is how long they truly took."""

    def __init__(self, seconds=0.0, n=512):
        generator = torch.Generator().manual_seed(0)
        self.ids = torch.randint(3, 1000, (n, 64), generator=generator)
        self.seconds, self.spent = seconds, 0.0

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        began = time.monotonic()
        if self.seconds:
            time.sleep(self.seconds)
        ids = self.ids[index]
        row = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": int(index) % 2}
        self.spent += time.monotonic() - began
        return row


def model():
    torch.manual_seed(0)
    return BertForSequenceClassification(
        BertConfig(vocab_size=1000, hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512)
    )


def fake_devices(count=8):
    gpus = [FakeGpu(uuid=f"GPU-{index:02d}", processes=[(1, 5)]) for index in range(count)]
    source = NvmlSource(FakeNvml(gpus), mask=",".join(gpu.uuid for gpu in gpus))
    return OpenDevices(source, {index: UseTrust(suspect=False) for index in range(count)})


def everything(trainer, every_steps):
    """Attach all that monitoring has."""
    clock = StepClockCallback().attach(trainer)
    monitor = GPUMonitorCallback(1.0, open_with=fake_devices).attach(trainer)
    memory = MemoryLeakCallback(every_steps=every_steps)
    trainer.callback_handler.callbacks += [memory, DiagnosisCallback(clock, monitor, memory)]
    return clock


def make(folder, steps, dataset, *, on):
    args = TrainingArguments(**tiny.quiet(folder, max_steps=steps, per_device_train_batch_size=8, logging_steps=10))
    trainer = Trainer(model(), args, train_dataset=dataset, data_collator=collate)
    return trainer, everything(trainer, every_steps=10) if on else None


def collate(rows):
    keys = ("input_ids", "attention_mask")
    return {key: torch.stack([row[key] for row in rows]) for key in keys} | {
        "labels": torch.tensor([row["labels"] for row in rows])
    }


class Endless:
    """The loader inside Accelerate's, over one batch again and again."""

    def __init__(self, batch):
        self.batch = batch

    def __iter__(self):
        return itertools.repeat(self.batch)


def own_time_a_step(steps=2000):
    """Drive the callbacks and wrappers through the events of a step around methods that do nothing."""

    def seconds(on, folder):
        args = TrainingArguments(**tiny.quiet(folder, logging_steps=10))
        handler = CallbackHandler([DefaultFlowCallback()], None, None, None, None)
        state, control = TrainerState(max_steps=steps + 1, logging_steps=10), TrainerControl()
        batch = {"input_ids": torch.zeros(8, 64, dtype=torch.int64)}
        trainer = SimpleNamespace(
            callback_handler=handler,
            model=SimpleNamespace(main_input_name="input_ids"),
            state=state,
            get_batch_samples=lambda iterator, count, device: ([next(iterator)], None),
            training_step=lambda: trainer.compute_loss(),
            compute_loss=lambda: None,
            floating_point_ops=lambda inputs: 1.0,
            evaluate=lambda: None,
            log=lambda logs: handler.on_log(args, state, control, logs),
            train=lambda: None,
        )
        if on:
            everything(trainer, every_steps=10)
        handler.train_dataloader = SimpleNamespace(base_dataloader=Endless(batch))
        control = handler.on_train_begin(args, state, control)
        # by name, as Accelerate does it: the clock and the leak watch listen there
        batches = handler.train_dataloader.base_dataloader.__iter__()
        began = time.perf_counter()
        for step in range(1, steps + 1):
            trainer.get_batch_samples(batches, 1, "cpu")
            control = handler.on_step_begin(args, state, control)
            trainer.training_step()
            trainer.floating_point_ops(batch)
            control = handler.on_pre_optimizer_step(args, state, control)
            control = handler.on_optimizer_step(args, state, control)
            state.global_step = step
            control = handler.on_step_end(args, state, control)
            if control.should_log:
                trainer.log({"loss": 1.0})
        gone = time.perf_counter() - began
        handler.on_train_end(args, state, control)
        return gone / steps

    with tempfile.TemporaryDirectory() as folder:
        rounds = [(seconds(True, folder), seconds(False, folder)) for _ in range(5)]
    return median(on - off for on, off in rounds)


def train_seconds(steps, on):
    with tempfile.TemporaryDirectory() as folder:
        trainer, _ = make(folder, steps, Rows(), on=on)
        # the Trainer's own figure would hide what the beginning and the end cost
        began = time.perf_counter()
        trainer.train()
        return time.perf_counter() - began


def pairs(count, steps):
    """Time on/off and off/off pairs in turn, the order inside a pair at random."""
    rng, ratios = random.Random(0), {"on/off": [], "off/off": []}
    train_seconds(5, False)
    step = None
    for _ in range(count):
        for kind in ratios:
            sides = [kind == "on/off", False]
            order = [0, 1] if rng.random() < 0.5 else [1, 0]
            seconds = [0.0, 0.0]
            for side in order:
                seconds[side] = train_seconds(steps, sides[side])
            ratios[kind].append(seconds[0] / seconds[1])
            step = min(seconds[1] / steps, step or seconds[1])
    return ratios, step


def sampler_share(seconds, interval):
    sampler = Sampler(fake_devices(), Host(), interval=interval)
    sampler.start()
    time.sleep(seconds)
    sampler.stop()
    return sampler.cost()


def memory_growth(samples):
    now = [0.0]
    sampler = Sampler(fake_devices(), None, clock=lambda: now[0])

    def take(count):
        for number in range(count):
            sampler.timeline.enter("train_step" if number % 2 else "waiting")
            now[0] += 1.0
            sampler.sample()

    tracemalloc.start()
    take(200)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    take(samples - 200)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return grown


def data_wait(milliseconds, steps, attach):
    """Return the measured and the true share of waiting for data, in percent."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Rows(milliseconds / 1e3 / 8)
        spent = [0.0]

        def timed_collate(items):
            began = time.monotonic()
            batch = collate(items)
            spent[0] += time.monotonic() - began
            return batch

        args = TrainingArguments(**tiny.quiet(folder, max_steps=steps, per_device_train_batch_size=8, logging_steps=10))
        callback = StepClockCallback()
        trainer = Trainer(
            model(), args, train_dataset=rows, data_collator=timed_collate, callbacks=None if attach else [callback]
        )
        if attach:
            callback.attach(trainer)
        trainer.train()
        summary = callback.summary()
    total = summary["total_seconds"]
    return 100 * summary["seconds"]["data_wait"] / total, 100 * (rows.spent + spent[0]) / total


def measure(options):
    found = {}
    found["own_seconds_a_step"] = own_time_a_step()
    found["ratios"], found["step_seconds"] = pairs(options.pairs, options.steps)
    found["sampler"] = {str(interval): vars(sampler_share(options.seconds, interval)) for interval in (1.0, 0.1)}
    found["memory_growth_bytes"] = memory_growth(options.samples)
    found["data_wait"] = [
        {"sleep_ms_a_batch": sleep, "attached": attach, "measured": measured, "truth": truth}
        for attach in (True, False)
        for sleep in (0, 5, 10, 20, 50)
        for measured, truth in [data_wait(sleep, options.steps, attach)]
    ]
    return found


def tell(found, options):
    own, step = found["own_seconds_a_step"], found["step_seconds"]
    print(
        f"own time: {own * 1e6:.1f} us a step, {100 * own / step:.3f} % of a {step * 1e3:.1f} ms step (target <= 1 %)"
    )
    for kind, ratios in found["ratios"].items():
        print(
            f"{kind}: median {median(ratios):.4f}, range {min(ratios):.4f} to {max(ratios):.4f} of {len(ratios)} pairs"
        )
    off = found["ratios"]["off/off"]
    inside = min(off) <= median(found["ratios"]["on/off"]) <= max(off)
    print(f"median of on/off inside the range of off/off: {inside} (target True)")
    for interval, cost in found["sampler"].items():
        share = 100 * cost["cpu_seconds"] / cost["wall_seconds"]
        target = " (target <= 0.5 %)" if interval == "1.0" else ""
        print(
            f"sampler, 8 devices and host, every {interval} s: {share:.3f} % of a core over {cost['samples']} samples, "
            f"{cost['missed']} missed{target}"
        )
    print(
        f"memory after {options.samples} samples of 8 devices: {found['memory_growth_bytes']:+d} bytes (target: constant)"
    )
    for one in found["data_wait"]:
        name = "attached" if one["attached"] else "callback"
        apart = one["measured"] - one["truth"]
        print(
            f"data wait, {name}, {one['sleep_ms_a_batch']} ms of sleep a batch: {one['measured']:.1f} % measured, "
            f"{one['truth']:.1f} % true, {apart:+.2f} points apart (target <= 5)"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(options)
    print(json.dumps(found, indent=1)) if options.json else tell(found, options)


if __name__ == "__main__":
    main()
