"""The key hash: against recorded vectors, against a row-wise reference, and by its rules of equality."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.key_groups import hash_columns, key_group, key_group_range, subtask_of

VECTORS = Path(__file__).parents[3] / "data" / "key_hash_vectors.json"
WORD = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
CHAIN = 0x9FB21C651E98DF25
SEED = 0x2545F4914F6CDD1D
NULL_HASH = 0x8B72E4F3A6D1C95F


def fmix(x: int) -> int:
    x &= WORD
    x = ((x ^ (x >> 33)) * 0xFF51AFD7ED558CCD) & WORD
    x = ((x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53) & WORD
    return x ^ (x >> 33)


def reference_bytes(value: bytes) -> int:
    words = [int.from_bytes(value[i : i + 8], "little") for i in range(0, len(value), 8)]
    total = sum(fmix(word ^ fmix((i + 1) * GOLDEN)) for i, word in enumerate(words))
    return fmix(total + len(value) * GOLDEN)


def reference_value(value: Any, kind: pa.DataType) -> int:
    """Hash of one Python value, one row at a time: the definition the vectorised code must meet."""
    if value is None:
        return NULL_HASH
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return fmix(int(value))
    if pa.types.is_floating(kind):
        canonical = math.nan if math.isnan(value) else value + 0.0
        return fmix(struct.unpack("<Q", struct.pack("<d", canonical))[0])
    if pa.types.is_string(kind):
        return reference_bytes(value.encode())
    if pa.types.is_binary(kind):
        return reference_bytes(value)
    if pa.types.is_decimal(kind):
        unscaled = int(value.scaleb(kind.scale, decimal.Context(prec=76)))
        hashed = fmix(unscaled & WORD)
        if not -(1 << 63) <= unscaled < 1 << 63:
            hashed = fmix(hashed * CHAIN + ((unscaled >> 64) & WORD))
        return hashed
    if pa.types.is_list(kind):
        items = [reference_value(v, kind.value_type) ^ fmix((i + 1) * GOLDEN) for i, v in enumerate(value)]
        return fmix(sum(fmix(item) for item in items) + len(value) * GOLDEN)
    if pa.types.is_map(kind):
        entries = [reference_row(entry, (kind.key_type, kind.item_type)) for entry in value]
        return fmix(sum(entries) + len(value) * GOLDEN)
    assert pa.types.is_struct(kind)
    return reference_row([value[f.name] for f in kind], [f.type for f in kind])


def reference_row(values: Any, kinds: Any) -> int:
    hashed = SEED
    for value, kind in zip(values, kinds, strict=True):
        hashed = fmix(hashed * CHAIN + reference_value(value, kind))
    return hashed


SCALARS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.decimal128(38, 4), st.decimals(min_value=-(10**20), max_value=10**20, places=4)),
    (pa.string(), st.text(max_size=120)),
    (pa.binary(), st.binary(max_size=200)),
]


@st.composite
def columns(draw: st.DrawFn) -> pa.Array[Any]:
    kind, values = draw(st.sampled_from(SCALARS))
    shape = draw(st.sampled_from(["plain", "plain", "list", "struct", "map"]))
    value = st.none() | values
    if shape == "list":
        kind, value = pa.list_(kind), st.none() | st.lists(value, max_size=4)
    elif shape == "struct":
        kind = pa.struct([("a", kind), ("b", pa.int32())])
        value = st.none() | st.fixed_dictionaries({"a": value, "b": st.none() | st.integers(0, 9)})
    elif shape == "map":
        kind = pa.map_(pa.string(), kind)
        value = st.none() | st.dictionaries(st.text(max_size=9), value, max_size=3).map(lambda d: list(d.items()))
    rows = draw(st.lists(value, max_size=20))
    array: pa.Array[Any] = pa.array(rows, kind)
    first = draw(st.integers(0, len(rows)))
    return array.slice(first, draw(st.integers(0, len(rows) - first)))


@given(columns())
def test_equals_the_row_wise_definition_on_any_slice(column: pa.Array[Any]) -> None:
    expected = [reference_row([value], [column.type]) for value in column.to_pylist()]
    assert hash_columns([column]).tolist() == expected


@given(st.lists(st.tuples(st.none() | st.integers(-9, 9), st.none() | st.text(max_size=70)), max_size=20))
def test_composite_keys_follow_the_definition(rows: list[tuple[int | None, str | None]]) -> None:
    kinds = (pa.int32(), pa.string())
    arrays = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
    assert hash_columns(arrays).tolist() == [reference_row(row, kinds) for row in rows]


PLAIN: dict[str, Any] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
}


def vector_array(kind: str, values: list[Any]) -> Any:
    """A vector's column: binary values are given in hex, floats and decimals as text, times as their integer."""
    match kind.split(":")[0]:
        case "float" | "double":
            return pa.array([None if v is None else float(v) for v in values], PLAIN[kind])
        case "decimal":
            precision, scale = map(int, kind.split(":")[1].split(","))
            numbers = [None if v is None else decimal.Decimal(v) for v in values]
            return pa.array(numbers, pa.decimal128(precision, scale))
        case "binary":
            return pa.array([None if v is None else bytes.fromhex(v) for v in values], pa.binary())
        case "date32":
            return pa.array(values, pa.int32()).cast(pa.date32())
        case "time32":
            return pa.array(values, pa.int32()).cast(pa.time32("ms"))
        case "timestamp":
            return pa.array(values, pa.int64()).cast(pa.timestamp("ms"))
        case "list":
            return pa.array(values, pa.list_(pa.int32()))
        case "struct":
            return pa.array(values, pa.struct([("a", pa.int64()), ("b", pa.string())]))
        case "map":
            rows = [None if v is None else list(v.items()) for v in values]
            return pa.array(rows, pa.map_(pa.string(), pa.int64()))
        case _:
            return pa.array(values, PLAIN[kind])


def test_recorded_vectors() -> None:
    for vector in json.loads(VECTORS.read_text(encoding="utf-8")):
        arrays = [vector_array(column["type"], column["values"]) for column in vector["columns"]]
        hashes = hash_columns(arrays)
        assert [f"{h:016x}" for h in hashes.tolist()] == vector["hashes"], vector["columns"]
        assert key_group(hashes, 128).tolist() == vector["key_groups_of_128"]


def single(value: Any, kind: pa.DataType) -> int:
    return int(hash_columns([pa.array([value], kind)])[0])


@pytest.mark.parametrize("value", [0, 1, -1, 127, -128])
def test_equal_integers_hash_equally_in_every_width(value: int) -> None:
    assert len({single(value, kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())}) == 1


def test_floats_hash_by_value() -> None:
    assert single(-0.0, pa.float64()) == single(0.0, pa.float64()) == single(0.0, pa.float32())
    assert single(1.5, pa.float32()) == single(1.5, pa.float64())
    patterns = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001], dtype=np.uint64)
    assert len(set(hash_columns([pa.array(patterns.view(np.float64))]).tolist())) == 1


def test_decimals_hash_equally_in_every_width() -> None:
    for text in ("0.00", "-1.25", "12345.67"):
        number = decimal.Decimal(text)
        assert single(number, pa.decimal128(9, 2)) == single(number, pa.decimal256(40, 2))


def test_map_entries_hash_in_any_order_and_list_items_do_not() -> None:
    kind = pa.map_(pa.string(), pa.int32())
    assert single([("a", 1), ("b", 2)], kind) == single([("b", 2), ("a", 1)], kind)
    assert single([1, 2], pa.list_(pa.int32())) != single([2, 1], pa.list_(pa.int32()))


def test_encodings_of_the_same_values_hash_equally() -> None:
    plain = pa.array(["a", None, "bb", "a", ""])
    for other in (plain.dictionary_encode(), plain.cast(pa.large_string()), plain.cast(pa.string_view())):
        assert hash_columns([other]).tolist() == hash_columns([plain]).tolist()
    assert single(dt.date(1970, 1, 2), pa.date32()) == single(1, pa.int32())


def test_null_of_every_type_is_one_value() -> None:
    kinds: list[pa.DataType] = [
        pa.null(),
        pa.int32(),
        pa.string(),
        pa.decimal128(9, 2),
        pa.timestamp("ms", "UTC"),
        pa.list_(pa.int8()),
    ]
    assert len({single(None, kind) for kind in kinds}) == 1


def test_long_and_short_strings_share_a_batch() -> None:
    values = ["x" * n for n in (0, 1, 7, 8, 9, 63, 64, 65, 1_000, 20_000)]
    assert hash_columns([pa.array(values)]).tolist() == [reference_row([v], [pa.string()]) for v in values]


def test_zero_key_columns_put_every_row_in_one_group() -> None:
    assert len(set(hash_columns([], 5).tolist())) == 1
    with pytest.raises(ValueError, match="row_count"):
        hash_columns([])


@given(st.integers(1, 400), st.data())
def test_ranges_partition_the_key_groups_and_agree_with_subtask_of(max_parallelism: int, data: st.DataObject) -> None:
    parallelism = data.draw(st.integers(1, max_parallelism))
    owners = subtask_of(np.arange(max_parallelism, dtype=np.int16), parallelism, max_parallelism).tolist()
    expected = []
    for index in range(parallelism):
        first, last = key_group_range(index, parallelism, max_parallelism)
        expected += [index] * (last - first + 1)
    assert owners == expected


def test_key_groups_of_counting_keys_are_spread_evenly() -> None:
    groups = key_group(hash_columns([pa.array(np.arange(128_000))]), 128)
    counts = np.bincount(groups, minlength=128)
    assert counts.min() > 800
    assert counts.max() < 1_200


@pytest.mark.parametrize("max_parallelism", [0, 32_768])
def test_impossible_parallelism_is_refused(max_parallelism: int) -> None:
    with pytest.raises(ValueError, match="max parallelism"):
        key_group(np.zeros(1, dtype=np.uint64), max_parallelism)
    with pytest.raises(ValueError, match="parallelism"):
        key_group_range(0, 1, max_parallelism)
