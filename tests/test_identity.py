"""Fingerprints of bytes, arrays, plain values and tables: equal for equal content, different for any other."""

import itertools
import marshal
import subprocess
import sys
from dataclasses import fields, replace

import numpy as np
import pyarrow as pa
import pytest

from hf_trainplus.identity import (
    Digest,
    Identity,
    UnknownIdentityError,
    fingerprint_array,
    fingerprint_named,
    fingerprint_table,
    plain_bytes,
)

IDENTITY = Identity("w", "d", "m", "p", "fp32", "s")


def all_different(values):
    return len(set(values)) == len(list(values))


@pytest.mark.parametrize("name", [field.name for field in fields(Identity)])
def test_every_part_of_an_identity_counts(name):
    assert replace(IDENTITY, **{name: "other"}).key != IDENTITY.key


def test_parts_of_an_identity_are_not_mixed_up():
    assert replace(IDENTITY, weights="d", data="w").key != IDENTITY.key
    assert Identity("w", "d", "m", "p", "fp32", "s").key == IDENTITY.key


def test_pieces_keep_their_ends():
    digests = []
    for pieces in (("ab",), ("a", "b"), ("", "ab"), ("ab", ""), ()):
        digest = Digest()
        digest.add(*pieces)
        digests.append(digest.text())
    assert all_different(digests)


def test_names_and_values_are_not_mixed_up():
    assert all_different([fingerprint_named(parts) for parts in ({}, {"a": "bc"}, {"ab": "c"}, {"a": "b", "c": ""})])


def test_arrays_differ_by_type_shape_order_and_every_value():
    base = np.arange(6, dtype=np.int64)
    arrays = [base, base.astype(np.int32), base.astype(np.float64), base.view(np.float64), base.reshape(2, 3)]
    arrays += [base.reshape(3, 2), base.reshape(2, 3).T, base[::-1], base[:5], base.astype(">i8"), base.astype("u8")]
    for position in range(6):
        changed = base.copy()
        changed[position] += 1
        arrays.append(changed)
    assert all_different([fingerprint_array(array) for array in arrays])


def test_equal_arrays_are_equal_whatever_their_memory():
    base = np.arange(12.0).reshape(3, 4)
    for same in (base.copy(), np.asfortranarray(base), np.hstack([base, base])[:, :4], base[::-1][::-1]):
        assert fingerprint_array(same) == fingerprint_array(base)


def test_not_a_number_and_signed_zero_count_as_they_are():
    values = [0.0, -0.0, np.nan, np.inf]
    assert all_different([fingerprint_array(np.array([value])) for value in values])
    assert fingerprint_array(np.array([np.nan])) == fingerprint_array(np.array([np.nan]))


def test_arrays_of_objects_are_refused():
    with pytest.raises(UnknownIdentityError, match="dtype object holds Python objects"):
        fingerprint_array(np.array([object()]))
    with pytest.raises(UnknownIdentityError, match="holds Python objects"):
        fingerprint_array(np.zeros(1, dtype=[("a", object)]))


PLAIN = [None, True, 1, 1.0, 1j, "1", b"1", ..., [1], (1,), {1: 1}, {1: 1.0}, [], (), {}, [None], [True], [1.0], ["1"]]


def test_plain_values_differ_by_type_and_value():
    written = [plain_bytes(value) for value in PLAIN]
    assert None not in written
    assert all_different(written)


def test_plain_values_do_not_depend_on_which_objects_hold_them():
    word = "".join(["inp", "ut_ids"])  # not the interned text of the literal
    assert plain_bytes(["input_ids", "input_ids"]) == plain_bytes(["input_ids", word])
    assert plain_bytes([1000, 1000]) == plain_bytes([1000, int("1000")])


@pytest.mark.parametrize("value", [np.float64(1), np.arange(2), [[1]], {"a": [1]}, {1}, object(), [np.int64(1)], len])
def test_what_is_not_plain_is_left_to_others(value):
    assert plain_bytes(value) is None


def test_subclasses_are_not_plain():
    class Number(int):
        pass

    assert plain_bytes(Number(1)) is None
    assert marshal.dumps(1, 2) == plain_bytes(1)


def table(**changes):
    columns = {"x": [1, 2, None, 4], "s": ["a", "bc", "", None], "l": [[1, 2], [], None, [3]]}
    return pa.table({**columns, **changes})


def test_tables_differ_by_every_value_name_type_and_order():
    base = table()
    others = [table(x=[1, 2, 0, 4]), table(x=[1, 2, None, 5]), table(s=["ab", "c", "", None])]
    others += [table(s=["a", "bc", None, None]), table(l=[[1], [2], None, [3]]), table(l=[[1, 2], None, None, [3]])]
    others += [base.rename_columns(["y", "s", "l"]), base.select(["s", "x", "l"]), base.slice(1), base.slice(0, 3)]
    others += [base.cast(pa.schema([("x", pa.int32()), ("s", pa.string()), ("l", pa.list_(pa.int64()))]))]
    assert all_different([fingerprint_table(each) for each in [base, *others]])


def test_chunks_and_slices_do_not_count():
    base = pa.concat_tables([table()] * 5).combine_chunks()
    whole = fingerprint_table(base)
    for cut in range(1, 20):
        assert fingerprint_table(pa.concat_tables([base.slice(0, cut), base.slice(cut)])) == whole
    assert fingerprint_table(base.slice(3, 2)) == fingerprint_table(base.take(pa.array([3, 4])))


def test_metadata_of_the_schema_does_not_count():
    assert fingerprint_table(table().replace_schema_metadata({"pandas": "x"})) == fingerprint_table(table())


def test_selections_differ_by_rows_and_order():
    numbers = pa.table({"x": list(range(10))})
    selections = [[0, 1], [1, 0], [0], [0, 1, 2, 3, 4], [4, 3, 2, 1, 0], list(range(10)), list(range(9))]
    found = [fingerprint_table(numbers, np.array(rows)) for rows in selections]
    assert all_different([*found, fingerprint_table(numbers)])


def test_a_selection_differs_by_the_values_that_it_selects():
    one, other = pa.table({"x": list(range(10))}), pa.table({"x": [*range(9), 10]})
    assert fingerprint_table(one, np.array([0, 8])) == fingerprint_table(other, np.array([0, 8]))
    assert fingerprint_table(one, np.array([0, 9])) != fingerprint_table(other, np.array([0, 9]))


def test_a_table_is_read_in_pieces(monkeypatch):
    base = pa.table({"x": list(range(1000))})
    whole = fingerprint_table(base)
    monkeypatch.setattr("hf_trainplus.identity._TABLE_PIECE_BYTES", 800)
    pieces = fingerprint_table(base)
    assert pieces != whole  # the cuts are part of what is hashed, and follow from the table alone
    assert fingerprint_table(pa.concat_tables([base.slice(0, 7), base.slice(7)])) == pieces


def test_dictionary_columns_count_by_their_values():
    tables = [pa.table({"x": pa.array(values).dictionary_encode()}) for values in (["a", "b"], ["a", "c"], ["b", "a"])]
    assert all_different([fingerprint_table(each) for each in tables])


def test_fingerprints_are_the_same_in_another_process():
    line = (
        "from hf_trainplus.identity import *; import numpy as np;"
        "print(fingerprint_array(np.arange(3)), fingerprint_named({'b': '1', 'a': '2'}), plain_bytes({'x': 1.5}).hex())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", line], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    here = [fingerprint_array(np.arange(3)), fingerprint_named({"a": "2", "b": "1"}), plain_bytes({"x": 1.5}).hex()]
    assert outputs == {" ".join(here) + "\n"}


def test_no_two_of_many_arrays_share_a_fingerprint():
    bits = [np.array(row, dtype=np.uint8) for row in itertools.product((0, 1), repeat=11)]
    assert all_different([fingerprint_array(row) for row in bits])
