"""The queries of Nexmark over events of the `nexmark` connector, each three ways (straight; with a checkpoint and a
rescale; killed and restored at another parallelism), and over a Kafka topic on a real cluster: the folded changelog is
the answer of a database to the same question, asked in its own words (`oracle/`)."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from benchmarks.nexmark import QUERIES, query_text, tables_text
from connectors.nexmark.columns import COLUMNS
from connectors.nexmark.connector import BASE_TIME_MS
from connectors.nexmark.events import AUCTION, BID, PERSON, Events, Settings
from planner import api
from planner.ir.job_graph import JobGraph
from runtime.checkpoint.manifest import CheckpointManifest
from tests.support.cases import normal
from tests.support.local_cluster import LocalCluster
from tests.support.local_session import LocalSession, memory_tables
from tests.support.memory_tables.connector import MemoryTable
from tests.support.standalone import Session, standalone
from tests.support.topics import create_topic, unique_name

ORACLE = Path(__file__).parent / "oracle"
EVENTS, RATE = 4_000, 200
"""Twenty seconds of event time, at which no two events have the same time."""
SOURCE = (
    f"'connector' = 'nexmark', 'events.num' = '{EVENTS}', 'first-event.rate' = '{RATE}', 'rate.limited' = 'false', "
    "'generators' = '3'"
)
WAYS = {"straight": (2,), "rescaled": (2, 3), "restored": (3, 1)}

Row = tuple[Any, ...]


def plain(row: Row) -> Row:
    """The row with equal decimals written alike."""
    return tuple(value.normalize() if isinstance(value, Decimal) else value for value in row)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """The events as three tables."""
    connection = duckdb.connect()
    events = Events(Settings(rate=RATE), 0, BASE_TIME_MS, np.arange(EVENTS, dtype=np.int64))
    for name, kind in (("person", PERSON), ("auction", AUCTION), ("bid", BID)):
        chosen = events.of_kind(kind)
        table = pa.table({column: make(chosen) for column, make in COLUMNS[kind].items()})
        connection.register("made", table)
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM made")
        connection.unregister("made")
    yield connection
    connection.close()


@cache
def graph(name: str, parallelism: int) -> JobGraph:
    """The query into a table of its own columns."""
    session = LocalSession({"parallelism.default": str(parallelism), "pipeline.max-parallelism": "16"})
    session.run(tables_text(SOURCE))
    result = session.job(query_text(name)).result
    assert result is not None
    columns = ", ".join(f"`{column.name}` {column.type.with_nullable(True).sql()}" for column in result.columns)
    options = "'connector' = 'memory', 'name' = 'answer', 'changelog' = 'retract'"
    return session.graph(f"CREATE TABLE answer ({columns}) WITH ({options}); INSERT INTO answer {query_text(name)}")


def answer(name: str, database: duckdb.DuckDBPyConnection) -> Counter[Row]:
    expected = Counter(plain(row) for row in database.execute((ORACLE / f"{name}.sql").read_text()).fetchall())
    assert expected, "a query without an answer shows nothing"
    return expected


def statements(text: str) -> list[str]:
    return [statement.text for statement in api.split(text).statements]


def folded(sink: MemoryTable) -> Counter[Row]:
    counts: Counter[Row] = Counter()
    for kind, row in sink.changes:
        counts[plain(row)] += 1 if kind in (0, 2) else -1
        assert counts[plain(row)] >= 0, f"kind {kind} takes back a row that is not there: {row}"
    return +counts


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", QUERIES)
def test_a_query_answers_as_a_database_does(
    name: str, way: str, tmp_path: Path, database: duckdb.DuckDBPyConnection
) -> None:
    sink, choose = MemoryTable(), random.Random(f"{name} {way}")
    with memory_tables(answer=sink):
        manifest: CheckpointManifest | None = None
        owners: dict[str, int] = {}
        for parallelism in WAYS[way][:-1]:
            seed = choose.randrange(1 << 30)
            job = LocalCluster(graph(name, parallelism), tmp_path, seed, manifest=manifest, owner_counts=owners)
            job.run(choose.randrange(10, 60))
            manifest = job.checkpoint()
            if way == "restored":
                job.run(choose.randrange(10, 60))  # Killed: what follows the checkpoint is processed again.
            job.close()
            owners = job.owner_counts
        LocalCluster(graph(name, WAYS[way][-1]), tmp_path, 1, manifest=manifest, owner_counts=owners).finish()
    expected = answer(name, database)
    found = folded(sink)
    assert (found - expected, expected - found) == (Counter(), Counter())


@pytest.fixture(scope="module")
def on_kafka(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session that sees the events in a topic of four partitions."""
    topic = unique_name("nexmark-events")
    create_topic(kafka, topic, 4)
    options = (
        f"'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{kafka}', 'format' = 'json'"
    )
    read = f"{options}, 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'"
    with standalone(tmp_path_factory.mktemp("nexmark-cluster")) as cluster:
        writer = cluster.session({"parallelism.default": "1"})
        for statement in statements(tables_text(SOURCE)):
            writer.execute(statement)
        columns = tables_text(options).split("(", 1)[1].split("`dateTime` AS")[0].rstrip().rstrip(",")
        writer.execute(f"CREATE TABLE written ({columns}) WITH ({options})")
        result = writer.execute("INSERT INTO written SELECT event_type, person, auction, bid FROM events")
        assert result.job_id is not None
        cluster.wait_for_job(result.job_id, "FINISHED", 60)
        session = cluster.session({"parallelism.default": "2"})
        for statement in statements(tables_text(read)):
            session.execute(statement)
        yield session


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_over_a_topic_answers_so_too(name: str, on_kafka: Session, database: duckdb.DuckDBPyConnection) -> None:
    found = normal(on_kafka.execute(query_text(name)).rows)
    rows = list(answer(name, database).elements())
    expected = normal([tuple(str(v) if isinstance(v, dt.datetime) else v for v in row) for row in rows])
    assert (found - expected, expected - found) == (Counter(), Counter())
