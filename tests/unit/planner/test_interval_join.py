"""Interval joins: every way of writing their bounds, what is none, and event time above them."""

from __future__ import annotations

import pytest

from planner import api
from planner.errors import SqlError
from planner.ir import operators as ir
from planner.ir.operators import JoinKind
from planner.logical.inserts import build_select
from planner.logical.nodes import IntervalJoin, Join, Plan, inputs_of
from planner.sql import statements as st
from tests.unit.planner.catalog import Script

TABLES = """
CREATE TABLE a (id INT, v INT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'kafka', 'topic' = 'a');
CREATE TABLE b (id INT, v INT, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'kafka', 'topic' = 'b');
CREATE TABLE z (id INT, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'kafka', 'topic' = 'z');
CREATE TABLE plain (id INT, ts TIMESTAMP(3)) WITH ('connector' = 'kafka', 'topic' = 'p');
"""
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


def session() -> Script:
    script = Script()
    script.run(TABLES)
    return script


def nodes(plan: Plan) -> list[Plan]:
    return [plan, *(below for i in inputs_of(plan) for below in nodes(i))]


def bound(sql: str) -> Plan:
    (statement,) = api.parse(sql)
    assert isinstance(statement, st.Select)
    return build_select(statement, session().catalog)


def joins(sql: str) -> list[Plan]:
    return [n for n in nodes(bound(sql)) if isinstance(n, IntervalJoin | Join)]


def interval(sql: str) -> IntervalJoin:
    (join,) = joins(sql)
    assert isinstance(join, IntervalJoin), sql
    return join


def on(condition: str, tables: str = "a JOIN b") -> str:
    return f"SELECT a.id FROM {tables} ON {condition}"


def operator(sql: str) -> ir.IntervalJoin:
    graph = session().job(sql).job_graph
    (found,) = [o for v in graph.vertices for o in v.operators if isinstance(o, ir.IntervalJoin)]
    return found


# -- bounds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "lower", "upper"),
    [
        ("b.ts BETWEEN a.ts AND a.ts + INTERVAL '5' SECOND", 0, 5 * SECOND),
        ("a.ts BETWEEN b.ts AND b.ts + INTERVAL '5' SECOND", -5 * SECOND, 0),
        ("b.ts BETWEEN a.ts - INTERVAL '1' MINUTE AND a.ts - INTERVAL '1' SECOND", -MINUTE, -SECOND),
        ("b.ts >= a.ts AND b.ts <= a.ts + INTERVAL '1' HOUR", 0, HOUR),
        ("a.ts <= b.ts AND a.ts + INTERVAL '1' HOUR >= b.ts", 0, HOUR),
        ("b.ts > a.ts AND b.ts < a.ts + INTERVAL '1' HOUR", 1, HOUR - 1),
        ("a.ts < b.ts AND a.ts + INTERVAL '1' HOUR > b.ts", 1, HOUR - 1),
        ("a.ts - INTERVAL '2' DAY <= b.ts - INTERVAL '1' DAY AND b.ts <= a.ts", -DAY, 0),
        ("INTERVAL '3' SECOND + a.ts >= b.ts AND b.ts >= a.ts + INTERVAL '1' SECOND", SECOND, 3 * SECOND),
        ("b.ts <= a.ts + INTERVAL '1' SECOND + INTERVAL '2' SECOND AND b.ts >= a.ts", 0, 3 * SECOND),
        ("b.ts <= a.ts + (INTERVAL '5' SECOND - INTERVAL '2' SECOND) AND b.ts >= a.ts", 0, 3 * SECOND),
        ("b.ts <= a.ts + 3 * INTERVAL '2' SECOND AND b.ts >= a.ts", 0, 6 * SECOND),
        ("b.ts >= a.ts + - INTERVAL '2' SECOND AND b.ts <= a.ts", -2 * SECOND, 0),
        ("b.ts BETWEEN a.ts AND a.ts + INTERVAL '0 00:00:01.5' DAY TO SECOND", 0, 1_500),
        ("b.ts = a.ts", 0, 0),
        ("b.ts = a.ts + INTERVAL '5' SECOND", 5 * SECOND, 5 * SECOND),
        ("a.ts - INTERVAL '5' SECOND = b.ts + INTERVAL '5' SECOND", -10 * SECOND, -10 * SECOND),
        ("b.ts >= a.ts AND b.ts >= a.ts - INTERVAL '1' DAY AND b.ts <= a.ts + INTERVAL '1' HOUR", 0, HOUR),
        ("b.ts = a.ts AND b.ts <= a.ts + INTERVAL '1' HOUR", 0, 0),
        ("b.ts >= a.ts AND b.ts < a.ts", 0, -1),
    ],
)
def test_bounds(condition: str, lower: int, upper: int) -> None:
    join = interval(on(f"a.id = b.id AND {condition}"))
    assert (join.lower_ms, join.upper_ms) == (lower, upper)
    assert join.condition is None
    assert not join.is_processing_time
    assert (join.left_keys, join.right_keys) == ((0,), (0,))
    assert join.left.columns[join.left_time].name == join.right.columns[join.right_time].name == "ts"


def test_bounds_in_where_are_bounds() -> None:
    sql = "SELECT a.id FROM a, b WHERE a.id = b.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '5' SECOND AND a.v > 1"
    assert (interval(sql).lower_ms, interval(sql).upper_ms) == (0, 5 * SECOND)


def test_sides_by_their_place_not_by_the_order_of_operands() -> None:
    join = interval("SELECT a.id FROM b JOIN a ON a.id = b.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '5' SECOND")
    assert (join.lower_ms, join.upper_ms) == (-5 * SECOND, 0)


def test_what_is_no_bound_stays_a_condition() -> None:
    join = interval(on("a.id = b.id AND a.v < b.v AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '5' SECOND"))
    assert join.condition is not None
    assert join.condition.function == "LT"  # type: ignore[union-attr]


def test_months_bound_by_the_longest_and_are_asked_exactly() -> None:
    join = interval(on("a.id = b.id AND b.ts BETWEEN a.ts - INTERVAL '2' MONTH AND a.ts + INTERVAL '1' YEAR"))
    assert (join.lower_ms, join.upper_ms) == (-62 * DAY, 12 * 31 * DAY)
    assert join.condition is not None
    assert join.condition.function == "AND"  # type: ignore[union-attr]
    # From a longer time on the left side the shortest months are subtracted.
    join = interval(on("a.id = b.id AND b.ts - INTERVAL '1' MONTH >= a.ts AND b.ts <= a.ts + INTERVAL '50' DAY"))
    assert (join.lower_ms, join.upper_ms) == (28 * DAY, 50 * DAY)


def test_months_of_local_time_may_be_a_zone_longer() -> None:
    condition = "x.id = y.id AND y.ts BETWEEN x.ts AND x.ts + INTERVAL '1' MONTH"
    assert interval(f"SELECT x.id FROM z x JOIN z y ON {condition}").upper_ms == 32 * DAY


def test_bounds_wider_than_time_are_cut() -> None:
    join = interval(on("a.id = b.id AND b.ts BETWEEN a.ts AND a.ts + 100000 * INTERVAL '9999' DAY"))
    assert join.upper_ms == 2**53


@pytest.mark.parametrize(
    "condition",
    [
        "b.ts >= a.ts",
        "b.ts >= a.ts AND b.ts >= a.ts - INTERVAL '1' HOUR",
        "b.ts BETWEEN a.ts AND a.ts + a.v * INTERVAL '1' SECOND",
        "TIMESTAMPDIFF(SECOND, a.ts, b.ts) BETWEEN 0 AND 5",
        "b.ts IS NOT DISTINCT FROM a.ts",
        "b.ts <> a.ts",
        "b.ts BETWEEN CAST(a.ts AS TIMESTAMP(3)) AND a.ts + INTERVAL '1' HOUR",
        "b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' HOUR OR a.v = 1",
        "NOT b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' HOUR",
        "b.ts BETWEEN TIMESTAMP '2024-01-01 00:00:00' AND TIMESTAMP '2024-02-01 00:00:00'",
        "b.ts >= a.ts AND b.p <= a.p",
    ],
)
def test_regular_joins(condition: str) -> None:
    (join,) = joins(on(f"a.id = b.id AND {condition}"))
    assert isinstance(join, Join)
    assert not any(c.type.is_rowtime for c in join.columns)


def test_an_ordinary_time_is_no_bound() -> None:
    tables = "a JOIN plain AS b"
    (join,) = joins(on("a.id = b.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' HOUR", tables))
    assert isinstance(join, Join)


def test_times_of_two_kinds_are_no_bound() -> None:
    (join,) = joins("SELECT a.id FROM a JOIN z ON a.id = z.id AND a.ts BETWEEN z.ts AND z.ts + INTERVAL '1' HOUR")
    assert isinstance(join, Join)


def test_semi_join_is_regular() -> None:
    exists = "EXISTS (SELECT 1 FROM b WHERE a.id = b.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' HOUR)"
    try:
        (join,) = joins(f"SELECT a.id FROM a WHERE {exists}")
    except SqlError:
        pytest.skip("sub-queries do not bind yet")
    assert isinstance(join, Join)


# -- keys ---------------------------------------------------------------------------------------------


def test_an_equality_of_times_is_a_key_only_without_another() -> None:
    join = interval(on("a.id = b.id AND a.ts = b.ts"))
    assert join.left_keys == (0,)
    join = interval(on("a.ts = b.ts"))
    assert join.left_keys == (join.left_time,)


def test_no_key_is_needed() -> None:
    join = operator(on("b.ts BETWEEN a.ts AND a.ts + INTERVAL '5' SECOND"))
    assert join.left_keys == ()


def test_null_safe_keys() -> None:
    join = interval(on("a.id IS NOT DISTINCT FROM b.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '5' SECOND"))
    assert join.null_safe == (True,)


@pytest.mark.parametrize("kind", ["INNER", "LEFT", "RIGHT", "FULL"])
def test_kinds(kind: str) -> None:
    bounds = "b.ts BETWEEN a.ts AND a.ts + INTERVAL '5' SECOND"
    join = interval(f"SELECT a.id, b.id FROM a {kind} JOIN b ON a.id = b.id AND {bounds}")
    assert join.kind is JoinKind(kind.lower())


# -- event time above ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "delay"),
    [
        ("a.ts - INTERVAL '3' SECOND AND a.ts + INTERVAL '5' SECOND", 5 * SECOND),
        ("a.ts - INTERVAL '7' SECOND AND a.ts + INTERVAL '5' SECOND", 7 * SECOND),
        ("a.ts + INTERVAL '2' SECOND AND a.ts + INTERVAL '5' SECOND", 5 * SECOND),
        ("a.ts - INTERVAL '9' SECOND AND a.ts - INTERVAL '5' SECOND", 9 * SECOND),
        ("a.ts AND a.ts", 0),
    ],
)
def test_watermark_delay(bounds: str, delay: int) -> None:
    join = operator(f"SELECT a.ts, b.ts FROM a JOIN b ON a.id = b.id AND b.ts BETWEEN {bounds}")
    assert join.watermark_delay_ms == delay


@pytest.mark.parametrize(("kind", "delay"), [("LEFT", 5_001), ("RIGHT", 5_000), ("FULL", 5_001)])
def test_padded_rows_leave_a_millisecond_later(kind: str, delay: int) -> None:
    bounds = "b.ts BETWEEN a.ts - INTERVAL '3' SECOND AND a.ts + INTERVAL '5' SECOND"
    assert operator(f"SELECT a.ts, b.ts FROM a {kind} JOIN b ON a.id = b.id AND {bounds}").watermark_delay_ms == delay


def test_times_of_both_sides_stay_time_attributes() -> None:
    join = interval(on("a.id = b.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '5' SECOND"))
    assert [c.name for c in join.columns if c.type.is_rowtime] == ["ts", "ts"]


TWO_TIMES = "(SELECT a.id, a.ts, b.ts AS tb FROM a JOIN b ON a.id = b.id AND b.ts BETWEEN a.ts AND a.ts + {upper})"


def test_a_join_of_a_join_waits_for_the_farther_time() -> None:
    """tb may be the later one, ts the one that is compared: tb - ts <= 1 h; and the other way round ts <= tb."""
    inner = TWO_TIMES.format(upper="INTERVAL '1' HOUR")
    sql = "SELECT x.ts, x.tb FROM {} AS x JOIN b AS y ON x.id = y.id AND y.ts BETWEEN {} AND {} + INTERVAL '1' MINUTE"
    outer = sql.format(inner, "x.ts", "x.ts")
    delays = sorted(join_delays(outer))
    assert delays == [MINUTE, HOUR]
    # Compared by tb, rows wait until the watermark is at tb + 1 min; ts may be an hour before tb.
    outer = sql.format(inner, "x.tb", "x.tb")
    assert sorted(join_delays(outer)) == [HOUR, HOUR + MINUTE]


def join_delays(sql: str) -> list[int]:
    graph = session().job(sql).job_graph
    return [o.watermark_delay_ms for v in graph.vertices for o in v.operators if isinstance(o, ir.IntervalJoin)]


def test_processing_time() -> None:
    sql = on("a.id = b.id AND b.p BETWEEN a.p - INTERVAL '5' SECOND AND a.p")
    join = interval(sql)
    assert join.is_processing_time
    assert (join.lower_ms, join.upper_ms) == (-5 * SECOND, 0)
    made = operator(sql)
    assert (made.left_time, made.right_time, made.watermark_delay_ms) == (None, None, 0)


def test_processing_time_makes_ordinary_values_of_event_times() -> None:
    """Flink refuses event time in the input; here only its use above is."""
    inner = "(SELECT a.ts FROM a JOIN b ON a.id = b.id AND b.p BETWEEN a.p - INTERVAL '5' SECOND AND a.p)"
    sql = f"SELECT COUNT(*) FROM TUMBLE({inner}, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end"
    with pytest.raises(SqlError, match="no time attribute") as caught:
        session().run(sql)
    assert "processing time" in caught.value.hint
