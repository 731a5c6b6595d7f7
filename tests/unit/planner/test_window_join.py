"""Window joins: what makes one, and where window columns live on above."""

from __future__ import annotations

import pytest

from planner import api
from planner.errors import SqlError
from planner.ir import operators as ir
from planner.ir.job_graph import JobGraph
from planner.ir.operators import JoinKind
from planner.logical.inserts import build_select
from planner.logical.nodes import (
    GroupAggregate,
    Join,
    Plan,
    WindowAggregate,
    WindowJoin,
    WindowRank,
    inputs_of,
)
from planner.sql import statements as st
from planner.streaming.derive import derive
from tests.unit.planner.catalog import Script

TABLES = """
CREATE TABLE a (k INT, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'kafka', 'topic' = 'a');
CREATE TABLE b (k INT, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'kafka', 'topic' = 'b');
CREATE TABLE z (k INT, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'kafka', 'topic' = 'z');
"""
SAME = "l.window_start = r.window_start AND l.window_end = r.window_end"
TUMBLE = "TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '5' SECOND)"
LEFT, RIGHT = TUMBLE.format("a"), TUMBLE.format("b")


def session() -> Script:
    script = Script()
    script.run(TABLES)
    return script


def bound(sql: str) -> Plan:
    (statement,) = api.parse(sql)
    assert isinstance(statement, st.Select)
    return build_select(statement, session().catalog)


def nodes(plan: Plan) -> list[Plan]:
    return [plan, *(below for i in inputs_of(plan) for below in nodes(i))]


def kinds(sql: str, *of: type) -> list[str]:
    return [type(n).__name__ for n in nodes(bound(sql)) if isinstance(n, of)]


def window_joins(sql: str) -> list[WindowJoin]:
    return [n for n in nodes(bound(sql)) if isinstance(n, WindowJoin)]


def graph_of(sql: str, parallelism: int = 2) -> JobGraph:
    script = session()
    script.settings["parallelism.default"] = str(parallelism)
    return script.job(sql).job_graph


# -- what is one --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["INNER", "LEFT", "RIGHT", "FULL"])
def test_window_columns_are_no_keys(kind: str) -> None:
    (join,) = window_joins(f"SELECT l.v, r.v FROM {LEFT} l {kind} JOIN {RIGHT} r ON l.k = r.k AND {SAME} AND l.v < r.v")
    assert join.kind is JoinKind(kind.lower())
    assert [join.left.columns[i].name for i in join.left_keys] == ["k"]
    assert [join.right.columns[i].name for i in join.right_keys] == ["k"]
    assert join.left.columns[join.left_end].name == join.right.columns[join.right_end].name == "window_end"
    assert join.condition is not None


def test_rows_meet_by_keys_and_window() -> None:
    graph = graph_of(f"SELECT l.v, r.v FROM {LEFT} l JOIN {RIGHT} r ON l.k = r.k AND {SAME}")
    (operator,) = [o for v in graph.vertices for o in v.operators if isinstance(o, ir.WindowJoin)]
    for edge in (e for e in graph.edges if e.keys):
        side = (operator.left, operator.right)[edge.input_index]
        assert [side.columns[k].name for k in edge.keys] == ["k", "window_end"]
    assert operator.window.size_ms == 5_000


def test_rows_without_keys_meet_by_window() -> None:
    graph = graph_of(f"SELECT l.v, r.v FROM {LEFT} l JOIN {RIGHT} r ON {SAME}")
    assert [len(e.keys) for e in graph.edges if e.input_index == 1 or e.keys] == [1, 1]


@pytest.mark.parametrize(
    ("left", "right", "condition"),
    [
        (LEFT, RIGHT, "l.k = r.k AND l.window_end = r.window_end"),
        (LEFT, RIGHT, "l.k = r.k AND l.window_start = r.window_start"),
        (LEFT, RIGHT, "l.k = r.k AND l.window_start = r.window_end AND l.window_end = r.window_start"),
        (LEFT, "TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '6' SECOND)", f"l.k = r.k AND {SAME}"),
        (LEFT, TUMBLE.format("z"), f"l.k = r.k AND {SAME}"),
        (LEFT, "HOP(TABLE b, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '5' SECOND)", f"l.k = r.k AND {SAME}"),
        (LEFT, "b", "l.k = r.k AND l.window_start = r.ts AND l.window_end = r.ts"),
        (LEFT, f"(SELECT k, window_start + INTERVAL '0' SECOND AS window_start, window_end FROM {RIGHT})", SAME),
    ],
)
def test_regular_joins(left: str, right: str, condition: str) -> None:
    sql = f"SELECT l.k FROM {left} l JOIN {right} r ON {condition}"
    assert kinds(sql, Join, WindowJoin) == ["Join"]


def test_semi_and_anti() -> None:
    inner = f"SELECT r.k FROM {RIGHT} r WHERE {SAME}"
    (join,) = window_joins(f"SELECT l.k, l.window_start FROM {LEFT} l WHERE l.k IN ({inner})")
    assert join.kind is JoinKind.SEMI
    (join,) = window_joins(f"SELECT l.k, l.window_start FROM {LEFT} l WHERE NOT EXISTS ({inner} AND l.k = r.k)")
    assert join.kind is JoinKind.ANTI
    assert len(join.columns) == len(join.left.columns)


def test_windows_of_aggregates() -> None:
    counts = (
        "(SELECT k, window_start AS s, window_end AS e, COUNT(*) AS n FROM {} GROUP BY k, window_start, window_end)"
    )
    sql = (
        f"SELECT l.n, r.n FROM {counts.format(LEFT)} l JOIN {counts.format(RIGHT)} r "
        "ON l.k = r.k AND l.s = r.s AND l.e = r.e"
    )
    (join,) = window_joins(sql)
    assert frozenset({0, 1}) in derive(join).upsert_keys
    assert frozenset({0, 2}) in derive(join).upsert_keys


def test_processing_time_is_refused_also_in_a_regular_join() -> None:
    script = session()
    script.run("CREATE TABLE p (k INT, at AS PROCTIME()) WITH ('connector' = 'kafka', 'topic' = 'p')")
    windows = "TUMBLE(TABLE p, DESCRIPTOR(at), INTERVAL '5' SECOND)"
    with pytest.raises(SqlError, match="TUMBLE windows of processing time"):
        script.run(f"SELECT l.k FROM {windows} l JOIN a ON l.k = a.k")


# -- windows above ------------------------------------------------------------------------------------


def aggregated(kind: str, side: str) -> str:
    join = f"SELECT {side}.window_start, {side}.window_end FROM {LEFT} l {kind} JOIN {RIGHT} r ON l.k = r.k AND {SAME}"
    return f"SELECT window_start, COUNT(*) FROM ({join}) GROUP BY window_start, window_end"


@pytest.mark.parametrize(
    ("kind", "side", "is_windowed"),
    [
        ("INNER", "l", True),
        ("INNER", "r", True),
        ("LEFT", "l", True),
        ("LEFT", "r", False),
        ("RIGHT", "l", False),
        ("RIGHT", "r", True),
        ("FULL", "l", False),
        ("FULL", "r", False),
    ],
)
def test_window_columns_of_sides_that_are_not_padded_live_on(kind: str, side: str, is_windowed: bool) -> None:
    expected = "WindowAggregate" if is_windowed else "GroupAggregate"
    assert kinds(aggregated(kind, side), WindowAggregate, GroupAggregate) == [expected]


@pytest.mark.parametrize(
    ("start", "end", "is_windowed"),
    [
        ("COALESCE(l.window_start, r.window_start)", "COALESCE(r.window_end, l.window_end)", True),
        ("COALESCE(l.window_start, r.window_end)", "COALESCE(l.window_end, r.window_end)", False),
        ("COALESCE(l.window_start, l.window_start)", "COALESCE(l.window_end, r.window_end)", False),
    ],
)
def test_both_sides_of_a_full_join_together_have_the_window(start: str, end: str, is_windowed: bool) -> None:
    join = f"SELECT {start} AS s, {end} AS e FROM {LEFT} l FULL JOIN {RIGHT} r ON l.k = r.k AND {SAME}"
    expected = "WindowAggregate" if is_windowed else "GroupAggregate"
    sql = f"SELECT s, COUNT(*) FROM ({join}) GROUP BY s, e"
    assert kinds(sql, WindowAggregate, GroupAggregate) == [expected]


def test_window_time_is_the_only_time_attribute_above() -> None:
    (join,) = window_joins(f"SELECT l.k FROM {LEFT} l JOIN {RIGHT} r ON l.k = r.k AND {SAME}")
    assert [c.name for c in join.columns if c.type.is_rowtime] == ["window_time", "window_time"]
    # A second time attribute, from an interval join below, is not held back by the window's end.
    pairs = "(SELECT a.k, a.ts, b.ts AS other FROM a JOIN b ON a.k = b.k AND b.ts = a.ts)"
    windows = f"TUMBLE({pairs}, DESCRIPTOR(ts), INTERVAL '5' SECOND)"
    (join,) = window_joins(f"SELECT l.k FROM {windows} l JOIN {RIGHT} r ON l.k = r.k AND {SAME}")
    (other,) = [c for c in join.columns if c.name == "other"]
    assert not other.type.is_rowtime
    assert "until their window ended" in other.lost


def test_a_join_of_a_join_and_a_top_n_above() -> None:
    first = f"SELECT l.k, l.window_start, l.window_end FROM {LEFT} l JOIN {RIGHT} r ON l.k = r.k AND {SAME}"
    sql = f"SELECT l.k, r.v, l.window_start, l.window_end FROM ({first}) l JOIN {RIGHT} r ON l.k = r.k AND {SAME}"
    assert kinds(sql, Join, WindowJoin) == ["WindowJoin", "WindowJoin"]
    rank = "ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY v DESC)"
    top = f"SELECT k FROM (SELECT *, {rank} AS rn FROM ({sql})) WHERE rn <= 2"
    assert kinds(top, WindowRank) == ["WindowRank"]


def test_windows_live_through_an_interval_join_by_window_time() -> None:
    """Its watermark is held back by its bounds, so no row is behind the end of its window."""
    bounds = "b.ts BETWEEN l.window_time AND l.window_time + INTERVAL '1' HOUR"
    join = f"SELECT l.window_start, l.window_end FROM {LEFT} l JOIN b ON l.k = b.k AND {bounds}"
    sql = f"SELECT window_start, COUNT(*) FROM ({join}) GROUP BY window_start, window_end"
    assert kinds(sql, WindowAggregate, GroupAggregate) == ["WindowAggregate"]
    sql = sql.replace(" JOIN b", " RIGHT JOIN b")
    assert kinds(sql, WindowAggregate, GroupAggregate) == ["GroupAggregate"]
