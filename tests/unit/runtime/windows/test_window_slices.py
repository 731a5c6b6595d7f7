"""HOP, CUMULATE and attached windows, processing time, daylight saving: what single situations must give."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import msgspec
import pytest

from planner.ir import types as t
from planner.ir.operators import (
    AggregateCall,
    AggregateFunction,
    AttachedWindow,
    CumulateWindow,
    HopWindow,
    TumbleWindow,
    Window,
    WindowProperty,
)
from runtime.checkpoint.snapshot import OperatorRestore
from runtime.elements import MAX_WATERMARK_MS
from runtime.operators.protocol import OUTPUT_ROWS_MAX, TimedOperator
from runtime.operators.window_aggregate_global import GlobalWindowAggregateOperator
from runtime.operators.window_aggregate_local import LocalWindowAggregateOperator
from tests.support.window_harness import (
    MAX_PARALLELISM,
    ROWTIME,
    ROWTIME_LTZ,
    Pipeline,
    WindowPlan,
    operator_context,
)

F = AggregateFunction
COUNT = AggregateCall(F.COUNT_STAR, None, None, t.BIGINT.with_nullable(False))
PROCTIME = t.timestamp_ltz(3).with_time_attribute(t.TimeAttribute.PROCTIME)
BOUNDS = (WindowProperty.START, WindowProperty.END)
HOUR_MS = 3_600_000
HOP = HopWindow(1, ROWTIME, 20, 10)
CUMULATE = CumulateWindow(1, ROWTIME, 30, 10)


def at(ms: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=ms)


def plan(window: Window, *calls: AggregateCall, two_phases: bool = True, properties: Any = BOUNDS) -> WindowPlan:
    """Rows are (key STRING, time, value STRING, window_end)."""
    time = window.time_type if not isinstance(window, AttachedWindow) else ROWTIME
    return WindowPlan(
        (t.STRING, time, t.STRING, t.timestamp(3)), (0,), calls or (COUNT,), window, properties, two_phases
    )


def row(key: str, ms: int, value: str = "x", end: int = 0) -> tuple[Any, ...]:
    return key, at(ms), value, at(end)


def found(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    """Results since the last look; bounds in ms."""
    rows = [tuple(result.values()) for result in pipeline.results]
    pipeline.results = []
    epoch = dt.datetime(1970, 1, 1)
    return [
        tuple((v - epoch) // dt.timedelta(milliseconds=1) if isinstance(v, dt.datetime) else v for v in r) for r in rows
    ]


@pytest.mark.parametrize("two_phases", [True, False])
def test_a_row_counts_in_every_hop_that_holds_it(tmp_path: Path, two_phases: bool) -> None:
    pipeline = Pipeline(plan(HOP, two_phases=two_phases), tmp_path)
    pipeline.send(0, [row("a", 5), row("a", 12), row("b", -1)])
    pipeline.advance(0, 9)
    assert sorted(found(pipeline)) == [("a", 1, -10, 10), ("b", 1, -20, 0), ("b", 1, -10, 10)]
    pipeline.advance(0, MAX_WATERMARK_MS)
    assert found(pipeline) == [("a", 2, 0, 20), ("a", 1, 10, 30)]
    assert pipeline.globals[0].counters()["stateBytes"] == 0


def test_slices_go_when_no_later_window_needs_them(tmp_path: Path) -> None:
    pipeline = Pipeline(plan(HOP), tmp_path)
    for ms in range(0, 1000, 10):
        pipeline.send(0, [row("a", ms)])
        pipeline.advance(0, ms)
        assert len(pipeline.globals[0]._partials.ends()) <= 3
    pipeline.advance(0, 5000)
    assert pipeline.globals[0]._partials.ends() == []
    assert len(found(pipeline)) == 101


def test_cumulate_fires_at_every_step_from_the_first_with_rows(tmp_path: Path) -> None:
    pipeline = Pipeline(plan(CUMULATE), tmp_path)
    pipeline.send(0, [row("a", 12), row("b", 45)])
    pipeline.advance(0, 100)
    assert found(pipeline) == [("a", 1, 0, 20), ("a", 1, 0, 30), ("b", 1, 30, 50), ("b", 1, 30, 60)]


@pytest.mark.parametrize("two_phases", [True, False])
def test_a_late_row_counts_in_the_steps_that_are_not_published(tmp_path: Path, two_phases: bool) -> None:
    pipeline = Pipeline(plan(CUMULATE, two_phases=two_phases), tmp_path)
    pipeline.send(0, [row("a", 5)])
    pipeline.advance(0, 15)
    assert found(pipeline) == [("a", 1, 0, 10)]
    pipeline.send(0, [row("a", 6), row("b", 7)])
    pipeline.advance(0, 19)
    assert sorted(found(pipeline)) == [("a", 2, 0, 20), ("b", 1, 0, 20)]
    pipeline.send(0, [row("c", 8)])
    pipeline.advance(0, 29)
    assert sorted(found(pipeline)) == [("a", 2, 0, 30), ("b", 1, 0, 30), ("c", 1, 0, 30)]
    pipeline.send(0, [row("a", 29), row("a", 1)])
    assert pipeline.late_rows == 2


def test_attached_windows_are_told_by_their_end_alone(tmp_path: Path) -> None:
    pipeline = Pipeline(plan(AttachedWindow(3, msgspec.structs.replace(CUMULATE, time_index=None))), tmp_path)
    pipeline.send(0, [row("a", 0, end=20), row("a", 0, end=10), row("a", 0, end=20), row("a", 0, end=60)])
    pipeline.advance(0, 19)
    assert found(pipeline) == [("a", 1, 0, 10), ("a", 2, 0, 20)]
    pipeline.send(0, [row("a", 0, end=20), row("a", 0, end=30)])
    assert pipeline.late_rows == 1
    pipeline.advance(0, 100)
    assert found(pipeline) == [("a", 1, 0, 30), ("a", 1, 30, 60)]


def test_a_window_fires_for_the_key_groups_that_have_not_seen_it(tmp_path: Path) -> None:
    """Key groups of two subtasks with different clocks meet in one."""
    made = plan(HOP)
    pipeline = Pipeline(made, tmp_path)
    names = [f"k{i}" for i in range(40)]
    pipeline.send(0, [row(name, 5) for name in names])
    (snapshot,) = pipeline.snapshot(1)
    clocks = {group: 9 if group % 2 else 3 for group in range(MAX_PARALLELISM)}
    pipeline.restart(1, 1, [msgspec.structs.replace(snapshot, clocks=clocks)])
    pipeline.advance(0, 4)
    assert found(pipeline) == []
    pipeline.advance(0, 9)
    first = found(pipeline)
    assert {r[2:] for r in first} == {(-10, 10)}
    assert 0 < len(first) < 40
    pipeline.advance(0, MAX_WATERMARK_MS)
    assert sorted(found(pipeline)) == sorted((name, 1, 0, 20) for name in names)


def test_a_snapshot_within_a_firing_of_shared_slices_repeats_nothing(tmp_path: Path) -> None:
    keys = OUTPUT_ROWS_MAX + 5
    made = plan(HOP, COUNT, AggregateCall(F.COUNT, 2, t.STRING, t.BIGINT, distinct=True), two_phases=False)
    operator = GlobalWindowAggregateOperator(made.global_(), operator_context(tmp_path))
    operator.open()
    assert list(operator.process(made.rows([row(f"k{i}", 5) for i in range(keys)]))) == []
    firing = operator.advance(MAX_WATERMARK_MS)
    emitted = next(firing).data.to_pylist()
    snapshot = operator.snapshot(1)()
    restore = OperatorRestore("global", segments=snapshot.segments, clocks=snapshot.clocks)
    again = GlobalWindowAggregateOperator(made.global_(), operator_context(tmp_path, generation=2, restore=restore))
    again.open()
    rest = [r for piece in again.advance(MAX_WATERMARK_MS) for r in piece.data.to_pylist()]
    rows = [tuple(r.values()) for r in emitted + rest]
    assert len(rows) == len(set(rows)) == 2 * keys
    assert {r[1:3] for r in rows} == {(1, 1)}


def test_processing_time_fires_by_the_clock_and_not_at_the_end_of_input(tmp_path: Path) -> None:
    window = HopWindow(None, PROCTIME, 20, 10)
    pipeline = Pipeline(plan(window, two_phases=False), tmp_path)
    operator = pipeline.globals[0]
    assert isinstance(operator, TimedOperator)
    assert operator.timer_ms() is None
    pipeline.now_ms = 105
    pipeline.send(0, [row("a", 0), row("a", 99)])
    assert operator.timer_ms() == 110
    pipeline.advance(0, MAX_WATERMARK_MS)
    pipeline.pass_time(109)
    assert found(pipeline) == []
    pipeline.pass_time(110)
    assert found(pipeline) == [("a", 2, 90, 110)]
    assert operator.timer_ms() == 120
    pipeline.now_ms = 50  # The clock was set back: what has fired stays as it is.
    pipeline.send(0, [row("b", 0)])
    assert list(operator.end(drain=True)) == []
    pipeline.restart(1, 2, pipeline.snapshot(1))
    pipeline.pass_time(1000)
    assert sorted(found(pipeline)) == [("a", 2, 100, 120), ("b", 1, 100, 120), ("b", 1, 110, 130)]
    assert pipeline.late_rows == 0
    assert [operator.timer_ms() for operator in pipeline.globals] == [None, None]


def test_cascading_windows_of_processing_time_lose_no_row(tmp_path: Path) -> None:
    inner = TumbleWindow(None, PROCTIME, 10)
    pipeline = Pipeline(plan(AttachedWindow(3, inner), two_phases=False), tmp_path)
    pipeline.now_ms = 25
    pipeline.send(0, [row("a", 0, end=20)])
    pipeline.pass_time(25)
    assert found(pipeline) == [("a", 1, 10, 20)]


def los_angeles(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (
            HopWindow(1, ROWTIME_LTZ, 2 * HOUR_MS, HOUR_MS, time_zone="America/Los_Angeles"),
            [
                ("03-14 00:00", "03-14 02:00", 2),
                ("03-14 01:00", "03-14 03:00", 2),
                ("03-14 02:00", "03-14 04:00", 2),
                ("03-14 03:00", "03-14 05:00", 4),
                ("03-14 04:00", "03-14 06:00", 4),
                ("03-14 05:00", "03-14 07:00", 2),
                ("11-06 23:00", "11-07 01:00", 2),
                ("11-07 00:00", "11-07 02:00", 6),
                ("11-07 01:00", "11-07 03:00", 6),
                ("11-07 02:00", "11-07 04:00", 2),
            ],
        ),
        (
            CumulateWindow(1, ROWTIME_LTZ, 3 * HOUR_MS, HOUR_MS, time_zone="America/Los_Angeles"),
            [
                ("03-14 00:00", "03-14 02:00", 2),
                ("03-14 00:00", "03-14 03:00", 2),
                ("03-14 03:00", "03-14 04:00", 2),
                ("03-14 03:00", "03-14 05:00", 4),
                ("03-14 03:00", "03-14 06:00", 6),
                ("11-07 00:00", "11-07 01:00", 2),
                ("11-07 00:00", "11-07 02:00", 6),
                ("11-07 00:00", "11-07 03:00", 8),
            ],
        ),
    ],
    ids=["hop", "cumulate"],
)
def test_slices_are_those_of_local_time(tmp_path: Path, window: Window, expected: list[tuple[Any, ...]]) -> None:
    """As recorded from Apache Flink 2.2.1: rows every half hour around both changes of the clock in 2021."""
    pipeline = Pipeline(plan(window), tmp_path)
    for first in ("2021-03-14 09:15", "2021-11-07 07:15"):
        half_hours = [los_angeles(first) + i * dt.timedelta(minutes=30) for i in range(8)]
        pipeline.send(0, [("a", time, "x", at(0)) for time in half_hours])
        last = round((half_hours[-1] - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)).total_seconds() * 1000)
        pipeline.advance(0, last - 30 * 60_000)
    pipeline.advance(0, MAX_WATERMARK_MS)
    rows = [(f"{r['c2']:%m-%d %H:%M}", f"{r['c3']:%m-%d %H:%M}", r["c1"]) for r in pipeline.results]
    assert rows == expected


def test_the_window_time_of_an_hour_that_is_left_out_is_moved_on(tmp_path: Path) -> None:
    window = HopWindow(1, ROWTIME_LTZ, 2 * HOUR_MS, HOUR_MS, time_zone="America/Los_Angeles")
    pipeline = Pipeline(plan(window, properties=(WindowProperty.TIME,)), tmp_path)
    pipeline.send(0, [("a", los_angeles("2021-03-14 09:15"), "x", at(0))])
    pipeline.advance(0, MAX_WATERMARK_MS)
    assert [r["c2"] for r in pipeline.results] == [
        los_angeles("2021-03-14 09:59:59.999"),
        los_angeles("2021-03-14 10:59:59.999"),
    ]


def test_values_keep_their_order_over_slices_and_restores(tmp_path: Path) -> None:
    calls = (
        AggregateCall(F.LISTAGG, 2, t.STRING, t.STRING),
        AggregateCall(F.FIRST_VALUE, 2, t.STRING, t.STRING),
        AggregateCall(F.LAST_VALUE, 2, t.STRING, t.STRING),
        AggregateCall(F.LISTAGG, 2, t.STRING, t.STRING, distinct=True, separator=""),
        AggregateCall(F.COUNT, 2, t.STRING, t.BIGINT, distinct=True),
    )
    pipeline = Pipeline(plan(HOP, *calls, two_phases=False), tmp_path)
    pipeline.send(0, [row("a", 12, "p"), row("a", 3, "q"), row("a", 14, "q")])
    pipeline.restart(1, 3, pipeline.snapshot(1))
    pipeline.send(0, [row("a", 3, "r"), row("a", 15, "p"), row("a", 16, None)])  # type: ignore[arg-type]
    pipeline.advance(0, MAX_WATERMARK_MS)
    assert found(pipeline) == [
        ("a", "q,r", "q", "r", "qr", 2, -10, 10),
        ("a", "p,q,q,r,p", "p", "p", "pqr", 3, 0, 20),
        ("a", "p,q,p", "p", "p", "pq", 2, 10, 30),
    ]


def test_a_group_without_values_has_the_results_over_nothing(tmp_path: Path) -> None:
    calls = (
        AggregateCall(F.LISTAGG, 2, t.STRING, t.STRING),
        AggregateCall(F.LAST_VALUE, 2, t.STRING, t.STRING),
        AggregateCall(F.COUNT, 2, t.STRING, t.BIGINT, distinct=True),
    )
    window = TumbleWindow(1, ROWTIME, 10)
    pipeline = Pipeline(plan(window, *calls, two_phases=False), tmp_path)
    pipeline.send(0, [row("a", 1, None), row("b", 1, "x")])  # type: ignore[arg-type]
    pipeline.advance(0, 9)
    assert sorted(found(pipeline)) == [("a", None, None, 0, 0, 10), ("b", "x", "x", 1, 0, 10)]


def test_values_of_any_type_are_kept(tmp_path: Path) -> None:
    kind = t.row(("x", t.INT), ("y", t.array(t.STRING)))
    calls = (
        AggregateCall(F.LAST_VALUE, 2, kind, kind),
        AggregateCall(F.COUNT, 2, kind, t.BIGINT, distinct=True),
    )
    made = WindowPlan((t.STRING, ROWTIME, kind), (), calls, TumbleWindow(1, ROWTIME, 10), (), two_phases=False)
    pipeline = Pipeline(made, tmp_path)
    one, two = {"x": 1, "y": ["a", None]}, {"x": 2, "y": None}
    pipeline.send(0, [("a", at(1), one), ("b", at(2), two), ("b", at(3), one)])
    pipeline.advance(0, 9)
    assert [tuple(r.values()) for r in pipeline.results] == [(one, 2)]


def test_slices_larger_than_memory_give_the_same(tmp_path: Path) -> None:
    calls = (COUNT, AggregateCall(F.COUNT, 2, t.STRING, t.BIGINT, distinct=True))
    made = plan(HOP, *calls, two_phases=False)
    on_disk = Pipeline(made, tmp_path / "a", settings={"state.backend.type": "rocksdb"}, managed_bytes=200_000)
    in_memory = Pipeline(made, tmp_path / "b")
    for ms in range(0, 60, 6):
        rows = [row(f"key {i % 3000}", ms, f"value {i % 7}") for i in range(ms, 3000 + 4 * ms)]
        for pipeline in (on_disk, in_memory):
            pipeline.send(0, rows)
            pipeline.advance(0, ms - 8)
        if ms == 30:
            on_disk.restart(1, 2, on_disk.snapshot(1))
    for pipeline in (on_disk, in_memory):
        pipeline.advance(0, MAX_WATERMARK_MS)
    assert sorted(found(on_disk)) == sorted(found(in_memory))
    for operator in on_disk.globals:
        operator.close()


def test_the_local_phase_keeps_a_slice_together_until_its_last_window_has_fired() -> None:
    made = plan(CUMULATE)
    local = LocalWindowAggregateOperator(made.local())
    batch = made.rows([row("a", 5), row("a", 6)])
    for watermark_ms, counts in ((9, [2]), (28, [2]), (29, [1, 1])):
        assert list(local.advance(watermark_ms)) == []
        assert [r["c2"] for piece in local.process(batch) for r in piece.data.to_pylist()] == counts
