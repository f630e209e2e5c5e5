import gc
import json
import logging
import sys
import tracemalloc

import numpy as np
import psutil
import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from hf_trainplus.callbacks import _leak_watch
from hf_trainplus.callbacks._leak_watch import LeakOptions, LeakWatch
from hf_trainplus.callbacks.memory_leak import MemoryLeakCallback
from tests.support import tiny

MIB = 1024**2
KEPT = 33 * MIB // 4


class Keeper(TrainerCallback):
    """Keeps a tensor at every other call of one event, as an accumulator that is never cleared does.

    Above 32 MiB the C library asks the system for each block, so that no memory freed before can hide the growth.
    """

    def __init__(self, event):
        self.kept, self.calls = [], 0
        setattr(self, event, self.keep)

    def keep(self, *args, **kwargs):
        self.calls += 1
        if self.calls % 2 == 0:
            self.kept.append(torch.ones(KEPT))


@pytest.fixture(autouse=True, scope="module")
def few_objects():
    """The test session's own million objects would make every collection slow."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def warnings_of_ours():
    found = []

    class Keep(logging.Handler):
        def emit(self, record):
            found.append(record.getMessage())

    handler = Keep()
    logger = logging.getLogger("hf_trainplus")
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)


def make(folder, callback, extra=(), **options):
    args = TrainingArguments(
        **tiny.quiet(folder, **{"max_steps": 20, "per_device_train_batch_size": 2, "logging_strategy": "no", **options})
    )
    return Trainer(
        tiny.bert(dropout=0.1),
        args,
        train_dataset=tiny.rows(24, low=8, high=9),
        eval_dataset=tiny.rows(4),
        data_collator=tiny.PaddingCollator(),
        callbacks=[callback, *extra],
    )


def causes(callback, series):
    return {verdict.kind: verdict.cause for verdict in callback.verdicts()[series]}


def test_a_callback_that_keeps_tensors_is_a_leak_and_named(tmp_path, warnings_of_ours):
    callback = MemoryLeakCallback(every_steps=2, time_share=None)
    make(tmp_path, callback, extra=[Keeper("on_step_end")]).train()
    assert causes(callback, "steps") == {"host_bytes": "leak"}
    assert callback.grown[0].what == f"cpu float32 ({KEPT},)"
    slope = callback.verdicts()["steps"][0].slope
    assert slope.value == pytest.approx(33 * MIB, rel=0.1)
    assert len(warnings_of_ours) == 1
    assert "memory leak on rank 0: host memory" in warnings_of_ours[0]
    assert f"cpu float32 ({KEPT},)" in warnings_of_ours[0]
    summary = json.loads((tmp_path / "trainplus/memory.json").read_text())
    assert summary["verdicts"]["steps"][0]["cause"] == "leak"
    assert summary["grown"][0]["what"] == f"cpu float32 ({KEPT},)"
    assert summary["allocator"] is None


def test_a_healthy_run_is_silent(tmp_path, warnings_of_ours):
    callback = MemoryLeakCallback(every_steps=2, time_share=None)
    make(tmp_path, callback, eval_strategy="steps", eval_steps=2).train()
    assert set(causes(callback, "steps").values()) <= {"none"}
    assert set(causes(callback, "evaluation").values()) <= {"none"}
    assert warnings_of_ours == []
    assert callback.grown == []


def test_a_leak_of_evaluations_is_found_in_their_series(tmp_path, warnings_of_ours):
    # two evaluations make one block: judged over pairs it is a line
    callback = MemoryLeakCallback(every_steps=None, time_share=None)
    make(
        tmp_path, callback, extra=[Keeper("on_prediction_step")], eval_strategy="steps", eval_steps=1, max_steps=16
    ).train()
    assert list(callback.verdicts()) == ["evaluation"]
    assert causes(callback, "evaluation") == {"host_bytes": "leak"}
    assert "an evaluation; it leaks" in warnings_of_ours[0]


class Longer(torch.utils.data.IterableDataset):
    """A stream whose rows get a token longer every four rows: a batch of two steps every point."""

    def __iter__(self):
        for place in range(48):
            ids = [3] * (8 + place // 4)
            yield {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": place % 2}


def test_a_buffer_that_follows_the_longest_batch_is_no_leak(tmp_path, warnings_of_ours):
    callback = MemoryLeakCallback(every_steps=2, time_share=None)
    trainer = make(tmp_path, callback, max_steps=22)
    trainer.train_dataset = Longer()
    held = {}

    def grow(module, args, kwargs):
        held["buffer"] = torch.ones(KEPT * (kwargs["input_ids"].shape[1] - 7))

    trainer.model.register_forward_pre_hook(grow, with_kwargs=True)
    trainer.train()
    assert causes(callback, "steps") == {"host_bytes": "longer_batches"}
    assert warnings_of_ours == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="no other system tells mapped pages apart")
def test_a_mapped_data_set_that_is_read_for_the_first_time_is_no_leak(tmp_path, warnings_of_ours):
    class Reader(TrainerCallback):
        def __init__(self, path, size=80 * MIB):
            np.zeros(size, dtype=np.uint8).tofile(path)
            self.pages, self.at, self.sum = np.memmap(path, dtype=np.uint8, mode="r"), 0, 0

        def on_step_end(self, *args, **kwargs):
            self.sum += int(self.pages[self.at : self.at + 4 * MIB].sum())
            self.at += 4 * MIB

    reader, callback = Reader(tmp_path / "rows.arrow"), MemoryLeakCallback(every_steps=2, time_share=None)
    before = psutil.Process().memory_info().rss
    make(tmp_path, callback, extra=[reader]).train()
    assert psutil.Process().memory_info().rss - before > 60 * MIB
    assert causes(callback, "steps") == {"host_bytes": "none"}
    assert warnings_of_ours == []


def test_python_lists_that_are_kept_are_a_leak_and_their_type_is_named(tmp_path, warnings_of_ours):
    class Lists(TrainerCallback):
        def __init__(self):
            self.kept = []

        def on_step_end(self, *args, **kwargs):
            self.kept += [[place] * 40 for place in range(4000)]  # about 1.5 MiB

    callback = MemoryLeakCallback(every_steps=2, time_share=None)
    make(tmp_path, callback, extra=[Lists()], max_steps=26).train()
    assert causes(callback, "steps") == {"host_bytes": "leak"}
    assert callback.grown[0].what == "list"
    assert callback.grown[0].count > 20_000
    assert "x list" in warnings_of_ours[0]


def test_allocation_sites_are_named_when_asked(tmp_path, warnings_of_ours):
    class Rows(TrainerCallback):
        def __init__(self):
            self.kept = []

        def on_step_end(self, args, state, *rest, **kwargs):
            if state.global_step % 2 == 0:
                self.kept.append(b"x" * (33 * MIB))

    callback = MemoryLeakCallback(every_steps=2, time_share=None, trace_allocations=True)
    make(tmp_path, callback, extra=[Rows()]).train()
    assert not tracemalloc.is_tracing()
    assert any("test_memory_leak.py:" in grown.what for grown in callback.grown)


def test_strings_are_a_leak_that_names_how_to_see_them(tmp_path, warnings_of_ours):
    class Strings(TrainerCallback):
        def __init__(self):
            self.kept = []

        def on_step_end(self, args, state, *rest, **kwargs):
            self.kept.append("x" * (33 * MIB // 2))

    callback = MemoryLeakCallback(every_steps=2, time_share=None)
    make(tmp_path, callback, extra=[Strings()]).train()
    assert causes(callback, "steps") == {"host_bytes": "leak"}
    # the step's own batch differs from that of the warm-up, and explains nothing
    assert [one for one in callback.grown if one.bytes is not None] == []
    assert "trace_allocations=True tells strings, bytes and the lines" in warnings_of_ours[0]


def test_points_stand_at_equal_steps_and_know_the_largest_batch(tmp_path):
    callback = MemoryLeakCallback(every_steps=6, time_share=None)
    make(tmp_path, callback).train()
    points = callback.points()["steps"]
    assert [point.step for point in points] == [6, 12, 18]
    assert {point.largest_batch for point in points} == {16.0}  # two rows of eight tokens


def test_training_is_bit_equal_with_and_without(tmp_path):
    plain = make(tmp_path / "without", TrainerCallback(), max_steps=8)
    plain.train()
    watched = make(tmp_path / "with", MemoryLeakCallback(every_steps=1, time_share=None), max_steps=8)
    watched.train()
    ours = watched.model.state_dict()
    assert [name for name, value in plain.model.state_dict().items() if not torch.equal(value, ours[name])] == []


def test_the_allocators_cache_is_left_alone_unless_asked(tmp_path, monkeypatch):
    emptied = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(True))
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: dict.fromkeys(_STATISTICS, 0))
    for asked in (False, True):
        callback = MemoryLeakCallback(every_steps=2, time_share=None, empty_cache=asked, write_summary=False)
        trainer = make(tmp_path, callback, max_steps=2)
        callback.on_train_begin(trainer.args, trainer.state, trainer.control)
        callback._watch._device = torch.device("cuda")
        trainer.state.global_step = 2
        callback.on_step_end(trainer.args, trainer.state, trainer.control)
        assert emptied == [True] * asked
        assert callback.points()["steps"][0].value("unused_bytes") == 0.0


_STATISTICS = ("allocated_bytes.all.current", "reserved_bytes.all.current")


@pytest.mark.parametrize(
    "batch", [torch.zeros(3, 5), (torch.zeros(2), torch.zeros(3, 5)), {"task": "a", "x": torch.zeros(3, 5)}]
)
def test_the_largest_batch_is_known_in_every_form(batch):
    watch = LeakWatch(LeakOptions(1, 2, 0.0, False, False, None), None, 0)
    watch.hears_loader = True
    watch.fetch_ends({"x": torch.zeros(4)})
    watch.fetch_ends(batch)
    watch.fetch_ends(None)
    watch.take("steps", 1)
    assert watch.series["steps"][0].largest_batch == 15.0


def test_points_take_no_more_than_their_share_of_the_time(monkeypatch):
    now, cost = [0.0], 0.1
    watch = LeakWatch(LeakOptions(1, 2, 0.0, False, False, 0.01), None, 0, clock=lambda: now[0])

    def collect(*_):
        now[0] += cost
        return 1.0

    monkeypatch.setattr(_leak_watch, "own_resident_bytes", collect)
    for step in range(1, 2001):
        now[0] += 0.05
        watch.take("steps", step)
    # 100 s of training: a tenth of a second each, and 1 % of the time
    points = watch.series["steps"]
    assert 8 <= len(points) <= 10
    assert points[0].step > 490  # nothing is known of the cost before the first point: a quarter of a second
    assert watch._spent <= 0.01 * now[0]


def test_a_share_of_nothing_is_refused():
    with pytest.raises(ValueError, match="time_share=0"):
        MemoryLeakCallback(time_share=0)


@pytest.mark.parametrize("wrong", [{"every_steps": 0}, {"warmup": 0}, {"least_growth_bytes": -1}])
def test_wrong_use(wrong):
    with pytest.raises(ValueError, match="allowed are every_steps >= 1 or None"):
        MemoryLeakCallback(**wrong)
