"""Cases of joins, each in all local shapes: regular joins over changes, keys of unlike types, chains of outer joins,
joins in time; and how many partners a row has, across a restart."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from runtime.checkpoint.manifest import CheckpointManifest
from tests.cases.test_changelogs import event, plain, source
from tests.support.cases import Case
from tests.support.local_cases import local_cases, run_locally
from tests.support.local_cluster import LocalCluster
from tests.support.local_session import LocalSession, memory_tables
from tests.support.memory_tables.connector import MemoryTable, Row


def timed(name: str, columns: str, time: str, behind: str = "") -> str:
    return plain(name, f"{columns}, {time} TIMESTAMP(3), WATERMARK FOR {time} AS {time}{behind}")


def at(time: str, **values: object) -> str:
    """A JSON line with the time `at`, of one morning."""
    return json.dumps({**values, "at": f"2025-06-10 07:{time}"})


PERSON_1, PERSON_2, PERSON_3 = ({"id": number, "city": city} for number, city in ((1, "Ulm"), (2, "Ulm"), (3, "Bonn")))
PEOPLE = source("people", "id INT, city STRING")
TOWNS = source("towns", "city STRING, mayor STRING", "city")


def town(city: str, mayor: str) -> dict[str, object]:
    return {"city": city, "mayor": mayor}


CASES = (
    Case(
        name="bounds-of-an-interval-are-inclusive",
        why="a call has its answers or one row without an answer, never both, and 'AND' takes in both ends",
        inputs={
            "calls.jsonl": tuple(at("00:10", id=number) for number in (1, 2, 3, 4)),
            "answers.jsonl": (
                at("00:10", id=1, text="at once"),
                at("00:15", id=1, text="just in time"),
                at("00:15.001", id=2, text="too late"),
                at("00:09.999", id=2, text="too early"),
                at("00:11", id=4, text="soon"),
                at("00:11", text="to nobody"),
            ),
        },
        sql=(
            timed("calls", "id INT", "at"),
            timed("answers", "id INT, text STRING", "at", " - INTERVAL '20' SECOND"),
            (
                "SELECT c.id, a.text FROM calls c LEFT JOIN answers a "
                "ON c.id = a.id AND a.at BETWEEN c.at AND c.at + INTERVAL '5' SECOND"
            ),
        ),
        rows=((1, "at once"), (1, "just in time"), (2, None), (3, None), (4, "soon")),
    ),
    Case(
        name="the-price-of-that-moment",
        why="a version counts from its own time on, until the next one of its key; without one there is no price",
        inputs={
            "prices.jsonl": (
                at("10:00", item="tea", price=3),
                at("10:00", item="rye", price=7),
                at("20:00", item="tea", price=4),
                at("50:00", item="tea", price=5),
            ),
            "sales.jsonl": (
                at("09:59.999", id=1, item="tea"),
                at("10:00", id=2, item="tea"),
                at("19:59.999", id=3, item="tea"),
                at("20:00", id=4, item="tea"),
                at("30:00", id=5, item="oil"),
                at("31:00", id=6),
                at("49:00", id=7, item="rye"),
            ),
        },
        sql=(
            timed("prices", "item STRING, price INT", "at"),
            timed("sales", "id INT, item STRING", "at"),
            (
                "CREATE VIEW price_list AS SELECT item, price, at FROM (SELECT *, ROW_NUMBER() OVER "
                "(PARTITION BY item ORDER BY at DESC) AS newest FROM prices) WHERE newest = 1"
            ),
            "SELECT s.id, p.price FROM sales s LEFT JOIN price_list FOR SYSTEM_TIME AS OF s.at AS p ON s.item = p.item",
        ),
        rows=((1, None), (2, 3), (3, 3), (4, 4), (5, None), (6, None), (7, 7)),
    ),
    Case(
        name="keys-of-unlike-integers",
        why="the narrow key is widened; the wide one is not cut down to it",
        inputs={
            "narrow.jsonl": ('{"k": 1, "a": "one"}', '{"k": -1, "a": "minus"}', '{"k": 127, "a": "most"}'),
            "wide.jsonl": tuple(
                f'{{"k": {k}, "b": "{k}"}}' for k in (1, -1, 257, 255, 4_294_967_297, 4_294_967_295, 2**32 + 127)
            ),
        },
        sql=(
            plain("narrow", "k TINYINT, a STRING"),
            plain("wide", "k BIGINT, b STRING"),
            "SELECT a, b FROM narrow JOIN wide ON narrow.k = wide.k",
        ),
        rows=(("one", "1"), ("minus", "-1")),
    ),
    *(
        Case(
            name=f"one-row-per-key-of-three-tables-{how}",
            why="what the first join made of two keys is the key of the second",
            inputs={
                f"{name}.jsonl": tuple(f'{{"k": "{k}", "{name}": "{name}{k}"}}' for k in keys)
                for name, keys in (("x", "abg"), ("y", "bcg"), ("z", "cadg"))
            },
            sql=(*(plain(name, f"k STRING, {name} STRING") for name in "xyz"), query),
            rows=(
                ("a", "xa", None, "za"),
                ("b", "xb", "yb", None),
                ("c", None, "yc", "zc"),
                ("d", None, None, "zd"),
                ("g", "xg", "yg", "zg"),
            ),
        )
        for how, query in (
            ("using", "SELECT k, x, y, z FROM x FULL JOIN y USING (k) FULL JOIN z USING (k)"),
            (
                "coalesce",
                (
                    "SELECT COALESCE(xy.k, z.k), x, y, z FROM (SELECT COALESCE(x.k, y.k) AS k, x.x, y.y "
                    "FROM x FULL JOIN y ON x.k = y.k) AS xy FULL JOIN z ON xy.k = z.k"
                ),
            ),
        )
    ),
    Case(
        name="a-row-moves-to-another-partner",
        why="an update of the key leaves the old partner and finds the new one, or none",
        inputs={
            "people.jsonl": (
                *(event(None, person) for person in (PERSON_1, PERSON_2, PERSON_3)),
                event(PERSON_1, {"id": 1, "city": "Bonn"}),
                event(PERSON_2, {"id": 2, "city": None}),
                event(PERSON_3, {"id": 3, "city": "Rome"}),
            ),
            "towns.jsonl": (event(None, town("Ulm", "Uta")), event(None, town("Bonn", "Bo"))),
        },
        sql=(PEOPLE, TOWNS, "SELECT p.id, p.city, t.mayor FROM people p LEFT JOIN towns t ON p.city = t.city"),
        rows=((1, "Bonn", "Bo"), (2, None, None), (3, "Rome", None)),
    ),
    Case(
        name="the-partner-changes-and-goes",
        why="padding comes back with the deletion of the last partner, not with its update",
        inputs={
            "people.jsonl": tuple(event(None, person) for person in (PERSON_1, PERSON_2, PERSON_3)),
            "towns.jsonl": (
                event(None, town("Ulm", "Uta")),
                event(town("Ulm", "Uta"), town("Ulm", "Ulf")),
                event(town("Ulm", "Ulf"), None),
                event(None, town("Bonn", "Bo")),
                event(town("Bonn", "Bo"), town("Bonn", "Bea")),
            ),
        },
        sql=(PEOPLE, TOWNS, "SELECT p.id, t.mayor FROM people p LEFT JOIN towns t ON p.city = t.city"),
        rows=((1, None), (2, None), (3, "Bea")),
    ),
)


@local_cases(*CASES)
def test_joins(case: Case, tmp_path: Path) -> None:
    run_locally(case, tmp_path)


TEAMS_AND_RUNS = """
CREATE TABLE teams (id INT, k INT, PRIMARY KEY (id) NOT ENFORCED)
  WITH ('connector' = 'memory', 'name' = 'teams', 'changelog' = 'retract');
CREATE TABLE runs (id INT, k INT, PRIMARY KEY (id) NOT ENFORCED)
  WITH ('connector' = 'memory', 'name' = 'runs', 'changelog' = 'retract');
CREATE TABLE answer (team INT, run INT) WITH ('connector' = 'memory', 'name' = 'answer', 'changelog' = 'retract');
INSERT INTO answer SELECT teams.id, runs.id FROM teams {kind} JOIN runs ON teams.k = runs.k
"""


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("kind", ["LEFT", "FULL"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_how_many_partners_a_row_has_survives_a_restart(
    backend: str, kind: str, parallelism: int, tmp_path: Path
) -> None:
    """Two partners before the kill; after it one goes, which pads nothing, and then the other, which does."""
    teams = MemoryTable([[(0, (1, 7))]])
    runs = MemoryTable([[(0, (10, 7)), (0, (11, 7)), (3, (10, 7)), (3, (11, 7))]])
    answer = MemoryTable()

    def start(parallelism: int, manifest: CheckpointManifest | None, owners: dict[str, int]) -> LocalCluster:
        settings = {"state.backend.type": backend, "pipeline.max-parallelism": "8"}
        session = LocalSession(settings | {"parallelism.default": str(parallelism)})
        graph = session.graph(TEAMS_AND_RUNS.replace("{kind}", kind))
        return LocalCluster(graph, tmp_path, parallelism, manifest=manifest, owner_counts=owners)

    with memory_tables(teams=teams, runs=runs, answer=answer):
        job = start(parallelism, None, {})
        runs.readable = 2
        job.run(200)
        manifest = job.checkpoint()
        job.close()
        assert shown(answer) == {(1, 10): 1, (1, 11): 1}
        job = start(4 - parallelism, manifest, job.owner_counts)
        runs.readable = 3
        job.run(200)
        job.checkpoint()
        assert shown(answer) == {(1, 11): 1}
        runs.readable = None
        job.finish()
    assert shown(answer) == {(1, None): 1}


def shown(answer: MemoryTable) -> Counter[Row]:
    rows: Counter[Row] = Counter()
    for kind, row in answer.changes:
        rows[row] += 1 if kind in (0, 2) else -1
    assert min(rows.values()) >= 0, answer.changes
    return +rows
