"""The csv format. Expected values were recorded from Apache Flink 2.2.1 reading and writing files."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.api import Decoded, Messages
from connectors.errors import OptionError, RecordError
from connectors.formats.csv.decode import CsvDecoder
from connectors.formats.csv.format import FORMAT
from connectors.formats.csv.options import CsvOptions
from connectors.formats.csv.records import RecordError as NoRecord
from connectors.formats.csv.records import take_apart
from planner.ir import types as t
from planner.ir.types import DataType, Field, to_arrow

DROPPED = "dropped"


def messages(*records: bytes | str) -> Messages:
    encoded = [record.encode() if isinstance(record, str) else record for record in records]
    offsets = np.cumsum([0, *(len(record) + 1 for record in encoded)])
    return Messages(memoryview(b"".join(record + b"\n" for record in encoded)), offsets, lambda i: f"line {i + 1}")


def decode(
    types: list[DataType], *records: bytes | str, wanted: tuple[int, ...] | None = None, **options: str
) -> Decoded:
    fields = tuple(Field(f"x{i}", kind) for i, kind in enumerate(types))
    named = {name.replace("_", "-"): value for name, value in options.items()}
    chosen = tuple(range(len(fields))) if wanted is None else wanted
    return FORMAT.selecting_decoder(fields, chosen, named, "UTC").decode(messages(*records))


def values(kind: DataType, texts: list[str], **options: str) -> list[Any]:
    """Each text as the second field of a record of its own, with parse errors ignored."""
    lenient: Any = {"ignore_parse_errors": "true", **options}
    decoded = decode([t.INT, kind], *(f"{i},{text}" for i, text in enumerate(texts)), **lenient)
    assert decoded.batch.column(1).type == to_arrow(kind)
    found = dict(zip(decoded.batch.column(0).to_pylist(), decoded.batch.column(1).to_pylist(), strict=True))
    return [found.get(i, DROPPED) for i in range(len(texts))]


READ: list[tuple[DataType, dict[str, str], dict[str, Any]]] = [
    (
        t.STRING,
        {},
        {
            "a": "a",
            '"a,b"': "a,b",
            '"say ""hi"""': 'say "hi"',
            "": "",
            " pad ": " pad ",
            '"x"y': DROPPED,
            'x"y': 'x"y',
            ' "q"': ' "q"',
            '"q" ': "q",
            "a,b": DROPPED,
            '""': "",
            "NULL": "NULL",
            "a\\b": "a\\b",
            "#c": "#c",
            'x"y,"': DROPPED,
            '"a""': DROPPED,
        },
    ),
    (t.STRING, {"null_literal": "N/A"}, {"a": "a", "": "", "N/A": None, '"N/A"': None, " N/A": " N/A"}),
    (t.STRING, {"null_literal": ""}, {"": None, '""': None}),
    (
        t.STRING,
        {"escape_character": "\\"},
        {"a\\,b": "a,b", '"a\\"b"': 'a"b', "a\\\\b": "a\\b", "a\\nb": "a\nb", "plain": "plain"},
    ),
    (t.STRING, {"quote_character": "'"}, {'"a"': '"a"', "'a,b'": "a,b"}),
    (t.STRING, {"disable_quote_character": "true"}, {'"a"': '"a"', '"a,b"': DROPPED}),
    (
        t.INT,
        {},
        {
            "1": 1, " 2 ": 2, "": None, "+3": 3, "-4": -4, "1.5": None, "1e3": None, "2147483648": None, '"5"': 5,
            "x": None, "0x1": None, "007": 7,
        },
    ),
    (t.BIGINT, {}, {"1": 1, "9223372036854775807": 2**63 - 1, "9223372036854775808": None, "1.0": None}),
    (t.TINYINT, {}, {"1": 1, "128": None, "-128": -128, " 2": 2}),
    (t.SMALLINT, {}, {"1": 1, "32768": None}),
    (
        t.DOUBLE,
        {},
        {
            "1": 1.0, "1.5": 1.5, "1e3": 1000.0, "Infinity": float("inf"), "-Infinity": float("-inf"), "inf": None,
            "": None, "1f": 1.0, "1d": 1.0, " 1 ": 1.0, ".5": 0.5, "5.": 5.0,
        },
    ),
    (t.FLOAT, {}, {"1": 1.0, "1.5": 1.5, "1e39": float("inf")}),
    (
        t.decimal(10, 2),
        {},
        {
            "1": Decimal("1.00"), "1.005": Decimal("1.01"), "1e3": Decimal("1000.00"), "123456789012": None,
            " 1.5 ": None, "": None, "abc": None, "-0.5": Decimal("-0.50"), "99999999.995": None,
        },
    ),
    (
        t.BOOLEAN,
        {},
        {"true": True, "TRUE": True, "false": False, "1": False, "t": False, "": False, " true ": True, "yes": False},
    ),
    (
        t.DATE,
        {},
        {
            "2020-01-01": dt.date(2020, 1, 1), "2020-1-1": dt.date(2020, 1, 1), "20200101": None, "": None,
            " 2020-01-01": None, "2020-02-30": dt.date(2020, 3, 1), "2020-13-01": None,
        },
    ),
    (
        t.time(0),
        {},
        {"12:00:00": dt.time(12), "12:00": dt.time(12), "12:00:00.123": dt.time(12), "25:00:00": None},
    ),
    (
        t.timestamp(3),
        {},
        {
            "2020-01-01 12:00:00": dt.datetime(2020, 1, 1, 12),
            "2020-01-01T12:00:00": None,
            "2020-01-01 12:00": None,
            "2020-01-01 12:00:00.123456": dt.datetime(2020, 1, 1, 12, 0, 0, 123_000),
            "2020-01-01": None,
            "2020-01-01 12:00:00Z": None,
            " 2020-01-01 12:00:00": dt.datetime(2020, 1, 1, 12),
        },
    ),
    (
        t.timestamp_ltz(3),
        {},
        {
            "2020-01-01 12:00:00Z": dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC),
            "2020-01-01T12:00:00Z": None,
            "2020-01-01 12:00:00": None,
            "2020-01-01 12:00:00.123Z": dt.datetime(2020, 1, 1, 12, 0, 0, 123_000, tzinfo=dt.UTC),
        },
    ),
    (
        t.array(t.INT),
        {},
        {"1;2;3": [1, 2, 3], "": [], "1": [1], "1;;3": [1, None, 3], '"1;2"': [1, 2], "x;1": [None, 1]},
    ),
    (t.array(t.STRING), {}, {"a;b": ["a", "b"], "": [], '"a;b"': ["a", "b"], "a;;b": ["a", "", "b"]}),
    (
        t.row(("x", t.INT), ("y", t.STRING)),
        {},
        {
            "1;a": {"x": 1, "y": "a"},
            "1": {"x": 1, "y": None},
            "1;a;b": {"x": 1, "y": "a"},
            "": None,
            ";": {"x": None, "y": ""},
        },
    ),
    (t.BYTES, {}, {"YWJj": b"abc", "abc": None, "": b"", "!!": None}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "options", "expected"), READ, ids=[f"{k.summary()} {o}" for k, o, _ in READ])
def test_texts_are_read_as_by_flink(kind: DataType, options: dict[str, str], expected: dict[str, Any]) -> None:
    assert dict(zip(expected, values(kind, list(expected), **options), strict=True)) == expected


@given(
    st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)),
    st.integers(0, 6),
    st.integers(0, 6),
)
def test_fractions_of_seconds_in_any_precision(moment: dt.datetime, precision: int, digits: int) -> None:
    text = moment.strftime("%m-%d %H:%M:%S") + (f".{moment.microsecond:06}"[: digits + 1] if digits else "")
    kept = min(precision, digits)
    micros = int(f"{moment.microsecond:06}"[:kept].ljust(6, "0")) if kept else 0
    (found,) = values(t.timestamp(precision), [f"{moment.year:04}-{text}"])
    assert found == moment.replace(microsecond=micros)
    (found,) = values(t.timestamp_ltz(precision), [f"{moment.year:04}-{text}Z"])
    assert found == moment.replace(microsecond=micros, tzinfo=dt.UTC)


def test_nan_is_read() -> None:
    assert str(values(t.DOUBLE, ["NaN"])) == "[nan]"


def test_records_of_other_lengths() -> None:
    two = [t.INT, t.STRING]
    decoded = decode(two, "1,a", "", "2", "3,b\r", "4,c,d", ignore_parse_errors="true")
    assert decoded.batch.to_pylist() == [
        {"c0": 1, "c1": "a"},
        {"c0": None, "c1": None},
        {"c0": 2, "c1": None},
        {"c0": 3, "c1": "b"},
    ]
    assert decoded.skipped == 1
    assert decoded.kept is not None
    assert decoded.kept.tolist() == [0, 1, 2, 3]
    with pytest.raises(RecordError, match=r"line 2: it has 3 fields for 2 columns; the record begins: 4,c,d"):
        decode(two, "1,a", "4,c,d")


def test_comments_are_left_out_when_allowed() -> None:
    decoded = decode([t.STRING], "a", "#b", "c", allow_comments="true")
    assert decoded.batch.column(0).to_pylist() == ["a", "c"]
    assert (decoded.kept is not None and decoded.kept.tolist(), decoded.skipped) == ([0, 2], 0)


def test_only_wanted_columns_are_read_by_their_place() -> None:
    decoded = decode([t.INT, t.STRING, t.INT], "1,a,3", "4,b,x", wanted=(1,))
    assert decoded.batch.to_pylist() == [{"c0": "a"}, {"c0": "b"}]
    assert decode([t.INT, t.STRING], "1,a", "2,b", wanted=()).batch.num_rows == 2
    assert decode([t.INT, t.STRING], "1,a", wanted=(1, 0)).batch.to_pylist() == [{"c0": "a", "c1": 1}]


def test_an_error_names_the_first_bad_record_and_its_field() -> None:
    with pytest.raises(RecordError, match=r"line 2: field 'x1' is not INT; the record begins: 2,b,x"):
        decode([t.INT, t.INT, t.INT], "1,1,1", "2,b,x", "c,1,1")
    with pytest.raises(RecordError, match="a quoted field does not end"):
        decode([t.STRING], '"a')


def test_quoted_line_ends_and_foreign_bytes() -> None:
    assert decode([t.INT, t.STRING], '1,"a\nb"', "2,c").batch.column(1).to_pylist() == ["a\nb", "c"]
    assert decode([t.STRING], b"a\xffb", "é").batch.column(0).to_pylist() == ["a�b", "é"]
    assert decode([t.STRING]).batch.num_rows == 0


@given(st.lists(st.text(alphabet='a",\\ \n;', max_size=8), min_size=1, max_size=6), st.sampled_from(["", "\\"]))
def test_all_bytes_at_once_and_one_by_one_agree(records: list[str], escape: str) -> None:
    options = CsvOptions(escape=escape, ignore_parse_errors=True)
    fields = tuple(Field(f"x{i}", t.STRING) for i in range(3))
    decoded = CsvDecoder(fields, (0, 1, 2), options).decode(messages(*records))
    expected: list[list[str | None]] = []
    for record in records:
        try:
            texts = take_apart(record, options) if record else []
        except NoRecord:
            continue
        if len(texts) <= 3:
            expected.append([*texts, *[None] * (3 - len(texts))])
    assert [list(row.values()) for row in decoded.batch.to_pylist()] == expected


def encode(columns: dict[str, tuple[DataType, list[Any]]], **options: str) -> list[str]:
    fields = tuple(Field(name, kind) for name, (kind, _) in columns.items())
    arrays: list[Any] = [pa.array(found, to_arrow(kind)) for kind, found in columns.values()]
    batch = pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(len(arrays))])
    named = {name.replace("_", "-"): value for name, value in options.items()}
    encoded: Any = FORMAT.encoder(fields, named, "UTC").encode(batch)
    return [value.decode() for value in encoded.to_pylist()]


TEXTS = [
    "a", "a b", "a,b", 'a"b', "", "#a", "x" * 24, "x" * 25, "it's", "a-b", "a.b", "é", "a;b", "a\nb", "-a", "a+b",
    "NULL", "a\\b", "a\tb", ".", "/", "@", None,
]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({}, {}),
        ({"null_literal": "NULL"}, {None: "NULL"}),
        (
            {"disable_quote_character": "true"},
            {text: text for text in TEXTS if text is not None},
        ),
        ({"escape_character": "\\"}, {"a\\b": '"a\\\\b"'}),
        (
            {"field_delimiter": ";"},
            {"a-b": '"a-b"', "a.b": '"a.b"', "a;b": '"a;b"', "-a": '"-a"', ".": '"."', "/": '"/"'},
        ),
        (
            {"quote_character": "'"},
            {
                text: "'" + text.replace("'", "''") + "'"
                for text in ("a b", "a,b", 'a"b', "#a", "x" * 25, "it's", "a\nb", "a+b", "a\\b", "a\tb")
            },
        ),
    ],
    ids=["usual", "null literal", "no quotes", "escape", "delimiter", "quote"],
)
def test_texts_are_written_as_by_flink(options: dict[str, str], changed: dict[str | None, str]) -> None:
    usual: dict[str | None, str] = {text: text or "" for text in TEXTS}
    usual |= {
        text: '"' + text.replace('"', '""') + '"'
        for text in ("a b", "a,b", 'a"b', "#a", "x" * 25, "it's", "a\nb", "a+b", "a\\b", "a\tb")
    }
    assert encode({"v": (t.STRING, TEXTS)}, **options) == [(usual | changed)[text] for text in TEXTS]


def test_values_of_all_types_are_written_as_by_flink() -> None:
    noon = dt.datetime(2020, 1, 1, 12)
    columns: dict[str, tuple[DataType, list[Any]]] = {
        "a": (t.TINYINT, [1]),
        "b": (t.DOUBLE, [1e10]),
        "c": (t.FLOAT, [0.1]),
        "d": (t.decimal(20, 10), [Decimal("1E-10")]),
        "e": (t.BOOLEAN, [True]),
        "f": (t.DATE, [dt.date(2020, 1, 1)]),
        "g": (t.time(0), [dt.time(12)]),
        "h": (t.timestamp(3), [noon.replace(microsecond=100_000)]),
        "i": (t.timestamp(6), [noon.replace(microsecond=123_456)]),
        "j": (t.timestamp_ltz(3), [dt.datetime(1970, 1, 1, tzinfo=dt.UTC)]),
        "k": (t.BYTES, [b"abc"]),
        "l": (t.array(t.INT), [[1, 2]]),
        "m": (t.row(("x", t.INT), ("y", t.STRING)), [{"x": 1, "y": "a"}]),
        "o": (t.array(t.STRING), [["a", "b;c", "d e"]]),
    }
    expected = (
        '1,1.0E10,0.1,1E-10,true,2020-01-01,12:00:00,"2020-01-01 12:00:00.1","2020-01-01 12:00:00.123456",'
        '"1970-01-01 00:00:00Z",YWJj,1;2,1;a,"a;b;c;d e"'
    )
    assert encode(columns) == [expected]
    others: dict[str, tuple[DataType, list[Any]]] = {
        "h": (t.timestamp(3), [noon]),
        "b": (t.DOUBLE, [float("nan")]),
        "c": (t.DOUBLE, [float("inf")]),
        "l": (t.array(t.INT), [None]),
        "m": (t.row(("x", t.INT), ("y", t.STRING)), [None]),
    }
    assert encode(others) == ['"2020-01-01 12:00:00",NaN,Infinity,,']
    nulls: dict[str, tuple[DataType, list[Any]]] = {
        "l": (t.array(t.STRING), [["a", None]]),
        "m": (t.row(("x", t.INT), ("y", t.STRING)), [{"x": None, "y": "a"}]),
        "n": (t.STRING, ["z"]),
    }
    assert encode(nulls, null_literal="N", array_element_delimiter="|") == ["a|N,N|a,z"]
    tiny: dict[str, tuple[DataType, list[Any]]] = {"d": (t.decimal(20, 10), [Decimal("1E-10")])}
    assert encode(tiny, write_bigdecimal_in_scientific_notation="false") == ["0.0000000001"]


@given(st.lists(st.text(max_size=30), min_size=1, max_size=5), st.sampled_from([",", ";", "\t", "|"]))
def test_what_is_written_is_read_again(texts: list[str], delimiter: str) -> None:
    columns: dict[str, tuple[DataType, list[Any]]] = {
        "n": (t.INT, list(range(len(texts)))),
        "v": (t.STRING, [text.replace("\r", "") for text in texts]),
    }
    written = encode(columns, field_delimiter=delimiter)
    decoded = decode([t.INT, t.STRING], *written, field_delimiter=delimiter)
    assert decoded.batch.column(1).to_pylist() == columns["v"][1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"field-delimiter": "ab"}, "'csv.field-delimiter' must be one ASCII character"),
        ({"field-delimiter": '"'}, "must differ from the quote character"),
        ({"quote-character": "'", "disable-quote-character": "true"}, "has no meaning"),
        ({"ignore-parse-errors": "maybe"}, "'csv.ignore-parse-errors' must be true or false"),
        ({"array-element-delimiter": ""}, "'csv.array-element-delimiter' is empty"),
    ],
)
def test_options_are_checked(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        FORMAT.validate(options)


def test_types_without_a_spelling_are_refused() -> None:
    for kind in (t.map_of(t.STRING, t.INT), t.array(t.array(t.INT)), t.row(("x", t.array(t.INT)))):
        with pytest.raises(OptionError, match="column 'x': the csv format cannot hold"):
            FORMAT.decoder((Field("x", kind),), {}, "UTC")
