"""Random queries, nested up to three deep, under random settings: whatever the plan, one answer.

Three sinks each: one that takes all changes, one whose primary key is the whole row, one whose key is a column that
several rows may claim. All are held against the plainest plan at parallelism 1 into a table of all changes.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.golden.test_answers import answer
from tests.support.local_cluster import LocalCluster
from tests.support.local_session import LocalSession, memory_tables
from tests.support.memory_tables.connector import Change, MemoryTable

TABLES = """
CREATE TABLE rows_in (v INT, w BIGINT) WITH ('connector' = 'memory', 'name' = 'rows_in');
CREATE TABLE cdc (k INT, v INT, PRIMARY KEY (k) NOT ENFORCED)
  WITH ('connector' = 'memory', 'name' = 'cdc', 'changelog' = 'retract');
CREATE TABLE cdc_without_key (k INT, v INT) WITH ('connector' = 'memory', 'name' = 'cdc', 'changelog' = 'retract');
CREATE TABLE upserts (k INT, v INT, PRIMARY KEY (k) NOT ENFORCED)
  WITH ('connector' = 'memory', 'name' = 'upserts', 'changelog' = 'upsert');
CREATE TABLE shown (a INT, b BIGINT) WITH ('connector' = 'memory', 'name' = 'shown', 'changelog' = 'retract');
CREATE TABLE by_row (a INT, b BIGINT, PRIMARY KEY (a, b) NOT ENFORCED)
  WITH ('connector' = 'memory', 'name' = 'by_row', 'changelog' = 'upsert');
CREATE TABLE by_a (a INT, b BIGINT, PRIMARY KEY (a) NOT ENFORCED)
  WITH ('connector' = 'memory', 'name' = 'by_a', 'changelog' = 'upsert');
"""
CHOICES = {
    "parallelism.default": ("1", "2", "3"),
    "table.optimizer.distinct-agg.split.enabled": ("true", "false"),
    "table.optimizer.agg-phase-strategy": ("AUTO", "ONE_PHASE", "TWO_PHASE"),
    "table.exec.sink.upsert-materialize": ("AUTO", "AUTO", "FORCE"),
    "table.exec.sink.keyed-shuffle": ("AUTO", "FORCE"),
    "table.optimizer.reuse-sub-plan-enabled": ("true", "false"),
}
MINI_BATCH = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "3",
}
SOURCES = (
    "SELECT v AS a, w AS b FROM rows_in {hint}",
    "SELECT k AS a, CAST(v AS BIGINT) AS b FROM cdc {hint}",
    "SELECT k AS a, CAST(v AS BIGINT) AS b FROM upserts {hint}",
    "SELECT k AS a, CAST(v AS BIGINT) AS b FROM cdc_without_key",
)
LAYERS = (
    "SELECT a, b FROM {t} WHERE b > 1",
    "SELECT CAST(b AS INT) AS a, CAST(a AS BIGINT) AS b FROM {t}",
    "SELECT a, COUNT(*) AS b FROM {t} GROUP BY a",
    "SELECT a, SUM(b) AS b FROM {t} GROUP BY a",
    "SELECT a, MAX(b) AS b FROM {t} GROUP BY a",
    "SELECT a, AVG(b) AS b FROM {t} GROUP BY a",
    "SELECT a, COUNT(DISTINCT b) + SUM(b) AS b FROM {t} GROUP BY a",
    "SELECT a, MIN(b) AS b FROM {t} GROUP BY a HAVING COUNT(*) < 3",
    "SELECT 7 AS a, COUNT(*) AS b FROM {t}",
    "SELECT DISTINCT a, b FROM {t}",
    "SELECT a, b FROM {t} UNION ALL SELECT a, b FROM {u}",
    "SELECT a, COUNT(*) AS b FROM {t} GROUP BY GROUPING SETS ((a), (b), (a, b))",
    "SELECT a + 1 AS a, b FROM {t}",
    "SELECT a, CAST(a AS BIGINT) AS b FROM {t} WHERE a <> 3",
)


def query(choose: random.Random, depth: int) -> str:
    if depth == 0:
        hint = choose.choice(("", "", "/*+ OPTIONS('scan.parallelism' = '2') */"))
        return choose.choice(SOURCES).format(hint=hint)
    below, beside = (f"({query(choose, depth - 1)}) AS {name}" for name in ("t", "u"))
    return choose.choice(LAYERS).format(t=below, u=beside)


def data(choose: random.Random) -> dict[str, MemoryTable]:
    """Three splits each; the same history of rows with and without −U."""
    inserted = [[(0, (choose.randrange(5), choose.randrange(6))) for _ in range(choose.randrange(12))] for _ in "abc"]
    retracting: list[list[Change]] = [[], [], []]
    upserting: list[list[Change]] = [[], [], []]
    for split in range(3):
        live: dict[int, int] = {}
        for _ in range(choose.randrange(25)):
            key, value = split * 3 + choose.randrange(3), choose.randrange(5)
            before = live.get(key)
            if before is not None and choose.random() < 0.3:
                del live[key]
                retracting[split].append((3, (key, before)))
                upserting[split].append((3, (key, None)))
                continue
            live[key] = value
            if before is not None:
                retracting[split].append((1, (key, before)))
            retracting[split].append((0 if before is None else 2, (key, value)))
            upserting[split].append((0 if before is None else 2, (key, value)))
    return {"rows_in": MemoryTable(inserted), "cdc": MemoryTable(retracting), "upserts": MemoryTable(upserting)}


def run(
    insert: str, settings: dict[str, str], splits: dict[str, MemoryTable], seed: int, directory: Path
) -> list[Change]:
    sinks = {name: MemoryTable() for name in ("shown", "by_row", "by_a")}
    directory.mkdir(parents=True)
    with memory_tables(**splits, **sinks):
        session = LocalSession({"pipeline.max-parallelism": "8", **settings})
        session.run(TABLES)
        LocalCluster(session.graph(insert), directory, seed).finish()
    return next((sink.changes for sink in sinks.values() if sink.changes), [])


def folded(changes: list[Change], key_length: int) -> set[str]:
    """Lines of the upsert table that the changes leave behind."""
    rows: dict[tuple[object, ...], tuple[object, ...]] = {}
    for kind, row in changes:
        if kind in (0, 2):
            rows[row[:key_length]] = row
        else:
            rows.pop(row[:key_length], None)
    return set(answer([(0, row) for row in rows.values()]).splitlines())


def check(seed: int, directory: Path) -> None:
    choose = random.Random(seed)
    select = query(choose, choose.randrange(1, 4))
    splits = data(choose)
    settings = {key: choose.choice(values) for key, values in CHOICES.items()}
    if choose.random() < 0.3:
        settings |= MINI_BATCH
    hint = choose.choice(("", "/*+ OPTIONS('sink.parallelism' = '2') */"))
    where = {"shown": "", "by_row": "WHERE a IS NOT NULL AND b IS NOT NULL", "by_a": "WHERE a IS NOT NULL"}

    def lines(sink: str, condition: str, settings: dict[str, str], name: str) -> list[Change]:
        insert = f"INSERT INTO {sink} SELECT a, b FROM ({select}) AS z {condition}"
        return run(insert, settings, splits, choose.randrange(1 << 30), directory / name)

    expected = {name: answer(lines("shown", condition, {}, f"plain-{name}")) for name, condition in where.items()}
    said = f"seed {seed}: {select} under {settings}"
    assert answer(lines("shown", "", settings, "shown")) == expected["shown"], said
    by_row = folded(lines(f"by_row {hint}", where["by_row"], settings, "by_row"), 2)
    assert by_row == set(expected["by_row"].splitlines()), said
    by_a = folded(lines(f"by_a {hint}", where["by_a"], settings, "by_a"), 1)
    claims = set(expected["by_a"].splitlines())
    assert by_a <= claims, said
    assert {line.split(" | ")[0] for line in by_a} == {line.split(" | ")[0] for line in claims}, said


@pytest.mark.parametrize("seed", range(12))
def test_random_plans_give_one_answer(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


@pytest.mark.fuzz
def test_many_random_plans_give_one_answer(tmp_path: Path) -> None:
    first = random.SystemRandom().randrange(1 << 40)
    for seed in range(first, first + 2_000):
        check(seed, tmp_path / str(seed))
