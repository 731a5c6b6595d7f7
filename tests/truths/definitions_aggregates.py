"""Aggregates: a table per argument type with several sets of rows; every aggregate is asked for each set by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class AggregateGroup:
    """An argument type and the sets of values it is aggregated over, in order of arrival.

    The table has the columns `s` (number of the set), `p` (BOOLEAN, for FILTER: NULL, FALSE, TRUE, TRUE, … by position)
    and `x`. The set behind the last one has no rows.
    """

    name: str
    type: str
    sets: list[list[Any]]
    cases: list[str]

    def rows(self) -> list[list[Any]]:
        return [
            [number, (None, False, True, True)[position % 4], value]
            for number, values in enumerate(self.sets)
            for position, value in enumerate(values)
        ]


_ANY = ["COUNT(*)", "COUNT(x)", "COUNT(x) FILTER (WHERE p)", "FIRST_VALUE(x)", "LAST_VALUE(x)"]
_ANY += ["FIRST_VALUE(x) FILTER (WHERE p)"]
_ORDERED = [*_ANY, "COUNT(DISTINCT x)", "MIN(x)", "MAX(x)", "MAX(x) FILTER (WHERE p)", "MIN(DISTINCT x)"]
_NUMBERS = [
    *_ORDERED,
    "SUM(x)",
    "SUM(DISTINCT x)",
    "SUM(x) FILTER (WHERE p)",
    "AVG(x)",
    "AVG(DISTINCT x)",
    "STDDEV_POP(x)",
    "STDDEV_SAMP(x)",
    "STDDEV(x)",
    "VAR_POP(x)",
    "VAR_SAMP(x)",
    "VARIANCE(x)",
    "VAR_POP(DISTINCT x)",
]
_TEXT = [
    *_ORDERED,
    "LISTAGG(x)",
    "LISTAGG(x, '; ')",
    "LISTAGG(x, '')",
    "LISTAGG(DISTINCT x)",
    "LISTAGG(DISTINCT x, '|')",
    "LISTAGG(x) FILTER (WHERE p)",
]


def _integers(bits: int) -> list[list[Any]]:
    top = 2 ** (bits - 1) - 1
    return [
        [1, 2, 4],
        [None, None],
        [5],
        [-7, 3, None, 3, -7, 10],
        [top, 1],
        [-top - 1, -1, -1],
        [top, top, top],
        [-1, -2],
        [0, 0, 1],
        [7, 7, 7, 8],
    ]


_DOUBLES: list[list[Any]] = [
    ["1.0", "2.0", "4.0"],
    [None, None],
    ["0.1", "0.2", "0.3"],
    ["NaN", "1.0"],
    ["1.0", "NaN"],
    ["NaN", "NaN"],
    ["Infinity", "1.0"],
    ["Infinity", "-Infinity"],
    ["-0.0", "0.0"],
    ["0.0", "-0.0"],
    ["5.5"],
    ["1.0E16", "1.0", "-1.0E16"],
    ["2.5", None, "2.5", "-2.5"],
]
_DECIMALS: list[list[Any]] = [
    ["1.00", "2.00", "4.00"],
    [None, None],
    ["12.34", "-12.34", None, "0.01", "12.34"],
    ["99999999.99", "99999999.99"],
    ["0.10"],
    ["1.00", "1.00", "0.00"],
]
_WIDE_DECIMALS: list[list[Any]] = [
    ["1.0000000000", "2.0000000000"],
    ["9999999999999999999999999999.9999999999", "0.0000000001"],
    ["9999999999999999999999999999.9999999999", "0.0000000001", "-1.0000000000"],
    ["-9999999999999999999999999999.9999999999", "-9999999999999999999999999999.9999999999"],
    ["0.0000000001", None, "0.0000000002"],
]

GROUPS = [
    AggregateGroup("tinyint", "TINYINT", _integers(8), _NUMBERS),
    AggregateGroup("smallint", "SMALLINT", _integers(16), _NUMBERS),
    AggregateGroup("int", "INT", _integers(32), _NUMBERS),
    AggregateGroup("bigint", "BIGINT", _integers(64), _NUMBERS),
    AggregateGroup("float", "FLOAT", _DOUBLES, _NUMBERS),
    AggregateGroup("double", "DOUBLE", _DOUBLES, _NUMBERS),
    AggregateGroup("decimal", "DECIMAL(10, 2)", _DECIMALS, _NUMBERS),
    AggregateGroup("wide decimal", "DECIMAL(38, 10)", _WIDE_DECIMALS, _NUMBERS),
    AggregateGroup(
        "string",
        "STRING",
        [["b", "a", "c"], [None, None], ["", None, "a"], ["a", "b", "a", None, "b"], ["é", "z", "Z"], ["a,b", "c"]],
        _TEXT,
    ),
    AggregateGroup("varchar", "VARCHAR(2)", [["ab", "cd", "ab"], [None]], _TEXT),
    AggregateGroup("boolean", "BOOLEAN", [[True, False, None], [None], [True, True]], _ORDERED),
    AggregateGroup("date", "DATE", [["2024-02-29", "1969-12-31", None], [None]], _ORDERED),
    AggregateGroup("time", "TIME(0)", [["10:00:00", "09:59:59", None], [None]], _ORDERED),
    AggregateGroup("timestamp", "TIMESTAMP(3)", [["2024-02-29T10:00:00.001", "1969-12-31T23:59:59.999"]], _ORDERED),
    AggregateGroup("microseconds", "TIMESTAMP(6)", [["2024-02-29T10:00:00.000001", "2024-02-29T10:00:00"]], _ORDERED),
    AggregateGroup(
        "instant", "TIMESTAMP_LTZ(3)", [["2024-02-29T10:00:00.001Z", None, "2024-02-29T10:00:00Z"]], _ORDERED
    ),
    AggregateGroup("bytes", "BYTES", [["00ff", "", None, "00ff"], [None]], _ANY),
    AggregateGroup("array", "ARRAY<INT>", [[[1, 2], None, [1, 2], []]], [*_ANY, "COUNT(DISTINCT x)"]),
]
