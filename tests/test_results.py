import numpy as np
import pytest

from hf_trainplus import ExampleResults


def make(n=5, k=3):
    rng = np.random.default_rng(0)
    return ExampleResults(
        rng.permutation(n),
        rng.random(n),
        rng.integers(1, 5, n),
        scores={"accuracy": rng.integers(0, 2, n)},
        statistics={"bleu": rng.random((n, k))},
        groups={"topic": np.array(["a", "b"])[rng.integers(0, 2, n)]},
        identity="weights-1",
    )


def test_loss_divides_once_by_all_targets():
    results = ExampleResults([0, 1, 2], [10.0, 1.0, 99.0], [10, 1, 0])
    assert results.loss == pytest.approx(11 / 11)


def test_fully_masked_rows_have_no_loss():
    assert ExampleResults([0], [0.0], [0]).loss is None


def test_nonfinite_rows_are_counted_and_shown():
    results = ExampleResults([0, 1, 2], [np.nan, np.inf, 1.0], [1, 0, 1])
    assert results.nonfinite_count == 1
    assert np.isnan(results.loss)


def test_round_trip_through_arrow():
    results = make()
    back = ExampleResults.from_table(results.to_table())
    assert back.identity == "weights-1"
    np.testing.assert_array_equal(back.index, results.index)
    np.testing.assert_array_equal(back.loss_sum, results.loss_sum)
    np.testing.assert_array_equal(back.scores["accuracy"], results.scores["accuracy"])
    np.testing.assert_array_equal(back.statistics["bleu"], results.statistics["bleu"])
    np.testing.assert_array_equal(back.groups["topic"], results.groups["topic"])


def test_concatenate_and_order():
    results = make(6)
    joined = ExampleResults.concatenate([results.take(np.arange(3)), results.take(np.arange(3, 6))])
    np.testing.assert_array_equal(joined.in_dataset_order().index, np.arange(6))
    assert joined.loss == pytest.approx(results.loss)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 0], [1, 1], [1, 1]), "index 0 occurs 2 times"),
        (([0, 1], [1], [1, 1]), "'loss_sum' has 1 rows"),
        (([0], [1], [-1]), "target_count has -1"),
        (([[0]], [1], [1]), "one dimension"),
    ],
)
def test_bad_columns_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ExampleResults(*arguments)


def test_concatenate_refuses_other_columns():
    with pytest.raises(ValueError, match="columns differ"):
        ExampleResults.concatenate([make(), ExampleResults([9], [1.0], [1])])
    with pytest.raises(ValueError, match="no table"):
        ExampleResults.concatenate([])


@pytest.mark.parametrize("rows", [slice(0, 0), slice(2, 9)])
def test_arrow_keeps_types_and_shapes_of_slices(rows):
    kinds = {"text": np.array(list("abcdefghijkl")), "flag": np.arange(12) % 2 == 0, "number": np.arange(12)}
    results = ExampleResults(
        np.arange(12),
        np.ones(12),
        np.ones(12, np.int64),
        statistics={"s": np.arange(36.0).reshape(12, 3)},
        groups=kinds,
    )
    table = results.to_table()
    back = ExampleResults.from_table(table.slice(rows.start, rows.stop - rows.start))
    np.testing.assert_array_equal(back.statistics["s"], results.statistics["s"][rows])
    for name, group in kinds.items():
        np.testing.assert_array_equal(back.groups[name], group[rows])
        assert back.groups[name].dtype.kind == group.dtype.kind or len(back) == 0
