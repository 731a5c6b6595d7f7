"""INTERSECT and EXCEPT [ALL] against two counters per row: changes in order, any cut, restored anywhere."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from planner.ir import types as t
from planner.ir.operators import Column, Schema, SetOperation, SetOperationKind
from runtime.checkpoint.snapshot import OperatorRestore
from runtime.elements import Batch
from runtime.operators.set_operation import SetOperationOperator
from tests.support.aggregates import Folded, Row, WallClock, operator_context, rows_of
from tests.support.joins import Change, ReferenceSetOperation, Stream, kind_codes

SCHEMA = Schema((Column("a", t.INT), Column("b", t.STRING)))


def a_row(rng: random.Random) -> Row:
    return (rng.choice((1, 2, None)), rng.choice(("x", "y", None)))


def batch(changes: list[Change], *, only_inserts: bool = False) -> Batch:
    columns: list[Any] = [
        pa.array([row[i] for _, row in changes], t.to_arrow(column.type)) for i, column in enumerate(SCHEMA.columns)
    ]
    data = pa.RecordBatch.from_arrays(columns, ["c0", "c1"])
    return Batch(data, None if only_inserts else pa.array(kind_codes(changes), pa.int8()))


def opened(folder: Path, kind: SetOperationKind, restore: OperatorRestore | None = None, **options: Any) -> Any:
    settings = options.pop("settings", {})
    clock = options.pop("wall_clock_ms", None)
    node = SetOperation("set", "set", kind, SCHEMA, **options)
    context = operator_context(str(folder), restore=restore, wall_clock_ms=clock)
    operator = SetOperationOperator(node, msgspec.structs.replace(context, settings=settings))
    operator.open()
    return operator


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("kind", list(SetOperationKind))
def test_a_set_operation_equals_the_reference(kind: SetOperationKind, backend: str, tmp_path: Path) -> None:
    for seed in range(8):
        rng = random.Random(f"{kind}-{seed}")
        settings = {"state.backend.type": backend}
        only_inserts = rng.random() < 0.3
        streams = [Stream(rng, a_row, only_inserts=only_inserts, unique=None) for _ in range(2)]
        reference = ReferenceSetOperation(kind)
        operator = opened(tmp_path / str(seed), kind, settings=settings)
        expected: list[Change] = []
        output: list[Change] = []
        largest = rng.choice((1, 5, 40))
        for number in range(12):
            side = rng.randrange(2)
            changes = streams[side].take(largest)
            for change, row in changes:
                expected += reference.change(side, change, row)
            if changes:
                output += rows_of(list(operator.process_input(side, batch(changes, only_inserts=only_inserts))))
            if rng.random() < 0.2:
                snapshot = operator.snapshot(number + 1)()
                operator.close()
                restore = OperatorRestore("set", segments=snapshot.segments, counters=snapshot.counters)
                operator = opened(tmp_path / str(seed), kind, restore, settings=settings)
        operator.close()
        assert output == expected
        folded = Folded()
        folded.apply(output)
        assert folded.rows == reference.batch()


@pytest.mark.parametrize("kind", list(SetOperationKind))
def test_in_batch_execution_rows_come_at_the_end(kind: SetOperationKind, tmp_path: Path) -> None:
    rng = random.Random(str(kind))
    reference = ReferenceSetOperation(kind)
    operator = opened(tmp_path, kind, emits_at_end=True)
    streams = [Stream(rng, a_row, only_inserts=False, unique=None) for _ in range(2)]
    for side in (0, 1, 0, 1):
        changes = streams[side].take(40)
        for change, row in changes:
            reference.change(side, change, row)
        assert list(operator.process_input(side, batch(changes))) == []
    assert list(operator.end(False)) == []
    output = list(operator.end(True))
    assert all(piece.row_kinds is None for piece in output)
    folded = Folded()
    folded.apply(rows_of(output))
    assert folded.rows == reference.batch()


def test_what_is_taken_back_without_being_there_counts_and_does_nothing(tmp_path: Path) -> None:
    operator = opened(tmp_path, SetOperationKind.EXCEPT_ALL)
    gone = list(
        operator.process_input(1, batch([("-D", (1, "x")), ("+I", (1, "x")), ("-U", (1, "x")), ("-U", (1, "x"))]))
    )
    assert gone == []
    assert operator.counters()["numRetractionsWithoutState"] == 2
    assert operator.counters()["numRowsStored"] == 0
    assert rows_of(list(operator.process_input(0, batch([("+U", (1, "x"))])))) == [("+I", (1, "x"))]
    restore = OperatorRestore("set", counters=operator.snapshot(1)().counters)
    again = opened(tmp_path, SetOperationKind.EXCEPT_ALL, restore)
    assert again.counters()["numRetractionsWithoutState"] == 2


def test_rows_live_as_long_as_they_are_touched(tmp_path: Path) -> None:
    clock = WallClock()
    operator = opened(tmp_path, SetOperationKind.EXCEPT, state_ttl_ms=100, wall_clock_ms=clock)
    row = (1, "x")
    list(operator.process_input(1, batch([("+I", row)])))
    clock.ms += 60
    list(operator.process_input(1, batch([("+I", row)])))
    clock.ms += 60
    assert list(operator.process_input(0, batch([("+I", row)]))) == []
    clock.ms += 100
    assert rows_of(list(operator.process_input(0, batch([("+I", row)])))) == [("+I", row)]
