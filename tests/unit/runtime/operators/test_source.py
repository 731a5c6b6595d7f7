"""The source operator over a reader whose polls are written by hand."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from connectors import registry
from connectors.api import SplitBatch
from planner.ir import operators as ir
from planner.ir import types as t
from planner.ir.expressions import Call, Expression, InputRef, Literal
from runtime.checkpoint.snapshot import OperatorRestore
from runtime.elements import Batch, Watermark, WatermarkStatus
from runtime.errors import TaskError
from runtime.operators.source import SourceOperator
from tests.support.operators import HandConnector, HandReader, Surroundings, split

TIME = t.timestamp(3).with_time_attribute(t.TimeAttribute.ROWTIME)
TABLE = ir.Schema((ir.Column("id", t.INT), ir.Column("ts", t.timestamp(3))))
OUTPUT = ir.Schema((ir.Column("id", t.INT), ir.Column("ts", TIME)))
FIVE_MS: Expression = Call("MINUS_INTERVAL", (InputRef(1, TIME), Literal(5, t.INTERVAL_DAY_TIME)), t.timestamp(3))
INSTANT: Expression = InputRef(1, TIME)


class Bench:
    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        watermark: ir.WatermarkSpec | None = None,
        projections: tuple[Expression, ...] = (InputRef(0, t.INT), InputRef(1, t.timestamp(3))),
        restore: OperatorRestore | None = None,
        changelog: t.ChangelogMode = t.ChangelogMode.INSERT_ONLY,
    ) -> None:
        connector = HandConnector()
        monkeypatch.setattr(registry, "connector", lambda name: connector)
        self.reader: HandReader = connector.made
        self.surroundings = Surroundings(restore=restore)
        table = ir.TableRef("db.t", "hand", {}, TABLE)
        node = ir.Source("source", "source", table, TABLE, (), projections, OUTPUT, watermark, changelog=changelog)
        self.source = SourceOperator(node, self.surroundings.context, self.surroundings.environment)
        self.source.open()

    def assign(self, *names: str, all_assigned: bool = False) -> None:
        self.source.add_splits(tuple(split(name) for name in names), all_assigned)

    def rows(self, name: str, *times: int | None, done: bool = False) -> SplitBatch:
        columns: list[Any] = [pa.array(range(len(times)), pa.int32()), pa.array(times, pa.timestamp("ms"))]
        return SplitBatch(name, pa.RecordBatch.from_arrays(columns, ["c0", "c1"]), done)

    def poll(self, *reads: SplitBatch) -> list[object]:
        """What one poll gives: row counts, watermarks in ms, `idle`/`active`."""
        if reads:
            self.reader.give(*reads)
        return [_told(element) for element in self.source.poll(0)]


def _told(element: Batch | Watermark | WatermarkStatus) -> object:
    match element:
        case Batch():
            return f"{element.row_count} rows"
        case Watermark(timestamp_ms=timestamp_ms):
            return timestamp_ms
        case WatermarkStatus(idle=idle):
            return "idle" if idle else "active"


def test_rows_of_all_splits_of_a_poll_are_one_batch_and_one_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, ir.WatermarkSpec(1, FIVE_MS))
    bench.assign("a", "b")
    assert bench.poll(bench.rows("a", 100, 300, 200), bench.rows("b", 150)) == ["4 rows", 145]
    assert bench.poll(bench.rows("b", 1000)) == ["1 rows"]
    bench.surroundings.clock.ms += 200
    assert bench.poll() == [295]


def test_on_event_cuts_behind_each_row_that_moves_the_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ir.WatermarkSpec(1, INSTANT, ir.WatermarkStrategy.ON_EVENT)
    bench = Bench(monkeypatch, spec)
    bench.assign("a")
    assert bench.poll(bench.rows("a", 10, 5, 20, 20, 30, 7)) == ["1 rows", 10, "2 rows", 20, "2 rows", 30, "1 rows"]
    bench.assign("b")
    assert bench.poll(bench.rows("a", 40)) == ["1 rows"]
    assert bench.poll(bench.rows("b", 35, 50), bench.rows("a", 60)) == ["1 rows", 35, "1 rows", 40, "1 rows", 50]


def test_interval_zero_is_on_event(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, ir.WatermarkSpec(1, INSTANT, interval_ms=0))
    bench.assign("a")
    assert bench.poll(bench.rows("a", 1, 2)) == ["1 rows", 1, "1 rows", 2]


def test_idle_only_after_the_first_assignment(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, ir.WatermarkSpec(1, INSTANT))
    assert bench.poll() == []
    bench.assign()
    assert not bench.source.readable
    assert bench.poll() == ["idle"]
    assert bench.poll() == []
    bench.assign("a")
    assert bench.poll(bench.rows("a", 9)) == ["active", "1 rows", 9]


def test_backpressure_does_not_make_a_split_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, ir.WatermarkSpec(1, INSTANT, idle_timeout_ms=1000))
    bench.assign("a", "b")
    bench.poll(bench.rows("a", 50))
    bench.surroundings.clock.ms += 5000
    bench.surroundings.backpressured_ms += 4500
    assert bench.poll(bench.rows("a", 60)) == ["1 rows"]
    bench.surroundings.clock.ms += 500
    assert bench.poll(bench.rows("a", 70)) == ["1 rows", 70]


def test_the_end_of_all_splits_is_the_end_once_all_are_assigned(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, ir.WatermarkSpec(1, INSTANT))
    bench.assign("a", "b")
    assert bench.poll(bench.rows("a", 500, done=True), bench.rows("b", 20)) == ["2 rows", 20]
    assert bench.poll(bench.rows("b", 400, done=True)) == ["1 rows", 400, "idle"]
    assert not bench.source.ended
    bench.assign(all_assigned=True)
    assert bench.source.ended


def test_stop_ends_it_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.assign("a")
    assert bench.poll(bench.rows("a", 1, 2, 3)) == ["3 rows"]
    bench.source.stop()
    assert bench.source.ended
    [state] = bench.source.snapshot(1)().splits
    assert (state.position, state.done) == (b"3", False)


def test_computed_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    double = Call("TIMES", (InputRef(0, t.INT), Literal(2, t.INT)), t.INT)
    bench = Bench(monkeypatch, projections=(double, InputRef(1, t.timestamp(3))))
    bench.assign("a")
    bench.reader.give(bench.rows("a", 7, 8))
    [batch] = bench.source.poll(0)
    assert isinstance(batch, Batch)
    assert batch.data.column(0).to_pylist() == [0, 2]


def test_state_is_positions_with_running_maxima(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, ir.WatermarkSpec(1, INSTANT))
    bench.assign("a", "b")
    bench.poll(bench.rows("a", 30, 20))
    snapshot = bench.source.snapshot(4)()
    assert [(s.split.id, s.position, s.watermark_ms) for s in snapshot.splits] == [("a", b"2", 30), ("b", None, None)]
    bench.source.checkpoint_committed(3)
    assert bench.reader.committed == []
    bench.source.checkpoint_committed(4)
    assert [checkpoint_id for checkpoint_id, _ in bench.reader.committed] == [4]
    again = Bench(monkeypatch, ir.WatermarkSpec(1, INSTANT), restore=OperatorRestore("source", snapshot.splits))
    again.assign("a", "b", all_assigned=True)
    assert again.poll(again.rows("b", 100)) == ["1 rows", 30]


def test_a_null_time_names_column_split_and_position(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, ir.WatermarkSpec(1, INSTANT))
    bench.assign("a", "b")
    with pytest.raises(TaskError) as caught:
        bench.poll(bench.rows("a", 1), bench.rows("b", 2, None, 3))
    assert caught.value.domain == "user"
    assert not caught.value.retry
    assert "'ts' is NULL (split b, 2 row(s) before position 3)" in caught.value.message


def test_null_watermarks_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = Call("IF", (Call("GT", (InputRef(0, t.INT), Literal(0, t.INT)), t.BOOLEAN), INSTANT,
                          Literal(None, t.timestamp(3))), t.timestamp(3))  # fmt: skip
    bench = Bench(monkeypatch, ir.WatermarkSpec(1, nothing))
    bench.assign("a")
    assert bench.poll(bench.rows("a", 900)) == ["1 rows"]
    assert bench.poll(bench.rows("a", 900, 17)) == ["2 rows", 17]


def _changes(read: SplitBatch, *kinds: int) -> SplitBatch:
    row_kinds: Any = pa.array(kinds, pa.int8())
    return SplitBatch(read.split_id, read.batch, read.done, row_kinds)


def _kinds(elements: list[Any]) -> list[Any]:
    return [
        None if element.row_kinds is None else element.row_kinds.to_pylist()
        for element in elements
        if isinstance(element, Batch)
    ]


@pytest.mark.parametrize("watermark", [None, ir.WatermarkSpec(1, FIVE_MS)])
def test_row_kinds_stay_with_their_rows(monkeypatch: pytest.MonkeyPatch, watermark: ir.WatermarkSpec | None) -> None:
    bench = Bench(monkeypatch, watermark, changelog=t.ChangelogMode.RETRACT)
    bench.assign("a", "b", "c")
    first = _changes(bench.rows("a", 100, 100, 200), 0, 1, 2)
    bench.reader.give(first, bench.rows("b"), bench.rows("c", 5), _changes(bench.rows("b", 7), 3))
    assert _kinds(list(bench.source.poll(0))) == [[0, 1, 2, 0, 3]]
    bench.reader.give(_changes(bench.rows("a", 300), 3))
    assert _kinds(list(bench.source.poll(0))) == [[3]]
    bench.reader.give(bench.rows("a", 300), bench.rows("b", 301))
    assert _kinds(list(bench.source.poll(0))) == [None]


def test_a_cut_batch_keeps_its_row_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ir.WatermarkSpec(1, INSTANT, ir.WatermarkStrategy.ON_EVENT)
    bench = Bench(monkeypatch, spec, changelog=t.ChangelogMode.RETRACT)
    bench.assign("a")
    bench.reader.give(_changes(bench.rows("a", 10, 5, 20, 20, 7), 0, 1, 2, 3, 0))
    assert _kinds(list(bench.source.poll(0))) == [[0], [1, 2], [3, 0]]


def test_only_a_deletion_by_key_may_lack_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, ir.WatermarkSpec(1, FIVE_MS), changelog=t.ChangelogMode.UPSERT)
    bench.assign("a")
    bench.reader.give(_changes(bench.rows("a", None, 100), 3, 2))
    assert _kinds(list(bench.source.poll(0))) == [[3, 2]]
    assert bench.source.snapshot(1)().splits[0].watermark_ms == 95
    bench.reader.give(_changes(bench.rows("a", None), 3))
    assert _kinds(list(bench.source.poll(0))) == [[3]]
    bench.reader.give(_changes(bench.rows("a", 200, None), 2, 2))
    with pytest.raises(TaskError, match="the time column 'ts' is NULL"):
        list(bench.source.poll(0))
    bench = Bench(monkeypatch, ir.WatermarkSpec(1, FIVE_MS), changelog=t.ChangelogMode.RETRACT)
    bench.assign("a")
    bench.reader.give(_changes(bench.rows("a", None), 3))
    with pytest.raises(TaskError, match="the time column 'ts' is NULL"):
        list(bench.source.poll(0))
