"""UNNEST: a row per element, against DuckDB where it has the same; slices, pieces, kinds, multisets, conditions."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from benchmarks import unnest as benchmark
from planner.ir import operators as ir
from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, Literal
from planner.ir.types import DataType
from runtime.elements import Batch
from runtime.operators.checks import CheckedOperator
from runtime.operators.expressions.errors import ExpressionError
from runtime.operators.protocol import OUTPUT_ROWS_MAX
from runtime.operators.unnest import UnnestOperator, pieces
from tests.support.calls import python_calls
from tests.support.operators import Surroundings, ints

ROW = t.row(("x", t.INT), ("y", t.STRING))
TAGS = t.array(t.STRING)


def unnest(
    collection: DataType,
    *elements: DataType,
    ordinality: bool = False,
    outer: bool = False,
    condition: Expression | None = None,
    kept: tuple[int, ...] = (0,),
) -> CheckedOperator:
    """The operator over (id INT, collection)."""
    inputs = (t.INT, collection)
    types = (*(inputs[i] for i in kept), *elements, *([t.INT] if ordinality else []))
    schema = ir.Schema(tuple(ir.Column(f"x{i}", kind) for i, kind in enumerate(types)))
    node = ir.Unnest("unnest", "Unnest", 1, collection, kept, ordinality, outer, condition, schema)
    operator = CheckedOperator(UnnestOperator(node, Surroundings().context), node)
    operator.open()
    return operator


def batch(collection: DataType, *values: Any, kinds: list[int] | None = None) -> Batch:
    data = pa.RecordBatch.from_arrays(
        [ints(*range(len(values))), pa.array(values, t.to_arrow(collection))], ["c0", "c1"]
    )
    return Batch(data, None if kinds is None else pa.array(kinds, pa.int8()))


def rows_of(output: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for piece in output for row in piece.data.to_pylist()]


def test_elements_follow_each_other_and_empty_collections_give_no_row() -> None:
    operator = unnest(TAGS, t.STRING, ordinality=True)
    output = operator.process(batch(TAGS, ["a", None, "a"], [], None, ["b"]))
    assert rows_of(output) == [(0, "a", 1), (0, None, 2), (0, "a", 3), (3, "b", 1)]


def test_outer_keeps_rows_without_elements() -> None:
    operator = unnest(TAGS, t.STRING, ordinality=True, outer=True)
    output = operator.process(batch(TAGS, [], ["a", None], None, ["b"], []))
    padded = (None, None)
    assert rows_of(output) == [(0, *padded), (1, "a", 1), (1, None, 2), (2, *padded), (3, "b", 1), (4, *padded)]


def test_elements_that_are_rows_are_spread_and_a_missing_one_is_a_row_of_nulls() -> None:
    rows = t.array(ROW)
    output = unnest(rows, t.INT, t.STRING).process(batch(rows, [{"x": 1, "y": "p"}, None], [{"x": None, "y": "q"}]))
    assert rows_of(output) == [(0, 1, "p"), (0, None, None), (1, None, "q")]


def test_maps_give_key_and_value() -> None:
    kind = t.map_of(t.STRING, t.INT)
    output = unnest(kind, t.STRING, t.INT, outer=True).process(batch(kind, [("k", 1), ("l", None)], None, []))
    assert rows_of(output) == [(0, "k", 1), (0, "l", None), (1, None, None), (2, None, None)]


def test_an_element_of_a_multiset_counts_as_often_as_it_is_there() -> None:
    kind = t.multiset(t.STRING)
    operator = unnest(kind, t.STRING, ordinality=True)
    output = operator.process(batch(kind, [("a", 2), ("b", 1)], [], None, [("c", 3)]))
    assert rows_of(output) == [(0, "a", 1), (0, "a", 2), (0, "b", 3), (3, "c", 1), (3, "c", 2), (3, "c", 3)]


def test_row_kinds_pass_through() -> None:
    output = list(unnest(TAGS, t.STRING, outer=True).process(batch(TAGS, ["a", "b"], [], ["c"], kinds=[1, 2, 3])))
    assert [kind.as_py() for piece in output for kind in piece.row_kinds or ()] == [1, 1, 2, 3]


def test_only_columns_that_are_asked_for_are_repeated() -> None:
    assert rows_of(unnest(TAGS, t.STRING, kept=()).process(batch(TAGS, ["a"], ["b", "c"]))) == [("a",), ("b",), ("c",)]
    both = unnest(TAGS, t.STRING, kept=(1, 0)).process(batch(TAGS, ["a"]))
    assert rows_of(both) == [(["a"], 0, "a")]


@pytest.mark.parametrize("kind", [TAGS, t.map_of(t.STRING, t.INT), t.multiset(t.STRING), t.array(ROW)], ids=str)
def test_a_slice_of_a_batch_gives_its_own_elements(kind: DataType) -> None:
    by_root: dict[t.TypeRoot, list[Any]] = {
        t.TypeRoot.ARRAY: [["a"], ["b", "c"], None, ["d"], ["e"]],
        t.TypeRoot.MAP: [[("a", 1)], [("b", 2), ("c", 3)], None, [("d", 4)], [("e", 5)]],
        t.TypeRoot.MULTISET: [[("a", 1)], [("b", 2), ("c", 1)], None, [("d", 2)], [("e", 1)]],
    }
    values = by_root[kind.root]
    elements: tuple[DataType, ...] = (t.STRING,)
    if kind.element == ROW:
        values = [None if v is None else [{"x": ord(e), "y": e} for e in v] for v in values]
        elements = (t.INT, t.STRING)
    elif kind.root is t.TypeRoot.MAP:
        elements = (t.STRING, t.INT)
    whole = batch(kind, *values)
    expected = [row for row in rows_of(unnest(kind, *elements).process(whole)) if 1 <= row[0] <= 3]
    assert len(expected) >= 3
    part = Batch(whole.data.slice(1, 3), None)
    assert rows_of(unnest(kind, *elements).process(part)) == expected


def test_a_null_collection_may_hold_hidden_elements() -> None:
    """Arrow lets a NULL list cover values; they are not elements."""
    offsets: Any = pa.array([0, 2, 3], pa.int32())
    lists: Any = pa.ListArray.from_arrays(offsets, pa.array(["a", "b", "c"]), mask=pa.array([True, False]))
    data = pa.RecordBatch.from_arrays([ints(0, 1), lists], ["c0", "c1"])
    assert rows_of(unnest(TAGS, t.STRING).process(Batch(data, None))) == [(1, "c")]
    assert rows_of(unnest(TAGS, t.STRING, outer=True).process(Batch(data, None))) == [(0, None), (1, "c")]


def test_output_comes_in_bounded_pieces() -> None:
    numbers = t.array(t.INT)
    count = OUTPUT_ROWS_MAX * 2 + 5
    output = list(unnest(numbers, t.INT, ordinality=True).process(batch(numbers, [7], range(count), [8])))
    assert max(piece.row_count for piece in output) == OUTPUT_ROWS_MAX
    assert [p.as_py() for piece in output for p in piece.data.column(2)] == [1, *range(1, count + 1), 1]


def contains(letter: str) -> Expression:
    """`element = letter`, over (id, element)."""
    return Call("EQ", (InputRef(1, t.STRING), Literal(letter, t.STRING)), t.BOOLEAN)


def test_the_condition_of_an_outer_join_pads_rows_without_a_passing_element() -> None:
    operator = unnest(TAGS, t.STRING, ordinality=True, outer=True, condition=contains("a"))
    output = operator.process(batch(TAGS, ["a", "b", "a"], ["b", None], None, [], ["b", "a"], kinds=[0, 1, 2, 3, 0]))
    pieces_ = list(output)
    expected = [(0, "a", 1), (0, "a", 3), (1, None, None), (2, None, None), (3, None, None), (4, "a", 2)]
    assert rows_of(pieces_) == expected
    assert [kind.as_py() for piece in pieces_ for kind in piece.row_kinds or ()] == [0, 0, 1, 2, 3, 0]


def test_a_condition_that_nothing_passes_and_one_that_fails() -> None:
    operator = unnest(TAGS, t.STRING, outer=True, condition=contains("z"))
    assert rows_of(operator.process(batch(TAGS, ["a", "b"], ["c"]))) == [(0, None), (1, None)]
    assert rows_of(operator.process(batch(TAGS, [], None))) == [(0, None), (1, None)]
    number = Call("CAST", (InputRef(1, t.STRING),), t.INT, "CAST(x AS INT)")
    failing = Call("EQ", (number, Literal(1, t.INT)), t.BOOLEAN)
    with pytest.raises(ExpressionError, match=r"CAST\(x AS INT\)"):
        list(unnest(TAGS, t.STRING, outer=True, condition=failing).process(batch(TAGS, ["1", "one"])))


def test_pieces_cut_rows_where_they_must() -> None:
    counts = np.array([0, 3, 0, OUTPUT_ROWS_MAX, 0, 2, 0])
    cut = list(pieces(counts))
    assert [len(rows) for rows, _ in cut] == [OUTPUT_ROWS_MAX, 5]
    rows = np.concatenate([rows for rows, _ in cut])
    positions = np.concatenate([positions for _, positions in cut])
    assert (rows == np.repeat(np.arange(7), counts)).all()
    assert (positions == np.concatenate([np.arange(count) for count in counts])).all()


@pytest.mark.parametrize("seed", range(25))
def test_as_duckdb_does_it(seed: int) -> None:
    chance = random.Random(seed)
    lists = [
        None if chance.random() < 0.2 else [chance.choice(["a", "b", None]) for _ in range(chance.randrange(4))]
        for _ in range(chance.randrange(1, 60))
    ]
    rows = batch(TAGS, *lists)
    start = chance.randrange(rows.row_count)
    source = pa.Table.from_batches([rows.data.slice(start)])
    connection = duckdb.connect()
    connection.register("source", source)
    numbered = "SELECT c0, UNNEST(c1) AS e, GENERATE_SUBSCRIPTS(c1, 1) AS o FROM source"
    for outer, condition in ((False, False), (True, False), (True, True)):
        join = "LEFT JOIN" if outer else "JOIN"
        on = " AND n.e = 'a'" if condition else ""
        query = f"SELECT s.c0, n.e, n.o FROM source s {join} ({numbered}) n ON s.c0 = n.c0{on} ORDER BY 1, 3"
        expected = connection.execute(query).fetchall()
        filter_ = contains("a") if condition else None
        operator = unnest(TAGS, t.STRING, ordinality=True, outer=outer, condition=filter_)
        assert rows_of(operator.process(Batch(rows.data.slice(start), None))) == expected


@pytest.mark.parametrize("case", benchmark.CASES, ids=lambda case: case.name)
def test_no_python_per_row(case: benchmark.Case) -> None:
    """What so many more rows cost: opening is not counted. A batch costs some dozens of calls whatever its size."""
    rows = 4 * benchmark.BATCH_ROWS
    benchmark.measured(case, rows)  # What is imported when it is first used.
    few, many = (python_calls(partial(benchmark.measured, case, count)) for count in (rows, 2 * rows))
    assert (many - few) / rows < 0.02
