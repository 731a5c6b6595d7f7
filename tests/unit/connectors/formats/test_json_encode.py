"""Encoding JSON as Flink writes it, and reading back what was written."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.formats.json.format import FORMAT
from planner.ir.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    DataType,
    Field,
    array,
    arrow_schema,
    decimal,
    map_of,
    multiset,
    row,
    time,
    timestamp,
    timestamp_ltz,
    to_arrow,
)
from tests.unit.connectors.formats.json_support import encode, messages

UTC = dt.UTC

WRITTEN = [
    (BOOLEAN, True, "true"),
    (INT, -7, "-7"),
    (BIGINT, 2**63 - 1, "9223372036854775807"),
    (DOUBLE, 1.0, "1.0"),
    (DOUBLE, 0.1, "0.1"),
    (DOUBLE, 1e7, "1.0E7"),
    (DOUBLE, 12345678.9, "1.23456789E7"),
    (DOUBLE, 9999999.5, "9999999.5"),
    (DOUBLE, 0.001, "0.001"),
    (DOUBLE, 0.00015, "1.5E-4"),
    (DOUBLE, -0.0, "-0.0"),
    (DOUBLE, 5e-324, "5.0E-324"),
    (DOUBLE, math.nan, '"NaN"'),
    (DOUBLE, -math.inf, '"-Infinity"'),
    (FLOAT, 0.1, "0.1"),
    (FLOAT, 1.5e10, "1.5E10"),
    (decimal(10, 2), Decimal("12.30"), "12.30"),
    (decimal(10, 0), Decimal("5"), "5"),
    (decimal(10, 8), Decimal("0.00000012"), "1.2E-7"),
    (STRING, "é😀/", '"é😀/"'),
    (STRING, 'a"b\\c\n\t\x01\x1f', '"a\\"b\\\\c\\n\\t\\u0001\\u001F"'),
    (BYTES, b"hi", '"aGk="'),
    (DATE, dt.date(2026, 2, 3), '"2026-02-03"'),
    (time(), dt.time(1, 2, 3), '"01:02:03"'),
    (time(3), dt.time(1, 2, 3, 40_000), '"01:02:03.04"'),
    (timestamp(3), dt.datetime(2026, 1, 1), '"2026-01-01 00:00:00"'),
    (timestamp(3), dt.datetime(2026, 1, 1, 0, 0, 10, 500_000), '"2026-01-01 00:00:10.5"'),
    (timestamp(6), dt.datetime(2026, 1, 1, 0, 0, 0, 1), '"2026-01-01 00:00:00.000001"'),
    (timestamp_ltz(3), dt.datetime(2026, 1, 1, tzinfo=UTC), '"2026-01-01 00:00:00Z"'),
    (array(STRING), ["a", None, 'q"'], '["a",null,"q\\""]'),
    (array(INT), [], "[]"),
    (map_of(STRING, array(INT)), [("k", [1]), ("l", None)], '{"k":[1],"l":null}'),
    (multiset(STRING), [("k", 2)], '{"k":2}'),
    (row(("a b", INT), ("r", row(("x", DOUBLE)))), {"a b": 1, "r": {"x": None}}, '{"a b":1,"r":{"x":null}}'),
]


@pytest.mark.parametrize(("t", "value", "text"), WRITTEN, ids=lambda value: str(value)[:40])
def test_a_value_is_written_as_flink_writes_it(t: DataType, value: object, text: str) -> None:
    rows: list[dict[str, object]] = [{"x": None}, {"x": value}, {"x": None}]
    assert encode({"x": t}, rows) == ['{"x":null}', f'{{"x":{text}}}', '{"x":null}']


def test_columns_keep_their_order_and_their_names_are_escaped() -> None:
    assert encode({"b": INT, 'a"': STRING}, [{"b": 1, 'a"': "x"}]) == ['{"b":1,"a\\"":"x"}']
    assert encode({}, []) == []


def test_the_iso_standard() -> None:
    columns = {"a": timestamp(3), "b": timestamp_ltz(3)}
    moment = dt.datetime(2026, 1, 1, 12, 0, 0, 120_000)
    (text,) = encode(columns, [{"a": moment, "b": moment.replace(tzinfo=UTC)}], timestamp_format__standard="ISO-8601")
    assert text == '{"a":"2026-01-01T12:00:00.12","b":"2026-01-01T12:00:00.12Z"}'


def test_plain_decimals() -> None:
    columns = {"x": decimal(10, 8)}
    rows: list[dict[str, object]] = [{"x": Decimal("0.00000012")}, {"x": None}, {"x": Decimal(0)}]
    assert encode(columns, rows, encode__decimal_as_plain_number="true") == [
        '{"x":0.00000012}',
        '{"x":null}',
        '{"x":0.00000000}',
    ]


def test_null_fields_can_be_left_out_of_rows_but_not_of_maps() -> None:
    columns = {"a": INT, "r": row(("x", INT), ("m", map_of(STRING, INT)))}
    rows: list[dict[str, object]] = [
        {"a": None, "r": {"x": None, "m": [("k", None)]}},
        {"a": 1, "r": None},
        {"a": None, "r": None},
    ]
    assert encode(columns, rows, encode__ignore_null_fields="true") == ['{"r":{"m":{"k":null}}}', '{"a":1}', "{}"]


def test_slices_of_a_larger_batch() -> None:
    columns = {"s": STRING, "l": array(STRING), "m": map_of(STRING, DOUBLE), "t": timestamp(3)}
    fields = tuple(Field(name, t) for name, t in columns.items())
    rows = [
        {"s": f'"{i}', "l": [str(i), None], "m": [(str(i), i * 1e6)], "t": dt.datetime(2026, 1, 1, i)}
        for i in range(20)
    ]
    arrays = [pa.array([r[f.name] for r in rows], to_arrow(f.type)) for f in fields]
    batch = pa.RecordBatch.from_arrays(arrays, names=["c0", "c1", "c2", "c3"])
    encoder = FORMAT.encoder(fields, {}, "UTC")
    whole = encoder.encode(batch).to_pylist()
    assert encoder.encode(batch.slice(7, 5)).to_pylist() == whole[7:12]
    assert encoder.encode(batch.slice(3, 0)).to_pylist() == []
    assert json.loads(whole[12] or b"") == {
        "s": '"12',
        "l": ["12", None],
        "m": {"12": 1.2e7},
        "t": "2026-01-01 12:00:00",
    }


# ------------------------------------------------------------------------------------------------ round trips

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
MOMENTS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1)).map(
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
)
SCALARS: list[tuple[DataType, st.SearchStrategy[object]]] = [
    (BOOLEAN, st.booleans()),
    (INT, st.integers(-(2**31), 2**31 - 1)),
    (BIGINT, st.integers(-(2**63), 2**63 - 1)),
    (DOUBLE, st.floats()),
    (FLOAT, st.floats(width=32)),
    (decimal(12, 4), st.decimals(-(10**7), 10**7, places=4)),
    (decimal(38, 20), st.decimals(-(10**17), 10**17, places=20)),
    (STRING, TEXTS),
    (BYTES, st.binary(max_size=8)),
    (DATE, st.dates(dt.date(1900, 1, 1), dt.date(2200, 1, 1))),
    (time(), st.times().map(lambda t: t.replace(microsecond=0))),
    (timestamp(3), MOMENTS),
    (timestamp_ltz(3), MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC))),
]


@st.composite
def types_with_values(draw: st.DrawFn, depth: int = 2) -> tuple[DataType, st.SearchStrategy[object]]:
    """A type and a strategy for its values, NULL included."""
    kind = draw(st.sampled_from(["scalar", "scalar", "array", "map", "row"])) if depth else "scalar"
    if kind == "scalar":
        t, values = draw(st.sampled_from(SCALARS))
        return t, st.none() | values
    inner, members = draw(types_with_values(depth=depth - 1))
    match kind:
        case "array":
            return array(inner), st.none() | st.lists(members, max_size=3)
        case "map":
            entries = st.dictionaries(TEXTS, members, max_size=3).map(lambda found: list(found.items()))
            return map_of(STRING, inner), st.none() | entries
        case _:
            second, seconds = draw(types_with_values(depth=depth - 1))
            return row(("x", inner), ("y", second)), st.none() | st.fixed_dictionaries({"x": members, "y": seconds})


@given(st.data())
def test_what_is_written_reads_back_equal(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(types_with_values(), min_size=1, max_size=4))
    fields = tuple(Field(f"f{i}", t) for i, (t, _) in enumerate(chosen))
    count = data.draw(st.integers(1, 5))
    arrays = [
        pa.array(data.draw(st.lists(values, min_size=count, max_size=count)), to_arrow(t)) for t, values in chosen
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(tuple(t for t, _ in chosen)))
    texts = FORMAT.encoder(fields, {}, "UTC").encode(batch).to_pylist()
    decoded = FORMAT.decoder(fields, {}, "UTC").decode(messages(*(text or b"" for text in texts)))
    assert decoded.kept is None
    assert _comparable(decoded.batch.to_pylist()) == _comparable(batch.to_pylist())


def _comparable(value: object) -> object:
    """NaN equal to itself, everything else as it is."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dict):
        return {name: _comparable(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_comparable(member) for member in value]
    return value
