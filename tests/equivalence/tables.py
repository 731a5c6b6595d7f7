"""Random tables: columns, rows, and the changes that lead to them."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import msgspec

from tests.support.memory_tables.connector import Change, Row

DELAY_MS = 5_000
"""No row is more than this behind its split."""
EPOCH = dt.datetime(1970, 1, 1)


class ColumnType(msgspec.Struct, frozen=True):
    """A SQL type under both names. `is_special`: values that do not add up exactly (NaN, infinities)."""

    sql: str
    duckdb: str
    kind: str


INT = ColumnType("INT", "INTEGER", "integer")
SMALLINT = ColumnType("SMALLINT", "SMALLINT", "integer")
BIGINT = ColumnType("BIGINT", "BIGINT", "integer")
DECIMAL = ColumnType("DECIMAL(12, 2)", "DECIMAL(12, 2)", "decimal")
DOUBLE = ColumnType("DOUBLE", "DOUBLE", "double")
WILD_DOUBLE = ColumnType("DOUBLE", "DOUBLE", "wild")
STRING = ColumnType("STRING", "VARCHAR", "string")
BOOLEAN = ColumnType("BOOLEAN", "BOOLEAN", "boolean")
DATE = ColumnType("DATE", "DATE", "date")
TIMESTAMP = ColumnType("TIMESTAMP(3)", "TIMESTAMP", "timestamp")

SMALL = ColumnType("INT", "INTEGER", "small")
"""Values that can be added and multiplied without care."""
TINYINT = ColumnType("TINYINT", "TINYINT", "integer")
FLOAT = ColumnType("FLOAT", "FLOAT", "float")
TIME = ColumnType("TIME", "TIME", "time")
INSTANT = ColumnType("TIMESTAMP_LTZ(3)", "TIMESTAMP", "timestamp")
BYTES = ColumnType("BYTES", "BLOB", "bytes")
ROW = ColumnType("ROW<a INT, b STRING>", "STRUCT(a INTEGER, b VARCHAR)", "row")
ARRAY = ColumnType("ARRAY<INT>", "INTEGER[]", "array")

KEY_TYPES = (INT, BIGINT, STRING, BOOLEAN, DATE, DECIMAL, SMALLINT, TINYINT, TIME, INSTANT, BYTES, DOUBLE)
NESTED_TYPES = (ROW, ARRAY)
"""A primary key cannot hold these."""
VALUE_TYPES = (INT, SMALLINT, BIGINT, DECIMAL, DOUBLE, WILD_DOUBLE, STRING, BOOLEAN, DATE, TIMESTAMP, TINYINT, FLOAT,
               TIME, INSTANT, BYTES, ROW, ARRAY)  # fmt: skip


class Column(msgspec.Struct, frozen=True):
    name: str
    type: ColumnType
    nullable: bool = True


class Table(msgspec.Struct, frozen=True):
    """`id` is the first column and unique, `ts` the last and the event time; keys and values lie between. `is_timely`:
    a row is changed only while its own time is within the delay, and only to a time that is."""

    keys: tuple[Column, ...]
    values: tuple[Column, ...]
    changelog: str
    is_timely: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        ends = (Column("id", INT, False), Column("ts", TIMESTAMP, False))
        return (ends[0], *self.keys, *self.values, ends[1])

    @property
    def primary_key(self) -> str:
        """Of a table that changes."""
        return "" if self.changelog == "insert-only" else "id"

    def ddl(self, name: str, called: str = "t") -> str:
        """CREATE TABLE for the memory connector; `name`: what the connector knows it by."""
        lines = [f"`{c.name}` {c.type.sql}{'' if c.nullable else ' NOT NULL'}" for c in self.columns]
        lines.append(f"WATERMARK FOR ts AS ts - INTERVAL '{DELAY_MS // 1000}' SECOND")
        if self.primary_key:
            lines.append(f"PRIMARY KEY ({self.primary_key}) NOT ENFORCED")
        options = f"'connector' = 'memory', 'name' = '{name}', 'changelog' = '{self.changelog}'"
        return f"CREATE TABLE {called} ({', '.join(lines)}) WITH ({options})"


class Versions(Table, frozen=True):
    """`r` of the shapes: versions of a value per key. `is_keyed`: the table says so."""

    is_keyed: bool = True

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*self.keys, *self.values, Column("ts", TIMESTAMP, False))

    @property
    def primary_key(self) -> str:
        return self.keys[0].name if self.is_keyed else ""


def random_table(choose: random.Random, *, changelog: str, nullable_keys: bool) -> Table:
    key_types = (*KEY_TYPES, *(NESTED_TYPES if nullable_keys else ()))
    keys = tuple(Column(f"k{i}", choose.choice(key_types), nullable_keys) for i in range(choose.choice((1, 1, 1, 2))))
    values = tuple(Column(f"v{i}", choose.choice(VALUE_TYPES)) for i in range(choose.randint(1, 3)))
    return Table(keys, values, changelog, changelog != "insert-only" and choose.random() < 0.5)


def random_value(choose: random.Random, column: Column, distinct: int) -> Any:
    """One of about `distinct` values of the column's type, or NULL."""
    if column.nullable and choose.random() < 0.15:
        return None
    number = choose.randrange(distinct)
    match column.type:
        case ColumnType(kind="integer", sql=sql):
            if distinct > 4 and choose.random() < 0.03:
                bits = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}[sql]
                return choose.choice((2**bits - 1, -(2**bits)))
            return number - 2
        case ColumnType(kind="small"):
            return number
        case ColumnType(kind="decimal"):
            return Decimal(number * 37 - 50).scaleb(-2)
        case ColumnType(kind="double" | "float"):
            return number / 4 - 1.0
        case ColumnType(kind="wild"):
            rare = (float("nan"), float("inf"), float("-inf"))
            return choose.choice(rare) if choose.random() < 0.2 else number / 4 - 1.0
        case ColumnType(kind="string"):
            return ("", "a", "b", "ä€", "long enough not to be inlined", "a,b")[number % 6] + str(number // 6)
        case ColumnType(kind="time"):
            return dt.time(23, number, 59)
        case ColumnType(kind="bytes"):
            return bytes(range(250, 250 + number))
        case ColumnType(kind="row"):
            return {"a": number % 3 or None, "b": "xy"[number % 2]}
        case ColumnType(kind="array"):
            return [None, *range(number)][: number % 3]
        case ColumnType(kind="boolean"):
            return number % 2 == 0
        case ColumnType(kind="date"):
            return dt.date(1969, 12, 30) + dt.timedelta(days=number)
        case _:
            return EPOCH + dt.timedelta(milliseconds=number * 977 - 2000)


def random_row(choose: random.Random, table: Table, id_: int, time_ms: int) -> Row:
    keys = [random_value(choose, c, 4) for c in table.keys]
    values = [random_value(choose, c, 6) for c in table.values]
    return (id_, *keys, *values, EPOCH + dt.timedelta(milliseconds=time_ms))


class Changes(msgspec.Struct, frozen=True):
    """`splits` lead to `rows`; all changes of one id are in one split, in order."""

    splits: list[list[Change]]
    rows: list[Row]


class Pace(msgspec.Struct, frozen=True):
    """Where the times of a table begin, how far they are apart, and how many rows it has."""

    start_ms: int
    step_ms: int
    count: int


def random_changes(choose: random.Random, table: Table, pace: Pace | None = None) -> Changes:
    """Up to 120 rows over 1 to 4 splits; an updating table has updates and deletes among them."""
    split_count = choose.randint(1, 4)
    if pace is None:
        # Only the first start counts; drawn so that seeds which found faults mean the same jobs as ever.
        starts_ms = [choose.choice((-60_000, 0, 1_700_000_000_000)) for _ in range(split_count)]
        pace = Pace(starts_ms[0], choose.choice((50, 700, 4_000)), choose.choice((0, 1, 10, 40, 120)))
    splits: list[list[Change]] = [[] for _ in range(split_count)]
    clocks = [pace.start_ms] * split_count
    rows: dict[int, Row] = {}
    for id_ in range(pace.count):
        number = choose.randrange(split_count)
        clocks[number] += choose.randrange(2 * pace.step_ms)
        time_ms = clocks[number] - choose.randrange(DELAY_MS)
        row = random_row(choose, table, id_, time_ms)
        rows[id_] = row
        splits[number].append((0 if table.changelog != "upsert" else 2, row))
        if table.changelog == "insert-only":
            continue
        for _ in range(choose.choice((0, 0, 1, 2))):
            of_split = [i for i in rows if any(change[1][0] == i for change in splits[number])]
            if table.is_timely:
                oldest = EPOCH + dt.timedelta(milliseconds=clocks[number] - DELAY_MS + 1)
                of_split = [i for i in of_split if rows[i][-1] >= oldest]
            if of_split:
                _change(choose, table, splits[number], rows, choose.choice(of_split), time_ms)
    return Changes(splits, list(rows.values()))


def _change(
    choose: random.Random, table: Table, split: list[Change], rows: dict[int, Row], id_: int, time_ms: int
) -> None:
    """An update (two thirds) or a delete of a row that is there."""
    old = rows[id_]
    if choose.random() < 0.66:
        new = random_row(choose, table, id_, time_ms)
        if table.changelog == "retract":
            split.append((1, old))
        split.append((2, new))
        rows[id_] = new
    else:
        del rows[id_]
        if table.changelog == "upsert":
            # A tombstone knows the key alone; the time column must not be NULL for the watermark.
            old = (old[0], *(None for _ in old[1:-1]), old[-1])
        split.append((3, old))
