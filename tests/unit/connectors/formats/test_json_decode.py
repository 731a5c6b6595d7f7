"""Decoding JSON: Flink's rules for each type, one row per message, and what happens to records that do not fit."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import OptionError, RecordError
from connectors.formats.json.decode import ROWS_ON_EXACT_ROAD, JsonDecoder, _Rows
from connectors.formats.json.format import FORMAT
from connectors.formats.json.options import JsonOptions
from planner.ir.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TINYINT,
    DataType,
    Field,
    array,
    decimal,
    map_of,
    multiset,
    row,
    time,
    timestamp,
    timestamp_ltz,
)
from tests.unit.connectors.formats.json_support import column, decode, messages

UTC = dt.UTC

ACCEPTED = [
    (INT, b"1.5", 1),
    (INT, b"-1.5", -1),
    (INT, b"1e3", 1000),
    (INT, b'"42"', 42),
    (INT, b'" 42 "', 42),
    (INT, b"null", None),
    (BIGINT, b"9223372036854775807", 2**63 - 1),
    (BIGINT, b"-9223372036854775808", -(2**63)),
    (TINYINT, b"-128", -128),
    (SMALLINT, b'"7"', 7),
    (DOUBLE, b"1", 1.0),
    (DOUBLE, b'"1.5"', 1.5),
    (DOUBLE, b'"-Infinity"', -math.inf),
    (DOUBLE, b"1e400", math.inf),
    (FLOAT, b"16777217", 16777216.0),
    (BOOLEAN, b"true", True),
    (BOOLEAN, b'"true"', True),
    (BOOLEAN, b'" TRUE"', True),
    (BOOLEAN, b'"yes"', False),
    (BOOLEAN, b"1", False),
    (STRING, b'"plain"', "plain"),
    (STRING, b'""', ""),
    (STRING, b"12.50", "12.50"),
    (STRING, b"1e3", "1e3"),
    (STRING, b"true", "true"),
    (STRING, b'{"a": 1, "b": [1, "x"]}', '{"a":1,"b":[1,"x"]}'),
    (STRING, b'[1, "a"]', '[1,"a"]'),
    (STRING, '"\\u00e9\\ud83d\\ude00é"'.encode(), "é😀é"),
    (STRING, b'"\\ud83d"', "?"),
    (STRING, b'"a\tb"', "a\tb"),
    (STRING, b'"a\nb"', "a\nb"),
    (STRING, b'"a\\u0000b"', "a\0b"),
    (decimal(10, 2), b"12.345", Decimal("12.35")),
    (decimal(10, 2), b"-12.345", Decimal("-12.35")),
    (decimal(10, 2), b"12.3449999", Decimal("12.34")),
    (decimal(10, 2), b'"7.005"', Decimal("7.01")),
    (decimal(10, 2), b"1e-2", Decimal("0.01")),
    (decimal(20, 2), b"123456789012345678.12", Decimal("123456789012345678.12")),
    (decimal(38, 18), b"12345678901234567890.123456789012345678", Decimal("12345678901234567890.123456789012345678")),
    (decimal(4, 2), b"99.994", Decimal("99.99")),
    (decimal(4, 2), b"99.995", None),
    (decimal(4, 2), b"100", None),
    (DATE, b'"2026-02-28"', dt.date(2026, 2, 28)),
    (time(), b'"23:59:59"', dt.time(23, 59, 59)),
    (time(), b'"23:59:59.9"', dt.time(23, 59, 59)),
    (timestamp(3), b'"2026-01-01 00:00:00"', dt.datetime(2026, 1, 1)),
    (timestamp(3), b'"2026-01-01 00:00:00.5"', dt.datetime(2026, 1, 1, 0, 0, 0, 500_000)),
    (timestamp(3), b'"2026-01-01 00:00:00.123999"', dt.datetime(2026, 1, 1, 0, 0, 0, 123_000)),
    (timestamp(3), b'"1969-12-31 23:59:59.9999"', dt.datetime(1969, 12, 31, 23, 59, 59, 999_000)),
    (timestamp(3), b'"9999-12-31 23:59:59.9999"', dt.datetime(9999, 12, 31, 23, 59, 59, 999_000)),
    (timestamp_ltz(3), b'"2026-01-01 00:00:00.5Z"', dt.datetime(2026, 1, 1, 0, 0, 0, 500_000, UTC)),
    (BYTES, b'"aGk="', b"hi"),
    (array(INT), b"[1, null, 3]", [1, None, 3]),
    (array(array(STRING)), b'[["a"], [], null]', [["a"], [], None]),
    (map_of(STRING, INT), b'{"a": 1, "b": null}', [("a", 1), ("b", None)]),
    (map_of(STRING, INT), b'{"a": 1, "a": 2}', [("a", 2)]),
    (multiset(STRING), b'{"a": 2}', [("a", 2)]),
    (row(("x", INT), ("y", STRING)), b'{"y": "q", "z": 1}', {"x": None, "y": "q"}),
    (row(("t", array(timestamp(3)))), b'{"t": ["2026-01-01 00:00:00"]}', {"t": [dt.datetime(2026, 1, 1)]}),
]

REFUSED = [
    (INT, b"2147483648"),
    (INT, b"true"),
    (INT, b'"x"'),
    (INT, b'"1.5"'),
    (INT, b"{}"),
    (BIGINT, b"9223372036854775808"),
    (TINYINT, b"128"),
    (TINYINT, b"1.5"),
    (DOUBLE, b"true"),
    (DOUBLE, b'"1_0"'),
    (BOOLEAN, b"[]"),
    (decimal(10, 2), b'"abc"'),
    (DATE, b'"2026-02-30"'),
    (DATE, b'"2026-01-01T00:00:00"'),
    (DATE, b"20000"),
    (time(), b'"24:00:00"'),
    (time(), b'"12:00"'),
    (timestamp(3), b'"2026-01-01T00:00:00"'),
    (timestamp(3), b'"2026-01-01 00:00:00Z"'),
    (timestamp(3), b'"2026-01-01 00:00:00+02:00"'),
    (timestamp(3), b'"2026-01-01 00:00"'),
    (timestamp(3), b'"2026-01-01"'),
    (timestamp(3), b"1767225600123"),
    (timestamp_ltz(3), b'"2026-01-01 00:00:00"'),
    (timestamp_ltz(3), b'"2026-01-01 00:00:00+02:00"'),
    (BYTES, b'"*"'),
    (array(INT), b"5"),
    (array(INT), b'["x"]'),
    (map_of(STRING, INT), b"[1]"),
    (row(("x", INT)), b'"x"'),
]


@pytest.mark.parametrize(("t", "text", "expected"), ACCEPTED, ids=lambda value: str(value)[:40])
def test_a_value_is_read_as_flink_reads_it(t: DataType, text: bytes, expected: object) -> None:
    assert column(t, text) == [expected]
    assert column(t, b"null", text, b"null") == [None, expected, None]


@pytest.mark.parametrize(("t", "text"), REFUSED, ids=lambda value: str(value)[:40])
def test_a_value_that_does_not_fit_fails_with_its_field_or_is_null(t: DataType, text: bytes) -> None:
    with pytest.raises(RecordError, match=r"message 1: field 'x.* is not "):
        column(t, b"null", text)
    assert column(t, b"null", text, ignore_parse_errors="true") in ([None, None], [None, [None]])


def test_the_iso_standard_is_accepted_when_asked_for_and_then_alone() -> None:
    iso = {"timestamp_format__standard": "ISO-8601"}
    assert column(timestamp(3), b'"2020-12-12T12:13:14.123"', b'"2020-12-12T12:13"', **iso) == [
        dt.datetime(2020, 12, 12, 12, 13, 14, 123_000),
        dt.datetime(2020, 12, 12, 12, 13),
    ]
    assert column(timestamp_ltz(3), b'"1969-12-31T23:59:59.5Z"', **iso) == [
        dt.datetime(1969, 12, 31, 23, 59, 59, 500_000, UTC)
    ]
    with pytest.raises(RecordError, match="is not a TIMESTAMP 'yyyy-MM-ddTHH:mm:ss"):
        column(timestamp(3), b'"2020-12-12 12:13:14"', **iso)


def test_keys_are_case_sensitive_missing_is_null_and_the_last_of_equal_keys_counts() -> None:
    decoded = decode({"id": INT, "ID": INT}, '{"ID": 1, "id": 2}', '{"Id": 3}', '{"id": 4, "id": 5, "extra": [{}]}')
    assert decoded.batch.to_pylist() == [{"c0": 2, "c1": 1}, {"c0": None, "c1": None}, {"c0": 5, "c1": None}]


# ------------------------------------------------------------------------------------- one row per message

ONE_EACH = [b'{"x":%d}' % i for i in range(3)]


@pytest.mark.parametrize(
    ("values", "bad"),
    [
        ([b"", *ONE_EACH], 0),
        ([ONE_EACH[0], b"", b'{"x":7}{"x":8}'], 1),
        ([b'{"x":', b"1}"], 0),
        ([ONE_EACH[0], b'{"a":', b"[]}", b'{"x":7} {"x":8}'], 1),
        ([b'{"a":"', b'"}', b'{"x":7}\n{"x":8}'], 0),
        ([b'{"a":[{}', b"{}]}", b'{"x":7}{"x":8}'], 0),
        ([ONE_EACH[0], b"5"], 1),
        ([ONE_EACH[0], b"null"], 1),
        ([ONE_EACH[0], b"[1]"], 1),
        ([ONE_EACH[0], b'{"x":1'], 1),
        ([ONE_EACH[0], b'{"x":"\xff"}'], 1),
        ([ONE_EACH[0], b"\0"], 1),
        ([ONE_EACH[0], b'{"x":nan}'], 1),
    ],
)
def test_rows_never_shift_against_messages(values: list[bytes], bad: int) -> None:
    with pytest.raises(RecordError, match=f"message {bad}: "):
        decode({"x": INT}, *values)
    decoded = decode({"x": INT}, *values, ignore_parse_errors="true")
    assert decoded.kept is not None
    assert decoded.batch.num_rows == len(decoded.kept) == len(values) - decoded.skipped
    for index, value in zip(decoded.kept.tolist(), decoded.batch.column(0).to_pylist(), strict=True):
        assert value == decode({"x": INT}, values[index]).batch.column(0).to_pylist()[0]


def test_of_several_objects_in_a_message_the_first_is_the_row() -> None:
    """Jackson stops after the first value, and so Flink never sees what follows it."""
    values = [b'{"x":1}{"x":2}', b'{"x":3} trailing', b'{"x":4}']
    decoded = decode({"x": INT}, *values)
    assert (decoded.batch.column(0).to_pylist(), decoded.kept) == ([1, 3, 4], None)


def test_braces_in_strings_and_nested_objects_are_no_second_row() -> None:
    values = [b'{"x":1,"s":"}  {"}', b'{ "r" : {"a":{}}, "x":2}', b'\n {"x":3,"l":[{},{}]}\r\n']
    assert decode({"x": INT}, *values).batch.column(0).to_pylist() == [1, 2, 3]


def test_one_bad_record_among_many_is_skipped_alone_and_counted() -> None:
    values = [b'{"x":%d,"s":"%d"}' % (i, i) for i in range(5000)]
    values[1234] = b'{"x":1234,'
    values[4999] = b""
    decoded = decode({"x": BIGINT, "s": STRING}, *values, ignore_parse_errors="true")
    assert decoded.skipped == 2
    assert decoded.kept is not None
    expected = [i for i in range(5000) if i not in (1234, 4999)]
    assert decoded.kept.tolist() == expected == decoded.batch.column(0).to_pylist()
    with pytest.raises(RecordError, match=r'message 1234: .*the record begins: \{"x":1234,'):
        decode({"x": BIGINT, "s": STRING}, *values)


def test_only_skipped_messages_give_an_empty_batch() -> None:
    decoded = decode({"x": INT}, b"x", b"", ignore_parse_errors="true")
    assert (decoded.batch.num_rows, decoded.skipped) == (0, 2)
    assert decode({"x": INT}).batch.num_rows == 0


def test_rows_are_counted_without_any_column() -> None:
    decoded = decode({}, b'{"a":1}', b"{}", b"nonsense", b'{"b":{}}', ignore_parse_errors="true")
    assert (decoded.batch.num_rows, decoded.batch.num_columns, decoded.skipped) == (3, 0, 1)
    assert decode({}, b'{"a":1}', b"{}").batch.num_rows == 2


# ------------------------------------------------------------------------------------------- special roads


def test_numbers_in_a_string_column_keep_their_text_in_long_runs() -> None:
    decoder = FORMAT.decoder((Field("id", INT), Field("s", STRING)), {}, "UTC")
    texts = ["12.50", '{"k": [1, 2]}', "true", "null", '"q\\"uote"']
    values = [f'{{"id":{i},"s":{texts[i % 5]}}}' for i in range(3000)]
    for _ in range(2):
        batch = decoder.decode(messages(*values)).batch
        assert batch.column(0).to_pylist() == list(range(3000))
        assert batch.column(1).to_pylist() == ["12.50", '{"k":[1,2]}', "true", None, 'q"uote'] * 600


def test_a_missing_field_can_be_an_error() -> None:
    strict = {"fail_on_missing_field": "true"}
    columns = {"x": INT, "r": row(("y", INT))}
    whole = ['{"x": null, "r": {"y": 1}}', '{"x": 1, "r": null}']
    assert decode(columns, *whole, **strict).batch.num_rows == 2
    with pytest.raises(RecordError, match="message 2: field 'x': the field is missing"):
        decode(columns, *whole, '{"r": null}', **strict)
    with pytest.raises(RecordError, match=r"message 2: field 'r\.y': the field is missing"):
        decode(columns, *whole, '{"x": 1, "r": {}}', **strict)


def test_an_error_names_the_nested_field() -> None:
    t = row(("items", array(row(("price", decimal(10, 2))))))
    with pytest.raises(RecordError, match=r"message 0: field 'x\.items\[1\]\.price': 'free' is not a DECIMAL"):
        column(t, b'{"items": [{"price": 1}, {"price": "free"}]}')
    assert column(t, b'{"items": [{"price": 1}, {"price": "free"}]}', ignore_parse_errors="true") == [
        {"items": [{"price": Decimal("1.00")}, {"price": None}]}
    ]


def test_options_are_checked_by_name_and_value() -> None:
    with pytest.raises(OptionError, match=r"no option 'json\.ignore-parse-error'") as caught:
        FORMAT.validate({"ignore-parse-error": "true"})
    assert "json.ignore-parse-errors" in caught.value.hint
    with pytest.raises(OptionError, match="must be true or false"):
        FORMAT.validate({"ignore-parse-errors": "yes"})
    with pytest.raises(OptionError, match="must be one of SQL, ISO-8601"):
        FORMAT.validate({"timestamp-format.standard": "RFC"})
    with pytest.raises(OptionError, match="should not both be true"):
        FORMAT.validate({"ignore-parse-errors": "true", "fail-on-missing-field": "true"})
    with pytest.raises(OptionError, match="string keys only"):
        FORMAT.decoder((Field("m", map_of(INT, INT)),), {}, "UTC")


# ------------------------------------------------------------------------------------------------ fuzzing

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
COLUMNS = {"i": INT, "s": STRING, "d": decimal(12, 3), "t": timestamp(3), "a": array(DOUBLE), "r": row(("x", BIGINT))}
RECORDS = st.dictionaries(st.sampled_from([*COLUMNS, "other"]), JSON_VALUES, max_size=6)


@given(st.lists(RECORDS.map(json.dumps) | st.text(max_size=6), max_size=6))
def test_runs_give_the_same_as_single_messages(values: list[str]) -> None:
    """Whatever road a run takes, each message gives the row it gives alone, by the exact road."""
    decoded = decode(COLUMNS, *values, ignore_parse_errors="true")
    kept = decoded.kept.tolist() if decoded.kept is not None else list(range(len(values)))
    assert decoded.batch.num_rows == len(kept) == len(values) - decoded.skipped
    exact = JsonDecoder(tuple(Field(n, t) for n, t in COLUMNS.items()), JsonOptions(ignore_parse_errors=True))
    for index, found in zip(kept, decoded.batch.to_pylist(), strict=True):
        assert found == _exactly(exact, values[index])


def _exactly(decoder: JsonDecoder, value: str) -> dict[str, object]:
    rows = _Rows()
    decoder._exact(messages(value), 0, 1, rows)
    (found,) = rows.batches[0].to_pylist()
    return dict(found)


@pytest.mark.parametrize("count", [1, ROWS_ON_EXACT_ROAD, ROWS_ON_EXACT_ROAD + 1, 2049])
def test_every_bad_place_is_found(count: int) -> None:
    for bad in {0, count // 2, count - 1}:
        values = [b'{"x":1}'] * count
        values[bad] = b'{"x":"one"}'
        with pytest.raises(RecordError, match=f"message {bad}: "):
            decode({"x": INT}, *values)
        found = decode({"x": INT}, *values, ignore_parse_errors="true").batch.column(0).to_numpy(zero_copy_only=False)
        assert np.flatnonzero(np.isnan(found)).tolist() == [bad]


@pytest.mark.parametrize("depth", [200, 900, 5_000, 200_000])
@pytest.mark.parametrize("columns", [{"id": INT}, {"id": INT, "s": STRING}, {"id": INT, "s": array(INT)}])
def test_one_deeply_nested_message_harms_nobody_else(columns: dict[str, DataType], depth: int) -> None:
    """As deep as the reader goes it is an ordinary value; deeper it is one unreadable record, never a crash."""
    deep = b'{"id":2,"s":' + b"[" * depth + b"]" * depth + b"}"
    around = [b'{"id":1}', deep, b'{"id":3,"s":null}']
    decoded = decode(columns, *around, ignore_parse_errors="true")
    ids = decoded.batch.column(0).to_pylist()
    assert ids in ([1, 2, 3], [1, 3])
    assert decoded.skipped == 3 - len(ids)
    if len(ids) == 2:
        with pytest.raises(RecordError, match="message 1"):
            decode(columns, *around)


ODD_MESSAGES = [
    b'{"id":1 "s":"a"}', b'{"id":2,,"s":"b"}', b'{"id":3,"s":"c",}', b'{"id":4,"x":[1,],"s":"d"}', b'{"id":5,"x":01}',
    b'{"id":6,"x":1.}', b'{"id":7,"x":tru}', b'{"id":8}{"id":9}', b'{"id":10}xx', b'{"id":11,"s":"\x01"}',
    b'{"id":12,"s":"\\q"}', b'{"id":13,"x":NaN}', b'{"id":14,"s":"\xff"}', b'{"id":15,"x":"\xff"}', b"", b"  ", b"null",
    b"[]", b"5", b'{"id":16', b'"id":17}', b'{"id":"18"}', b'{"id":19.9}', b'{"id":1e1}', b'{"id":"x"}', b'{"id":true}',
    b'{"id":9223372036854775808}', b'{"id":20,"id":21}', b' {"id":22} ', b'{"id":23,"s":null}', b'{"id":24,"s":5.50}',
    b'{"id":25,"s":{"a":[1,2.0]}}', b'{"id":26,"s":"\\u0000"}', b'{"id":27,"s":"\\ud800"}', b'{"id" : 28 , "s" : "e" }',
    b'{"id":29,\n"s":"f"}', b"{id:30}", b"{'id':31}", b'{"id":32,"s":"g"}\t', b'{"id":+33}', b'{"id":-0}', b'{"id":.5}',
]  # fmt: skip


@pytest.mark.parametrize("message", ODD_MESSAGES, ids=range(len(ODD_MESSAGES)))
@pytest.mark.parametrize("columns", [{"id": INT, "s": STRING}, {"id": INT}, {"s": STRING}])
def test_a_message_is_judged_by_itself_and_not_by_its_neighbours(columns: dict[str, DataType], message: bytes) -> None:
    """A replay cuts other batches: whatever stands beside a message, the same row comes of it, or the same refusal."""
    good, bad = b'{"id":0,"s":"ok"}', b"not json"
    alone = decode(columns, message, ignore_parse_errors="true").batch.to_pylist()
    for before, after in (
        ([], [bad]),
        ([bad], []),
        ([good], [good]),
        ([good] * 40, [bad] * 40),
        ([b'{"id":1,"s":2}'], []),
    ):
        found = decode(columns, *before, message, *after, ignore_parse_errors="true").batch.to_pylist()
        shown = decode(columns, *before, ignore_parse_errors="true").batch.num_rows
        assert found[shown : shown + len(alone)] == alone
        assert len(found) == shown + len(alone) + decode(columns, *after, ignore_parse_errors="true").batch.num_rows


def test_escaped_pairs_of_surrogates_of_every_plane() -> None:
    texts = [chr(0x10000 + 0x8000 * n + 0x123) for n in range(32)]
    escaped = [json.dumps(text) for text in texts]
    assert column(STRING, *escaped) == texts
    for text, one in zip(texts, escaped, strict=True):
        assert column(STRING, one) == [text]
