"""Sub-queries, set operations and ranks over random tables with NULLs, duplicates, updates and deletes: the folded
changelog is what DuckDB answers."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

from planner.api import CompiledJob
from tests.support.local_cluster import LocalCluster
from tests.support.local_session import LocalSession, memory_tables
from tests.support.memory_tables.connector import Change, MemoryTable

DEFINITIONS = """
CREATE TABLE a (id INT, k INT, v INT, PRIMARY KEY (id) NOT ENFORCED)
  WITH ('connector' = 'memory', 'name' = 'a', 'changelog' = 'retract');
CREATE TABLE b (k INT, v INT) WITH ('connector' = 'memory', 'name' = 'b');
CREATE TABLE c (k INT NOT NULL, v INT NOT NULL) WITH ('connector' = 'memory', 'name' = 'c');
CREATE TABLE one (k INT, v INT, PRIMARY KEY (k) NOT ENFORCED)
  WITH ('connector' = 'memory', 'name' = 'one', 'changelog' = 'retract');
"""

TEXT = (Path(__file__).parent / "subqueries.sql").read_text()
QUERIES = [line.rstrip(";") for line in TEXT.splitlines() if not line.startswith("--")]


def random_rows(choose: random.Random) -> dict[str, list[tuple[Any, ...]]]:
    def value() -> int | None:
        return choose.choice([None, 1, 2, 3, 4, 5])

    return {
        "a": [(i, value(), value()) for i in range(choose.randrange(4, 14))],
        "b": [(value(), value()) for _ in range(choose.randrange(0, 10))],
        "c": [(choose.randrange(1, 6), choose.randrange(1, 6)) for _ in range(choose.randrange(0, 7))],
        "one": [(k, value()) for k in choose.sample([1, 2, 3, 4, 5], choose.randrange(0, 5))],
    }


def changes(rows: list[tuple[Any, ...]], choose: random.Random) -> list[Change]:
    """A history of a table with a key that ends in `rows`."""
    out: list[Change] = []
    for key in choose.sample([row[0] for row in rows] + [-1, -2], len(rows) + 2):
        final = next((row for row in rows if row[0] == key), None)
        width = len(rows[0]) - 1 if rows else 1
        old = (key, *(choose.choice([None, 1, 2, 3]) for _ in range(width)))
        match choose.randrange(3), final:
            case _, None:
                out += [(0, old), (3, old)] if rows else []
            case 0, row:
                out += [(0, row)]
            case 1, row:
                out += [(0, old), (1, old), (2, row)]
            case _, row:
                out += [(0, old), (3, old), (0, row)]
    return out


def tables(rows: dict[str, list[tuple[Any, ...]]], choose: random.Random) -> dict[str, MemoryTable]:
    made: dict[str, MemoryTable] = {}
    for name, content in rows.items():
        if name in ("a", "one"):
            made[name] = MemoryTable([changes(content, choose)])
        else:
            cut = choose.randrange(len(content) + 1)
            made[name] = MemoryTable([[(0, row) for row in part] for part in (content[:cut], content[cut:])])
        made[name].random = choose
    return made


def oracle(rows: dict[str, list[tuple[Any, ...]]]) -> duckdb.DuckDBPyConnection:
    made = duckdb.connect()
    widths = {"a": "id INT, k INT, v INT", "b": "k INT, v INT", "c": "k INT, v INT", "one": "k INT, v INT"}
    for name, columns in widths.items():
        made.execute(f"CREATE TABLE {name} ({columns})")
        if rows[name]:
            made.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[name][0]))})", rows[name])
    return made


def job(query: str, parallelism: int) -> CompiledJob:
    session = LocalSession({"parallelism.default": str(parallelism), "pipeline.max-parallelism": "16"})
    session.run(DEFINITIONS)
    result = session.job(query).result
    assert result is not None
    columns = ", ".join(f"x{i} {c.type.with_nullable(True).sql()}" for i, c in enumerate(result.columns))
    options = "'connector' = 'memory', 'name' = 'answer', 'changelog' = 'retract'"
    return session.job(f"CREATE TABLE answer ({columns}) WITH ({options}); INSERT INTO answer {query}")


def answer(found: list[Change]) -> Counter[tuple[Any, ...]]:
    counts: Counter[tuple[Any, ...]] = Counter()
    for kind, row in found:
        counts[row] += 1 if kind in (0, 2) else -1
        assert counts[row] >= 0, f"a row is taken back that is not there: {row}"
    return +counts


def check(query: str, seeds: range, directory: Path) -> None:
    for seed in seeds:
        choose = random.Random(f"{query}{seed}")
        rows = random_rows(choose)
        sink = MemoryTable()
        with memory_tables(answer=sink, **tables(rows, choose)):
            parallelism = choose.choice([1, 2, 3])
            LocalCluster(job(query, parallelism).job_graph, directory / str(seed), choose.randrange(1 << 30)).finish()
        wanted = Counter(oracle(rows).execute(query.replace("VALUES 1, 2, 4", "VALUES (1), (2), (4)")).fetchall())
        assert answer(sink.changes) == wanted, (rows, parallelism)


@pytest.mark.parametrize("query", QUERIES)
def test_the_answer_is_that_of_a_database(query: str, tmp_path: Path) -> None:
    check(query, range(1), tmp_path)


@pytest.mark.fuzz
@pytest.mark.parametrize("query", QUERIES)
def test_more_tables(query: str, tmp_path: Path) -> None:
    check(query, range(1, 30), tmp_path)
