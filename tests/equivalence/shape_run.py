"""One random run of a shape: random tables, a random job, and DuckDB's answer over what the tables come to."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from planner import api
from planner.ir.job_graph import JobGraph
from planner.sql import statements as st
from tests.equivalence.oracle import Key, answer_of, fill, folded_rows, hashable_row, in_windows
from tests.equivalence.random_job import RandomJob
from tests.equivalence.shapes import Shape, random_words
from tests.equivalence.tables import (
    BIGINT,
    DELAY_MS,
    EPOCH,
    INT,
    KEY_TYPES,
    SMALL,
    SMALLINT,
    VALUE_TYPES,
    Changes,
    Column,
    ColumnType,
    Pace,
    Table,
    Versions,
    random_changes,
    random_value,
)
from tests.support.local_session import LocalSession, memory_tables
from tests.support.memory_tables.connector import Change, MemoryTable, Row

_NUMBER = Column("n", SMALL)
_NEWEST = """CREATE VIEW newest AS SELECT k, n, ts FROM
  (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS rn FROM r) AS x WHERE rn = 1;
"""


class Target(msgspec.Struct, frozen=True):
    """The sink: column types, and the places of its primary key if it takes upserts. `is_unique`: the planner says that
    no two rows of the answer share the key."""

    types: tuple[str, ...]
    primary_key: tuple[int, ...] = ()
    is_unique: bool = False

    def ddl(self, name: str) -> str:
        columns = [f"c{i} {type_}" for i, type_ in enumerate(self.types)]
        if self.primary_key:
            columns.append(f"PRIMARY KEY ({', '.join(f'c{i}' for i in self.primary_key)}) NOT ENFORCED")
        changelog = "upsert" if self.primary_key else "retract"
        options = f"'connector' = 'memory', 'name' = '{name}', 'changelog' = '{changelog}'"
        return f"CREATE TABLE {name} ({', '.join(columns)}) WITH ({options});\n"

    def differences(self, changes: list[Change], theirs: list[Row]) -> list[str]:
        """What is wrong with the changelog, in words. Of the rows that claim one key the sink shows one."""
        try:
            ours = [hashable_row(row) for row in folded_rows(changes, self.primary_key)]
        except AssertionError as error:
            return [str(error)]
        expected = Counter(hashable_row(row) for row in theirs)
        if not self.primary_key:
            found = Counter(ours)
            wrong = [f"{n} rows too many: {row}" for row, n in (found - expected).items()]
            return wrong + [f"{n} rows are missing: {row}" for row, n in (expected - found).items()]
        shown = {self._key(row) for row in ours}
        claimed = {self._key(row) for row in expected}
        wrong = [f"a row too many: {row}" for row in ours if row not in expected]
        if self.is_unique and len(claimed) < expected.total():
            wrong.append(f"the upsert key {self.primary_key} is none: {sorted(map(str, expected))}")
        return wrong + [f"nobody shows the key {key}" for key in claimed - shown]

    def _key(self, row: Key) -> Key:
        return tuple(row[i] for i in self.primary_key)


class ShapeRun:
    """Everything that the seed decides."""

    def __init__(self, name: str, shape: Shape, seed: int, *, crowded: bool = False) -> None:
        self.name = name
        self.shape = shape
        self.seed = seed
        self.crowded = crowded
        self.random = random.Random(f"{name} {seed}")
        choose = self.random
        self.is_batch = shape.batch and choose.random() < 0.1
        self.nullable = choose.random() < 0.6
        key_type = choose.choice(KEY_TYPES)
        step_ms = choose.choice((200, 1_000, 3_000))
        start_ms = choose.choice((-60_000, 0, 1_700_000_000_000))
        counts = (0, 1, *(7,) * 6, *(15,) * 4, 40) if len(shape.tables) < 3 else (0, 1, *(6,) * 6, *(12,) * 3)
        self.tables: dict[str, Table] = {}
        self.changes: dict[str, Changes] = {}
        for letter in shape.tables:
            pace = Pace(start_ms, step_ms, choose.choice(counts))
            if letter == "r":
                self._versions(key_type, pace)
                continue
            self.tables[letter] = self._table(letter, key_type)
            self.changes[letter] = random_changes(choose, self.tables[letter], pace)
        words = random_words(choose)
        size, step = choose.choice(((4, 2), (6, 2), (3, 3), (20, 5)))
        self.windows = (choose.choice(("TUMBLE", "HOP", "CUMULATE")), size * 1000, step * 1000)
        ours = {f"{t}w": self._window_function(t) for t in shape.tables}
        self.query = shape.sql.format(**words, **ours)
        self.oracle = (shape.oracle or shape.sql).format(**words, **{f"{t}w": f"{t}_w" for t in shape.tables})
        self.settings = self._settings()
        self.sql = ""

    @property
    def shown(self) -> str:
        return f"{self.name}, seed {self.seed}, settings {self.settings}\n{self.sql or self.query}\n{self.oracle}"

    def _table(self, letter: str, key_type: ColumnType) -> Table:
        changelogs = ("insert-only", "retract", "retract", "upsert")
        is_appended = letter in self.shape.appended or self.is_batch
        changelog = "insert-only" if is_appended else self.random.choice(changelogs)
        if key_type in (INT, BIGINT, SMALLINT) and self.random.random() < 0.25:
            key_type = self.random.choice((INT, BIGINT, SMALLINT))
        values = (Column("n", SMALL), Column("q", SMALL), Column("p", self.random.choice(VALUE_TYPES)))
        return Table((Column("k", key_type, self.nullable),), values, changelog)

    def _versions(self, key_type: ColumnType, pace: Pace) -> None:
        """Appended versions in any order, or a changelog in which each version replaces the one before it."""
        choose = self.random
        key = Column("k", key_type, False)
        changelog = "insert-only" if "r" in self.shape.appended else choose.choice(("insert-only", "retract"))
        splits: list[list[Change]] = [[] for _ in range(choose.randint(1, 3))]
        places: dict[Any, int] = {}
        last: dict[Any, Row] = {}
        rows: dict[tuple[Any, int], Row] = {}
        clocks = [pace.start_ms] * len(splits)
        for _ in range(pace.count):
            value = random_value(choose, key, 4)
            number = places.setdefault(value, choose.randrange(len(splits)))
            clocks[number] += choose.randrange(1, 2 * pace.step_ms)
            time_ms = clocks[number] - (choose.randrange(DELAY_MS) if changelog == "insert-only" else 0)
            if (value, time_ms) in rows:
                continue
            row = (value, random_value(choose, _NUMBER, 6), EPOCH + dt.timedelta(milliseconds=time_ms))
            rows[value, time_ms] = row
            if changelog == "retract" and value in last:
                splits[number] += [(1, last[value]), (2, row)]
            else:
                splits[number].append((0, row))
            last[value] = row
        self.tables["r"] = Versions((key,), (_NUMBER,), changelog, is_keyed="newest" not in self.shape.sql)
        self.changes["r"] = Changes(splits, list(rows.values()))

    def _window_function(self, letter: str) -> str:
        name, size_ms, step_ms = self.windows
        sizes = [size_ms] if name == "TUMBLE" else [step_ms, size_ms]
        intervals = ", ".join(f"INTERVAL '{s // 1000}' SECOND" for s in sizes)
        return f"{name}(TABLE {letter}, DESCRIPTOR(ts), {intervals})"

    def _settings(self) -> dict[str, str]:
        choose = self.random
        settings = {
            "parallelism.default": str(choose.choice((1, 1, 1, 2, 2, 3, 4))),
            "pipeline.max-parallelism": "16",
            "table.exec.batch.max-rows": str(choose.choice((1, 3, 64, 64))),
            "table.optimizer.agg-phase-strategy": choose.choice(("AUTO", "ONE_PHASE", "TWO_PHASE")),
            "table.optimizer.reuse-sub-plan-enabled": choose.choice(("true", "true", "false")),
            "table.exec.sink.upsert-materialize": choose.choice(("AUTO", "AUTO", "FORCE")),
            "state.backend.type": choose.choice(("hashmap",) * 7 + ("rocksdb",)),
        }
        if choose.random() < 0.25:
            settings |= {
                "table.exec.mini-batch.enabled": "true",
                "table.exec.mini-batch.allow-latency": "100 ms",
                "table.exec.mini-batch.size": str(choose.choice((2, 50))),
            }
        if self.is_batch:
            settings["execution.runtime-mode"] = "batch"
        return settings

    @property
    def definitions(self) -> str:
        view = _NEWEST if "newest" in self.shape.sql else ""
        return "".join(f"{t.ddl(self._known_as(letter), letter)};\n" for letter, t in self.tables.items()) + view

    def _known_as(self, letter: str) -> str:
        return f"{letter}{self.seed}"

    def target(self) -> Target:
        """A sink of all changes; or of upserts, by a key of the answer or by columns that several rows may share."""
        session = LocalSession(self.settings)
        session.run(self.definitions)
        (statement,) = api.parse(self.query)
        assert isinstance(statement, st.Select)
        made = api._compile(statement, session.catalog, self.settings)
        assert made.job.result is not None
        columns = made.job.result.columns
        types = tuple(c.type.with_nullable(True).sql() for c in columns)
        # A primary key takes no NULL.
        present = [
            i for i, c in enumerate(columns) if not c.type.nullable and not types[i].startswith(("ROW", "ARRAY"))
        ]
        if not present or self.random.random() < 0.4:
            return Target(types)
        keys = made.streaming.of(made.optimised[0]).upsert_keys
        fitting = sorted(sorted(key) for key in keys if key and set(key) <= set(present))
        if fitting and self.random.random() < 0.7:
            return Target(types, tuple(self.random.choice(fitting)), True)
        return Target(types, tuple(self.random.sample(present, self.random.randint(1, len(present)))))

    def planned(self) -> JobGraph:
        """The query alone."""
        with memory_tables(**{self._known_as(letter): MemoryTable() for letter in self.tables}):
            return LocalSession(self.settings).graph(self.definitions + self.query)

    def differences(self, directory: Path) -> list[str]:
        """What is wrong with the job's answer; empty when it is the oracle's."""
        sink, name = MemoryTable(), f"out{self.seed}"
        sources = {self._known_as(letter): MemoryTable(c.splits) for letter, c in self.changes.items()}
        for source in sources.values():
            source.random = self.random
            source.poll_rows_max = self.random.choice((2, 9, 200))
        with memory_tables(**sources, **{name: sink}):
            target = self.target()
            self.sql = "".join((self.definitions, target.ddl(name), f"INSERT INTO {name} {self.query}"))
            kills = (0,) if self.is_batch else (0, 0, 0, 1, 2)
            crowded = self.crowded and not self.is_batch
            RandomJob(self.random, self.settings, self.sql, crowded=crowded, kills=kills).run(directory)
        return target.differences(sink.changes, self.answer())

    def answer(self) -> list[Row]:
        for letter, table in self.tables.items():
            columns = [f"{c.name} {c.type.duckdb}" for c in table.columns]
            rows = self.changes[letter].rows
            fill(letter, columns, rows)
            if f"{letter}_w" in self.oracle:
                more = [*columns, "window_start TIMESTAMP", "window_end TIMESTAMP"]
                fill(f"{letter}_w", more, in_windows(rows, self.windows))
        return answer_of(self.oracle)
