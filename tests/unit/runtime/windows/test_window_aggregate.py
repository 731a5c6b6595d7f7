"""Window aggregates: what single situations must give."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.ir import types as t
from planner.ir.operators import AggregateCall, AggregateFunction, TumbleWindow, WindowProperty
from planner.ir.types import DataType
from runtime.checkpoint.snapshot import OperatorRestore
from runtime.elements import MAX_WATERMARK_MS
from runtime.operators import clocked
from runtime.operators.protocol import OUTPUT_ROWS_MAX
from runtime.operators.window_aggregate_global import GlobalWindowAggregateOperator
from runtime.operators.window_aggregate_local import LocalWindowAggregateOperator
from runtime.operators.window_clock import NullRowtimeError
from runtime.state.errors import StateTooLargeError
from runtime.state.segment_chain import EVERYTHING, SnapshotPlan
from runtime.state.window_blocks import MemoryWindowState
from tests.support.window_harness import ROWTIME, ROWTIME_LTZ, Pipeline, WindowPlan, operator_context

F = AggregateFunction
COUNT = AggregateCall(F.COUNT_STAR, None, None, t.BIGINT.with_nullable(False))
INSTANT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
LARGEST = Decimal(10**38 - 1)


def at(ms: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=ms)


def plan(
    value: DataType = t.BIGINT,
    *calls: AggregateCall,
    keys: tuple[int, ...] = (0,),
    time_type: DataType = ROWTIME,
    properties: tuple[WindowProperty, ...] = (WindowProperty.END,),
    size_ms: int = 10,
    zone: str = "UTC",
    two_phases: bool = True,
) -> WindowPlan:
    """Rows are (key STRING, time, value)."""
    window = TumbleWindow(time_index=1, time_type=time_type, size_ms=size_ms, time_zone=zone)
    return WindowPlan((t.STRING, time_type, value), keys, calls or (COUNT,), window, properties, two_phases)


def results_of(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in pipeline.results]


def run(made: WindowPlan, rows: list[tuple[Any, ...]], directory: Path) -> list[tuple[Any, ...]]:
    pipeline = Pipeline(made, directory)
    pipeline.send(0, rows)
    pipeline.advance(0, MAX_WATERMARK_MS)
    return results_of(pipeline)


def test_a_window_fires_with_its_last_millisecond_and_only_then(tmp_path: Path) -> None:
    pipeline = Pipeline(plan(), tmp_path)
    pipeline.send(0, [("a", at(0), 1), ("a", at(9), 1), ("a", at(10), 1)])
    pipeline.advance(0, 8)
    assert results_of(pipeline) == []
    pipeline.advance(0, 9)
    assert results_of(pipeline) == [("a", 2, at(10))]
    pipeline.advance(0, 30)
    assert results_of(pipeline) == [("a", 2, at(10)), ("a", 1, at(20))]


def test_windows_fire_in_the_order_of_their_ends(tmp_path: Path) -> None:
    rows = [("a", at(ms), 1) for ms in (35, 5, 25, 15, 5)]
    assert [row[2] for row in run(plan(), rows, tmp_path)] == [at(10), at(20), at(30), at(40)]


def test_late_rows_pass_the_local_phase_one_by_one_and_are_counted(tmp_path: Path) -> None:
    made = plan()
    local = LocalWindowAggregateOperator(made.local())
    assert list(local.advance(9)) == []
    batch = made.rows([("a", at(12), 1), ("a", at(5), 1), ("a", at(13), 1), ("a", at(6), 1)])
    pieces = [piece.data.to_pylist() for piece in local.process(batch)]
    assert [[(row["c1"], row["c2"]) for row in piece] for piece in pieces] == [[(20, 2)], [(10, 1), (10, 1)]]
    pipeline = Pipeline(made, tmp_path)
    pipeline.advance(0, 9)
    pipeline.send(0, [("a", at(12), 1), ("a", at(5), 1), ("a", at(6), 1)])
    assert pipeline.late_rows == 2


def test_late_is_judged_by_the_slowest_producer(tmp_path: Path) -> None:
    pipeline = Pipeline(plan(), tmp_path, producers=2)
    pipeline.advance(0, 100)
    pipeline.send(0, [("a", at(5), 1), ("a", at(6), 1)])
    assert pipeline.late_rows == 0
    pipeline.advance(1, 9)
    assert results_of(pipeline) == [("a", 2, at(10))]
    pipeline.send(1, [("a", at(7), 1)])
    assert pipeline.late_rows == 1


def test_a_fired_window_neither_fires_again_nor_takes_rows_after_a_restore(tmp_path: Path) -> None:
    pipeline = Pipeline(plan(), tmp_path, parallelism=3)
    rows = [(f"key {i}", at(5), 1) for i in range(30)]
    pipeline.send(0, rows)
    pipeline.advance(0, 9)
    pipeline.restart(1, 2, pipeline.snapshot(1))
    pipeline.send(0, rows)
    pipeline.advance(0, MAX_WATERMARK_MS)
    assert len(pipeline.results) == 30
    assert pipeline.late_rows == 30


def fired_pieces(tmp_path: Path, keys: int) -> tuple[GlobalWindowAggregateOperator, WindowPlan]:
    made = plan()
    operator = GlobalWindowAggregateOperator(made.global_(), operator_context(tmp_path))
    operator.open()
    local = LocalWindowAggregateOperator(made.local())
    for piece in local.process(made.rows([(f"key {i}", at(5), 1) for i in range(keys)])):
        assert list(operator.process(piece)) == []
    return operator, made


@pytest.mark.parametrize("keys", [OUTPUT_ROWS_MAX + 7, 2 * OUTPUT_ROWS_MAX + 7])
def test_a_snapshot_between_two_pieces_of_a_firing_holds_what_is_not_emitted(tmp_path: Path, keys: int) -> None:
    operator, made = fired_pieces(tmp_path, keys)
    firing = operator.advance(50)
    emitted = next(firing).data.to_pylist()
    assert len(emitted) == OUTPUT_ROWS_MAX
    snapshot = operator.snapshot(1)()
    rest = [row for piece in firing for row in piece.data.to_pylist()]
    restore = OperatorRestore("global", segments=snapshot.segments, clocks=snapshot.clocks, counters=snapshot.counters)
    again = GlobalWindowAggregateOperator(made.global_(), operator_context(tmp_path, generation=2, restore=restore))
    again.open()
    late = LocalWindowAggregateOperator(made.local()).process(made.rows([("key 1", at(5), 1)]))
    assert [list(again.process(piece)) for piece in late] == [[]]
    repeated = [row for piece in again.advance(50) for row in piece.data.to_pylist()]
    # Put out once: it is not in the state any more.
    assert list(again.advance(60)) == []
    assert {row["c0"] for row in repeated} == {row["c0"] for row in rest}
    assert len({row["c0"] for row in emitted + repeated}) == len(emitted) + len(repeated) == keys
    assert again.counters()["numLateRecordsDropped"] == 1


def test_pieces_are_emitted_key_group_by_key_group(tmp_path: Path) -> None:
    operator, _ = fired_pieces(tmp_path, OUTPUT_ROWS_MAX + 1)
    sizes = [piece.row_count for piece in operator.advance(50)]
    assert sizes == [OUTPUT_ROWS_MAX, 1]
    assert operator.counters()["stateBytes"] == 0


def test_state_above_its_share_fails_by_name(tmp_path: Path) -> None:
    made = plan()
    operator = GlobalWindowAggregateOperator(made.global_(), operator_context(tmp_path, managed_bytes=1_000))
    operator.open()
    local = LocalWindowAggregateOperator(made.local())
    (piece,) = local.process(made.rows([(f"key {i}", at(5), 1) for i in range(1_000)]))
    with pytest.raises(StateTooLargeError, match="operator global"):
        list(operator.process(piece))


def test_state_does_not_hold_on_to_input_batches(tmp_path: Path) -> None:
    made = plan()
    operator = GlobalWindowAggregateOperator(made.global_(), operator_context(tmp_path))
    operator.open()
    (piece,) = LocalWindowAggregateOperator(made.local()).process(made.rows([(f"k{i}", at(i), 1) for i in range(40)]))
    assert list(operator.process(piece)) == []
    addresses = {buffer.address for column in piece.data.columns for buffer in column.buffers() if buffer}
    state = operator._partials
    assert isinstance(state, MemoryWindowState)
    kept = [column for block in state.capture(SnapshotPlan(1, 1, EVERYTHING, ())).pieces() for column in block.columns]
    assert kept
    assert not addresses & {buffer.address for column in kept for buffer in column.buffers() if buffer}


def test_without_keys_there_is_one_row_per_window_at_any_parallelism(tmp_path: Path) -> None:
    pipeline = Pipeline(plan(keys=()), tmp_path, producers=2, parallelism=4)
    pipeline.send(0, [("a", at(5), 1), ("b", at(15), 1)])
    pipeline.send(1, [("c", at(5), 1)])
    pipeline.restart(1, 3, pipeline.snapshot(1))
    pipeline.advance(0, MAX_WATERMARK_MS)
    assert results_of(pipeline) == [(2, at(10)), (1, at(20))]


def test_window_properties_in_a_zone(tmp_path: Path) -> None:
    properties = (WindowProperty.START, WindowProperty.END, WindowProperty.TIME)
    made = plan(time_type=ROWTIME_LTZ, properties=properties, size_ms=86_400_000, zone="Asia/Shanghai")
    instant = dt.datetime(2024, 2, 29, 16, tzinfo=dt.UTC)
    (row,) = run(made, [("a", instant, 1)], tmp_path)
    assert row[2:4] == (dt.datetime(2024, 3, 1), dt.datetime(2024, 3, 2))
    assert row[4] == dt.datetime(2024, 3, 1, 15, 59, 59, 999_000, tzinfo=dt.UTC)


def test_no_column_at_all_keeps_the_number_of_rows(tmp_path: Path) -> None:
    made = WindowPlan((t.STRING, ROWTIME), (), (), TumbleWindow(1, ROWTIME, 10), ())
    operator = GlobalWindowAggregateOperator(made.global_(), operator_context(tmp_path))
    operator.open()
    for piece in LocalWindowAggregateOperator(made.local()).process(made.rows([("a", at(1)), ("b", at(11))])):
        assert list(operator.process(piece)) == []
    assert [(p.row_count, p.data.num_columns) for p in operator.advance(100)] == [(1, 0), (1, 0)]


@pytest.mark.parametrize("two_phases", [True, False])
def test_a_row_without_event_time_is_refused(tmp_path: Path, two_phases: bool) -> None:
    with pytest.raises(NullRowtimeError):
        run(plan(two_phases=two_phases), [("a", None, 1)], tmp_path)


def aggregate(function: AggregateFunction, argument: DataType, result: DataType, values: list[Any], path: Path) -> Any:
    """One aggregate over values of one group, two to a batch."""
    pipeline = Pipeline(plan(argument, AggregateCall(function, 2, argument, result)), path)
    for i in range(0, len(values), 2):
        pipeline.send(0, [("a", at(5), value) for value in values[i : i + 2]])
    pipeline.advance(0, MAX_WATERMARK_MS)
    ((_, found, _),) = results_of(pipeline)
    return found


@pytest.mark.parametrize(
    ("function", "argument", "result", "values", "expected"),
    [
        (F.SUM, t.TINYINT, t.TINYINT, [100, 100], -56),
        (F.SUM, t.INT, t.INT, [2**31 - 1, None, 1], -(2**31)),
        (F.SUM, t.BIGINT, t.BIGINT, [2**63 - 1, 0, 1], -(2**63)),
        (F.SUM, t.FLOAT, t.FLOAT, [0.5, 0.25, None], 0.75),
        (F.SUM, t.DOUBLE, t.DOUBLE, [float("inf"), 1.0], float("inf")),
        (F.SUM, t.decimal(38, 0), t.decimal(38, 0), [LARGEST, 1], None),
        (F.SUM, t.decimal(38, 0), t.decimal(38, 0), [LARGEST, 1, -1], LARGEST),
        (F.SUM, t.decimal(38, 0), t.decimal(38, 0), [LARGEST, -1, 1], LARGEST),
        (F.SUM, t.BIGINT, t.BIGINT, [None, None, None], None),
        (F.AVG, t.INT, t.INT, [-1, -2, -2], -1),
        (F.AVG, t.TINYINT, t.TINYINT, [127, 127, 126], 126),
        (F.AVG, t.FLOAT, t.FLOAT, [1.0, 2.0], 1.5),
        (F.AVG, t.DOUBLE, t.DOUBLE, [1.0, None, 2.0], 1.5),
        (F.AVG, t.decimal(10, 2), t.decimal(38, 6), [Decimal("1.00"), Decimal("1.00"), 0], Decimal("0.666667")),
        (F.AVG, t.INT, t.INT, [None], None),
        (F.AVG, t.decimal(38, 0), t.decimal(38, 6), [LARGEST, LARGEST], None),
        (F.COUNT, t.NULL, t.BIGINT, [None, None, None], 0),
        (F.MIN, t.DATE, t.DATE, [dt.date(2020, 1, 2), dt.date(1960, 1, 1), None], dt.date(1960, 1, 1)),
        (F.MAX, t.timestamp_ltz(3), t.timestamp_ltz(3), [INSTANT, None], INSTANT),
        (F.MAX, t.BOOLEAN, t.BOOLEAN, [False, True, None], True),
        (F.MAX, t.BYTES, t.BYTES, [b"\x01", b"\xff", b""], b"\xff"),
        (F.MIN, t.time(0), t.time(0), [dt.time(3), dt.time(2)], dt.time(2)),
    ],
)  # fmt: skip
def test_aggregates(
    tmp_path: Path, function: AggregateFunction, argument: DataType, result: DataType, values: list[Any], expected: Any
) -> None:
    found = aggregate(function, argument, result, values, tmp_path)
    assert found == expected
    assert type(found) is type(expected)


def test_a_partial_sum_beyond_38_digits_passes_the_local_phase_unreduced() -> None:
    made = plan(t.decimal(38, 0), AggregateCall(F.SUM, 2, t.decimal(38, 0), t.decimal(38, 0)))
    batch = made.rows([("a", at(5), LARGEST), ("a", at(5), LARGEST), ("b", at(5), Decimal(1))])
    (piece,) = LocalWindowAggregateOperator(made.local()).process(batch)
    assert piece.row_count == 3


def test_an_empty_batch_gives_nothing(tmp_path: Path) -> None:
    pipeline = Pipeline(plan(), tmp_path)
    pipeline.send(0, [])
    pipeline.advance(0, MAX_WATERMARK_MS)
    assert pipeline.results == []


def test_keys_are_compared_and_not_only_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocked, "hash_columns", lambda columns: np.zeros(len(columns[0]), dtype=np.uint64))
    rows = [(name, at(5), 1) for name in ("a", "b", "a")]
    assert sorted(run(plan(), rows, tmp_path)) == [("a", 2, at(10)), ("b", 1, at(10))]
