"""Whole jobs with two-input tasks in one thread: any interleaving of both inputs, checkpoints (also such as overtake
rows in flight on both of them), crashes and other parallelisms; the folded output is the batch answer.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from planner.ir import types as t
from planner.ir.expressions import InputRef
from planner.ir.job_graph import Edge, EdgeKind, JobGraph, Vertex
from planner.ir.operators import (
    ChangelogMode,
    Column,
    Join,
    JoinKind,
    Schema,
    SetOperation,
    SetOperationKind,
    Sink,
    Source,
    TableRef,
)
from runtime.checkpoint.manifest import CheckpointManifest
from tests.support.aggregates import Row
from tests.support.joins import ReferenceJoin, ReferenceSetOperation, Stream
from tests.support.local_cluster import LocalCluster
from tests.support.local_session import memory_tables
from tests.support.memory_tables.connector import MemoryTable

SCHEMA = Schema((Column("k", t.INT), Column("n", t.INT), Column("s", t.STRING)))
KINDS = ("+I", "-U", "+U", "-D")
INSERTS, RETRACT = ChangelogMode.INSERT_ONLY, ChangelogMode.RETRACT


def table(name: str, schema: Schema, mode: ChangelogMode) -> TableRef:
    return TableRef(name, "memory", {"connector": "memory", "name": name, "changelog": mode.value}, schema)


def source(name: str, mode: ChangelogMode) -> Source:
    refs = tuple(InputRef(i, column.type) for i, column in enumerate(SCHEMA.columns))
    return Source(name, name, table(name, SCHEMA, mode), SCHEMA, (), refs, SCHEMA, bounded=True, changelog=mode)


def job(operator: Join | SetOperation, names: tuple[str, str], keys: Any, parallelism: int, backend: str) -> JobGraph:
    """Both inputs from one source where the names are equal."""
    mode = RETRACT
    sink = Sink("sink", "sink", table("out", operator.output, RETRACT), operator.output, changelog=RETRACT)
    sources = [Vertex(i, name, name, (source(name, mode),), 2, 16) for i, name in enumerate(dict.fromkeys(names))]
    vertices = (
        *sources,
        Vertex(2, "op", "op", (operator,), parallelism, 16),
        Vertex(3, "sink", "sink", (sink,), parallelism, 16),
    )
    kind = EdgeKind.HASH if keys[0] else EdgeKind.SINGLE
    edges = (
        Edge(0, 2, kind, SCHEMA, keys[0], mode, 0),
        Edge(len(sources) - 1, 2, kind, SCHEMA, keys[1], mode, 1),
        # Two changes of one row stay in order: by all that a pair has in common.
        Edge(2, 3, EdgeKind.FORWARD, operator.output, (), RETRACT),
    )
    settings = {"state.backend.type": backend, "table.exec.batch.max-rows": "3"}
    return JobGraph("job", vertices, edges, settings, bounded=True)


def a_row(rng: random.Random) -> Row:
    return (rng.choice((1, 2, 3, 4, None)), rng.choice((1, 2, 3, None)), rng.choice(("a", "b")))


def changes_of(rng: random.Random) -> MemoryTable:
    splits = []
    for _ in range(2):
        stream = Stream(rng, a_row, only_inserts=False, unique=None)
        splits.append([(KINDS.index(kind), row) for _ in range(6) for kind, row in stream.take(8)])
    made = MemoryTable(splits)
    made.random = rng
    return made


def rows_of(changes: list[tuple[int, Row]]) -> Counter[Row]:
    rows: Counter[Row] = Counter()
    for kind, row in changes:
        rows[row] += 1 if kind in (0, 2) else -1
    assert all(count >= 0 for count in rows.values()), f"taken back and never there: {-rows}"
    return +rows


def run(
    make: Any, rng: random.Random, tables: dict[str, MemoryTable], folder: Path, parallelisms: tuple[int, ...]
) -> tuple[Counter[Row], set[int]]:
    """The folded output, and the inputs on which something was in flight when the job was started again."""
    out = MemoryTable()
    inputs: set[int] = set()
    with memory_tables(**tables, out=out):
        manifest: CheckpointManifest | None = None
        owners: dict[str, int] = {}
        for _ in range(2):
            cluster = LocalCluster(
                make(rng.choice(parallelisms)), folder, rng.randrange(1 << 30), manifest=manifest,
                owner_counts=owners, channel_bytes=rng.choice((30, 300, 3_000)), haste=0.3,
            )  # fmt: skip
            inputs |= in_flight(cluster)
            if cluster.run(rng.randrange(10, 120)):
                cluster.close()
                break
            manifest = cluster.checkpoint(aligned_timeout_ms=rng.choice((None, 0.0, 0.0)), commit=rng.random() < 0.7)
            cluster.run(rng.randrange(30))
            cluster.close()
            owners = cluster.owner_counts
            # Rows in flight on a forward edge have no place at another parallelism.
            if any(h.target_uid == "sink" for s in manifest.snapshots for h in s.in_flight):
                parallelisms = (manifest.snapshots[-1].parallelism,)
        last = LocalCluster(
            make(rng.choice(parallelisms)), folder, rng.randrange(1 << 30), manifest=manifest, owner_counts=owners
        )
        inputs |= in_flight(last)
        last.finish()
    return rows_of(out.changes), inputs


def in_flight(cluster: LocalCluster) -> set[int]:
    restores = [restore for found in cluster.plan.in_flight.values() for restore in found]
    return {restore.handle.input_index for restore in restores if restore.handle.target_uid == "op"}


def fed(reference: Any, names: tuple[str, str], tables: dict[str, MemoryTable]) -> Counter[Row]:
    """The batch answer."""
    for side, name in enumerate(names):
        for split in tables[name].splits:
            for change, row in split:
                reference.change(side, KINDS[change], row)
    answer: Counter[Row] = reference.batch()
    return answer


def check_join(kind: JoinKind, seed: int, folder: Path) -> set[int]:
    rng = random.Random(f"{kind}-{seed}")
    names = ("a", "a") if seed == 2 else ("a", "b")
    keys: Any = ((), ()) if seed == 3 else ((0,), (1,))
    columns = (*SCHEMA.columns, *SCHEMA.columns) if kind.keeps_right else SCHEMA.columns
    null_safe = tuple(False for _ in keys[0])
    join = Join(
        "op",
        "op",
        kind,
        keys[0],
        keys[1],
        null_safe,
        None,
        SCHEMA,
        SCHEMA,
        RETRACT,
        RETRACT,
        None,
        None,
        Schema(columns),
    )
    backend = rng.choice(("hashmap", "rocksdb"))
    tables = {name: changes_of(rng) for name in dict.fromkeys(names)}

    def make(parallelism: int) -> JobGraph:
        return job(join, names, keys, parallelism, backend)

    def matches(left: Row, right: Row) -> bool:
        return not keys[0] or (left[0] is not None and left[0] == right[1])

    output, inputs = run(make, rng, tables, folder, (1, 2, 3) if keys[0] else (1,))
    assert output == fed(ReferenceJoin(kind, matches, (3, 3)), names, tables)
    return inputs


@pytest.mark.parametrize("kind", list(JoinKind))
def test_a_job_with_a_join_gives_the_batch_answer(kind: JoinKind, tmp_path: Path) -> None:
    inputs: set[int] = set()
    for seed in range(5):
        inputs |= check_join(kind, seed, tmp_path / str(seed))
    assert inputs == {0, 1}


@pytest.mark.parametrize("kind", list(SetOperationKind))
def test_a_job_with_a_set_operation_gives_the_batch_answer(kind: SetOperationKind, tmp_path: Path) -> None:
    rng = random.Random(str(kind))
    operator = SetOperation("op", "op", kind, SCHEMA)
    tables = {name: changes_of(rng) for name in ("a", "b")}

    def make(parallelism: int) -> JobGraph:
        return job(operator, ("a", "b"), ((0, 1, 2), (0, 1, 2)), parallelism, "hashmap")

    output, _ = run(make, rng, tables, tmp_path, (1, 2, 3))
    assert output == fed(ReferenceSetOperation(kind), ("a", "b"), tables)
