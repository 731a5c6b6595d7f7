"""Operators that give a row several times: grouping sets, and window table functions without aggregation."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from planner.ir import operators as ir
from planner.ir import types as t
from planner.ir.expressions import Expression, InputRef, Literal
from runtime.elements import Batch
from runtime.operators.assign_windows import AssignWindowsOperator
from runtime.operators.checks import CheckedOperator
from runtime.operators.expand import ExpandOperator
from runtime.operators.protocol import OUTPUT_ROWS_MAX
from runtime.operators.window_clock import NullRowtimeError
from tests.support.operators import Surroundings, batch_of, ints

ROWTIME = t.timestamp(3).with_time_attribute(t.TimeAttribute.ROWTIME)
ROWTIME_LTZ = t.timestamp_ltz(3).with_time_attribute(t.TimeAttribute.ROWTIME)
N: Expression = InputRef(0, t.INT)
NO_INT: Expression = Literal(None, t.INT)


def schema(*types: t.DataType) -> ir.Schema:
    return ir.Schema(tuple(ir.Column(f"x{i}", kind) for i, kind in enumerate(types)))


def rows_of(pieces: list[Batch]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for piece in pieces for row in piece.data.to_pylist()]


def expand(*projections: tuple[Expression, ...]) -> ExpandOperator:
    node = ir.Expand("expand", "expand", projections, schema(t.INT, t.BIGINT))
    operator = CheckedOperator(ExpandOperator(node, Surroundings().context), node)
    operator.open()
    return operator  # type: ignore[return-value]


def grouping_id(value: int) -> Expression:
    return Literal(value, t.BIGINT)


def test_the_copies_of_a_row_follow_each_other_with_its_kind() -> None:
    operator = expand((N, grouping_id(0)), (NO_INT, grouping_id(1)))
    pieces = list(operator.process(batch_of(ints(1, None, 3), kinds=[0, 1, 3])))
    assert rows_of(pieces) == [(1, 0), (None, 1), (None, 0), (None, 1), (3, 0), (None, 1)]
    assert [kind.as_py() for piece in pieces for kind in piece.row_kinds or ()] == [0, 0, 1, 1, 3, 3]


def test_expanded_rows_come_in_bounded_pieces() -> None:
    operator = expand(*((N, grouping_id(i)) for i in range(3)))
    count = OUTPUT_ROWS_MAX
    pieces = list(
        operator.process(Batch(pa.RecordBatch.from_arrays([pa.array(np.arange(count, dtype=np.int32))], ["c0"])))
    )
    assert sum(piece.row_count for piece in pieces) == 3 * count
    assert max(piece.row_count for piece in pieces) <= OUTPUT_ROWS_MAX
    assert rows_of(pieces)[-3:] == [(count - 1, 0), (count - 1, 1), (count - 1, 2)]


def assign(window: ir.AlignedWindow, time_type: t.DataType = ROWTIME) -> AssignWindowsOperator:
    output = schema(t.INT, time_type, t.timestamp(3), t.timestamp(3), window.time_type)
    node = ir.AssignWindows("assign", "assign", window, output)
    operator = CheckedOperator(AssignWindowsOperator(node, Surroundings().context), node)
    operator.open()
    return operator  # type: ignore[return-value]


def at(ms: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=ms)


def timed(*times_ms: int | None, kinds: list[int] | None = None) -> Batch:
    times: Any = pa.array(times_ms, pa.int64()).cast(pa.timestamp("ms"))
    return batch_of(ints(*range(len(times_ms))), times, kinds=kinds)


def test_each_row_comes_once_per_window_by_start() -> None:
    pieces = list(assign(ir.HopWindow(1, ROWTIME, 30, 10, -3)).process(timed(5, -8, kinds=[0, 3])))
    found = defaultdict(list)
    for number, _, start, end, time in rows_of(pieces):
        assert time == end - dt.timedelta(milliseconds=1)
        found[number].append((start, end))
    assert found == {
        0: [(at(-23), at(7)), (at(-13), at(17)), (at(-3), at(27))],
        1: [(at(-33), at(-3)), (at(-23), at(7)), (at(-13), at(17))],
    }
    assert [kind.as_py() for piece in pieces for kind in piece.row_kinds or ()] == [0, 0, 0, 3, 3, 3]


def test_steps_of_a_cumulating_window_come_by_end() -> None:
    pieces = list(assign(ir.CumulateWindow(1, ROWTIME, 30, 10)).process(timed(12, 29)))
    assert [(n, start, end) for n, _, start, end, _ in rows_of(pieces)] == [
        (0, at(0), at(20)),
        (0, at(0), at(30)),
        (1, at(0), at(30)),
    ]


def test_windows_of_processing_time_are_those_of_the_clock() -> None:
    time_type = t.timestamp_ltz(3).with_time_attribute(t.TimeAttribute.PROCTIME)
    window = ir.TumbleWindow(None, time_type, 3_600_000, time_zone="Asia/Kolkata")
    ((*_, start, end, time),) = rows_of(list(assign(window).process(timed(0))))
    assert (start, end) == (dt.datetime(2023, 11, 15, 3), dt.datetime(2023, 11, 15, 4))
    assert time == dt.datetime(2023, 11, 14, 22, 29, 59, 999_000, tzinfo=dt.UTC)


def test_a_row_in_very_many_windows_comes_in_bounded_pieces() -> None:
    pieces = list(assign(ir.HopWindow(1, ROWTIME, 3 * OUTPUT_ROWS_MAX, 1)).process(timed(0, 1)))
    assert sum(piece.row_count for piece in pieces) == 6 * OUTPUT_ROWS_MAX
    assert max(piece.row_count for piece in pieces) <= OUTPUT_ROWS_MAX


def test_a_row_without_time_is_refused() -> None:
    with pytest.raises(NullRowtimeError, match="assign"):
        list(assign(ir.TumbleWindow(1, ROWTIME, 10)).process(timed(1, None)))
    assert list(assign(ir.TumbleWindow(1, ROWTIME, 10)).process(timed())) == []
