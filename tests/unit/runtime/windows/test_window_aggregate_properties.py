"""Window aggregates against a row-by-row reference: any keys, order, batches, parallelism, restores on the way."""

from __future__ import annotations

import datetime as dt
import math
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.ir import types as t
from planner.ir.operators import (
    AggregateCall,
    AggregateFunction,
    AlignedWindow,
    AttachedWindow,
    CumulateWindow,
    HopWindow,
    TumbleWindow,
    Window,
)
from planner.ir.types import DataType
from runtime.elements import MAX_WATERMARK_MS, MIN_WATERMARK_MS
from tests.support.window_harness import ROWTIME, Pipeline, WindowPlan

SIZE_MS = 12
SLIDE_MS = 4
EPOCH = dt.datetime(1970, 1, 1)
ROW_TYPES = (t.BIGINT, t.STRING, ROWTIME, t.INT, t.DOUBLE, t.decimal(10, 2), t.BOOLEAN, t.STRING, t.timestamp(3))
INT, DOUBLE, DECIMAL, FLAG, TEXT, END = 3, 4, 5, 6, 7, 8


def call(
    function: AggregateFunction,
    argument: int | None,
    kind: DataType,
    filter_index: int | None = None,
    *,
    distinct: bool = False,
    separator: str = ",",
) -> AggregateCall:
    argument_type = None if argument is None else ROW_TYPES[argument]
    return AggregateCall(function, argument, argument_type, kind, filter_index, distinct, separator)


F = AggregateFunction
ONE_PHASE_CALLS = (
    call(F.COUNT, INT, t.BIGINT.with_nullable(False), distinct=True),
    call(F.SUM, INT, t.INT, FLAG, distinct=True),
    call(F.AVG, DECIMAL, t.decimal(38, 6), distinct=True),
    call(F.COUNT, DOUBLE, t.BIGINT.with_nullable(False), distinct=True),
    call(F.FIRST_VALUE, INT, t.INT),
    call(F.LAST_VALUE, TEXT, t.STRING, FLAG),
    call(F.LISTAGG, TEXT, t.STRING, separator="|"),
    call(F.LISTAGG, TEXT, t.STRING, distinct=True),
    call(F.LISTAGG, TEXT, t.STRING, FLAG),
)
CALLS = (
    call(F.COUNT_STAR, None, t.BIGINT.with_nullable(False)),
    call(F.COUNT_STAR, None, t.BIGINT.with_nullable(False), FLAG),
    call(F.COUNT, INT, t.BIGINT.with_nullable(False)),
    call(F.SUM, INT, t.INT),
    call(F.SUM, INT, t.INT, FLAG),
    call(F.AVG, INT, t.INT),
    call(F.MIN, DOUBLE, t.DOUBLE),
    call(F.MAX, DOUBLE, t.DOUBLE),
    call(F.SUM, DECIMAL, t.decimal(38, 2)),
    call(F.AVG, DECIMAL, t.decimal(38, 6)),
    call(F.MIN, DECIMAL, t.decimal(10, 2)),
    call(F.MIN, TEXT, t.STRING),
    call(F.MAX, TEXT, t.STRING, FLAG),
)


def wrapped(value: int, bits: int = 32) -> int:
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def float_order(value: float) -> tuple[bool, float]:
    return math.isnan(value), value


def reference_value(aggregate: AggregateCall, rows: list[tuple[Any, ...]]) -> Any:
    """One aggregate over the rows of one group, by plain Python."""
    if aggregate.filter is not None:
        rows = [row for row in rows if row[aggregate.filter] is True]
    if aggregate.argument is None:
        return len(rows)
    values = [row[aggregate.argument] for row in rows if row[aggregate.argument] is not None]
    if aggregate.distinct:
        first = {repr(value): i for i, value in reversed(list(enumerate(values)))}
        values = [values[i] for i in sorted(first.values())]
    if aggregate.function is F.COUNT:
        return len(values)
    if not values:
        return None
    order: Callable[[Any], Any] = float_order if aggregate.argument == DOUBLE else lambda value: value
    match aggregate.function:
        case F.FIRST_VALUE:
            return values[0]
        case F.LAST_VALUE:
            return values[-1]
        case F.LISTAGG:
            return aggregate.separator.join(values)
        case F.SUM:
            return wrapped(sum(values)) if aggregate.argument == INT else sum(values)
        case F.AVG if aggregate.argument == INT:
            total, count = sum(values), len(values)
            return abs(total) // count * (1 if total >= 0 else -1)
        case F.AVG:
            return (sum(values, Decimal(0)) / len(values)).quantize(Decimal("0.000001"), "ROUND_HALF_UP")
        case F.MIN:
            return min(values, key=order)
        case _:
            return max(values, key=order)


def windows_of(window: Window, millisecond: int, row: tuple[Any, ...]) -> list[tuple[int, int]]:
    """Start and end of each window a row belongs to."""
    match window:
        case AttachedWindow(window=aligned):
            end = (row[END] - EPOCH) // dt.timedelta(milliseconds=1)
            return [next(w for w in windows_of(aligned, end - 1, row) if w[1] == end)]
        case TumbleWindow():
            start = millisecond - (millisecond - window.offset_ms) % window.size_ms
            return [(start, start + window.size_ms)]
        case HopWindow():
            last = millisecond - (millisecond - window.offset_ms) % window.slide_ms
            starts = range(last, millisecond - window.size_ms, -window.slide_ms)
            return [(start, start + window.size_ms) for start in reversed(starts)]
        case CumulateWindow():
            start = millisecond - (millisecond - window.offset_ms) % window.size_ms
            ends = range(start + window.step_ms, start + window.size_ms + 1, window.step_ms)
            return [(start, end) for end in ends if end > millisecond]


class Reference:
    """Row by row: late when its last window has fired by the highest watermark all producers had reached; else in every
    window that has not."""

    def __init__(self, plan: WindowPlan, producers: int) -> None:
        self.plan = plan
        self.late_rows = 0
        self.results: list[dict[str, Any]] = []
        self._clock = MIN_WATERMARK_MS
        self._groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
        self.restart(producers)

    def restart(self, producers: int) -> None:
        self._watermarks = [MIN_WATERMARK_MS] * producers

    def send(self, rows: list[tuple[Any, ...]]) -> None:
        for row in rows:
            millisecond = (row[2] - EPOCH) // dt.timedelta(milliseconds=1)
            open_windows = [w for w in windows_of(self.plan.window, millisecond, row) if w[1] - 1 > self._clock]
            self.late_rows += not open_windows
            for start, end in open_windows:
                self._groups.setdefault((end, start, *(row[i] for i in self.plan.keys)), []).append(row)

    def advance(self, producer: int, watermark_ms: int) -> None:
        self._watermarks[producer] = max(self._watermarks[producer], watermark_ms)
        self._clock = max(self._clock, min(self._watermarks))
        for group in sorted((g for g in self._groups if g[0] - 1 <= self._clock), key=lambda g: g[0]):
            end, start, *keys = group
            rows = self._groups.pop(group)
            values = [reference_value(aggregate, rows) for aggregate in self.plan.aggregates]
            bounds = [EPOCH + dt.timedelta(milliseconds=ms) for ms in (start, end)]
            columns = [*keys, *values, *bounds]
            self.results.append({f"c{i}": value for i, value in enumerate(columns)})


def comparable(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as sorted text: NaN equals NaN."""
    return sorted(repr(list(row.values())) for row in rows)


def row_strategy() -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(
        st.none() | st.integers(-2, 2),
        st.none() | st.sampled_from(["", "a", "bb", "a longer key than one word"]),
        st.integers(-15, 60).map(lambda ms: EPOCH + dt.timedelta(milliseconds=ms)),
        st.none() | st.integers(-(2**31), 2**31 - 1),
        st.none() | st.sampled_from([1.5, -2.0, math.nan, math.inf, 0.25]),
        st.none() | st.decimals(-99_999_999, 99_999_999, places=2),
        st.none() | st.booleans(),
        st.none() | st.sampled_from(["x", "y", "é", ""]),
        st.integers(-1, 5).map(lambda i: EPOCH + dt.timedelta(milliseconds=i * SLIDE_MS + 1)),
    )


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), st.integers(0, 2), st.lists(row_strategy(), min_size=1, max_size=12)),
        st.tuples(st.just("watermark"), st.integers(0, 2), st.integers(-15, 60)),
        st.tuples(st.just("restart"), st.integers(1, 3), st.integers(1, 5)),
    ),
    max_size=25,
)


def aligned_window(kind: str, time_index: int | None, offset_ms: int) -> AlignedWindow:
    match kind:
        case "tumble":
            return TumbleWindow(time_index, ROWTIME, SIZE_MS, offset_ms)
        case "hop":
            return HopWindow(time_index, ROWTIME, SIZE_MS, SLIDE_MS, offset_ms)
        case "hop of its size":
            return HopWindow(time_index, ROWTIME, SIZE_MS, SIZE_MS, offset_ms)
        case _:
            return CumulateWindow(time_index, ROWTIME, SIZE_MS, SLIDE_MS, offset_ms)


@st.composite
def windows(draw: st.DrawFn) -> Window:
    if draw(st.integers(0, 4)):
        kind = draw(st.sampled_from(["tumble", "hop", "hop of its size", "cumulate"]))
        return aligned_window(kind, 2, draw(st.sampled_from([0, 3, -5])))
    return AttachedWindow(END, aligned_window(draw(st.sampled_from(["hop", "cumulate"])), None, 1))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=STEPS,
    keys=st.sampled_from([(0,), (0, 1), (1,), (4,), ()]),
    two_phases=st.booleans(),
    window=windows(),
    start=st.tuples(st.integers(1, 3), st.integers(1, 5)),
)
def test_equals_the_reference(
    steps: list[tuple[str, int, Any]],
    keys: tuple[int, ...],
    two_phases: bool,
    window: Window,
    start: tuple[int, int],
) -> None:
    calls = CALLS if two_phases else (*CALLS[:3], *ONE_PHASE_CALLS, *CALLS[3:])
    plan = WindowPlan(ROW_TYPES, keys, calls, window, two_phases=two_phases)
    with tempfile.TemporaryDirectory() as directory:
        producers = start[0]
        pipeline = Pipeline(plan, Path(directory), producers, start[1])
        reference = Reference(plan, producers)
        for number, (kind, which, what) in enumerate(steps):
            if kind == "rows":
                pipeline.send(which % producers, what)
                reference.send(what)
            elif kind == "watermark":
                pipeline.advance(which % producers, what)
                reference.advance(which % producers, what)
            else:
                producers = which
                pipeline.restart(producers, what, pipeline.snapshot(number))
                reference.restart(producers)
        for producer in range(producers):
            pipeline.advance(producer, MAX_WATERMARK_MS)
            reference.advance(producer, MAX_WATERMARK_MS)
        assert comparable(pipeline.results) == comparable(reference.results)
        assert pipeline.late_rows == reference.late_rows
