"""Joins in the shapes people rarely write, over random tables: the answer is DuckDB's. Keys of types that differ and of
values that are odd (NaN, −0.0, blanks, fractions, clock changes); what Flink says where DuckDB knows no such type."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.equivalence.test_subqueries import answer, check
from tests.support.local_cluster import LocalCluster
from tests.support.local_session import LocalSession, memory_tables
from tests.support.memory_tables.connector import MemoryTable

QUERIES = [
    line.rstrip(";") for line in (Path(__file__).parent / "joins.sql").read_text().splitlines() if line[:2] != "--"
]
Rows = dict[str, list[tuple[Any, ...]]]

TYPED = {
    "p": "i INT, t TIMESTAMP(3), s STRING, n DECIMAL(10, 2), f FLOAT, g DOUBLE, x CHAR(3), h TIMESTAMP(6)",
    "q": "i INT, t TIMESTAMP_LTZ(3), s STRING, n DECIMAL(12, 4), f FLOAT, g DOUBLE, x CHAR(3), h TIMESTAMP(3)",
}
TYPED_QUERIES = """\
SELECT p.i, q.i FROM p JOIN q ON p.n = q.g
SELECT p.i, q.i FROM p FULL JOIN q ON p.n = q.n
SELECT p.i, q.i FROM p JOIN q ON p.g = q.g
SELECT p.i, q.i FROM p LEFT JOIN q ON p.f = q.g
SELECT p.i, q.i FROM p FULL JOIN q ON p.f IS NOT DISTINCT FROM q.f
SELECT p.i, q.i FROM p JOIN q ON p.x = q.s
SELECT p.i, q.i FROM p LEFT JOIN q ON q.h = p.h AND p.s IS NOT DISTINCT FROM q.s
SELECT p.i, q.i FROM p JOIN q ON p.i = q.g
SELECT p.i FROM p WHERE p.g IN (SELECT g FROM q)
SELECT p.i FROM p WHERE p.x IN (SELECT s FROM q)
SELECT p.g FROM p EXCEPT SELECT g FROM q
SELECT h FROM p INTERSECT SELECT h FROM q
SELECT g, p.i, z.i FROM p FULL JOIN (SELECT g, i FROM q) AS z USING (g)""".splitlines()

# `<p>` is the instant of a wall clock of p, `<q>` the wall clock of an instant of q.
TIMED_QUERIES = [
    ("SELECT p.i, q.i FROM p FULL JOIN q ON p.t = q.t", "SELECT p.i, q.i FROM p FULL JOIN q ON <p> = q.t"),
    ("SELECT p.i, q.i FROM p LEFT JOIN q ON q.t = p.t", "SELECT p.i, q.i FROM p LEFT JOIN q ON <q> = p.t"),
    ("SELECT p.i, q.i FROM p JOIN q ON q.t > p.t", "SELECT p.i, q.i FROM p JOIN q ON q.t > <p>"),
    (
        "SELECT p.i, q.i FROM p FULL JOIN q ON q.t IS NOT DISTINCT FROM p.t",
        "SELECT p.i, q.i FROM p FULL JOIN q ON <p> IS NOT DISTINCT FROM q.t",
    ),
    ("SELECT i FROM p WHERE t IN (SELECT t FROM q)", "SELECT i FROM p WHERE <p> IN (SELECT t FROM q)"),
    ("SELECT i FROM q WHERE t IN (SELECT t FROM p)", "SELECT i FROM q WHERE <q> IN (SELECT t FROM p)"),
    ("SELECT t FROM p EXCEPT SELECT t FROM q", "SELECT <p> FROM p EXCEPT SELECT t FROM q"),
    ("SELECT t, p.i FROM p FULL JOIN q USING (t)", "SELECT COALESCE(<p>, q.t), p.i FROM p FULL JOIN q ON <p> = q.t"),
]
ZONES = ("Europe/Berlin", "Asia/Kolkata")


@pytest.mark.parametrize("query", QUERIES)
def test_the_answer_is_that_of_a_database(query: str, tmp_path: Path) -> None:
    check(query, range(1), tmp_path)


@pytest.mark.parametrize("query", TYPED_QUERIES)
def test_keys_of_other_types_and_odd_values(query: str, tmp_path: Path) -> None:
    rows = typed_rows(random.Random(query))
    assert found(query, rows, tmp_path, "UTC") == oracle(query, rows)


@pytest.mark.parametrize(("query", "asked"), TIMED_QUERIES)
@pytest.mark.parametrize("zone", ZONES)
def test_wall_clocks_meet_instants(query: str, asked: str, zone: str, tmp_path: Path) -> None:
    rows = typed_rows(random.Random(f"{query}{zone}"))
    asked = asked.replace("<p>", f"((p.t AT TIME ZONE '{zone}') AT TIME ZONE 'UTC')")
    asked = asked.replace("<q>", f"((q.t AT TIME ZONE 'UTC') AT TIME ZONE '{zone}')")
    assert found(query, rows, tmp_path, zone) == oracle(asked, rows)


def test_where_clocks_change_it_is_as_in_flink(tmp_path: Path) -> None:
    """Recorded from Apache Flink 2.2.1 with table.local-time-zone = Europe/Berlin: 02:30 of October 25 is there twice
    (z is the first, then the second of them), 02:30 of March 29 is not (z is 03:30)."""
    october, march = dt.datetime(2026, 10, 25, 2, 30), dt.datetime(2026, 3, 29, 2, 30)
    instants = [dt.datetime(2026, 10, 25, 0, 30), dt.datetime(2026, 10, 25, 1, 30), dt.datetime(2026, 3, 29, 1, 30)]
    empty = (None,) * 6
    rows: Rows = {
        "p": [(i, t, *empty) for i, t in ((1, october), (2, october), (3, march))],
        "q": [(i, t.replace(tzinfo=dt.UTC), *empty) for i, t in enumerate(instants, start=1)],
    }
    expected = {
        "t = z": (True, False, True),
        "z = t": (True, True, False),
        "t <> z": (False, True, False),
        "z <> t": (False, False, True),
        "t < z": (False, True, False),
        "t >= z": (True, False, True),
        "z < t": (False, False, False),
        "z <= t": (True, False, True),
        "z > t": (False, True, False),
        "z >= t": (True, True, True),
        "z IN (t)": (True, False, True),
        "t IN (z)": (True, True, False),
        "t NOT IN (z)": (False, False, True),
        "t IS NOT DISTINCT FROM z": (True, False, True),
        "z IS DISTINCT FROM t": (False, True, False),
        "z BETWEEN t AND t": (True, False, True),
        "CASE t WHEN z THEN TRUE ELSE FALSE END": (True, False, True),
        "CASE z WHEN t THEN TRUE ELSE FALSE END": (True, True, False),
        "NULLIF(t, z) IS NULL": (True, False, True),
        "NULLIF(z, t) IS NULL": (True, True, False),
    }
    same_precision = {
        "t = z": (True, True, False),
        "z = t": (True, False, True),
        "t < z": (False, False, True),
        "t <= z": (True, True, True),
        "t > z": (False, False, False),
        "t >= z": (True, True, False),
        "z < t": (False, False, False),
        "z <= t": (True, True, False),
        "z > t": (False, False, True),
        "z >= t": (True, True, True),
    }
    for type_, facts in (("TIMESTAMP(0)", expected), ("TIMESTAMP(3)", same_precision)):
        below = f"SELECT p.i, CAST(p.t AS {type_}) AS t, q.t AS z FROM p JOIN q ON p.i = q.i"
        query = f"SELECT i, {', '.join(facts)} FROM ({below}) AS x"
        answers = {row[0]: row[1:] for row in found(query, rows, tmp_path / type_, "Europe/Berlin")}
        assert {e: tuple(answers[i + 1][n] for i in range(3)) for n, e in enumerate(facts)} == facts
    pairs = {
        "p JOIN q ON p.t = q.t": [(1, 1), (2, 1), (3, 3)],
        "q JOIN p ON q.t = p.t": [(1, 1), (1, 2), (2, 1), (2, 2)],
        "q JOIN p USING (t)": [(1, 1), (1, 2), (2, 1), (2, 2)],
    }
    for number, (joined, wanted) in enumerate(pairs.items()):
        clocks = "(SELECT i, CAST(t AS TIMESTAMP(0)) AS t FROM p) AS p"
        joined = joined.replace("p JOIN", f"{clocks} JOIN").replace("JOIN p ", f"JOIN {clocks} ")
        made = found(f"SELECT p.i, q.i FROM {joined}", rows, tmp_path / str(number), "Europe/Berlin")
        assert sorted(made) == wanted


def typed_rows(choose: random.Random) -> Rows:
    """Wall clocks of p and instants of q overlap in the zones of the tests; none is near a change of clocks."""

    def row(i: int, side: str) -> tuple[Any, ...]:
        steps = choose.randrange(0, 8) if side == "p" else choose.randrange(-10, 4)
        time = dt.datetime(2026, 7, 1) + dt.timedelta(minutes=30 * steps)
        fraction = choose.choice((0, 1_000, 123_000, 123_456 if side == "p" else 0))
        return (
            i,
            None if choose.random() < 0.2 else time if side == "p" else time.replace(tzinfo=dt.UTC),
            choose.choice((None, "a", "a  ", "b", "")),
            choose.choice((None, Decimal("1.00"), Decimal("0.10"), Decimal("2.50"))),
            choose.choice((None, 1.0, 0.5, 2.5, math.nan, 0.0, -0.0)),
            choose.choice((None, 1.0, 0.1, 2.5, math.nan, 0.0, -0.0, math.inf)),
            choose.choice((None, "a  ", "b  ", "abc")),
            dt.datetime(2026, 1, 1, 0, 0, 0, fraction),
        )

    return {side: [row(i, side) for i in range(10)] for side in TYPED}


def found(query: str, rows: Rows, directory: Path, zone: str) -> Counter[tuple[Any, ...]]:
    """The same answer from a stream and in batch."""
    answers = []
    for mode in ("streaming", "batch"):
        sink, inputs = MemoryTable(), {name: MemoryTable([[(0, row) for row in rows[name]]]) for name in TYPED}
        with memory_tables(answer=sink, **inputs):
            session = LocalSession({"table.local-time-zone": zone, "execution.runtime-mode": mode})
            session.settings["parallelism.default"] = "2"
            for name, columns in TYPED.items():
                session.run(f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'memory', 'name' = '{name}')")
            result = session.job(query).result
            assert result is not None
            columns = ", ".join(f"x{i} {c.type.with_nullable(True).sql()}" for i, c in enumerate(result.columns))
            options = "'connector' = 'memory', 'name' = 'answer', 'changelog' = 'retract'"
            job = session.job(f"CREATE TABLE answer ({columns}) WITH ({options}); INSERT INTO answer {query}")
            LocalCluster(job.job_graph, directory / mode, 1).finish()
        answers.append(answer([(kind, plain(row)) for kind, row in sink.changes]))
    assert answers[0] == answers[1]
    return answers[0]


def oracle(query: str, rows: Rows) -> Counter[tuple[Any, ...]]:
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    for name, columns in TYPED.items():
        columns = columns.replace("TIMESTAMP_LTZ(3)", "TIMESTAMP").replace("TIMESTAMP(3)", "TIMESTAMP")
        columns = columns.replace("TIMESTAMP(6)", "TIMESTAMP").replace("CHAR(3)", "VARCHAR")
        database.execute(f"CREATE TABLE {name} ({columns})")
        values = [tuple(v.replace(tzinfo=None) if isinstance(v, dt.datetime) else v for v in row) for row in rows[name]]
        database.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(values[0]))})", values)
    return Counter(plain(row) for row in database.execute(query).fetchall())


def plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Values that are equal if they are the same: every NaN, both zeros, instants in UTC."""

    def one(value: Any) -> Any:
        match value:
            case float():
                return "NaN" if math.isnan(value) else value + 0.0
            case dt.datetime() if value.tzinfo is not None:
                return value.astimezone(dt.UTC).replace(tzinfo=None)
            case _:
                return value

    return tuple(one(value) for value in row)
