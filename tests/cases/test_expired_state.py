"""Cases of state that expires between a row and its removal: the job lives on, nothing is counted below zero, and
nothing is taken back that was not shown."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from runtime.checkpoint.manifest import CheckpointManifest
from tests.support.local_cluster import LocalCluster
from tests.support.local_session import LocalSession, memory_tables
from tests.support.memory_tables.connector import Change, MemoryTable, Row

TABLES = """
CREATE TABLE src (id INT, g STRING, v INT) WITH ('connector' = 'memory', 'name' = 'src', 'changelog' = 'retract');
CREATE TABLE dst ({columns}) WITH ('connector' = 'memory', 'name' = 'dst', 'changelog' = 'retract');
"""
QUERIES = {
    "groups": (
        "g STRING, n BIGINT, m INT, d BIGINT",
        "SELECT g, COUNT(*), MAX(v), COUNT(DISTINCT v) FROM src GROUP BY g",
    ),
    "distinct": ("g STRING", "SELECT DISTINCT g FROM src"),
    "levels": (
        "n BIGINT, groups BIGINT, s BIGINT",
        "SELECT n, COUNT(*), SUM(n) FROM (SELECT g, COUNT(*) AS n FROM src GROUP BY g) GROUP BY n",
    ),
}
GROUPS = ("a", "b", None)


def random_changes(choose: random.Random) -> list[Change]:
    """A valid changelog of a small table."""
    rows: dict[int, Row] = {}
    changes: list[Change] = []
    for _ in range(80):
        number = choose.randrange(8)
        old = rows.pop(number, None)
        new = (number, choose.choice(GROUPS), choose.choice((1, 2, None)))
        if old is None or choose.random() < 0.6:
            rows[number] = new
            changes += [(0, new)] if old is None else [(1, old), (2, new)]
        else:
            changes.append((3, old))
    return changes


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("ttl", ["1 ms", "200 ms"])
def test_rows_expire_before_their_removal(name: str, ttl: str, tmp_path: Path) -> None:
    columns, query = QUERIES[name]
    for seed in range(4):
        choose = random.Random(seed)
        source, sink = MemoryTable([random_changes(choose)]), MemoryTable()
        source.poll_rows_max = choose.choice((1, 4, 40))
        with memory_tables(src=source, dst=sink):
            graph = LocalSession({"table.exec.state.ttl": ttl, "pipeline.max-parallelism": "8"}).graph(
                TABLES.replace("{columns}", columns) + f"INSERT INTO dst {query}"
            )
            place = tmp_path / str(seed)
            manifest: CheckpointManifest | None = None
            first = LocalCluster(graph, place, seed)
            if not first.run(12):
                manifest = first.checkpoint()
            first.close()
            last = LocalCluster(graph, place, seed, manifest=manifest, owner_counts=first.owner_counts)
            if manifest is not None:
                # Expires for good while the job is down.
                last.now_ms = first.now_ms + 1_000.0
            last.finish()
        check(sink.changes, name)


def check(changes: list[Change], name: str) -> None:
    held: Counter[Row] = Counter()
    for kind, row in changes:
        held[row] += 1 if kind in (0, 2) else -1
        assert held[row] >= 0, f"kind {kind} takes back what is not shown: {row}"
        if kind not in (0, 2):
            continue
        if name == "groups":
            _, count, most, distinct = row
            assert count >= 1, row
            assert most in (1, 2, None), row
            # A value whose own entry has expired is counted again, as in Flink.
            assert distinct >= 0, row
        elif name == "levels":
            count, groups, _ = row
            assert count >= 1, row
            assert groups >= 1, row
