"""The planner's output as data: codec, type mapping, counts and the accumulators both phases agree on."""

from __future__ import annotations

import pyarrow as pa
import pytest

from planner.ir import codec, functions
from planner.ir import types as t
from planner.ir.expressions import Call, InputRef, Literal, canonical, input_indexes, shift_inputs, substitute
from planner.ir.job_graph import Edge, EdgeKind, JobGraph, Vertex
from planner.ir.operators import (
    AggregateCall,
    AggregateFunction,
    Calc,
    Collect,
    Column,
    Schema,
    Source,
    TableRef,
    accumulator_types,
)

ONE_COLUMN = Schema((Column("a", t.INT),))
PLUS_ONE = Call("PLUS", (InputRef(0, t.INT), Literal(1, t.INT.with_nullable(False))), t.INT, "a + 1")


def small_graph() -> JobGraph:
    table = TableRef("c.d.src", "datagen", {"connector": "datagen"}, ONE_COLUMN)
    source = Source("u-src", "src", table, ONE_COLUMN, (), (InputRef(0, t.INT),), ONE_COLUMN)
    calc = Calc("u-calc", "calc", None, (PLUS_ONE,), ONE_COLUMN)
    vertices = (
        Vertex(0, "u-src", "src -> calc", (source, calc), 3),
        Vertex(1, "u-out", "collect", (Collect("u-out", "collect", ONE_COLUMN),), 1),
    )
    return JobGraph("j", vertices, (Edge(0, 1, EdgeKind.SINGLE, ONE_COLUMN),), {"parallelism.default": "3"})


def test_a_job_graph_survives_the_codec_and_equal_graphs_have_equal_bytes() -> None:
    graph = small_graph()
    assert codec.decode(codec.encode(graph)) == graph
    assert codec.encode(graph) == codec.encode(small_graph())
    assert codec.digest(graph) == codec.digest(small_graph())


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xc1", codec.encode(small_graph())[:-3]])
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(codec.JobGraphFormatError):
        codec.decode(data)


def test_counts_of_a_graph() -> None:
    graph = small_graph()
    assert (graph.subtask_count, graph.task_count, graph.slot_count) == (7, 4, 3)


@pytest.mark.parametrize(
    ("data_type", "text", "arrow"),
    [
        (t.STRING, "STRING", pa.string()),
        (t.varchar(5).with_nullable(False), "VARCHAR(5) NOT NULL", pa.string()),
        (t.decimal(10, 2), "DECIMAL(10, 2)", pa.decimal128(10, 2)),
        (t.timestamp(3), "TIMESTAMP(3)", pa.timestamp("ms")),
        (t.timestamp(6), "TIMESTAMP(6)", pa.timestamp("us")),
        (t.timestamp_ltz(9), "TIMESTAMP_LTZ(9)", pa.timestamp("ns", "UTC")),
        (t.array(t.INT.with_nullable(False)), "ARRAY<INT NOT NULL>", pa.list_(pa.int32())),
        (t.map_of(t.STRING, t.BIGINT), "MAP<STRING, BIGINT>", pa.map_(pa.string(), pa.int64())),
        (
            t.row(("x", t.INT), ("y", t.STRING)),
            "ROW<`x` INT, `y` STRING>",
            pa.struct([("x", pa.int32()), ("y", pa.string())]),
        ),
        (t.timestamp(3).with_time_attribute(t.TimeAttribute.ROWTIME), "TIMESTAMP(3) *ROWTIME*", pa.timestamp("ms")),
    ],
)
def test_types_print_as_in_flink_and_map_to_arrow(data_type: t.DataType, text: str, arrow: pa.DataType) -> None:
    assert data_type.summary() == text
    assert t.to_arrow(data_type) == arrow


def test_every_type_root_has_an_arrow_type() -> None:
    filled = {
        t.TypeRoot.DECIMAL: t.decimal(5, 1),
        t.TypeRoot.ARRAY: t.array(t.INT),
        t.TypeRoot.MULTISET: t.multiset(t.INT),
        t.TypeRoot.MAP: t.map_of(t.INT, t.INT),
        t.TypeRoot.ROW: t.row(("a", t.INT)),
    }
    for root in t.TypeRoot:
        assert isinstance(t.to_arrow(filled.get(root, t.DataType(root))), pa.DataType)


def test_expressions_can_be_moved_and_compared() -> None:
    moved = shift_inputs(PLUS_ONE, {0: 4})
    assert input_indexes(moved) == {4}
    assert substitute(moved, (PLUS_ONE,) * 5) == Call("PLUS", (PLUS_ONE, PLUS_ONE.args[1]), t.INT, "a + 1")
    assert canonical(PLUS_ONE) == canonical(Call("PLUS", PLUS_ONE.args, t.INT, "1 + a, written otherwise"))
    assert canonical(PLUS_ONE) != canonical(moved)


def test_function_rows_have_unique_ids() -> None:
    assert len(functions.BY_ID) == len(functions.ROWS)


@pytest.mark.parametrize(
    ("function", "argument", "result", "expected"),
    [
        (AggregateFunction.COUNT_STAR, None, t.BIGINT, (t.BIGINT.with_nullable(False),)),
        (AggregateFunction.SUM, t.INT, t.INT, (t.INT,)),
        (AggregateFunction.AVG, t.INT, t.INT, (t.BIGINT, t.BIGINT.with_nullable(False))),
        (AggregateFunction.AVG, t.FLOAT, t.FLOAT, (t.DOUBLE, t.BIGINT.with_nullable(False))),
        (AggregateFunction.AVG, t.decimal(10, 2), t.decimal(38, 6), (t.decimal(38, 2), t.BIGINT.with_nullable(False))),
    ],
)
def test_accumulators(
    function: AggregateFunction, argument: t.DataType | None, result: t.DataType, expected: tuple[t.DataType, ...]
) -> None:
    index = None if argument is None else 0
    assert accumulator_types(AggregateCall(function, index, argument, result)) == expected
