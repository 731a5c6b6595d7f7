"""Tables of a real PostgreSQL: looked up by key, with caches and retries, and read whole."""

from __future__ import annotations

import datetime as dt
import decimal
import random
import threading
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors import registry
from connectors.api import LookupContext, LookupReader, ReaderContext, SplitState, TableDefinition
from connectors.errors import ConnectorError, ErrorDomain, OptionError
from connectors.jdbc.connector import CONNECTOR
from planner.ir import types as t
from planner.ir.types import DataType, Field
from runtime.checkpoint.manifest import CheckpointManifest
from tests.integration.test_savepoints import until
from tests.support.cluster import Cluster
from tests.support.local_cluster import LocalCluster
from tests.support.local_session import LocalSession, memory_tables
from tests.support.memory_tables.connector import Change, MemoryTable
from tests.support.postgresql import PostgresServer
from tests.support.standalone import request

pytestmark = pytest.mark.usefixtures("schema")

ITEMS = """
CREATE TABLE items (id integer PRIMARY KEY, kind text NOT NULL, price numeric(8, 2), "Na%me" varchar(20));
INSERT INTO items VALUES
  (1, 'book', 9.5, 'Emma'), (2, 'book', NULL, NULL), (3, 'toy', 7, 'Ball'), (4, 'toy', 1, 'b"\\');
"""


@pytest.fixture
def schema(postgres: PostgresServer) -> Iterator[str]:
    """A schema of the test's own, first on the search path of `execute`."""
    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
        yield name
        connection.execute(f"DROP SCHEMA {name} CASCADE")


def execute(server: PostgresServer, schema: str, sql: str) -> None:
    with psycopg.connect(server.url, autocommit=True, options=f"-c search_path={schema}") as connection:
        connection.execute(sql)


def options(server: PostgresServer, table: str, **more: str) -> dict[str, str]:
    return {
        "connector": "jdbc",
        "url": f"jdbc:postgresql://127.0.0.1:{server.port}/headrace",
        "table-name": table,
        "username": "headrace",
        **{key.replace("__", ".").replace("_", "-"): value for key, value in more.items()},
    }


def reader(
    server: PostgresServer, table: str, keys: tuple[int, ...], columns: tuple[int, ...], *fields: tuple[str, DataType]
) -> LookupReader:
    definition = TableDefinition("items", options(server, table), tuple(Field(n, k) for n, k in fields))
    return CONNECTOR.lookup(definition).reader(LookupContext(keys, columns, "UTC"))


def found(reader: LookupReader, *keys: Any) -> list[tuple[int, tuple[Any, ...]]]:
    """Number of the key and row, sorted."""
    batch = pa.RecordBatch.from_arrays(list(keys), [f"c{i}" for i in range(len(keys))])
    answer = reader.lookup(batch)
    rows = [tuple(row.values()) for row in answer.rows.to_pylist()]
    return sorted(zip(answer.keys.tolist(), rows, strict=True), key=repr)


# -- the reader ---------------------------------------------------------------------------------------


def test_a_request_answers_many_composite_keys(postgres: PostgresServer, schema: str) -> None:
    execute(postgres, schema, ITEMS)
    fields = (("id", t.INT), ("kind", t.STRING), ("price", t.decimal(8, 2)), ("Na%me", t.STRING))
    asked = reader(postgres, f"{schema}.items", (1, 0), (3, 2), *fields)
    kinds, numbers = pa.array(["toy", "book", "toy", "book", 'a"\\{},\0']), pa.array([3, 1, 1, 2, 2], pa.int32())
    assert found(asked, kinds, numbers) == [
        (0, ("Ball", decimal.Decimal("7.00"))),
        (1, ("Emma", decimal.Decimal("9.50"))),
        (3, (None, None)),
    ]
    by_name = reader(postgres, f"{schema}.items", (3,), (0,), *fields)
    assert found(by_name, pa.array(['b"\\', "Emma", "none"])) == [(0, (4,)), (1, (1,))]
    assert len(asked.load()) == 4
    asked.close()
    by_name.close()


TYPES: tuple[tuple[str, str, DataType, Any], ...] = (
    ("boolean", "true", t.BOOLEAN, True),
    ("smallint", "-7", t.TINYINT, -7),
    ("smallint", "-7", t.INT, -7),
    ("integer", "70000", t.BIGINT, 70000),
    ("real", "1.5", t.FLOAT, 1.5),
    ("double precision", "'-1e300'", t.DOUBLE, -1e300),
    ("numeric", "12.3", t.decimal(10, 2), decimal.Decimal("12.30")),
    ("bigint", "12", t.decimal(20, 0), decimal.Decimal(12)),
    ("varchar(9)", "'a,\"b\\'", t.STRING, 'a,"b\\'),
    ("uuid", "'6b29fc40-ca47-1067-b31d-00dd010662da'", t.STRING, "6b29fc40-ca47-1067-b31d-00dd010662da"),
    ("mood", "'sad'", t.STRING, "sad"),
    ("short", "'abc'", t.STRING, "abc"),
    ("date", "'2026-02-03'", t.DATE, dt.date(2026, 2, 3)),
    ("time", "'12:13:14'", t.time(0), dt.time(12, 13, 14)),
    ("timestamp", "'2026-02-03 04:05:06.789'", t.timestamp(3), dt.datetime(2026, 2, 3, 4, 5, 6, 789000)),
    (
        "timestamptz",
        "'2026-02-03 04:05:06+02'",
        t.timestamp_ltz(3),
        dt.datetime(2026, 2, 3, 2, 5, 6, tzinfo=dt.UTC),
    ),
)


def test_values_of_all_types_are_keys_and_columns(postgres: PostgresServer, schema: str) -> None:
    columns = ", ".join(f"c{i} {kind}" for i, (kind, *_) in enumerate(TYPES))
    values = ", ".join(text for _, text, *_ in TYPES)
    execute(
        postgres,
        schema,
        f"CREATE TYPE mood AS ENUM ('sad'); CREATE DOMAIN short AS varchar(3); CREATE TABLE v ({columns}, b bytea, a "
        f"integer[], j jsonb); INSERT INTO v VALUES ({values}, '\\x0102', '{{1, NULL}}', '{{\"x\": 1}}')",
    )
    fields = [(f"c{i}", kind) for i, (_, _, kind, _) in enumerate(TYPES)]
    fields += [("b", t.BYTES), ("a", t.array(t.INT)), ("j", t.STRING)]
    every = tuple(range(len(TYPES)))
    asked = reader(postgres, f"{schema}.v", every, tuple(range(len(fields))), *fields)
    keys = [pa.array([value], t.to_arrow(kind)) for _, _, kind, value in TYPES]
    expected = (*(value for *_, value in TYPES), b"\x01\x02", [1, None], '{"x": 1}')
    assert found(asked, *keys) == [(0, expected)]
    asked.close()


def test_what_does_not_fit_is_said(postgres: PostgresServer, schema: str) -> None:
    execute(postgres, schema, ITEMS + "CREATE TABLE j (x jsonb, n numeric); INSERT INTO j VALUES ('{}', 'NaN')")
    key = pa.array([1], pa.int32())
    wrong: tuple[tuple[str, tuple[tuple[str, DataType], ...], Any, str], ...] = (
        ("nothing", (("id", t.INT),), key, "there is no table"),
        ("items", (("no", t.INT),), key, "has no column `no`"),
        ("items", (("kind", t.INT),), key, "`kind` of .* is text, and declared as INT"),
        ("items", (("price", t.DOUBLE),), pa.array([1.0]), "is numeric, and declared as DOUBLE"),
        ("j", (("x", t.STRING),), pa.array(["{}"]), "is jsonb, by which rows cannot be looked up"),
    )
    for table, fields, value, message in wrong:
        asked = reader(postgres, f"{schema}.{table}", (0,), (0,), *fields)
        with pytest.raises(ConnectorError, match=message) as caught:
            found(asked, value)
        assert caught.value.domain is ErrorDomain.USER
        assert not caught.value.retry
        asked.close()
    asked = reader(postgres, f"{schema}.j", (0,), (0,), ("n", t.decimal(5, 2)))
    with pytest.raises(ConnectorError, match="`n` is no DECIMAL"):
        asked.load()
    asked.close()


def test_a_lost_connection_is_made_anew_and_close_ends_a_query(postgres: PostgresServer, schema: str) -> None:
    execute(postgres, schema, ITEMS + "CREATE VIEW slow AS SELECT id, pg_sleep(60)::text AS s FROM items")
    asked = reader(postgres, f"{schema}.items", (0,), (1,), ("id", t.INT), ("kind", t.STRING))
    key = pa.array([3], pa.int32())
    assert found(asked, key) == [(0, ("toy",))]
    end = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query LIKE '%unnest%'"
    )
    execute(postgres, schema, end)
    with pytest.raises(ConnectorError) as caught:
        found(asked, key)
    assert caught.value.retry
    assert caught.value.domain is ErrorDomain.EXTERNAL
    assert found(asked, key) == [(0, ("toy",))]
    asked.close()
    slow = reader(postgres, f"{schema}.slow", (0,), (1,), ("id", t.INT), ("s", t.STRING))
    timer = threading.Timer(0.3, slow.close)
    timer.start()
    with pytest.raises(ConnectorError, match="cancel"):
        found(slow, key)
    timer.join()


# -- options ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"url": "jdbc:mysql://h/d"}, "must be one of PostgreSQL"),
        ({"url": "jdbc:postgresql://h:1"}, "must be like"),
        ({"url": "jdbc:postgresql://h/d?loglevel=1"}, "'loglevel', which is not supported"),
        ({"url": "jdbc:postgresql://h/d?password=x"}, "'password', which is not supported"),
        ({"driver": "com.mysql.Driver"}, "'driver' must be"),
        ({"lookup__cache": "SOME"}, "must be one of NONE, PARTIAL, FULL"),
        ({"lookup__partial-cache__max-rows": "10"}, "does nothing with 'lookup.cache' = 'NONE'"),
        ({"lookup__max-retries": "-1"}, "must be a number from 0"),
        ({"lookup__cache": "FULL", "lookup__full-cache__reload-strategy": "TIMED"}, "'TIMED' needs '.*iso-time'"),
        ({"lookup__cache": "FULL", "lookup__full-cache__timed-reload__iso-time": "3:30"}, "does nothing with"),
        (
            {
                "lookup__cache": "FULL",
                "lookup__full-cache__reload-strategy": "TIMED",
                "lookup__full-cache__timed-reload__iso-time": "3:30",
            },
            "must be a time of day",
        ),
        (
            {"lookup__cache": "FULL", "lookup__full-cache__periodic-reload__schedule-mode": "FIXED_RATE"},
            "'PERIODIC' needs '.*interval'",
        ),
        ({"sink__buffer-flush__max-rows": "1"}, "has no option 'sink.buffer-flush.max-rows'"),
    ],
)
def test_bad_options_are_named(postgres: PostgresServer, change: dict[str, str], message: str) -> None:
    definition = TableDefinition("x", options(postgres, "x", **change), (Field("id", t.INT),))
    with pytest.raises(OptionError, match=message):
        CONNECTOR.lookup(definition)
    with pytest.raises(OptionError, match=message):
        CONNECTOR.source(definition)


def test_columns_without_a_type_and_writing_are_refused(postgres: PostgresServer) -> None:
    odd = TableDefinition("x", options(postgres, "x"), (Field("m", t.map_of(t.STRING, t.INT)),))
    with pytest.raises(OptionError, match=r"`m` is MAP<.*no type for"):
        CONNECTOR.source(odd)
    with pytest.raises(OptionError, match="does not write"):
        CONNECTOR.sink(TableDefinition("x", options(postgres, "x"), (Field("i", t.INT),)))


# -- scans --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (b, a)"])
def test_a_scan_goes_on_where_it_stopped(postgres: PostgresServer, schema: str, key: str) -> None:
    execute(
        postgres,
        schema,
        f'CREATE TABLE rows (a integer, b text, "c%" double precision{key}); '
        "INSERT INTO rows SELECT i, 'x' || i % 7, i / 4.0 FROM generate_series(1, 20000) i",
    )
    fields = (Field("a", t.INT), Field("b", t.STRING), Field("c%", t.DOUBLE))
    source = CONNECTOR.source(TableDefinition("x", options(postgres, f"{schema}.rows"), fields))
    (split,) = source.enumerator().discover(frozenset())
    state, read = SplitState(split), list[tuple[Any, ...]]()
    while not state.done:
        opened = source.reader(ReaderContext(0, 1, (2, 0), (), "UTC", rows_max=3000))
        opened.add_splits([state])
        for _ in range(2):
            for piece in opened.poll(0):
                read += [tuple(row.values()) for row in piece.batch.to_pylist()]
        (state,) = opened.snapshot()
        opened.close()
    assert sorted(read) == [(i / 4.0, i) for i in range(1, 20001)]


def test_a_view_is_not_scanned(postgres: PostgresServer, schema: str) -> None:
    execute(postgres, schema, ITEMS + "CREATE VIEW v AS SELECT id FROM items")
    source = CONNECTOR.source(TableDefinition("x", options(postgres, f"{schema}.v"), (Field("id", t.INT),)))
    opened = source.reader(ReaderContext(0, 1, (0,), (), "UTC"))
    opened.add_splits([SplitState(split) for split in source.enumerator().discover(frozenset())])
    with pytest.raises(ConnectorError, match="no primary key"):
        opened.poll(0)
    opened.close()


# -- jobs ---------------------------------------------------------------------------------------------


def session(server: PostgresServer, schema: str, parallelism: int = 1, more: str = "") -> LocalSession:
    made = LocalSession({"parallelism.default": str(parallelism), "pipeline.max-parallelism": "16"})
    url = f"jdbc:postgresql://127.0.0.1:{server.port}/headrace"
    made.run(
        f"""
        CREATE TABLE orders (n INT, item BIGINT, p AS PROCTIME()) WITH ('connector' = 'memory', 'name' = 'orders');
        CREATE TABLE answer (n INT, name STRING) WITH ('connector' = 'memory', 'name' = 'answer');
        CREATE TABLE items (id INT, kind STRING, `Na%me` STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
          'connector' = 'jdbc', 'url' = '{url}', 'table-name' = '{schema}.items', 'username' = 'headrace'{more});
        """
    )
    return made


JOIN = """INSERT INTO answer SELECT {hint} n, `Na%me` FROM orders AS o
LEFT JOIN items FOR SYSTEM_TIME AS OF o.p AS i ON o.item = i.id AND i.kind = 'book'"""
NAMES = {1: "Emma", 2: None}


def orders(count: int) -> list[list[Change]]:
    choose = random.Random(count)
    return [[(0, (n, choose.choice([1, 2, 3, 5, None, 2**33 + 1]))) for n in range(s, count, 2)] for s in range(2)]


@pytest.mark.parametrize(
    ("more", "hint"),
    [
        ("", ""),
        (", 'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '2'", ""),
        (", 'lookup.cache' = 'FULL'", ""),
        ("", "/*+ LOOKUP('table' = 'i', 'async' = 'true', 'output-mode' = 'allow_unordered', 'shuffle' = 'true') */"),
    ],
)
def test_a_job_killed_in_the_middle_answers_once(
    postgres: PostgresServer, schema: str, tmp_path: Path, more: str, hint: str
) -> None:
    execute(postgres, schema, ITEMS)
    given, answer = MemoryTable(orders(300)), MemoryTable()
    with memory_tables(orders=given, answer=answer):
        manifest: CheckpointManifest | None = None
        owners: dict[str, int] = {}
        for parallelism, steps in ((2, 20), (1, 15), (3, None)):
            graph = session(postgres, schema, parallelism, more).graph(JOIN.format(hint=hint))
            job = LocalCluster(graph, tmp_path, 7, manifest=manifest, owner_counts=owners)
            if steps is None:
                job.finish()
            else:
                job.run(steps)
                manifest = job.checkpoint()
                job.run(steps)  # Lost: these rows are asked for again.
                owners = job.owner_counts
            job.close()
    expected = [(n, NAMES.get(item)) for split in given.splits for _, (n, item) in split]
    assert sorted((row for _, row in answer.changes), key=repr) == sorted(expected, key=repr)


@pytest.mark.timeout(120)
def test_rows_and_barriers_pass_while_a_table_is_loaded_anew(
    postgres: PostgresServer, schema: str, tmp_path: Path
) -> None:
    """The table is locked, then away, then back: what was read of it serves meanwhile. A file of rows is seen when its
    checkpoint is committed."""
    execute(
        postgres, schema, "CREATE TABLE names AS SELECT i::bigint AS id, 'old' AS name FROM generate_series(0, 9) i"
    )
    flags, out = ("--set", "jobmanager.heartbeat-interval-ms=200"), tmp_path / "out"
    seen = set[Path]()

    def names_of(file_count: int) -> set[str]:
        """The names in so many further files."""
        until("files", lambda: len(set(out.glob("part-*")) - seen) >= file_count, 30.0)
        new = set(out.glob("part-*")) - seen
        seen.update(new)
        return {str(name) for path in new for name in pq.read_table(path)["name"].to_pylist()}

    with Cluster(tmp_path / "data", taskmanagers=1, slots=1, flags=flags) as cluster:
        session = cluster.session({"execution.checkpointing.interval": "100 ms"})
        session.execute("CREATE TABLE src (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '200')")
        given = ", ".join(f"'{key}' = '{value}'" for key, value in options(postgres, f"{schema}.names").items())
        session.execute(
            f"CREATE TABLE names (id BIGINT, name STRING) WITH ({given}, 'lookup.max-retries' = '0', "
            "'lookup.cache' = 'FULL', 'lookup.full-cache.periodic-reload.interval' = '50 ms')"
        )
        session.execute(
            f"CREATE TABLE dst (name STRING) WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = 'parquet')"
        )
        job_id = session.execute(
            """INSERT INTO dst SELECT n.name FROM src s
            JOIN names FOR SYSTEM_TIME AS OF PROCTIME() AS n ON n.id = MOD(ABS(s.id), 10)"""
        ).job_id
        assert job_id is not None

        def counter(name: str) -> float:
            vertices = cluster.job(job_id)["vertices"]
            return sum(float(o.get(name, 0)) for vertex in vertices for o in vertex["operators"].values())

        assert names_of(1) == {"old"}
        with psycopg.connect(postgres.url, options=f"-c search_path={schema}") as connection:
            connection.execute("LOCK TABLE names IN ACCESS EXCLUSIVE MODE")
            connection.execute("UPDATE names SET name = 'new'")
            waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'names'::regclass"
            until("a load that waits", lambda: connection.execute(waiting).fetchone() is not None, 30.0)
            assert names_of(0) | names_of(3) == {"old"}
            assert connection.execute(waiting).fetchone() is not None
        until("the new contents", lambda: names_of(1) == {"new"}, 30.0)
        assert counter("numLoadFailures") == 0
        execute(postgres, schema, "ALTER TABLE names RENAME TO away")
        until("loads that fail", lambda: counter("numLoadFailures") >= 2, 30.0)
        assert names_of(0) | names_of(3) == {"new"}
        execute(postgres, schema, "UPDATE away SET name = 'newer'; ALTER TABLE away RENAME TO names")
        until("newer contents", lambda: names_of(1) == {"newer"}, 30.0)
        assert counter("loadCount") >= 2
        assert counter("numCachedRecords") == 10
        assert counter("latestLoadTime") > 0
        with urllib.request.urlopen(f"{cluster.url}/metrics") as answer:
            assert "flink_taskmanager_job_task_operator_cache_numLoadFailures{" in answer.read().decode()
        assert request("GET", f"{cluster.url}/jobs/{job_id}/exceptions")["exceptionHistory"]["entries"] == []


def test_connector_is_found_by_name() -> None:
    assert registry.connector("jdbc") is CONNECTOR


@pytest.mark.timeout(200)
def test_slots_killed_while_files_are_joined_with_a_table(
    postgres: PostgresServer, schema: str, tmp_path: Path
) -> None:
    rows, out = 6_000, tmp_path / "out"
    execute(postgres, schema, "CREATE TABLE names (id bigint PRIMARY KEY, name text)")
    execute(postgres, schema, "INSERT INTO names SELECT i, 'name ' || i FROM generate_series(0, 99, 2) i")
    with Cluster(tmp_path / "data", taskmanagers=1, slots=2) as cluster:
        session = cluster.session(
            {
                "parallelism.default": "2",
                "execution.checkpointing.interval": "300 ms",
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": "1000",
                "restart-strategy.fixed-delay.delay": "100 ms",
            }
        )
        session.execute(
            f"""CREATE TABLE src (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '2000',
              'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '{rows - 1}')"""
        )
        given = ", ".join(f"'{key}' = '{value}'" for key, value in options(postgres, f"{schema}.names").items())
        session.execute(
            f"CREATE TABLE names (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ({given}, "
            "'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '10')"
        )
        session.execute(
            f"CREATE TABLE dst (id BIGINT, name STRING) WITH ('connector' = 'filesystem', 'path' = '{out}', "
            "'format' = 'csv')"
        )
        job_id = session.execute(
            """INSERT INTO dst SELECT s.id, n.name FROM src s
            LEFT JOIN names FOR SYSTEM_TIME AS OF PROCTIME() AS n ON n.id = MOD(s.id, 100)"""
        ).job_id
        assert job_id is not None
        for pause_s in (0.6, 0.4):
            cluster.wait_for_job(job_id, "RUNNING", 60.0)
            threading.Event().wait(pause_s)  # the moment of the fault, not a synchronisation
            cluster.kill("slot", 0)
        cluster.wait_for_job(job_id, "FINISHED", 90.0)
    lines = [line.split(",") for path in out.glob("part-*.csv") for line in path.read_text().splitlines()]
    expected = [[str(i), f"name {i % 100}" if i % 2 == 0 else ""] for i in range(rows)]
    assert sorted([i, name.strip('"')] for i, name in lines) == sorted(expected)
