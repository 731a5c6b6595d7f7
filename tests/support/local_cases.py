"""Cases (`tests.support.cases`) without a cluster's processes: the same SQL, files and answers, on the real operators
in one thread, so that each can run in many shapes, also killed in the middle and restored at another parallelism.
"""

from __future__ import annotations

import datetime as dt
import random
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from planner.catalog import ObjectPath, TableEntry
from planner.ir.job_graph import JobGraph
from runtime.checkpoint.manifest import CheckpointManifest
from tests.support.cases import Case, normal
from tests.support.local_cluster import LocalCluster
from tests.support.local_session import LocalSession, memory_tables
from tests.support.memory_tables.connector import Change, MemoryTable, Row

ANSWER = "answer"
MODES = ("insert-only", "upsert", "retract")


@dataclass(frozen=True)
class LocalShape:
    """How a case is run. `killed`: the job takes a checkpoint after so many steps, is killed after as many more, and
    goes on at the parallelism `then`; 0 = it runs through."""

    parallelism: int
    batch_rows: int
    killed: int = 0
    then: int = 0

    def __str__(self) -> str:
        restored = f"-killed{self.killed}-p{self.then}" if self.killed else ""
        return f"p{self.parallelism}-b{self.batch_rows}{restored}"


LOCAL_SHAPES = (
    LocalShape(1, 1),
    LocalShape(1, 8192),
    LocalShape(4, 1),
    LocalShape(4, 8192),
    LocalShape(1, 1, killed=4, then=4),
    LocalShape(4, 2, killed=9, then=1),
)
ON_EVENT_SHAPES = (LocalShape(1, 1), LocalShape(1, 8192), LocalShape(1, 1, killed=3, then=1))


def local_cases(*cases: Case) -> pytest.MarkDecorator:
    """Parametrise a test by the cases; `run_locally` runs each in all its shapes."""
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


def run_locally(case: Case, directory: Path, shapes: Sequence[LocalShape] = LOCAL_SHAPES) -> None:
    """Run in every shape (those for single watermarks where the case is about these) and compare. `{dir}` in `sql` is
    the folder of the inputs.

    The last statement is a query, or an INSERT INTO a table WITH (`{insert-only}`), (`{upsert}`) or (`{retract}`): what
    is compared is then what the table holds.
    """
    inputs = directory / "inputs"
    inputs.mkdir()
    for name, lines in case.inputs.items():
        (inputs / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    for shape in ON_EVENT_SHAPES if case.on_event else shapes:
        place = directory / str(shape)
        if case.error is not None:
            with pytest.raises(Exception, match=re.compile(case.error, re.IGNORECASE | re.DOTALL)):
                LocalRun(case, shape, inputs, place).run()
            continue
        assert case.rows is not None
        rows = LocalRun(case, shape, inputs, place).run()
        assert normal(rows) == normal(list(case.rows)), f"{shape}: {case.why}"


class LocalRun:
    """One run of a case in one shape. `late_rows` and `changes` are there after it."""

    def __init__(self, case: Case, shape: LocalShape, inputs: Path, place: Path) -> None:
        watermark = ", 'scan.watermark.emit.strategy' = 'on-event'" if case.on_event else ""
        memory = {
            f"{{{mode}}}": f"'connector' = 'memory', 'name' = '{ANSWER}', 'changelog' = '{mode}'" for mode in MODES
        }
        self._statements = list(case.sql)
        for placeholder, text in {"{dir}": str(inputs), "{watermark}": watermark, **memory}.items():
            self._statements = [statement.replace(placeholder, text) for statement in self._statements]
        self._shape, self._place = shape, place
        self._sink = MemoryTable()
        self._key: tuple[int, ...] | None = None
        self.late_rows = 0.0

    def run(self) -> list[Row]:
        """The rows that the answer holds in the end, values as the gateway shows them."""
        shape = self._shape
        choose = random.Random(str(shape))
        with memory_tables(answer=self._sink), ExitStack() as jobs:
            manifest: CheckpointManifest | None = None
            owners: dict[str, int] = {}
            parallelism = shape.parallelism
            if shape.killed:
                job = LocalCluster(self._graph(parallelism), self._place, choose.randrange(1 << 30))
                jobs.callback(job.close)
                ended = job.run(shape.killed)
                if not ended:
                    manifest = job.checkpoint()
                    job.run(shape.killed)
                    owners, parallelism = job.owner_counts, shape.then
            job = LocalCluster(
                self._graph(parallelism), self._place, choose.randrange(1 << 30), manifest=manifest, owner_counts=owners
            )
            jobs.callback(job.close)
            job.finish()
            self.late_rows = job.counter("numLateRecordsDropped")
        return _held(self._sink.changes, self._key, ordered=shape.parallelism == 1 and shape.then <= 1)

    @property
    def changes(self) -> list[Change]:
        return [(kind, tuple(map(_shown, row))) for kind, row in self._sink.changes]

    def _graph(self, parallelism: int) -> JobGraph:
        session = LocalSession(
            {
                "parallelism.default": str(parallelism),
                "pipeline.max-parallelism": "16",
                "table.exec.batch.max-rows": str(self._shape.batch_rows),
            }
        )
        for statement in self._statements[:-1]:
            session.run(statement)
        last = self._statements[-1]
        if last.lstrip().upper().startswith("INSERT"):
            graph = session.graph(last)
            self._key = _primary_key(session)
            return graph
        result = session.job(last).result
        assert result is not None
        columns = ", ".join(f"c{i} {c.type.with_nullable(True).sql()}" for i, c in enumerate(result.columns))
        options = f"'connector' = 'memory', 'name' = '{ANSWER}', 'changelog' = 'retract'"
        session.run(f"CREATE TABLE {ANSWER} ({columns}) WITH ({options})")
        return session.graph(f"INSERT INTO {ANSWER} {last}")


def _primary_key(session: LocalSession) -> tuple[int, ...] | None:
    """Of the upsert table that is the answer; None when it is no such table."""
    for path, entry in session.catalog.entries.items():
        assert isinstance(path, ObjectPath)
        if isinstance(entry, TableEntry) and entry.options.get("changelog") == "upsert":
            assert entry.primary_key is not None
            names = [column.name for column in entry.columns]
            return tuple(names.index(name) for name in entry.primary_key.columns)
    return None


def _held(changes: list[Change], key: tuple[int, ...] | None, *, ordered: bool) -> list[Row]:
    """Folds the changelog. `ordered`: changes are in one order, so nothing may be taken back before it was there."""
    if key is not None:
        table: dict[Row, Row] = {}
        for kind, row in changes:
            owner = tuple(row[i] for i in key)
            if kind in (0, 2):
                table[owner] = row
            else:
                table.pop(owner, None)
        return [tuple(map(_shown, row)) for row in table.values()]
    counts: Counter[Row] = Counter()
    for kind, row in changes:
        shown = tuple(map(_shown, row))
        counts[shown] += 1 if kind in (0, 2) else -1
        assert counts[shown] >= 0 or not ordered, f"kind {kind} takes back a row that is not there: {shown}"
    assert min(counts.values(), default=0) >= 0, f"taken back and never there: {+(-counts)}"
    return list(counts.elements())


def _shown(value: Any) -> Any:
    """As JSON at the gateway: text for times and for numbers that JSON has not."""
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ")
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[repr(value)]
    if isinstance(value, list):
        return tuple(map(_shown, value))
    return value
