"""The print and blackhole sinks."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from connectors.api import SinkConnector, SinkContext, TableDefinition
from connectors.errors import OptionError
from connectors.registry import connector
from planner.ir.types import (
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTERVAL_DAY_TIME,
    INTERVAL_YEAR_MONTH,
    STRING,
    DataType,
    Field,
    array,
    decimal,
    map_of,
    row,
    time,
    timestamp,
    timestamp_ltz,
    to_arrow,
)
from runtime.checkpoint.files import LocalFiles

SPELLED: list[tuple[DataType, object, str]] = [
    (INT, 1, "1"),
    (STRING, "a, b", "a, b"),
    (BOOLEAN, True, "true"),
    (DOUBLE, 1.0, "1.0"),
    (DOUBLE, 1e10, "1.0E10"),
    (DOUBLE, math.nan, "NaN"),
    (FLOAT, 0.1, "0.1"),
    (decimal(10, 2), Decimal("1.50"), "1.50"),
    (BYTES, b"\x01\xff", "[1, -1]"),
    (DATE, dt.date(2026, 1, 2), "2026-01-02"),
    (time(), dt.time(1, 2), "01:02"),
    (time(3), dt.time(1, 2, 3, 40_000), "01:02:03.040"),
    (timestamp(3), dt.datetime(2026, 1, 2), "2026-01-02T00:00"),
    (timestamp(6), dt.datetime(2026, 1, 2, 3, 4, 5, 6), "2026-01-02T03:04:05.000006"),
    (timestamp(9), dt.datetime(1969, 12, 31, 23, 59, 59), "1969-12-31T23:59:59"),
    (timestamp_ltz(3), dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "2026-01-02T00:00:00Z"),
    (array(INT), [1, None], "[1, null]"),
    (array(timestamp(3)), [dt.datetime(2026, 1, 2, 0, 0, 1)], "[2026-01-02T00:00:01]"),
    (map_of(STRING, DOUBLE), [("a", 1.0)], "{a=1.0}"),
    (row(("x", INT), ("y", row(("z", STRING)))), {"x": 1, "y": {"z": None}}, "+I[1, +I[null]]"),
    (INTERVAL_DAY_TIME, 90_061_500, "PT25H1M1.5S"),
    (INTERVAL_YEAR_MONTH, -14, "P-1Y-2M"),
]


def sink(name: str, columns: dict[str, DataType] | None = None, **options: str) -> SinkConnector:
    fields = tuple(Field(column, t) for column, t in (columns or {}).items())
    named = {option.replace("_", "-"): value for option, value in options.items()}
    return connector(name).sink(TableDefinition("t", {"connector": name, **named}, fields))


def context(subtask: int = 0, parallelism: int = 1) -> SinkContext:
    return SinkContext(subtask, parallelism, "ns", "1", "a", LocalFiles("/nowhere"), 0, (), "UTC")


def batch(columns: dict[str, DataType], *rows: tuple[object, ...]) -> pa.RecordBatch:
    arrays: list[Any] = [pa.array([found[i] for found in rows], to_arrow(t)) for i, t in enumerate(columns.values())]
    return pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(len(arrays))])


@pytest.mark.parametrize(("t", "value", "text"), SPELLED, ids=lambda value: str(value)[:30])
def test_values_are_spelled_as_java_does(
    t: DataType, value: object, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = {"x": t}
    sink("print", columns).writer(context()).write(batch(columns, (value,), (None,)), None)
    assert capsys.readouterr().out == f"+I[{text}]\n+I[null]\n"


def test_kinds_identifier_and_subtask_stand_in_front(capsys: pytest.CaptureFixture[str]) -> None:
    columns: dict[str, DataType] = {"a": INT, "b": STRING}
    rows = batch(columns, (1, "x"), (2, None), (3, "z"), (4, ""))
    kinds: Any = pa.array([0, 1, 2, 3], pa.int8())
    sink("print", columns).writer(context()).write(rows, kinds)
    assert capsys.readouterr().out == "+I[1, x]\n-U[2, null]\n+U[3, z]\n-D[4, ]\n"
    sink("print", columns, print_identifier="me").writer(context(1, 2)).write(rows.slice(0, 1), None)
    sink("print", columns).writer(context(1, 2)).write(rows.slice(0, 1), None)
    sink("print", columns, print_identifier="me").writer(context()).write(rows.slice(0, 1), None)
    assert capsys.readouterr().out == "me:2> +I[1, x]\n2> +I[1, x]\nme> +I[1, x]\n"
    sink("print", columns, standard_error="true").writer(context()).write(rows.slice(0, 1), None)
    assert capsys.readouterr() == ("", "+I[1, x]\n")


def test_blackhole_takes_everything_and_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    columns: dict[str, DataType] = {"a": INT}
    made = sink("blackhole", columns)
    writer = made.writer(context())
    writer.write(batch(columns, (1,)), None)
    assert (writer.prepare_commit(1), writer.recover([]), writer.checkpoint_wanted()) == ((), {}, False)
    assert (made.delivery_guarantee, made.committing) == ("none", False)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["print", "blackhole"])
def test_sinks_cannot_be_read_and_refuse_unknown_options(name: str) -> None:
    with pytest.raises(OptionError, match="nothing can be read from it"):
        connector(name).source(TableDefinition("t", {"connector": name}, ()))
    with pytest.raises(OptionError, match="no option 'topic'"):
        sink(name, topic="x")


@pytest.mark.parametrize("name", ["nexmark", "datagen"])
def test_sources_cannot_be_written(name: str) -> None:
    with pytest.raises(OptionError, match=r"written to it|not write"):
        sink(name)
