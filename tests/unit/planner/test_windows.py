"""Window table functions: arguments, processing time, and how window columns are followed through a query."""

from __future__ import annotations

import pytest

from planner.errors import SqlState
from planner.ir import operators as ir
from planner.ir.types import TypeRoot
from tests.unit.planner.catalog import Script, error_of

TABLES = """
CREATE TABLE t (k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'kafka');
CREATE TABLE z (k STRING, v INT, at TIMESTAMP_LTZ(3), pt AS PROCTIME(), WATERMARK FOR at AS at)
  WITH ('connector' = 'kafka');
"""
BY_WINDOW = "GROUP BY window_start, window_end"
_KEYS = "window_start, window_end, window_time, k"
COUNTED = f"SELECT {_KEYS}, COUNT(*) AS c FROM {{}} GROUP BY {_KEYS}"
TUMBLE = "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
HOP = "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)"
PROCESSING = "TUMBLE(TABLE z, DESCRIPTOR(pt), INTERVAL '1' MINUTE)"
COUNTS = COUNTED.format(TUMBLE)


def operators_of(query: str) -> list[ir.Operator]:
    script = Script()
    script.run(TABLES)
    return [operator for vertex in script.job(query).job_graph.vertices for operator in vertex.operators]


def windows_of(query: str) -> list[ir.Window]:
    """The windows of the aggregates, from the source on."""
    return [o.window for o in operators_of(query) if isinstance(o, ir.GlobalWindowAggregate)]


def window_of(call: str) -> ir.Window:
    (window,) = windows_of(f"SELECT window_start, window_end, COUNT(*) FROM {call} {BY_WINDOW}")
    return window


def test_hop_takes_slide_then_size() -> None:
    for call in (
        "TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND, INTERVAL '-1' SECOND))",
        "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND, INTERVAL '-1' SECOND)",
        (
            "HOP(SIZE => INTERVAL '10' SECOND, DATA => TABLE t, SLIDE => INTERVAL '5' SECOND, "
            "TIMECOL => DESCRIPTOR(ts), `OFFSET` => INTERVAL '-1' SECOND)"
        ),
        "HOP((SELECT k, ts FROM t), DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND, INTERVAL '-1' SECOND)",
    ):
        window = window_of(call)
        assert isinstance(window, ir.HopWindow)
        assert (window.size_ms, window.slide_ms, window.offset_ms) == (10_000, 5_000, -1_000)


def test_cumulate_takes_step_then_size() -> None:
    window = window_of("CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' HOUR)")
    assert isinstance(window, ir.CumulateWindow)
    assert (window.size_ms, window.step_ms, window.offset_ms) == (3_600_000, 60_000, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '4' SECOND, INTERVAL '10' SECOND)", "size 10 s and slide 4 s"),
        ("HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '0' SECOND, INTERVAL '10' SECOND)", "must be positive"),
        ("HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '-5' SECOND, INTERVAL '10' SECOND)", "but got -5 s"),
        ("CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '2' MINUTE, INTERVAL '5' MINUTE)", "size 5 min and step 2 min"),
        ("CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '0' MINUTE)", "must be positive"),
    ],
)
def test_sizes_are_checked_at_planning(call: str, message: str) -> None:
    error = error_of(f"{TABLES} SELECT * FROM {call}")
    assert error.sqlstate == SqlState.WINDOWING_ERROR
    assert message in error.message
    assert error.line > 0


def test_windows_over_processing_time_read_no_column() -> None:
    for call in (
        PROCESSING,
        "HOP(TABLE z, DESCRIPTOR(pt), INTERVAL '5' SECOND, INTERVAL '10' SECOND)",
        "CUMULATE((SELECT *, PROCTIME() AS p2 FROM t), DESCRIPTOR(p2), INTERVAL '5' SECOND, INTERVAL '10' SECOND)",
    ):
        window = window_of(call)
        assert not isinstance(window, ir.AttachedWindow)
        assert window.time_index is None
        assert window.time_type.is_proctime
        assert window.time_type.root is TypeRoot.TIMESTAMP_LTZ


def test_processing_time_needs_an_aggregation_that_takes_the_window_in() -> None:
    for query in (
        f"SELECT k FROM {PROCESSING}",
        f"SELECT window_start, COUNT(*) FROM {PROCESSING} GROUP BY window_start",
        f"SELECT COUNT(*) FROM {PROCESSING} WHERE window_end > TIMESTAMP '2024-01-01 00:00:00' {BY_WINDOW}",
        f"SELECT MAX(window_start) FROM {PROCESSING} {BY_WINDOW}",
        f"SELECT COUNT(*) FROM (SELECT * FROM {PROCESSING} UNION ALL SELECT * FROM {PROCESSING}) {BY_WINDOW}",
    ):
        assert error_of(f"{TABLES} {query}").sqlstate == SqlState.FEATURE_NOT_SUPPORTED, query


def test_processing_time_windows_may_follow_one_another() -> None:
    small = COUNTED.format(PROCESSING)
    windows = windows_of(
        f"WITH s AS (SELECT window_time AS wt FROM ({small})) "
        f"SELECT COUNT(*) FROM TUMBLE(TABLE s, DESCRIPTOR(wt), INTERVAL '1' HOUR) {BY_WINDOW}"
    )
    assert [(type(w).__name__, w.size_ms) for w in windows if not isinstance(w, ir.AttachedWindow)] == [
        ("TumbleWindow", 60_000),
        ("TumbleWindow", 3_600_000),
    ]


def test_window_columns_of_processing_time_do_not_live_on() -> None:
    """The rows of the lower windows carry no watermark by which windows of their columns could fire: as in Flink it is
    an ordinary GROUP BY."""
    operators = operators_of(f"SELECT SUM(c) FROM ({COUNTED.format(PROCESSING)}) {BY_WINDOW}")
    assert [type(o).__name__ for o in operators if "Aggregate" in type(o).__name__] == [
        "GlobalWindowAggregate",
        "GroupAggregate",
    ]


def attached(query: str) -> ir.Window:
    """The window under the last, attached, aggregate."""
    window = windows_of(query)[-1]
    assert isinstance(window, ir.AttachedWindow)
    return window.window


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT SUM(c) FROM ({COUNTS}) {BY_WINDOW}",
        (f"SELECT SUM(c) FROM ({COUNTS}) WHERE c > 1 AND window_start > TIMESTAMP '2024-01-01 00:00:00' {BY_WINDOW}"),
        (
            f"SELECT b, SUM(c) FROM (SELECT window_end AS b, window_start AS a, c * 2 AS c FROM ({COUNTS})) "
            "GROUP BY a, b"
        ),
        f"WITH w AS (SELECT * FROM {TUMBLE} UNION ALL SELECT * FROM {TUMBLE}) SELECT COUNT(*) FROM w {BY_WINDOW}",
        (
            f"SELECT SUM(n) FROM (SELECT window_start, window_end, k, SUM(c) AS n FROM ({COUNTS}) "
            f"GROUP BY window_start, window_end, k) {BY_WINDOW}"
        ),
        f"SELECT DISTINCT window_start, window_end FROM ({COUNTS})",
    ],
)
def test_window_columns_pass_filters_renames_and_aggregates(query: str) -> None:
    window = attached(query)
    assert isinstance(window, ir.TumbleWindow)
    assert window.size_ms == 60_000


def test_a_view_passes_window_columns_on() -> None:
    view = f"CREATE VIEW counted AS {COUNTED.format(HOP)};"
    script = Script()
    script.run(TABLES + view)
    graph = script.job(f"SELECT SUM(c) FROM counted {BY_WINDOW}").job_graph
    last = [o for v in graph.vertices for o in v.operators if isinstance(o, ir.GlobalWindowAggregate)][-1]
    assert isinstance(last.window, ir.AttachedWindow)
    assert isinstance(last.window.window, ir.HopWindow)


@pytest.mark.parametrize(
    "source",
    [
        f"(SELECT window_start, window_end + INTERVAL '1' SECOND AS window_end FROM {TUMBLE})",
        f"(SELECT CAST(window_start AS TIMESTAMP(0)) AS window_start, window_end FROM {TUMBLE})",
        f"(SELECT window_start, COUNT(*) AS c, MAX(window_end) AS window_end FROM {TUMBLE} GROUP BY window_start)",
        f"(SELECT window_start, window_end FROM {TUMBLE} UNION ALL SELECT window_start, window_end FROM {HOP})",
        f"(SELECT window_start, window_end FROM {TUMBLE} UNION ALL SELECT ts, ts FROM t)",
        f"(SELECT window_end AS window_start, window_end FROM {TUMBLE})",
    ],
)
def test_window_columns_are_lost_by_functions_and_mixtures(source: str) -> None:
    operators = operators_of(f"SELECT COUNT(*) FROM {source} {BY_WINDOW}")
    assert any(isinstance(o, ir.GroupAggregate) for o in operators)
    assert windows_of(f"SELECT COUNT(*) FROM {source} {BY_WINDOW}") == []


def test_window_columns_inside_an_aggregate_keep_hop_below_it() -> None:
    """What reads the windows of a row needs the rows by window: they are given out before."""
    for query in (
        f"SELECT MAX(window_end) FROM {HOP} {BY_WINDOW}",
        f"SELECT COUNT(*) FILTER (WHERE window_start > TIMESTAMP '2024-01-01 00:00:00') FROM {HOP} {BY_WINDOW}",
        f"SELECT COUNT(*) FROM {HOP} WHERE window_start > TIMESTAMP '2024-01-01 00:00:00' {BY_WINDOW}",
    ):
        assert any(isinstance(o, ir.AssignWindows) for o in operators_of(query)), query
        assert isinstance(attached(query), ir.HopWindow)


def test_window_time_is_the_time_attribute_of_what_follows() -> None:
    windows = windows_of(
        f"WITH s AS (SELECT window_time AS wt, c FROM ({COUNTED.format(HOP)})) "
        f"SELECT window_start, SUM(c) FROM TUMBLE(TABLE s, DESCRIPTOR(wt), INTERVAL '1' HOUR) {BY_WINDOW}"
    )
    assert [type(w).__name__ for w in windows] == ["HopWindow", "TumbleWindow"]


def test_grouping_sets_stand_below_the_windows() -> None:
    operators = operators_of(f"SELECT window_end, k, SUM(v) FROM {HOP} {BY_WINDOW}, CUBE (k)")
    kinds = [type(o).__name__ for o in operators]
    assert kinds.index("Expand") < kinds.index("GlobalWindowAggregate")
    (aggregate,) = [o for o in operators if isinstance(o, ir.GlobalWindowAggregate)]
    assert len(aggregate.keys) == 2


def test_session_is_refused_by_name() -> None:
    error = error_of(f"{TABLES} SELECT * FROM SESSION(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)")
    assert error.sqlstate == SqlState.FEATURE_NOT_SUPPORTED
    assert "SESSION" in error.message
