"""Reads the recorded answers, and turns their JSON values into Arrow columns and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from planner.analysis.data_types import bind_type
from planner.analysis.expressions import ExpressionBinder
from planner.analysis.scope import Relation, Scope, ScopeColumn
from planner.errors import Span
from planner.ir.expressions import Expression
from planner.ir.types import DataType, TypeRoot, arrow_schema, to_arrow
from planner.sql.query_parser import QueryParser
from planner.sql.splitter import StatementText
from runtime.operators.expressions.civil import UNITS_PER_SECOND

MODULES = ("numbers", "logic", "text", "time", "casts")


@dataclass(frozen=True)
class Table:
    """One input table of the recording."""

    module: str
    name: str
    time_zone: str
    columns: tuple[tuple[str, DataType], ...]
    rows: list[list[Any]]
    cases: list[dict[str, Any]]
    filters: list[dict[str, Any]]

    def batch(self) -> pa.RecordBatch:
        """The inputs as columns c0, c1, …"""
        schema = arrow_schema(tuple(type_ for _, type_ in self.columns))
        arrays = [to_column([row[i] for row in self.rows], type_) for i, (_, type_) in enumerate(self.columns)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def bind(self, sql: str) -> Expression:
        """The expression over this table as typed IR. Raises SqlError where the planner refuses it."""
        scope = Scope((Relation((), tuple(ScopeColumn(name, type_) for name, type_ in self.columns)),))
        parser = _Parser(StatementText(sql, Span(0, len(sql))), sql)
        return ExpressionBinder(scope, sql).bind(parser.whole_expression())


class _Parser(QueryParser):
    def whole_expression(self) -> Any:
        node = self._expression()
        self._expect_end()
        return node

    def type_node(self) -> Any:
        return self._type()


def type_of(text: str) -> DataType:
    """The type Flink's summary string names."""
    return bind_type(_Parser(StatementText(text, Span(0, len(text))), text).type_node())


def tables() -> Iterator[Table]:
    """All recorded tables, in order."""
    for module in MODULES:
        recorded = json.loads((Path(__file__).parent / f"{module}.json").read_text(encoding="utf-8"))
        for group in recorded["groups"]:
            columns = tuple((column["name"], type_of(column["type"])) for column in group["columns"])
            yield Table(
                module, group["name"], group["time_zone"], columns, group["rows"], group["cases"], group["filters"]
            )


def to_column(values: list[Any], type_: DataType) -> Any:
    """Recorded JSON values as an Arrow array."""
    t = to_arrow(type_)
    if type_.root in (TypeRoot.DATE, TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        integers = [None if value is None else time_integer(value, t) for value in values]
        if t.bit_width == 64:  # TIMESTAMP(9) holds the years 1677 to 2262 here: others are NULL or an error.
            integers = [None if value is None or abs(value) >= 2**63 else value for value in integers]
        width = pa.int32() if t.bit_width == 32 else pa.int64()
        return pa.array(integers, width).view(t)
    return pa.array([to_python(value, type_) for value in values], t)


def time_integer(text: str, t: Any) -> int:
    """A recorded ISO text as the integer of its Arrow type; years beyond 9999 are written with a sign."""
    if pa.types.is_time32(t):
        clock, _, fraction = text.partition(".")
        at = time.fromisoformat(clock)
        return (at.hour * 3600 + at.minute * 60 + at.second) * 1000 + int((fraction or "0").ljust(3, "0")[:3])
    day, _, clock = text.rstrip("Z").partition("T")
    days = int(np.datetime64(day.lstrip("+"), "D").astype(np.int64))
    if pa.types.is_date32(t):
        return days
    whole, _, fraction = clock.partition(".")
    of_day = datetime.strptime(whole or "00:00:00", "%H:%M:%S")
    seconds = days * 86_400 + of_day.hour * 3600 + of_day.minute * 60 + of_day.second
    units = UNITS_PER_SECOND[t.unit]
    return seconds * units + int((fraction or "0").ljust(9, "0")) * units // 1_000_000_000


def to_python(value: Any, type_: DataType) -> Any:
    """A recorded JSON value as what `to_pylist` gives for the type."""
    if value is None:
        return None
    match type_.root:
        case TypeRoot.FLOAT:
            return float(np.float32(value))
        case TypeRoot.DOUBLE:
            return float(value)
        case TypeRoot.DECIMAL:
            return Decimal(value)
        case TypeRoot.INTERVAL_DAY_TIME:
            return int(value.removeprefix("PT").removesuffix("H")) * 3_600_000
        case TypeRoot.INTERVAL_YEAR_MONTH:
            return int(value.removeprefix("P").removesuffix("M"))
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return bytes.fromhex(value)
        case TypeRoot.ARRAY:
            assert type_.element is not None
            return [to_python(item, type_.element) for item in value]
        case TypeRoot.MAP:
            assert type_.key is not None
            assert type_.element is not None
            return sorted((to_python(k, type_.key), to_python(v, type_.element)) for k, v in value)
        case TypeRoot.ROW:
            return {f.name: to_python(v, f.type) for f, v in zip(type_.fields, value, strict=True)}
        case _:
            return value
