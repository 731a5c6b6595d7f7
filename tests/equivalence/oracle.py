"""The batch answer, by DuckDB; and whether a changelog folds to it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from functools import cache
from typing import Any

import duckdb

from tests.equivalence.queries import Query
from tests.equivalence.tables import EPOCH, Table
from tests.support.memory_tables.connector import Change, Row

Key = tuple[Any, ...]


def windows_of(name: str, size_ms: int, step_ms: int, time_ms: int) -> list[tuple[int, int]]:
    """Start and end of every window that holds the instant, by definition: one by one."""
    match name:
        case "TUMBLE":
            start = time_ms // size_ms * size_ms
            return [(start, start + size_ms)]
        case "HOP":
            last = time_ms // step_ms * step_ms
            starts = range(last, time_ms - size_ms, -step_ms)
            return [(start, start + size_ms) for start in starts]
        case _:
            start = time_ms // size_ms * size_ms
            return [(start, start + end) for end in range(step_ms, size_ms + 1, step_ms) if time_ms < start + end]


def batch_answer(table: Table, rows: Sequence[Row], query: Query) -> list[Row]:
    """Keys, then the ingredients of every aggregate, per row."""
    if not rows and "GROUPING(" in query.oracle:
        # The empty grouping set over no rows: a row in DuckDB, none in Flink, where sets are expanded rows.
        return []
    columns = [f"{c.name} {c.type.duckdb}" for c in table.columns]
    fill("t", columns, rows)
    if query.windows is not None:
        more = [*columns, "window_start TIMESTAMP", "window_end TIMESTAMP"]
        fill("windowed", more, in_windows(rows, query.windows))
    return answer_of(query.oracle)


def answer_of(sql: str) -> list[Row]:
    """Of the tables that `fill` made."""
    return [tuple(row) for row in _connection().execute(sql).fetchall()]


def in_windows(rows: Sequence[Row], windows: tuple[str, int, int]) -> list[Row]:
    """Each row once per window that holds its last column, with the window's start and end behind it."""
    name, size_ms, step_ms = windows
    return [
        (*row, EPOCH + _ms(start), EPOCH + _ms(end))
        for row in rows
        for start, end in windows_of(name, size_ms, step_ms, _milliseconds(row[-1]))
    ]


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    """One for all answers: opening a database takes longer than most of them."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _ms(milliseconds: int) -> dt.timedelta:
    return dt.timedelta(milliseconds=milliseconds)


def _milliseconds(time: Any) -> int:
    delta = time - EPOCH
    return int(delta.days * 86_400_000 + delta.seconds * 1000 + delta.microseconds // 1000)


def fill(name: str, columns: list[str], rows: Sequence[Row]) -> None:
    """Makes a table for `answer_of`; `columns`: names with DuckDB's types."""
    connection = _connection()
    connection.execute(f"CREATE OR REPLACE TABLE {name} ({', '.join(columns)})")
    if rows:
        marks = f"({', '.join('?' for _ in columns)})"
        # One statement: `executemany` takes as long per row as this for many.
        values = [value for row in rows for value in row]
        connection.execute(f"INSERT INTO {name} VALUES {', '.join([marks] * len(rows))}", values)


def folded(changes: Sequence[Change], key: Sequence[int], *, upserts: bool) -> list[Row]:
    """The table a changelog leaves. Raises AssertionError for one that is not valid by its signs, or if two rows of one
    key (these columns) stand side by side at the end."""
    left = folded_rows(changes, key if upserts else ())
    if not upserts:
        keys = [hashable_row([row[i] for i in key]) for row in left]
        assert len(set(keys)) == len(keys), f"two rows of one key: {left}"
    return left


def folded_rows(changes: Sequence[Change], upsert_key: Sequence[int]) -> list[Row]:
    """The rows a changelog leaves; by key, if there is one. Raises AssertionError for one that is not valid by its
    signs: a row is taken back only while it is there."""
    if upsert_key:
        table: dict[Key, Row] = {}
        for kind, row in changes:
            own = hashable_row([row[i] for i in upsert_key])
            if kind in (1, 3):
                # A -U is a removal unless another row of its key follows.
                assert own in table, f"kind {kind} takes back a key that is not there: {row}"
                del table[own]
            else:
                table[own] = row
        return list(table.values())
    counts: dict[Key, int] = {}
    rows: dict[Key, Row] = {}
    for kind, row in changes:
        whole = hashable_row(row)
        rows[whole] = row
        counts[whole] = counts.get(whole, 0) + (1 if kind in (0, 2) else -1)
        assert counts[whole] >= 0, f"kind {kind} takes back a row that is not there: {row}"
    return [rows[whole] for whole, count in counts.items() for _ in range(count)]


def hashable_row(values: Sequence[Any]) -> Key:
    """A hashable form in which NaN equals NaN."""
    return tuple(_hashable(v) for v in values)


def _hashable(value: Any) -> Any:
    match value:
        case float() if value != value:
            return "NaN"
        case dict():
            return tuple((name, _hashable(item)) for name, item in value.items())
        case list():
            return tuple(_hashable(item) for item in value)
        case dt.datetime():
            return value.replace(tzinfo=None)
        case _:
            return value


def unclaimed(ours: Sequence[Row], theirs: Sequence[Row], query: Query, claimed: Sequence[int]) -> list[str]:
    """As `differences`, of a sink whose primary key is `claimed`: of the rows that claim a key it shows one."""
    keys = query.key_count
    expected = {hashable_row(row[:keys]): row for row in theirs}
    found = [f"a row too many: {row}" for row in ours if hashable_row(row[:keys]) not in expected]
    if found:
        return found
    shown = {hashable_row([row[i] for i in claimed]) for row in ours}
    # A claimed column is a key or COUNT(*), whose one ingredient is behind those of the aggregates before it.
    places = [i + sum(len(a.ingredients) - 1 for a in query.aggregates[: max(0, i - keys)]) for i in claimed]
    claims = {hashable_row([row[i] for i in places]) for row in theirs}
    found += [f"nobody has the key {key}" for key in claims - shown]
    present = [row for row in theirs if hashable_row(row[:keys]) in {hashable_row(own[:keys]) for own in ours}]
    return found + differences(ours, present, query)


def differences(ours: Sequence[Row], theirs: Sequence[Row], query: Query) -> list[str]:
    """What is wrong with our rows, in words; empty when they are the oracle's."""
    expected = {hashable_row(row[: query.key_count]): row[query.key_count :] for row in theirs}
    found: list[str] = []
    seen: set[Key] = set()
    for row in ours:
        key = hashable_row(row[: query.key_count])
        seen.add(key)
        if key not in expected:
            found.append(f"a row too many: {row}")
            continue
        ingredients = list(expected[key])
        for aggregate, value in zip(query.aggregates, row[query.key_count :], strict=True):
            own, ingredients = ingredients[: len(aggregate.ingredients)], ingredients[len(aggregate.ingredients) :]
            if not aggregate.check(value, own):
                found.append(f"{aggregate.sql} of {key} is {value!r}, expected from {own!r}")
    found += [f"a row is missing: {key} {expected[key]}" for key in expected if key not in seen]
    return found
