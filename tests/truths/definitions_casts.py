"""CAST and TRY_CAST between every pair of scalar types."""

from __future__ import annotations

from typing import Any

from tests.truths.model import Group

_TARGETS = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "DECIMAL(3, 0)",
    "DECIMAL(38, 18)", "CHAR(3)", "VARCHAR(4)", "STRING", "BINARY(2)", "VARBINARY(3)", "BYTES", "DATE", "TIME",
    "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(0)", "TIMESTAMP_LTZ(3)",
    "TIMESTAMP_LTZ(6)", "TIMESTAMP_LTZ(9)",
)

_DOUBLES: list[Any] = [
    "0.0", "-0.0", "1.0", "1.5", "-1.5", "0.1", "2.5", "123.456", "1.0E7", "9999999.0", "0.001", "1.0E-4", "3.0E9",
    "1.0E20", "1.0E300", "100.0", "12345678.9", "-2147483649.5", "9.223372036854775807E18", "127.9", "128.0",
    "1.0E21", "1.0E16", "0.3333333333333333", "2.0E-3", "4.35", "NaN", "Infinity", "-Infinity", None,
]
_FLOATS: list[Any] = [
    "0.0", "-0.0", "1.0", "1.5", "-1.5", "0.1", "2.5", "123.456", "1.0E7", "9999999.0", "0.001", "1.0E-4", "3.0E9",
    "1.0E20", "1.6777216E7", "0.33333334", "3.4028235E38", "1.17549435E-38", "127.9", "NaN", "Infinity", "-Infinity",
    None,
]
_STRINGS: list[Any] = [
    "", " ", "0", "1", "12", " 12 ", "+5", "-7", "-", "1.5", "-1.9", "1e3", "1E-2", ".5", "5.", "abc", "127", "128",
    "2147483648", "9223372036854775807", "9223372036854775808", "123456789012345678901234567890", "NaN", "Infinity",
    "-Infinity", "inf", "true", "TRUE", "t", "yes", "y", "on", "false", "F", "no", "off", "1d", "1f", "0x10", "１２",
    "1 2", "12.345", "99.995", "2020-01-01", "2020-1-1", "2020-01", "2020", "2020-02-30", "2020-13-01",
    "2020-01-01 12:34:56", "2020-01-01T12:34:56", "2020-01-01 12:34:56.123456789", "2020-01-01 12:34",
    "2020-01-01 1:2:3", " 2020-01-01 ", "12:34:56", "12:34:56.789", "12:34", "1:2:3", "24:00:00", "25:00:00",
    "2020-01-01 12:34:56Z", "2020-01-01 12:34:56+02:00", "0001-01-01", "9999-12-31 23:59:59.999", "10000-01-01",
    "-0001-01-01", "2023-03-26 02:30:00", "é", "😀😀", None,
]

_SOURCES: dict[str, list[Any]] = {
    "BOOLEAN": [True, False, None],
    "TINYINT": [0, 1, -1, 127, -128, 12, None],
    "SMALLINT": [0, 1, -1, 128, 32767, -32768, 300, None],
    "INT": [0, 1, -1, 128, 32768, 2147483647, -2147483648, 1234, None],
    "BIGINT": [0, 1, -1, 128, 2147483648, 9223372036854775807, -9223372036854775808, 1234567890123, 999, None],
    "FLOAT": _FLOATS,
    "DOUBLE": _DOUBLES,
    "DECIMAL(10, 2)": ["0.00", "1.00", "1.50", "-1.50", "0.99", "12.34", "12.35", "-12.35", "127.99", "128.00",
                       "99999999.99", "-99999999.99", "999.50", "0.05", None],
    "DECIMAL(38, 18)": ["0.000000000000000000", "1.000000000000000000", "12.345000000000000000",
                        "12.344999999999999999", "99999999999999999999.999999999999999999", "-0.000000000000000001",
                        "9223372036854775808.500000000000000000", "2147483648.000000000000000000", None],
    "DECIMAL(20, 0)": ["0", "7", "-7", "99999999999999999999", "1000", None],
    "CHAR(5)": ["12", "abc", "", "true", "2020", None],
    "VARCHAR(10)": ["12", "abcdefghij", "", "2020-01-01", "1.5", None],
    "BYTES": ["", "00", "616263", "c3a9", "ff", "31", "0102030405", None],
    "BINARY(3)": ["616263", "000102", None],
    "VARBINARY(4)": ["", "61", "61626364", None],
    "DATE": ["1970-01-01", "2020-02-29", "1969-12-31", "0001-01-01", "9999-12-31", "2023-03-26", None],
    "TIME": ["00:00:00", "12:34:56", "23:59:59", None],
    "TIMESTAMP(0)": ["1970-01-01T00:00:00", "2020-02-29T12:34:56", "1969-12-31T23:59:59", None],
    "TIMESTAMP(3)": ["1970-01-01T00:00:00", "2020-02-29T12:34:56.789", "1969-12-31T23:59:59.999",
                     "0001-01-01T00:00:00", "9999-12-31T23:59:59.999", "2023-03-26T02:30:00", "2020-01-01T00:00:00.100",
                     None],
    "TIMESTAMP(6)": ["1970-01-01T00:00:00", "2020-02-29T12:34:56.789123", "1969-12-31T23:59:59.999999", None],
    "TIMESTAMP(9)": ["1970-01-01T00:00:00", "2020-02-29T12:34:56.789123456", "1969-12-31T23:59:59.999999999", None],
    "TIMESTAMP_LTZ(3)": ["1970-01-01T00:00:00Z", "2020-02-29T12:34:56.789Z", "1969-12-31T23:59:59.999Z",
                         "2023-03-26T01:00:00Z", None],
    "TIMESTAMP_LTZ(6)": ["1970-01-01T00:00:00Z", "2020-02-29T12:34:56.789123Z", "1969-12-31T23:59:59.999999Z", None],
}

_TEXT_TARGETS = ("STRING", "VARCHAR(4)", "CHAR(3)")

GROUPS = [
    *[
        Group(
            name=f"from {source}",
            columns={"v": source},
            rows=[[value] for value in values],
            cases=[f"{cast}(v AS {target})" for cast in ("CAST", "TRY_CAST") for target in _TARGETS],
        )
        for source, values in _SOURCES.items()
    ],
    Group(
        name="try_cast from STRING",
        columns={"v": "STRING"},
        rows=[[value] for value in _STRINGS],
        cases=[f"TRY_CAST(v AS {target})" for target in _TARGETS]
        + [f"CAST(v AS {target})" for target in ("STRING", "VARCHAR(4)", "CHAR(3)", "BYTES", "BINARY(2)", "VARBINARY(3)")],
    ),
    Group(
        name="try_cast from STRING in Berlin",
        columns={"v": "STRING"},
        rows=[[value] for value in _STRINGS],
        time_zone="Europe/Berlin",
        cases=[f"TRY_CAST(v AS {target})" for target in ("TIMESTAMP(3)", "TIMESTAMP_LTZ(3)", "DATE", "TIME")],
    ),
    Group(
        name="cast from STRING",
        columns={"v": "STRING"},
        rows=[["12"], [" 12 "], ["1.5"], ["abc"], [""], ["true"], ["2020-01-01"], ["2020-01-01 12:34:56"], ["12:34:56"],
              ["99999999999"], [None]],
        cases=[f"CAST(v AS {target})" for target in (
            "BOOLEAN", "TINYINT", "INT", "BIGINT", "DOUBLE", "DECIMAL(10, 2)", "DATE", "TIME", "TIMESTAMP(3)",
            "TIMESTAMP_LTZ(3)")],
    ),
    Group(
        name="casts of values made of parts",
        columns={"r": "ROW<x INT, y STRING>", "a": "ARRAY<INT>", "m": "MAP<STRING, INT>"},
        rows=[[[1, "x"], [1, 2], [["k", 1]]], [[None, None], [], []], [None, None, None]],
        cases=["CAST(r AS STRING)", "CAST(a AS STRING)", "CAST(m AS STRING)", "CAST(a AS ARRAY<BIGINT>)",
               "CAST(r AS ROW<x BIGINT, y STRING>)", "CAST(a AS ARRAY<STRING>)", "CAST(m AS MAP<STRING, STRING>)"],
    ),
]
