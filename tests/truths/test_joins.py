"""Whole queries over several tables give the rows that Flink's end with, in columns of the same names and types."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from planner.errors import SqlError
from planner.ir.types import DataType, TypeRoot
from runtime.operators.single_row import SeveralRowsError
from tests.support.local_cluster import LocalCluster
from tests.support.local_session import LocalSession, memory_tables
from tests.support.memory_tables.connector import Change, MemoryTable
from tests.truths.definitions_joins import QUERIES
from tests.truths.definitions_joins_tables import TABLES, VIEWS
from tests.truths.deviations_joins import DEVIATIONS, Aspect
from tests.unit.planner.catalog import MemoryCatalog

RECORDED = json.loads((Path(__file__).parent / "joins.json").read_text(encoding="utf-8"))["queries"]
BACKENDS = ("hashmap", "rocksdb")


def definitions() -> str:
    tables = [
        f"CREATE TABLE `{name}` ({table.columns}) WITH ('connector' = 'memory', 'name' = '{name}'"
        f"{', ' + repr('changelog') + ' = ' + repr('retract') if table.changing else ''});"
        for name, table in TABLES.items()
    ]
    return "\n".join([*tables, *(f"CREATE VIEW {name} AS {query};" for name, query in VIEWS.items())])


def value_of(value: Any, type_: DataType) -> Any:
    """A recorded value as memory tables hold it."""
    if value is None:
        return None
    match type_.root:
        case TypeRoot.DECIMAL:
            return Decimal(value)
        case TypeRoot.FLOAT | TypeRoot.DOUBLE:
            return float(value)
        case TypeRoot.DATE:
            return dt.date.fromisoformat(value)
        case TypeRoot.TIMESTAMP | TypeRoot.TIMESTAMP_LTZ:
            return dt.datetime.fromisoformat(value.rstrip("Z"))
        case TypeRoot.ARRAY:
            assert type_.element is not None
            return [value_of(item, type_.element) for item in value]
        case TypeRoot.MAP:
            assert type_.element is not None
            pairs = value.items() if isinstance(value, dict) else value
            return [(key, value_of(item, type_.element)) for key, item in pairs]
        case TypeRoot.ROW:
            return {f.name: value_of(v, f.type) for f, v in zip(type_.fields, value, strict=True)}
    return value


@lru_cache
def prepared() -> tuple[MemoryCatalog, dict[str, list[Change]]]:
    """The catalog of all tables and views, and what the tables hold."""
    session = LocalSession()
    changes: dict[str, list[Change]] = {}
    with memory_tables(**{name: MemoryTable() for name in TABLES}):
        session.run(definitions())
        for name, table in TABLES.items():
            result = session.job(f"SELECT * FROM `{name}`").result
            assert result is not None
            types = [c.type for c in result.columns]
            changes[name] = [(kind, tuple(map(value_of, row, types))) for kind, row in table.changes]
    return session.catalog, changes


def source(name: str) -> MemoryTable:
    table = MemoryTable([prepared()[1][name]])
    if name == "ticks":
        table.poll_rows_max = 1
    return table


def plain(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value


def left_over(sink: MemoryTable) -> list[tuple[Any, ...]]:
    """The rows that are left when all changes are carried out, in order of arrival."""
    rows: list[tuple[Any, ...]] = []
    for kind, row in sink.changes:
        values = tuple(plain(value) for value in row)
        if kind in (0, 2):
            rows.append(values)
        else:
            rows.remove(values)
    return rows


class Asked:
    """One recorded query, compiled and run by us."""

    def __init__(self, mode: str, sql: str, parallelism: int, backend: str) -> None:
        self._sql = sql
        self._session = LocalSession(
            {
                "execution.runtime-mode": "streaming" if mode == "streaming" else "batch",
                "parallelism.default": str(parallelism),
                "pipeline.max-parallelism": "16",
                "state.backend.type": backend,
                "table.local-time-zone": "UTC",
            }
        )
        self._session.catalog.entries.update(prepared()[0].entries)
        self._tables = {name: source(name) for name in TABLES} | {"answer": MemoryTable()}
        with memory_tables(**self._tables):
            result = self._session.job(sql).result
        assert result is not None
        self.columns = result.columns

    def rows(self, directory: Path, seed: int) -> list[tuple[Any, ...]]:
        columns = ", ".join(f"c{i} {c.type.with_nullable(True).sql()}" for i, c in enumerate(self.columns))
        options = "'connector' = 'memory', 'name' = 'answer', 'changelog' = 'retract'"
        with memory_tables(**self._tables):
            job = self._session.job(f"CREATE TABLE answer ({columns}) WITH ({options}); INSERT INTO answer {self._sql}")
            LocalCluster(job.job_graph, directory, seed).finish()
        return left_over(self._tables["answer"])


def differences(recorded: dict[str, Any], directory: Path, number: int) -> set[Aspect]:
    try:
        asked = Asked(recorded["mode"], recorded["sql"], 1 + number % 2, BACKENDS[number // 2 % 2])
    except SqlError:
        return set() if "refused" in recorded else {"refused here"}
    if "refused" in recorded:
        return {"refused there"}
    found: set[Aspect] = set()
    if [c.name for c in asked.columns] != recorded["names"]:
        found.add("names")
    if [c.type.summary() for c in asked.columns] != [t.replace(" *ROWTIME*", "") for t in recorded["types"]]:
        found.add("types")
    try:
        rows = asked.rows(directory, number)
    except SeveralRowsError:
        assert "more than one" in recorded["fails"]
        return found
    if "fails" in recorded:
        return {*found, "fails there"}
    types = [c.type for c in asked.columns]
    expected = [tuple(map(value_of, row, types)) for row in recorded["rows"]]
    if recorded["mode"] != "ordered":
        rows, expected = sorted(rows, key=repr), sorted(expected, key=repr)
    return found if rows == expected else {*found, "rows"}


@pytest.mark.parametrize("number", range(len(RECORDED)))
def test_answer_is_flinks(number: int, tmp_path: Path) -> None:
    explained = [d.aspects for d in DEVIATIONS if d.text in RECORDED[number]["sql"]]
    assert differences(RECORDED[number], tmp_path, number) == set().union(*explained)


def test_deviations_are_of_recorded_queries() -> None:
    assert [d.text for d in DEVIATIONS if not any(d.text in recorded["sql"] for recorded in RECORDED)] == []


def test_definitions_are_what_was_recorded() -> None:
    assert [(recorded["mode"], recorded["sql"]) for recorded in RECORDED] == QUERIES
