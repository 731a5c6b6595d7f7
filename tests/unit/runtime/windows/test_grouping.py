"""Grouping is by value, for keys of every type, and reductions follow SQL, not Arrow."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from runtime.operators.grouping import Reduction, SumOverflowError, reduce_groups


def group(keys: list[pa.Array[Any]]) -> list[tuple[tuple[Any, ...], int]]:
    """Distinct keys with their number of rows, sorted by text (the order of groups is free)."""
    ones: Any = pa.array([1] * len(keys[0]))
    found, (counts,) = reduce_groups(keys, [(ones, Reduction.SUM)])
    assert [column.type for column in found] == [column.type for column in keys]
    rows = zip(zip(*(column.to_pylist() for column in found), strict=True), counts.to_pylist(), strict=True)
    return sorted(rows, key=repr)


def reduced(values: list[Any], kind: Any, reduction: Reduction) -> Any:
    _, (column,) = reduce_groups([pa.array([0] * len(values))], [(pa.array(values, kind), reduction)])
    assert column.type == kind
    return column.to_pylist()[0]


KEYS: list[tuple[Any, list[Any]]] = [
    (pa.bool_(), [True, None, False]),
    (pa.int8(), [1, None, -1]),
    (pa.int64(), [2**63 - 1, None, -(2**63)]),
    (pa.float32(), [1.5, None, math.inf]),
    (pa.decimal128(38, 3), [Decimal("1.000"), None, Decimal("-1.000")]),
    (pa.string(), ["", None, "ab"]),
    (pa.binary(), [b"", None, b"\x00"]),
    (pa.date32(), [dt.date(1969, 1, 1), None, dt.date(2030, 1, 1)]),
    (pa.time32("ms"), [dt.time(1), None, dt.time(2)]),
    (pa.timestamp("ms"), [dt.datetime(1969, 1, 1), None, dt.datetime(2030, 1, 1)]),
    (pa.list_(pa.int32()), [[1], None, [1, None], []]),
    (pa.struct([("a", pa.int32())]), [{"a": 1}, None, {"a": None}]),
    (pa.null(), [None]),
]


@pytest.mark.parametrize(("kind", "values"), KEYS, ids=[str(kind) for kind, _ in KEYS])
def test_keys_of_every_type(kind: Any, values: list[Any]) -> None:
    column: Any = pa.array([*values, *values], kind)
    assert group([column]) == sorted([((value,), 2) for value in values], key=repr)
    assert group([column.slice(len(values))]) == sorted([((value,), 1) for value in values], key=repr)


def test_zeros_are_one_key_and_so_are_all_nans() -> None:
    nan = np.array([0x7FF8000000000000, 0xFFF8000000000001], dtype=np.uint64).view(np.float64)
    for kind in (pa.float32(), pa.float64()):
        column: Any = pa.array([-0.0, nan[0], 0.0, nan[1], None]).cast(kind)
        found = group([column])
        assert [repr(row) for row in found] == ["((0.0,), 2)", "((None,), 1)", "((nan,), 2)"]


def test_maps_are_equal_in_any_order_of_entries() -> None:
    column: Any = pa.array([[("a", 1), ("b", 2)], [("b", 2), ("a", 1)], [("a", 1)]], pa.map_(pa.string(), pa.int32()))
    assert sorted(count for _, count in group([column])) == [1, 2]


def test_composite_keys() -> None:
    left: Any = pa.array(["a", "a", None, None, "a"])
    right: Any = pa.array([1, None, 1, None, 1])
    assert group([left, right]) == [(("a", 1), 2), (("a", None), 1), ((None, 1), 1), ((None, None), 1)]


def test_integer_sums_wrap_in_their_own_type() -> None:
    assert reduced([127, 1], pa.int8(), Reduction.SUM) == -128
    assert reduced([2**31 - 1, 1], pa.int32(), Reduction.SUM) == -(2**31)
    assert reduced([2**63 - 1, 1], pa.int64(), Reduction.SUM) == -(2**63)


def test_groups_of_nulls_give_null() -> None:
    for kind in (pa.int32(), pa.float64(), pa.decimal128(38, 2)):
        assert reduced([None, None], kind, Reduction.SUM) is None
        assert reduced([None, None], kind, Reduction.MAX) is None


def test_nan_is_the_largest_float() -> None:
    for kind in (pa.float32(), pa.float64()):
        values = [1.0, math.nan, -math.inf, None, math.inf]
        assert math.isnan(reduced(values, kind, Reduction.MAX))
        assert reduced(values, kind, Reduction.MIN) == -math.inf
        assert math.isnan(reduced([math.nan, None], kind, Reduction.MIN))
        assert reduced([-1.5, -2.5], kind, Reduction.MAX) == -1.5


def test_extremes_of_other_types() -> None:
    assert reduced(["b", None, "é", "a"], pa.string(), Reduction.MAX) == "é"
    assert reduced([False, True], pa.bool_(), Reduction.MAX) is True
    assert reduced([Decimal("-1.5"), Decimal("2.0")], pa.decimal128(9, 1), Reduction.MIN) == Decimal("-1.5")
    assert reduced([dt.date(2030, 1, 1), dt.date(1960, 1, 1)], pa.date32(), Reduction.MIN) == dt.date(1960, 1, 1)


def test_a_decimal_sum_that_does_not_fit_reduces_nothing() -> None:
    largest = Decimal(10**38 - 1)
    assert reduced([largest, largest, largest.copy_negate()], pa.decimal128(38, 0), Reduction.SUM) == largest
    with pytest.raises(SumOverflowError):
        reduced([largest, largest], pa.decimal128(38, 0), Reduction.SUM)


def test_a_column_asked_for_twice_is_reduced_both_ways() -> None:
    values: Any = pa.array([1, 5])
    pairs = [(values, Reduction.SUM), (values, Reduction.MAX), (values, Reduction.SUM)]
    _, columns = reduce_groups([pa.array([0, 0])], pairs)
    assert [column.to_pylist() for column in columns] == [[6], [5], [6]]
