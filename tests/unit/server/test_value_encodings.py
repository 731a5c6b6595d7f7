"""Values of every type in both row formats; the expected ones were recorded from Apache Flink 2.1.0."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
import pytest

from planner.ir import types as t
from server.http.json_values import UnmappableValueError, json_values
from server.http.logical_types import logical_type
from server.http.plain_text import java_double, plain_texts

MS = 1_709_210_096_789  # 2024-02-29 12:34:56.789

# type, Arrow-side value, JSON text, plain text
RECORDED: list[tuple[t.DataType, Any, str, str]] = [
    (t.BOOLEAN, True, "true", "TRUE"),
    (t.TINYINT, 1, "1", "1"),
    (t.BIGINT, 9223372036854775807, "9223372036854775807", "9223372036854775807"),
    (t.FLOAT, 1.5, "1.5", "1.5"),
    (t.FLOAT, 1.1, "1.1", "1.1"),
    (t.DOUBLE, 2.5, "2.5", "2.5"),
    (t.DOUBLE, float("nan"), '"NaN"', "NaN"),
    (t.DOUBLE, float("-inf"), '"-Infinity"', "-Infinity"),
    (t.DOUBLE, 1e20, "1e+20", "1.0E20"),
    (t.char(3), "c  ", '"c  "', "c  "),
    (t.STRING, 'a"b', '"a\\"b"', 'a"b'),
    (t.binary(2), b"\x0a\x0b", '"Cgs="', "x'0a0b'"),
    (t.BYTES, b"\xff\x00", '"/wA="', "x'ff00'"),
    (t.DATE, 19782, '"2024-02-29"', "2024-02-29"),
    (t.time(0), 45_296_000, '"12:34:56"', "12:34:56"),
    (t.time(3), 45_296_500, '"12:34:56.5"', "12:34:56.500"),
    (t.timestamp(3), MS, '"2024-02-29T12:34:56.789"', "2024-02-29 12:34:56.789"),
    (t.timestamp(3), 1_709_210_096_000, '"2024-02-29T12:34:56"', "2024-02-29 12:34:56.000"),
    (t.timestamp(6), MS * 1000 + 123, '"2024-02-29T12:34:56.789123"', "2024-02-29 12:34:56.789123"),
    (t.timestamp(0), 1_709_210_096_000, '"2024-02-29T12:34:56"', "2024-02-29 12:34:56"),
    (t.timestamp_ltz(3), 1_700_000_000_123, '"2023-11-14T22:13:20.123Z"', "2023-11-14 22:13:20.123"),
    (t.INTERVAL_YEAR_MONTH, 14, "14", "+1-02"),
    (t.INTERVAL_YEAR_MONTH, -1, "-1", "-0-01"),
    (t.INTERVAL_DAY_TIME, 273_906_789, "273906789", "+3 04:05:06.789"),
    (t.array(t.INT), [1, 2], "[1,2]", "[1, 2]"),
    (t.array(t.STRING), ["a", None], '["a",null]', "[a, NULL]"),
    (t.map_of(t.STRING, t.INT), [("a", 1), ("b", 2)], '{"a":1,"b":2}', "{a=1, b=2}"),
    (t.row(("f0", t.INT), ("f1", t.STRING)), {"f0": 1, "f1": "x"}, '{"f0":1,"f1":"x"}', "(1, x)"),
    (t.row(("d", t.array(t.DATE))), {"d": [0]}, '{"d":["1970-01-01"]}', "([1970-01-01])"),
]


def column(data_type: t.DataType, value: Any) -> pa.Array[Any]:
    """A column of a longer one, so that offsets do not begin at zero: value, NULL."""
    return pa.array([value, value, None], t.to_arrow(data_type)).slice(1)


@pytest.mark.parametrize(("data_type", "value", "json", "plain"), RECORDED, ids=lambda v: str(v)[:24])
def test_a_value_and_null(data_type: t.DataType, value: Any, json: str, plain: str) -> None:
    array = column(data_type, value)
    assert orjson.dumps(json_values(array, data_type, "UTC")).decode() == f"[{json},null]"
    assert plain_texts(array, data_type, "UTC") == [plain, None]


@pytest.mark.parametrize(
    ("precision", "scale", "text"),
    [
        (10, 2, "12.30"),
        (38, 18, "123456789012345678.000000000000000001"),
        (38, 18, "0.000000000000000001"),
        (5, 0, "7"),
    ],
)
def test_decimals_keep_every_digit(precision: int, scale: int, text: str) -> None:
    data_type = t.decimal(precision, scale)
    array = pa.array([text]).cast(t.to_arrow(data_type))
    assert orjson.dumps(json_values(array, data_type, "UTC")).decode() == f"[{text}]"
    assert plain_texts(array, data_type, "UTC") == [text]


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "+08:00"])
def test_instants_are_shown_in_the_zone_of_the_session(zone: str) -> None:
    data_type = t.timestamp_ltz(3)
    array = column(data_type, 1_700_000_000_123)
    assert plain_texts(array, data_type, zone) == ["2023-11-15 06:13:20.123", None]
    assert json_values(array, data_type, zone) == ["2023-11-15T06:13:20.123Z", None]


@pytest.mark.parametrize("data_type", [t.multiset(t.INT), t.map_of(t.INT, t.INT), t.array(t.multiset(t.INT))])
def test_what_json_cannot_hold_is_refused_and_has_a_plain_form(data_type: t.DataType) -> None:
    nested = data_type.root is t.TypeRoot.ARRAY
    array = pa.array([[[(1, 2)]] if nested else [(1, 2)]], t.to_arrow(data_type))
    with pytest.raises(UnmappableValueError):
        json_values(array, data_type, "UTC")
    assert plain_texts(array, data_type, "UTC") == ["[{1=2}]" if nested else "{1=2}"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9999999.0, "9999999.0"),
        (10000000.0, "1.0E7"),
        (-123456789.5, "-1.234567895E8"),
        (1e-7, "1.0E-7"),
    ],
)
def test_doubles_as_java_prints_them(value: float, text: str) -> None:
    assert java_double(value) == text


def test_type_encodings() -> None:
    assert logical_type(t.NULL) == {"type": "NULL"}
    assert logical_type(t.STRING) == {"type": "VARCHAR", "nullable": True, "length": 2147483647}
    assert logical_type(t.decimal(10, 2).with_nullable(False)) == {
        "type": "DECIMAL",
        "nullable": False,
        "precision": 10,
        "scale": 2,
    }
    assert logical_type(t.INTERVAL_DAY_TIME.with_nullable(False)) == {
        "type": "INTERVAL_DAY_TIME",
        "nullable": False,
        "precision": 2,
        "fractionalPrecision": 3,
        "resolution": "SECOND",
    }
    assert logical_type(t.map_of(t.char(1), t.INT))["keyType"] == {"type": "CHAR", "nullable": True, "length": 1}
    assert logical_type(t.row(("a", t.time(0)))) == {
        "type": "ROW",
        "nullable": True,
        "fields": [{"name": "a", "fieldType": {"type": "TIME_WITHOUT_TIME_ZONE", "nullable": True, "precision": 0}}],
    }
