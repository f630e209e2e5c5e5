import functools
import itertools
from itertools import count

import pytest
from datasets import IterableDataset, concatenate_datasets, interleave_datasets
from torch.utils.data import IterableDataset as TorchStream

from hf_trainplus.evaluation.endless import is_endless


class Forever(TorchStream):
    def __iter__(self):
        while True:
            for row in range(3):
                if row == 1:
                    break  # leaves the inner loop only
            yield row


class Counting(TorchStream):
    def __iter__(self):
        for row in itertools.count():
            yield 2 * row


class Delegating(TorchStream):
    def __iter__(self):
        yield from itertools.cycle(range(3))


class CountingByName(TorchStream):
    def __iter__(self):
        for row in count(3):
            yield from [row]


class Repeating(TorchStream):
    def __iter__(self):
        while 1:
            yield from range(4)


class Stopping(TorchStream):
    def __iter__(self):
        row = 0
        while True:
            if row == 5:
                break
            yield row
            row += 1


class Returning(TorchStream):
    def __iter__(self):
        for row in itertools.count():
            if row > 5:
                return
            yield row


class Catching(TorchStream):
    def __iter__(self):
        rows = iter(range(3))
        while True:
            try:
                yield next(rows)
            except StopIteration:
                return


class Raising(TorchStream):
    def __iter__(self):
        while True:
            yield 1
            raise RuntimeError("the socket was closed")


class InnerFunction(TorchStream):
    def __iter__(self):
        def forever():
            while True:
                yield 1

        yield from itertools.islice(forever(), 3)


class RepeatingTwice(TorchStream):
    def __iter__(self):
        yield from itertools.repeat(7, 2)


class Waiting(TorchStream):
    """Waits in an endless loop that yields nothing, then ends."""

    def __iter__(self):
        yield 1
        yield 2


class OwnCount(TorchStream):
    def count(self):
        return range(3)

    def __iter__(self):
        for row in self.count():
            yield 2 * row


@pytest.mark.parametrize("kind", [Forever, Counting, CountingByName, Delegating, Repeating])
def test_endless_loops_are_seen(kind):
    assert is_endless(kind())
    assert len(list(itertools.islice(kind(), 20))) == 20


@pytest.mark.parametrize(
    "kind", [Stopping, Returning, Catching, Raising, InnerFunction, RepeatingTwice, Waiting, OwnCount]
)
def test_streams_that_end_are_let_through(kind):
    assert not is_endless(kind())


def finite():
    for row in range(3):
        yield {"x": row}


def forever():
    while True:
        yield {"x": 1}


class Rows:
    def endless(self):
        while True:
            yield {"x": 1}

    def ending(self):
        yield {"x": 1}

    def __call__(self, name="x"):
        yield from itertools.repeat({name: 1})


cycling = lambda: itertools.cycle([{"x": 1}])  # noqa: E731
ending = lambda: iter([{"x": 1}])  # noqa: E731


def stream(generator=finite):
    return IterableDataset.from_generator(generator)


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (lambda: stream(), False),
        (lambda: stream(forever), True),
        (lambda: stream(forever).take(3), False),
        (lambda: stream(Rows().endless), True),
        (lambda: stream(Rows().ending), False),
        (lambda: stream(Rows()), True),
        (lambda: stream(functools.partial(Rows(), name="y")), True),
        (lambda: stream(functools.partial(finite)), False),
        (lambda: stream(cycling), True),
        (lambda: stream(ending), False),
        (lambda: stream().repeat(None), True),
        (lambda: stream().repeat(4), False),
        (lambda: stream().repeat(None).map(lambda row: row), True),
        (lambda: stream().repeat(None).filter(lambda row: True).shuffle(seed=1, buffer_size=2), True),
        (lambda: stream().repeat(None).take(10).map(lambda row: row), False),
        (lambda: stream().repeat(None).skip(10), True),
        (lambda: concatenate_datasets([stream(), stream().repeat(None)]), True),
        (lambda: concatenate_datasets([stream(), stream()]), False),
        (lambda: interleave_datasets([stream(), stream().repeat(None)]), False),
        (lambda: interleave_datasets([stream(), stream().repeat(None)], stopping_strategy="all_exhausted"), True),
        (lambda: interleave_datasets([stream().repeat(None), stream().repeat(None)]), True),
        (lambda: interleave_datasets([stream(), stream().repeat(None)], probabilities=[0.5, 0.5], seed=1), False),
    ],
)
def test_streams_of_datasets(dataset, expected):
    built = dataset()
    assert is_endless(built) is expected
    assert (len(list(itertools.islice(built, 100))) == 100) is expected


@pytest.mark.parametrize(
    ("iterable", "expected"),
    [
        (itertools.count(), True),
        (itertools.cycle([1]), True),
        (itertools.repeat(1), True),
        (itertools.repeat(1, 2), False),
        ([1, 2], False),
        (range(3), False),
        ("ab", False),
        (iter([]), False),
    ],
)
def test_plain_iterables(iterable, expected):
    assert is_endless(iterable) is expected


def test_a_class_without_source_is_not_judged():
    scope = {}
    exec("class Typed:\n    def __iter__(self):\n        while True:\n            yield 1\n", scope)
    assert not is_endless(scope["Typed"]())
