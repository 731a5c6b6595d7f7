"""Unbounded aggregates: situations from the field, mini-batches, time to live, lost state."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from planner.ir import types as t
from planner.ir.operators import (
    AggregateCall,
    AggregateFunction,
    Column,
    Emission,
    GroupAggregate,
    MiniBatch,
    Schema,
)
from planner.ir.types import ChangelogMode, DataType
from runtime.elements import Batch
from runtime.operators.group_aggregate import GroupAggregateOperator
from tests.support.aggregates import KINDS, Folded, Row, WallClock, operator_context, rows_of

F = AggregateFunction
COUNT_TYPE = t.BIGINT.with_nullable(False)
COUNT = AggregateCall(F.COUNT_STAR, None, None, COUNT_TYPE)
EVERY_AND_NET = pytest.mark.parametrize("emission", list(Emission))


def call(function: AggregateFunction, argument: int, kind: DataType, **options: Any) -> AggregateCall:
    return AggregateCall(function, argument, kind, COUNT_TYPE if function is F.COUNT else kind, **options)


class Bench:
    """An operator over columns of the given types; rows are ("+I", values…)."""

    def __init__(
        self,
        folder: Path,
        types: tuple[DataType, ...],
        keys: tuple[int, ...],
        calls: tuple[AggregateCall, ...],
        *,
        mode: ChangelogMode = ChangelogMode.RETRACT,
        **options: Any,
    ) -> None:
        self._types, self._mode = types, mode
        self.clock = WallClock()
        key_types = tuple(types[i] for i in keys)
        columns = [Column(f"c{i}", kind) for i, kind in enumerate((*key_types, *(c.type for c in calls)))]
        node = GroupAggregate("agg", "agg", keys, key_types, calls, mode, Schema(tuple(columns)), **options)
        self.operator = GroupAggregateOperator(node, operator_context(str(folder), wall_clock_ms=self.clock))
        self.operator.open()

    def batch(self, *rows: Row) -> Batch:
        columns = [pa.array([row[i + 1] for row in rows], t.to_arrow(kind)) for i, kind in enumerate(self._types)]
        data = pa.RecordBatch.from_arrays(columns, [f"c{i}" for i in range(len(columns))])
        if self._mode is ChangelogMode.INSERT_ONLY:
            return Batch(data)
        return Batch(data, pa.array([KINDS.index(row[0]) for row in rows], pa.int8()))

    def put(self, *rows: Row) -> list[tuple[str, Row]]:
        return rows_of(list(self.operator.process(self.batch(*rows))))


def table(changes: list[tuple[str, Row]], width: int) -> set[Row]:
    folded = Folded(width)
    folded.apply(changes)
    return set(folded.rows)


@EVERY_AND_NET
def test_an_update_moves_a_row_between_groups_and_an_empty_group_goes(tmp_path: Path, emission: Emission) -> None:
    bench = Bench(tmp_path, (t.INT, t.STRING), (1,), (COUNT,), emission=emission)
    output = bench.put(("+I", 1, "east"), ("+I", 2, "east"), ("+I", 3, "west"))
    output += bench.put(("-U", 2, "east"), ("+U", 2, "west"), ("-D", 1, "east"))
    assert table(output, 1) == {("west", 2)}
    assert output[-1][0] == "-D" or emission is Emission.NET
    assert bench.operator.counters()["numGroups"] == 1


@EVERY_AND_NET
def test_an_extreme_that_is_deleted_gives_way_to_the_next(tmp_path: Path, emission: Emission) -> None:
    calls = (call(F.MAX, 1, t.INT), call(F.MIN, 1, t.INT), COUNT)
    bench = Bench(tmp_path, (t.STRING, t.INT), (0,), calls, emission=emission)
    output = bench.put(("+I", "x", 5), ("+I", "x", 50), ("+I", "x", 50), ("+I", "y", 9))
    output += bench.put(("-D", "x", 50))
    assert table(output, 1) == {("x", 50, 5, 2), ("y", 9, 9, 1)}
    output += bench.put(("-U", "x", 50), ("+U", "x", 2), ("-D", "y", 9))
    assert table(output, 1) == {("x", 5, 2, 2)}


@EVERY_AND_NET
def test_a_filtered_sum_is_null_again_without_its_last_row(tmp_path: Path, emission: Emission) -> None:
    calls = (COUNT, call(F.SUM, 1, t.INT, filter=2))
    bench = Bench(tmp_path, (t.INT, t.INT, t.BOOLEAN), (0,), calls, emission=emission)
    output = bench.put(("+I", 1, 3, False), ("+I", 1, 80, True), ("+I", 2, -2, None))
    output += bench.put(("-D", 1, 80, True))
    assert table(output, 1) == {(1, 1, None), (2, 1, None)}


@EVERY_AND_NET
def test_nan_and_infinity_that_were_taken_back_do_not_poison_a_sum(tmp_path: Path, emission: Emission) -> None:
    calls = tuple(call(f, 1, t.DOUBLE) for f in (F.SUM, F.AVG, F.VAR_POP))
    bench = Bench(tmp_path, (t.STRING, t.DOUBLE), (0,), calls, emission=emission)
    output = bench.put(("+I", "n", math.nan), ("+I", "n", 4.0), ("+I", "i", math.inf), ("+I", "i", 0.5))
    output += bench.put(("+I", "i", -math.inf), ("+I", "b", 1e200), ("+I", "b", 1.0))
    output += bench.put(("-D", "n", math.nan), ("-D", "i", math.inf), ("-D", "i", -math.inf))
    output += bench.put(("-D", "b", 1e200))
    shown = table(output, 1)
    assert {row[:3] for row in shown} == {("n", 4.0, 4.0), ("i", 0.5, 0.5), ("b", 1.0, 1.0)}


@EVERY_AND_NET
def test_distinct_counts_leave_each_other_alone(tmp_path: Path, emission: Emission) -> None:
    distinct = tuple(call(F.COUNT, i, t.INT, distinct=True) for i in (0, 1, 2))
    calls = (call(F.COUNT, 1, t.INT), *distinct, call(F.MAX, 1, t.INT), COUNT)
    mode = ChangelogMode.INSERT_ONLY
    bench = Bench(tmp_path, (t.INT, t.INT, t.INT), (), calls, mode=mode, emission=emission)
    output = bench.put(("+I", 1, 4, 6), ("+I", 2, 5, 7), ("+I", 3, 4, 8), ("+I", 4, 4, None))
    assert table(output, 0) == {(4, 4, 2, 3, 5, 4)}


@EVERY_AND_NET
@pytest.mark.parametrize("mode", [ChangelogMode.INSERT_ONLY, ChangelogMode.RETRACT])
def test_nan_is_one_distinct_value(tmp_path: Path, emission: Emission, mode: ChangelogMode) -> None:
    calls = (call(F.COUNT, 0, t.DOUBLE, distinct=True), COUNT)
    bench = Bench(tmp_path, (t.DOUBLE,), (), calls, mode=mode, emission=emission)
    output = bench.put(("+I", math.nan), ("+I", -math.nan), ("+I", 2.0))
    output += bench.put(("+I", math.nan), ("+I", 2.0), ("+I", 0.0), ("+I", -0.0))
    assert table(output, 0) == {(3, 7)}


@EVERY_AND_NET
@pytest.mark.parametrize("function", [F.MIN, F.MAX])
def test_a_zero_of_either_sign_takes_the_extreme_away(tmp_path: Path, emission: Emission, function: F) -> None:
    bench = Bench(tmp_path, (t.DOUBLE,), (), (call(function, 0, t.DOUBLE), COUNT), emission=emission)
    output = bench.put(("+I", 0.0), ("+I", None))
    output += bench.put(("+I", -0.0))
    output += bench.put(("-D", 0.0), ("-D", -0.0))
    assert table(output, 0) == {(None, 1)}


@pytest.mark.parametrize("drain", [True, False])
def test_the_row_over_nothing(tmp_path: Path, drain: bool) -> None:
    calls = (COUNT, call(F.SUM, 0, t.INT), call(F.SUM0, 0, t.INT))
    bench = Bench(tmp_path, (t.INT,), (), calls, emits_row_over_nothing=True)
    wanted = [("+I", (0, None, 0))] if drain else []
    assert rows_of(list(bench.operator.end(drain))) == wanted


def test_no_row_over_nothing_where_one_is_shown(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (t.INT,), (), (COUNT,), emits_row_over_nothing=True)
    bench.put(("+I", 1))
    assert list(bench.operator.end(True)) == []


def test_select_distinct_of_inserts_is_insert_only(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (t.INT, t.STRING), (0, 1), (), mode=ChangelogMode.INSERT_ONLY)
    (first,) = bench.operator.process(bench.batch(("+I", 2, "b"), ("+I", 1, None), ("+I", 2, "b")))
    assert first.row_kinds is None
    assert rows_of([first]) == [("+I", (2, "b")), ("+I", (1, None))]
    assert bench.put(("+I", 1, None), ("+I", 1, "c")) == [("+I", (1, "c"))]


def test_without_update_before(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (t.INT,), (0,), (COUNT,), emits_update_before=False)
    assert bench.put(("+I", 1), ("+I", 1), ("-D", 1), ("-D", 1)) == [
        ("+I", (1, 1)),
        ("+U", (1, 2)),
        ("+U", (1, 1)),
        ("-D", (1, 1)),
    ]


def test_net_emission_is_silent_where_nothing_changed(tmp_path: Path) -> None:
    calls = (call(F.SUM, 1, t.INT),)
    bench = Bench(tmp_path, (t.INT, t.INT), (0,), calls, emission=Emission.NET)
    assert bench.put(("+I", 1, 5), ("-D", 1, 5)) == []
    assert bench.put(("+I", 1, 5), ("+I", 2, 5)) == [("+I", (1, 5)), ("+I", (2, 5))]
    assert bench.put(("-U", 1, 5), ("+U", 1, 5), ("+I", 2, 1)) == [("-U", (2, 5)), ("+U", (2, 6))]


@EVERY_AND_NET
def test_a_retraction_without_state_is_ignored_and_counted(tmp_path: Path, emission: Emission) -> None:
    calls = (COUNT, call(F.SUM, 1, t.INT), call(F.MAX, 1, t.INT), call(F.FIRST_VALUE, 1, t.INT))
    bench = Bench(tmp_path, (t.INT, t.INT), (0,), calls, emission=emission)
    output = bench.put(("-D", 1, 5), ("-U", 2, 7), ("+U", 2, 8))
    assert output == [("+I", (2, 1, 8, 8, 8))]
    assert bench.operator.counters()["numRetractionsWithoutState"] == 2
    assert bench.operator.counters()["numGroups"] == 1


@EVERY_AND_NET
def test_a_value_that_is_not_there_is_clamped_and_leaves_nothing_behind(tmp_path: Path, emission: Emission) -> None:
    calls = (COUNT, call(F.COUNT, 1, t.INT, distinct=True), call(F.MAX, 1, t.INT), call(F.LAST_VALUE, 1, t.INT))
    bench = Bench(tmp_path, (t.INT, t.INT), (0,), calls, emission=emission)
    output = bench.put(("+I", 1, 5), ("+I", 1, 6))
    output += bench.put(("-D", 1, 99))
    assert table(output, 1) == {(1, 1, 2, 6, 6)}
    assert bench.operator.counters()["numCountsClamped"] == 2
    output += bench.put(("-D", 1, 6))
    assert table(output, 1) == set()
    # The value 5 was never taken back; the group's end took it along.
    output += bench.put(("+I", 1, 3))
    assert table(output, 1) == {(1, 1, 1, 3, 3)}


def test_a_mini_batch_holds_until_it_is_full_or_its_time_has_come(tmp_path: Path) -> None:
    options: Any = {"emission": Emission.NET, "mini_batch": MiniBatch(3, 500)}
    bench = Bench(tmp_path, (t.INT,), (0,), (COUNT,), **options)
    assert bench.operator.timer_ms() is None
    assert bench.put(("+I", 1), ("+I", 1)) == []
    due_ms = bench.clock.ms + 500
    assert bench.operator.timer_ms() == due_ms
    assert bench.put(("+I", 2)) == [("+I", (1, 2)), ("+I", (2, 1))]
    assert bench.operator.timer_ms() is None
    assert bench.put(("+I", 1)) == []
    assert list(bench.operator.on_timer(due_ms - 1)) == []
    assert rows_of(list(bench.operator.on_timer(due_ms + 1))) == [("-U", (1, 2)), ("+U", (1, 3))]
    for put_out in (
        bench.operator.flush,
        lambda: bench.operator.advance(5),
        lambda: bench.operator.end(True),
    ):
        assert bench.put(("-D", 2)) == [] if put_out == bench.operator.flush else bench.put(("+I", 2)) == []
        assert len(rows_of(list(put_out()))) in (1, 2)


def test_time_to_live(tmp_path: Path) -> None:
    bench = Bench(tmp_path, (t.INT, t.INT), (0,), (COUNT, call(F.MAX, 1, t.INT)), state_ttl_ms=1_000)
    assert bench.put(("+I", 1, 5)) == [("+I", (1, 1, 5))]
    bench.clock.ms += 900
    assert bench.put(("+I", 1, 4)) == [("-U", (1, 1, 5)), ("+U", (1, 2, 5))]
    bench.clock.ms += 1_100
    assert bench.put(("+I", 1, 3)) == [("+I", (1, 1, 3))]
    assert bench.put(("-D", 7, 3)) == []


def test_with_a_time_to_live_an_unchanged_result_is_put_out_again(tmp_path: Path) -> None:
    for ttl_ms, wanted in ((0, []), (1_000, [("-U", (1, 5)), ("+U", (1, 5))])):
        bench = Bench(tmp_path, (t.INT, t.INT), (0,), (call(F.MAX, 1, t.INT),), state_ttl_ms=ttl_ms)
        bench.put(("+I", 1, 5))
        assert bench.put(("+I", 1, 4)) == wanted


def test_lists_and_firsts_take_back_the_oldest_equal_value(tmp_path: Path) -> None:
    calls = tuple(call(f, 0, t.STRING) for f in (F.LISTAGG, F.FIRST_VALUE, F.LAST_VALUE))
    bench = Bench(tmp_path, (t.STRING,), (), calls)
    bench.put(("+I", "a"), ("+I", "b"), ("+I", "a"), ("+I", "c"))
    assert bench.put(("-U", "a"))[-1] == ("+U", ("b,a,c", "b", "c"))
    assert bench.put(("+U", "z"), ("-U", "b"), ("+U", None))[-1] == ("+U", ("a,c,z", "a", "z"))


def test_growing_lists_are_not_all_in_memory_together(tmp_path: Path) -> None:
    """200 rows of 10 kB in one group are 400 MB of lists, if every change shows its own."""
    calls = (call(F.LISTAGG, 0, t.STRING), COUNT)
    mode = ChangelogMode.INSERT_ONLY
    bench = Bench(tmp_path, (t.STRING,), (), calls, mode=mode, emits_update_before=True)
    before, most, rows = pa.total_allocated_bytes(), 0, 0
    for change in bench.operator.process(bench.batch(*(("+I", f"{i:10000}") for i in range(200)))):
        most = max(most, pa.total_allocated_bytes() - before)
        rows += change.row_count
        last = change.data.column(0)[-1].as_py()
    assert rows == 399
    assert last == ",".join(f"{i:10000}" for i in range(200))
    assert most < 120_000_000
