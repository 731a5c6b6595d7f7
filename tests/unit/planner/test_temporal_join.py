"""Temporal joins: versions and their keys, what stays below them, changes, and event time above."""

from __future__ import annotations

import itertools

import pytest

from planner import api
from planner.errors import SqlError
from planner.ir import operators as ir
from planner.ir.job_graph import JobGraph
from planner.ir.operators import ChangelogMode
from planner.logical.inserts import build_select
from planner.logical.nodes import Calc, Deduplicate, Plan, TemporalJoin, WindowAggregate, inputs_of
from planner.plan_text import expression_text
from planner.sql import statements as st
from planner.streaming.derive import derive
from tests.unit.planner.catalog import Script

TABLES = """
CREATE TABLE orders (id BIGINT, cur STRING, note STRING, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'kafka', 'topic' = 'orders');
CREATE TABLE upserts (cur STRING, zone INT, rate INT, at TIMESTAMP(3), WATERMARK FOR at AS at,
  PRIMARY KEY (cur) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'u');
CREATE TABLE cdc (id INT, cur STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, PRIMARY KEY (id) NOT ENFORCED)
  WITH ('connector' = 'kafka', 'topic' = 'c', 'format' = 'debezium-json');
CREATE TABLE appended (cur STRING, zone INT, rate INT, at TIMESTAMP(3), WATERMARK FOR at AS at,
  PRIMARY KEY (cur, zone) NOT ENFORCED) WITH ('connector' = 'filesystem', 'path' = '/p');
CREATE TABLE rates (cur STRING, rate INT, at TIMESTAMP(3), WATERMARK FOR at AS at)
  WITH ('connector' = 'kafka', 'topic' = 'r');
CREATE VIEW latest AS SELECT cur, rate, at FROM
  (SELECT *, ROW_NUMBER() OVER (PARTITION BY cur ORDER BY at DESC) AS rn FROM rates WHERE rate > 0) WHERE rn = 1;
CREATE TABLE totals (cur STRING, n BIGINT, PRIMARY KEY (cur) NOT ENFORCED)
  WITH ('connector' = 'upsert-kafka', 'topic' = 't');
"""


def session(views: str = "") -> Script:
    script = Script()
    script.run(TABLES + views)
    return script


def bound(sql: str, views: str = "") -> Plan:
    (statement,) = api.parse(sql)
    assert isinstance(statement, st.Select)
    return build_select(statement, session(views).catalog)


def nodes(plan: Plan) -> list[Plan]:
    return [plan, *(below for i in inputs_of(plan) for below in nodes(i))]


def temporal(right: str, on: str, views: str = "", select: str = "o.id", kind: str = "LEFT") -> TemporalJoin:
    sql = f"SELECT {select} FROM orders o {kind} JOIN {right} FOR SYSTEM_TIME AS OF o.ts AS r ON {on}"
    (join,) = [n for n in nodes(bound(sql, views)) if isinstance(n, TemporalJoin)]
    return join


def named_keys(join: TemporalJoin) -> list[tuple[str, str]]:
    pairs = zip(join.left_keys, join.right_keys, strict=True)
    return [(join.left.columns[a].name, join.right.columns[b].name) for a, b in pairs]


def condition(join: TemporalJoin) -> str:
    columns = (*join.left.columns, *join.right.columns)
    return "" if join.condition is None else expression_text(join.condition, columns)


def operators(graph: JobGraph) -> list[ir.Operator]:
    return list(itertools.chain.from_iterable(v.operators for v in graph.vertices))


# -- versions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("right", ["upserts", "latest"])
def test_versions_by_key_and_time(right: str) -> None:
    join = temporal(right, "o.cur = r.cur")
    assert named_keys(join) == [("cur", "cur")]
    assert join.left.columns[join.left_time].name == "ts"
    assert join.right.columns[join.right_time].name == "at"
    assert condition(join) == ""


def test_a_view_of_last_rows_gives_all_its_versions() -> None:
    """The deduplication would keep the last one only; the filter below it stays below."""
    join = temporal("latest", "o.cur = r.cur")
    assert not any(isinstance(n, Deduplicate) for n in nodes(join))
    assert derive(join.right).changelog.is_insert_only
    filters = [n.condition for n in nodes(join.right) if isinstance(n, Calc) and n.condition is not None]
    assert len(filters) == 1


def test_the_time_may_be_out_of_the_views_sight() -> None:
    views = "CREATE VIEW hidden AS SELECT rate, cur AS name FROM latest;"
    join = temporal("hidden", "o.cur = r.name", views, select="o.id, r.rate")
    assert join.right.columns[join.right_time].name == "at"


def test_a_filter_above_versions_is_asked_of_the_version() -> None:
    """Below, it would hide the version that ends the one before it."""
    views = "CREATE VIEW dear AS SELECT cur, rate FROM upserts WHERE rate > 100 AND cur <> 'x';"
    join = temporal("dear", "o.cur = r.cur", views)
    assert condition(join) == "(rate > 100)"
    (below,) = [n.condition for n in nodes(join.right) if isinstance(n, Calc) and n.condition is not None]
    assert expression_text(below, join.right.columns) == "(cur <> 'x')"


def test_where_on_the_version_is_asked_of_the_version() -> None:
    sql = "SELECT o.id FROM orders o JOIN upserts FOR SYSTEM_TIME AS OF o.ts AS r ON o.cur = r.cur WHERE r.rate > 3"
    (join,) = [n for n in nodes(bound(sql)) if isinstance(n, TemporalJoin)]
    assert condition(join) == "(rate > 3)"
    assert not any(isinstance(n, Calc) and n.condition is not None for n in nodes(join.right))


def test_other_equalities_do_not_tell_versions_apart() -> None:
    """A version of zone 1 ends where the next one begins, be that of zone 2."""
    join = temporal("upserts", "o.id = r.zone AND o.cur = r.cur")
    assert [b for _, b in named_keys(join)] == ["cur"]
    assert condition(join) == "(id = $key0)"


def test_a_key_is_compared_once() -> None:
    join = temporal("upserts", "o.cur = r.cur AND o.note = r.cur")
    assert named_keys(join) == [("cur", "cur")]
    assert condition(join) == "(note = cur)"


def test_all_columns_of_the_key_are_compared() -> None:
    join = temporal("appended", "o.cur = r.cur AND r.zone = CAST(o.id AS INT)")
    assert [b for _, b in named_keys(join)] == ["cur", "zone"]
    with pytest.raises(SqlError, match="`zone` equals"):
        temporal("appended", "o.cur = r.cur")


def test_a_key_may_be_widened() -> None:
    join = temporal("cdc", "o.id = r.id")
    assert len(join.left_keys) == 1


def test_null_safe_equality_is_a_key_where_one_side_has_no_nulls() -> None:
    assert named_keys(temporal("upserts", "o.cur IS NOT DISTINCT FROM r.cur")) == [("cur", "cur")]
    with pytest.raises(SqlError, match="`cur` equals"):
        temporal("latest", "o.cur IS NOT DISTINCT FROM r.cur")


def test_random_columns_of_a_view_are_refused() -> None:
    views = "CREATE VIEW odd AS SELECT cur, u, u AS again FROM (SELECT cur, UUID() AS u FROM upserts);"
    with pytest.raises(SqlError, match="another value each time"):
        temporal("odd", "o.cur = r.cur", views, select="o.id, r.u, r.again")


# -- changes ------------------------------------------------------------------------------------------


def test_old_rows_do_not_reach_the_versions() -> None:
    graph = (
        session()
        .job("SELECT o.id, r.cur FROM orders o LEFT JOIN cdc FOR SYSTEM_TIME AS OF o.ts AS r ON o.id = r.id")
        .job_graph
    )
    (join,) = [o for o in operators(graph) if isinstance(o, ir.TemporalJoin)]
    assert join.right_changelog is ChangelogMode.UPSERT
    assert [type(o) for o in operators(graph)].count(ir.DropUpdateBefore) == 1
    assert {e.changelog for e in graph.edges if e.input_index == 1} == {ChangelogMode.UPSERT}


def test_a_normalised_source_sends_no_old_rows() -> None:
    graph = (
        session()
        .job("SELECT o.id, r.rate FROM orders o LEFT JOIN upserts FOR SYSTEM_TIME AS OF o.ts AS r ON o.cur = r.cur")
        .job_graph
    )
    (normalize,) = [o for o in operators(graph) if isinstance(o, ir.ChangelogNormalize)]
    assert not normalize.emits_update_before


def test_appended_versions_stay_inserts() -> None:
    sql = "SELECT o.id, r.rate FROM orders o LEFT JOIN latest FOR SYSTEM_TIME AS OF o.ts AS r ON o.cur = r.cur"
    (join,) = [o for o in operators(session().job(sql).job_graph) if isinstance(o, ir.TemporalJoin)]
    assert join.right_changelog is ChangelogMode.INSERT_ONLY


def test_changes_of_the_left_side_are_in_order_at_one_time_and_place_only() -> None:
    sql = "SELECT c.id, c.cur, c.ts FROM cdc c LEFT JOIN upserts FOR SYSTEM_TIME AS OF c.ts AS r ON c.cur = r.cur"
    (join,) = [n for n in nodes(bound(sql)) if isinstance(n, TemporalJoin)]
    properties = derive(join)
    assert {frozenset(join.columns[i].name for i in k) for k in properties.upsert_keys} == {
        frozenset({"id", "cur", "ts"})
    }
    assert properties.changelog.has_update_before


def test_keys_of_appended_rows_live_on() -> None:
    windows = (
        "(SELECT cur, window_start, window_end, window_time, COUNT(*) AS n FROM TUMBLE(TABLE orders, DESCRIPTOR(ts), "
        "INTERVAL '1' HOUR) GROUP BY cur, window_start, window_end, window_time)"
    )
    sql = f"SELECT w.n FROM {windows} w JOIN upserts FOR SYSTEM_TIME AS OF w.window_time AS r ON w.cur = r.cur"
    (join,) = [n for n in nodes(bound(sql)) if isinstance(n, TemporalJoin)]
    assert frozenset({0, 1}) in derive(join).upsert_keys
    # The rows still carry their window.
    again = "SELECT w.window_start, w.window_end, r.zone" + sql.removeprefix("SELECT w.n")
    outer = f"SELECT window_start, COUNT(*) FROM ({again}) GROUP BY window_start, window_end"
    assert isinstance(next(n for n in nodes(bound(outer)) if isinstance(n, WindowAggregate)), WindowAggregate)
    assert sum(isinstance(n, WindowAggregate) for n in nodes(bound(outer))) == 2


# -- event time above ---------------------------------------------------------------------------------


def test_only_the_time_of_the_left_side_stays_a_time_attribute() -> None:
    join = temporal("upserts", "o.cur = r.cur")
    assert [c.name for c in join.columns if c.type.is_rowtime] == ["ts"]
    assert all("version" in c.lost for c in join.columns if c.name == "at")


def test_a_time_that_may_be_behind_the_compared_one_is_none_above() -> None:
    pairs = "(SELECT a.cur, a.ts, b.ts AS later FROM orders a JOIN orders b ON a.id = b.id AND b.ts {})"
    sql = "SELECT p.cur FROM {} p JOIN upserts FOR SYSTEM_TIME AS OF p.{} AS r ON p.cur = r.cur"
    ahead = pairs.format("BETWEEN a.ts AND a.ts + INTERVAL '1' HOUR")
    for compared, kept in (("ts", ["ts", "later"]), ("later", ["later"])):
        (join,) = [n for n in nodes(bound(sql.format(ahead, compared))) if isinstance(n, TemporalJoin)]
        assert [c.name for c in join.columns if c.type.is_rowtime] == kept


STAMPED = """
CREATE TABLE stamped (cur STRING, rate INT, at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', WATERMARK FOR at AS at,
  PRIMARY KEY (cur) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 's');
CREATE TABLE calls (id INT, cur STRING, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'kafka', 'topic' = 'calls');
"""


def normalized(sql: str) -> list[ir.ChangelogNormalize]:
    return [o for o in operators(session(STAMPED).job(sql).job_graph) if isinstance(o, ir.ChangelogNormalize)]


def test_a_deletion_ends_the_version_at_its_own_time_if_it_has_one() -> None:
    sql = "SELECT c.id, r.rate FROM calls c JOIN stamped FOR SYSTEM_TIME AS OF c.ts AS r ON c.cur = r.cur"
    (node,) = normalized(sql)
    assert node.delete_time is not None
    assert node.output.columns[node.delete_time].name == "at"
    # A key-only deletion has no physical column of its row.
    (node,) = normalized(
        "SELECT o.id, r.rate FROM orders o JOIN upserts FOR SYSTEM_TIME AS OF o.ts AS r ON o.cur = r.cur"
    )
    assert node.delete_time is None
    # Elsewhere the row is taken back as it was.
    assert [n.delete_time for n in normalized("SELECT rate, at FROM stamped")] == [None]
