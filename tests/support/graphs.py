"""Small JobGraphs, built by hand: the runtime's tests need no SQL."""

from __future__ import annotations

from planner.ir import types as t
from planner.ir.expressions import InputRef, Literal
from planner.ir.job_graph import Edge, EdgeKind, Fingerprint, JobGraph, Vertex
from planner.ir.operators import (
    Calc,
    Collect,
    Column,
    Limit,
    Operator,
    Schema,
    Sink,
    Source,
    TableRef,
    Values,
)

NUMBERS = Schema((Column("n", t.BIGINT),))


def generator(uid: str = "source", rows: int | None = 1000, rows_per_second: int = 1_000_000) -> Source:
    """A `datagen` table of one BIGINT column: 0, 1, 2, … up to `rows` (None = without end)."""
    options = {"connector": "datagen", "rows-per-second": str(rows_per_second)}
    if rows is not None:
        options |= {"fields.n.kind": "sequence", "fields.n.start": "0", "fields.n.end": str(rows - 1)}
    return Source(
        uid,
        "numbers",
        TableRef("numbers", "datagen", options, NUMBERS),
        NUMBERS,
        (),
        (InputRef(0, t.BIGINT),),
        NUMBERS,
        bounded=rows is not None,
    )


def values(*numbers: int, uid: str = "values") -> Values:
    return Values(uid, "Values", tuple((Literal(n, t.BIGINT),) for n in numbers), NUMBERS)


def calc(uid: str = "calc") -> Calc:
    return Calc(uid, "Calc", None, (InputRef(0, t.BIGINT),), NUMBERS)


def limit(count: int, uid: str = "limit") -> Limit:
    return Limit(uid, "Limit", count, 0, NUMBERS)


def collect(uid: str = "collect") -> Collect:
    return Collect(uid, "Collect", NUMBERS)


def sink(uid: str = "sink", connector: str = "blackhole", **options: str) -> Sink:
    table = TableRef(uid, connector, {"connector": connector, **options}, NUMBERS)
    return Sink(uid, uid, table, NUMBERS)


def vertex(number: int, *operators: Operator, parallelism: int = 1, max_parallelism: int = 128) -> Vertex:
    name = " -> ".join(operator.name for operator in operators)
    return Vertex(number, operators[0].uid, name, operators, parallelism, max_parallelism)


def edge(source: int, target: int, kind: EdgeKind = EdgeKind.REBALANCE) -> Edge:
    return Edge(source, target, kind, NUMBERS, keys=(0,) if kind is EdgeKind.HASH else ())


def graph(
    *vertices: Vertex,
    edges: tuple[Edge, ...] = (),
    settings: dict[str, str] | None = None,
    bounded: bool = True,
    is_query: bool = False,
    fingerprints: tuple[Fingerprint, ...] = (),
) -> JobGraph:
    return JobGraph("test", vertices, edges, settings or {}, fingerprints, bounded, is_query)
