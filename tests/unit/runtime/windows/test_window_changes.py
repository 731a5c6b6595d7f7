"""Windows over rows that are taken back: what single situations must give."""

from __future__ import annotations

import datetime as dt
import math
from pathlib import Path
from typing import Any

import pytest

from planner.ir import types as t
from planner.ir.operators import (
    AggregateCall,
    AggregateFunction,
    ChangelogMode,
    CumulateWindow,
    HopWindow,
    TumbleWindow,
    Window,
)
from runtime.elements import MAX_WATERMARK_MS
from tests.support.window_harness import ROWTIME, Pipeline, WindowPlan

F = AggregateFunction
COUNT = AggregateCall(F.COUNT_STAR, None, None, t.BIGINT.with_nullable(False))
TUMBLE = TumbleWindow(1, ROWTIME, 10)
ADD, TAKE = 2, 1
BOTH = pytest.mark.parametrize("two_phases", [True, False])


def call(function: AggregateFunction, kind: t.DataType, *, distinct: bool = False) -> AggregateCall:
    return AggregateCall(function, 2, kind, kind, distinct=distinct)


def plan(kind: t.DataType, *calls: AggregateCall, window: Window = TUMBLE, two_phases: bool = True) -> WindowPlan:
    """Rows are (key STRING, time, value)."""
    row_types = (t.STRING, ROWTIME, kind)
    changelog = ChangelogMode.RETRACT
    return WindowPlan(row_types, (0,), calls, window, (), two_phases, changelog)


def row(key: str, ms: int, value: Any = None) -> tuple[Any, ...]:
    return key, dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=ms), value


def values(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    return [tuple(result.values()) for result in pipeline.results]


@BOTH
@pytest.mark.parametrize("window", [TUMBLE, HopWindow(1, ROWTIME, 20, 10), CumulateWindow(1, ROWTIME, 20, 10)])
def test_a_key_whose_rows_were_all_taken_back_has_no_result(two_phases: bool, window: Window, tmp_path: Path) -> None:
    total = call(F.SUM, t.INT)
    pipeline = Pipeline(plan(t.INT, COUNT, total, window=window, two_phases=two_phases), tmp_path, 2, 2)
    pipeline.send(0, [row("a", 1, 5), row("b", 2, 6)], [ADD, ADD])
    pipeline.send(0, [row("a", 1, 5)], [3])
    pipeline.advance(0, MAX_WATERMARK_MS)
    pipeline.advance(1, MAX_WATERMARK_MS)
    assert set(values(pipeline)) == {("b", 1, 6)}


@BOTH
def test_every_late_change_counts(two_phases: bool, tmp_path: Path) -> None:
    pipeline = Pipeline(plan(t.INT, COUNT, two_phases=two_phases), tmp_path)
    pipeline.send(0, [row("a", 1)], [ADD])
    pipeline.advance(0, 9)
    pipeline.send(0, [row("a", 1), row("a", 2), row("a", 12)], [TAKE, ADD, ADD])
    assert pipeline.late_rows == 2
    pipeline.advance(0, 19)
    assert values(pipeline) == [("a", 1), ("a", 1)]


def test_changes_that_cancel_before_the_exchange_are_late_by_number(tmp_path: Path) -> None:
    """The first producer was idle: the others' time went on without it."""
    pipeline = Pipeline(plan(t.INT, COUNT), tmp_path, 2)
    for operator in pipeline.globals:
        list(operator.advance(50))
    pipeline.send(0, [row("a", 1), row("a", 1), row("a", 3)], [ADD, TAKE, ADD])
    assert pipeline.late_rows == 3


@BOTH
def test_a_sum_is_itself_again_without_what_was_taken_back(two_phases: bool, tmp_path: Path) -> None:
    calls = tuple(call(function, t.DOUBLE) for function in (F.SUM, F.AVG, F.VAR_POP))
    pipeline = Pipeline(plan(t.DOUBLE, *calls, two_phases=two_phases), tmp_path)
    specials = [math.nan, math.inf, -math.inf, 1e300]
    for value in (1.0, *specials, 3.0):
        pipeline.send(0, [row("a", 1, value)], [ADD])
    pipeline.send(0, [row("b", 1, math.inf), row("c", 1, math.nan), row("c", 1, 2.0)], [ADD, ADD, ADD])
    pipeline.send(0, [row("a", 1, value) for value in specials], [TAKE] * len(specials))
    pipeline.advance(0, 9)
    found = {key: results for key, *results in values(pipeline)}
    assert found["a"][:2] == [4.0, 2.0]
    assert found["b"][0] == math.inf
    assert math.isnan(found["c"][0])


@BOTH
def test_integers_wrap_both_ways(two_phases: bool, tmp_path: Path) -> None:
    pipeline = Pipeline(plan(t.INT, call(F.SUM, t.INT), two_phases=two_phases), tmp_path)
    lowest = -(2**31)
    pipeline.send(0, [row("a", 1, lowest), row("a", 1, 7), row("a", 2, None)], [ADD, ADD, ADD])
    pipeline.send(0, [row("a", 1, lowest), row("b", 1, None)], [TAKE, ADD])
    pipeline.advance(0, 9)
    assert sorted(values(pipeline)) == [("a", 7), ("b", None)]


def test_the_oldest_equal_row_is_taken_back_however_blocks_were_merged(tmp_path: Path) -> None:
    calls = (call(F.FIRST_VALUE, t.STRING), call(F.LAST_VALUE, t.STRING), call(F.LISTAGG, t.STRING))
    pipeline = Pipeline(plan(t.STRING, *calls, two_phases=False), tmp_path)
    pipeline.send(0, [row("a", 1, "x"), row("a", 1, "y"), row("a", 1, "gone")], [ADD] * 3)
    for _ in range(100):
        pipeline.send(0, [row("a", 1, "x")], [TAKE])
        pipeline.send(0, [row("a", 1, "x")], [ADD])
    pipeline.send(0, [row("a", 1, "gone")], [3])
    pipeline.advance(0, 9)
    assert values(pipeline) == [("a", "y", "x", "y,x")]


def test_a_distinct_value_is_listed_where_it_last_appeared(tmp_path: Path) -> None:
    calls = (call(F.LISTAGG, t.STRING, distinct=True), call(F.MIN, t.STRING), call(F.MAX, t.STRING))
    pipeline = Pipeline(plan(t.STRING, *calls, two_phases=False), tmp_path)
    pipeline.send(0, [row("a", 1, v) for v in ("x", "y", "x", "z")], [ADD] * 4)
    pipeline.send(0, [row("a", 1, v) for v in ("x", "y", "z", "y")], [TAKE, TAKE, 3, ADD])
    pipeline.advance(0, 9)
    assert values(pipeline) == [("a", "x,y", "x", "y")]


@BOTH
def test_counts_and_values_are_state(two_phases: bool, tmp_path: Path) -> None:
    calls = (COUNT,) if two_phases else (COUNT, call(F.MAX, t.INT))
    pipeline = Pipeline(plan(t.INT, *calls, two_phases=two_phases), tmp_path, 1, 2)
    pipeline.send(0, [row("a", 1, 5), row("a", 2, 9), row("b", 3, 1)], [ADD] * 3)
    pipeline.restart(1, 3, pipeline.snapshot(1))
    pipeline.send(0, [row("a", 2, 9), row("b", 3, 1)], [TAKE, 3])
    pipeline.advance(0, 9)
    assert values(pipeline) == [("a", 1) if two_phases else ("a", 1, 5)]
