"""Settings that choose another plan never choose another answer: one query, run under each of them, folds to one table.

What the plan looks like under a setting is in the golden plans; here the real operators run it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from planner.ir.job_graph import JobGraph
from tests.golden.answer_tables import tables
from tests.golden.test_answers import DEFINITIONS, answer
from tests.support.local_cluster import LocalCluster
from tests.support.local_session import LocalSession, memory_tables
from tests.support.memory_tables.connector import Change, MemoryTable

MINI_BATCH = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 h",
    "table.exec.mini-batch.size": "5",
}
SPLIT = {
    "table.optimizer.distinct-agg.split.enabled": "true",
    "table.optimizer.distinct-agg.split.bucket-num": "3",
}
SETTINGS: dict[str, dict[str, str]] = {
    "plain": {},
    "parallel": {"parallelism.default": "3"},
    "one-phase": {"parallelism.default": "3", "table.optimizer.agg-phase-strategy": "ONE_PHASE"},
    "two-phase": {"parallelism.default": "1", "table.optimizer.agg-phase-strategy": "TWO_PHASE"},
    "mini-batch": {"parallelism.default": "2", **MINI_BATCH},
    "split-distinct": {"parallelism.default": "3", **SPLIT, **MINI_BATCH},
    "materialized": {"parallelism.default": "2", "table.exec.sink.upsert-materialize": "FORCE"},
    "time-to-live": {"table.exec.state.ttl": "1 d", "pipeline.operator-chaining.enabled": "false"},
}
QUERIES = {
    "group_by": "SELECT channel, COUNT(*), SUM(price), MAX(price) FROM bids GROUP BY channel",
    "having": "SELECT auction, COUNT(*), MIN(price) FROM bids GROUP BY auction HAVING COUNT(*) < 4",
    "distinct": "SELECT channel, COUNT(DISTINCT bidder), MIN(price) FROM bids GROUP BY channel",
    "changing": "SELECT city, COUNT(*), SUM(age), MAX(name) FROM at_home GROUP BY city",
    "changing_distinct": "SELECT city, COUNT(DISTINCT name), SUM(DISTINCT age) FROM at_home GROUP BY city",
    "upserts": "SELECT lot, COUNT(*), MAX(symbol) FROM prices WHERE lot > 0 GROUP BY lot",
    "cascade": "SELECT n, COUNT(*), MAX(channel) FROM counted GROUP BY n",
    "global": "SELECT 'all', COUNT(*), AVG(age) FROM users",
}


VIEWS = """
CREATE VIEW at_home AS SELECT * FROM users WHERE city IS NOT NULL;
CREATE VIEW counted AS SELECT channel, COUNT(*) AS n FROM bids GROUP BY channel;
"""


def session(settings: dict[str, str]) -> LocalSession:
    made = LocalSession({"pipeline.max-parallelism": "8", **settings})
    made.run(DEFINITIONS)
    made.run(VIEWS)
    return made


def run(query: str, settings: dict[str, str], changelog: str, key: str, directory: Path) -> list[Change]:
    sink = MemoryTable()
    with memory_tables(answer=sink, **tables()):
        made = session(settings)
        result = session({}).job(query).result
        assert result is not None
        columns = ", ".join(f"c{i} {c.type.with_nullable(True).sql()}" for i, c in enumerate(result.columns))
        options = f"'connector' = 'memory', 'name' = 'answer', 'changelog' = '{changelog}'"
        graph = made.graph(f"CREATE TABLE answer ({columns}{key}) WITH ({options}); INSERT INTO answer {query}")
        LocalCluster(graph, directory, 7).finish()
    return sink.changes


@cache
def plain_answer(name: str) -> str:
    """At parallelism 1, every change shown."""
    with TemporaryDirectory() as directory:
        return answer(run(QUERIES[name], {}, "retract", "", Path(directory)))


def table_by_key(changes: list[Change]) -> str:
    """What an upsert table holds: the last row of each key, which is the first column."""
    rows: dict[object, tuple[object, ...]] = {}
    for kind, row in changes:
        if kind in (0, 2):
            rows[row[0]] = row
        else:
            rows.pop(row[0], None)
    return answer([(0, row) for row in rows.values()])


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("settings", SETTINGS)
def test_every_setting_gives_the_same_table(name: str, settings: str, tmp_path: Path) -> None:
    query, expected = QUERIES[name], plain_answer(name)
    assert answer(run(query, SETTINGS[settings], "retract", "", tmp_path)) == expected
    by_key = run(query, SETTINGS[settings], "upsert", ", PRIMARY KEY (c0) NOT ENFORCED", tmp_path)
    assert table_by_key(by_key) == expected


@pytest.mark.parametrize("name", ["group_by", "having", "distinct", "cascade"])
@pytest.mark.parametrize("parallelism", ["1", "3"])
def test_batch_mode_gives_final_rows(name: str, parallelism: str, tmp_path: Path) -> None:
    query, expected = QUERIES[name], plain_answer(name)
    batch = {"execution.runtime-mode": "batch", "parallelism.default": parallelism}
    changes = run(query, batch, "insert-only", "", tmp_path)
    assert {kind for kind, _ in changes} == {0}
    assert answer(changes) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT COUNT(*), SUM(auction) FROM bids", "17 | 41\n"),
        ("SELECT COUNT(*), SUM(auction) FROM bids WHERE auction > 99", "0 | NULL\n"),
        ("SELECT COUNT(*) FROM bids WHERE auction > 99 HAVING COUNT(*) > 0", ""),
        ("SELECT DISTINCT channel FROM bids", "app\nweb\n"),
        ("SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM bids GROUP BY channel)", "10\n"),
    ],
)
def test_batch_mode_without_keys_and_over_nothing(query: str, expected: str, tmp_path: Path) -> None:
    batch = {"execution.runtime-mode": "batch", "parallelism.default": "2"}
    assert answer(run(query, batch, "insert-only", "", tmp_path)) == expected


def test_batch_mode_after_a_crash(tmp_path: Path) -> None:
    """What the groups show so far is state: a restart at another parallelism puts every group out once."""
    query = QUERIES["group_by"]
    sink = MemoryTable()
    with memory_tables(answer=sink, **tables()):

        def job(parallelism: int) -> JobGraph:
            made = session({"execution.runtime-mode": "batch", "parallelism.default": str(parallelism)})
            ddl = "c STRING, n BIGINT, s DECIMAL(38, 2), m DECIMAL(10, 2)"
            options = "'connector' = 'memory', 'name' = 'answer'"
            return made.graph(f"CREATE TABLE answer ({ddl}) WITH ({options}); INSERT INTO answer {query}")

        first = LocalCluster(job(3), tmp_path, 11)
        first.run(12)
        manifest = first.checkpoint()
        first.run(12)
        first.close()
        LocalCluster(job(2), tmp_path, 12, manifest=manifest, owner_counts=first.owner_counts).finish()
    assert answer(sink.changes) == plain_answer("group_by")


@pytest.mark.parametrize("parallelism", ["1", "3"])
def test_rows_that_claim_one_key_of_the_sink(parallelism: str, tmp_path: Path) -> None:
    """Users of one city meet at the city's key; whoever came last is shown, and only an owner that leaves gives way."""
    query = "SELECT city, id FROM users WHERE city IS NOT NULL"
    by_city = run(query, {"parallelism.default": parallelism}, "upsert", ", PRIMARY KEY (c0) NOT ENFORCED", tmp_path)
    shown = {row[0]: row[1] for kind, row in by_city if kind in (0, 2)}
    (tmp_path / "all").mkdir()
    owners: dict[object, set[object]] = {}
    for kind, row in run(query, {}, "retract", "", tmp_path / "all"):
        claimants = owners.setdefault(row[0], set())
        (claimants.add if kind in (0, 2) else claimants.discard)(row[1])
    final = table_by_key(by_city).splitlines()
    assert {line.split(" | ")[0] for line in final} == {city for city, ids in owners.items() if ids}
    assert all(shown[city] in ids for city, ids in owners.items() if ids)


def test_statement_sets_compute_the_same_with_and_without_sharing(tmp_path: Path) -> None:
    answers: list[list[str]] = []
    for number, reuse in enumerate(("true", "false")):
        upserted, shown = MemoryTable(), MemoryTable()
        with memory_tables(upserted=upserted, shown=shown, **tables()):
            made = session({"parallelism.default": "2", "table.optimizer.reuse-sub-plan-enabled": reuse})
            graph = made.graph(
                """
                CREATE TABLE upserted (c STRING, n BIGINT, PRIMARY KEY (c) NOT ENFORCED)
                  WITH ('connector' = 'memory', 'name' = 'upserted', 'changelog' = 'upsert');
                CREATE TABLE shown (c STRING, n BIGINT)
                  WITH ('connector' = 'memory', 'name' = 'shown', 'changelog' = 'retract');
                EXECUTE STATEMENT SET BEGIN
                  INSERT INTO upserted SELECT channel, COUNT(*) FROM bids GROUP BY channel;
                  INSERT INTO shown SELECT channel, COUNT(*) FROM bids GROUP BY channel;
                END"""
            )
            directory = tmp_path / str(number)
            directory.mkdir()
            LocalCluster(graph, directory, 3).finish()
        assert all(kind != 1 for kind, _ in upserted.changes)
        answers.append([table_by_key(upserted.changes), answer(shown.changes)])
    assert answers[0] == answers[1]
    assert answers[0][0] == answers[0][1]
