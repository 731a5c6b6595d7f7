"""Sub-queries, set operations, ranks and ORDER BY as plans."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from planner import api
from planner.analysis.outer import OUTER, PART
from planner.ir.expressions import Call, Expression, walk
from planner.ir.operators import AggregateFunction, JoinKind
from planner.logical.build import PlanBuilder
from planner.logical.nodes import (
    Calc,
    GroupAggregate,
    Join,
    Limit,
    OverRank,
    Plan,
    Rank,
    SetOperation,
    Sort,
    UnionAll,
    Values,
    inputs_of,
)
from planner.sql import nodes
from planner.sql.parser import parse_script
from planner.sql.statements import Select
from tests.equivalence.test_subqueries import DEFINITIONS, QUERIES
from tests.support.local_session import LocalSession, memory_tables
from tests.support.memory_tables.connector import MemoryTable
from tests.unit.planner.catalog import Script, error_of

TABLES = (Path(__file__).parents[2] / "golden" / "planner" / "tables.inc").read_text()


def plan_of(query: str, session: Script | None = None) -> Plan:
    """The tree as it is bound."""
    if session is None:
        session = Script()
        session.run(TABLES)
    (statement,) = parse_script(query)
    assert isinstance(statement, Select)
    assert isinstance(statement.query.tree, nodes.QueryNode)
    return PlanBuilder(session.catalog, query).query(statement.query.tree, is_top=True)


def all_nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for below in inputs_of(plan):
        yield from all_nodes(below)


def kinds(query: str, kind: type[Plan]) -> list[Plan]:
    return [node for node in all_nodes(plan_of(query)) if isinstance(node, kind)]


def joins(query: str) -> list[JoinKind]:
    return [node.kind for node in all_nodes(plan_of(query)) if isinstance(node, Join)]


def expressions(plan: Plan) -> Iterator[Expression]:
    for node in all_nodes(plan):
        match node:
            case Calc():
                yield from node.projections
            case Values():
                yield from (e for row in node.rows for e in row)
            case _:
                pass
        condition = getattr(node, "condition", None)
        if condition is not None:
            yield condition


def test_nothing_of_the_query_around_is_left_in_a_tree() -> None:
    session = LocalSession()
    session.run(DEFINITIONS)
    with memory_tables(**{name: MemoryTable() for name in ("a", "b", "c", "one")}):
        for query in QUERIES:
            for expression in expressions(plan_of(query, session)):
                calls = [e.function for e in walk(expression) if isinstance(e, Call)]
                assert OUTER not in calls, query
                assert PART not in calls, query


# -- conditions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("v IN (SELECT v FROM more)", JoinKind.SEMI),
        ("NOT NOT v IN (SELECT v FROM more)", JoinKind.SEMI),
        ("v NOT IN (SELECT v FROM more)", JoinKind.ANTI),
        ("NOT EXISTS (SELECT 1 FROM more WHERE more.k = src.k)", JoinKind.ANTI),
        ("v = SOME (SELECT v FROM more)", JoinKind.SEMI),
        ("v <> ALL (SELECT v FROM more)", JoinKind.ANTI),
        ("v > ALL (SELECT v FROM more)", JoinKind.LEFT),
        ("v > 1 OR v IN (SELECT v FROM more)", JoinKind.LEFT),
    ],
)
def test_a_condition_becomes_a_join(condition: str, kind: JoinKind) -> None:
    assert joins(f"SELECT k FROM src WHERE {condition} AND k <> 'x'") == [kind]


def test_conditions_without_subqueries_stand_below_the_joins() -> None:
    top = plan_of("SELECT k FROM src WHERE EXISTS (SELECT 1 FROM more) AND v > 1")
    (join,) = (node for node in all_nodes(top) if isinstance(node, Join))
    assert isinstance(join.left, Calc)
    assert join.left.condition is not None


def test_not_in_is_an_equality_where_nothing_can_be_null() -> None:
    tables = """
    CREATE TABLE p (x INT NOT NULL, y INT) WITH ('connector' = 'datagen');
    """
    for query, is_key in (("x NOT IN (SELECT x FROM p)", True), ("x NOT IN (SELECT y FROM p)", False)):
        session = Script()
        session.run(tables)
        top = plan_of(f"SELECT x FROM p WHERE {query}", session)
        (join,) = (node for node in all_nodes(top) if isinstance(node, Join))
        assert bool(join.left_keys) is is_key


def test_a_list_of_values_is_no_join() -> None:
    assert joins("SELECT k FROM src WHERE v IN (VALUES 1, 2) AND (k, v) IN (VALUES ('a', 1), ('b', 2))") == []


def test_exists_of_a_row_that_is_always_there_is_true() -> None:
    query = "SELECT k FROM src WHERE EXISTS (SELECT MAX(v) FROM more WHERE more.k = src.k)"
    assert joins(query) == []


# -- values -------------------------------------------------------------------------------------------


def test_equal_subqueries_are_joined_once() -> None:
    value = "(SELECT MAX(v) FROM more WHERE more.k = src.k)"
    assert joins(f"SELECT CASE WHEN {value} > 3 THEN {value} ELSE 0 END FROM src") == [JoinKind.LEFT]


def test_a_row_without_from_needs_no_join() -> None:
    assert joins("SELECT (SELECT v + 1), (SELECT 7 WHERE v > 3), EXISTS (SELECT 1) FROM src") == []


def test_an_equality_is_a_key_and_any_other_condition_takes_the_domain() -> None:
    def keys(condition: str) -> list[int]:
        aggregates = kinds(f"SELECT (SELECT COUNT(*) FROM more WHERE {condition}) FROM src", GroupAggregate)
        return [len(node.keys) for node in aggregates if isinstance(node, GroupAggregate)]

    assert keys("UPPER(more.k) = src.k") == [1]
    assert keys("more.k = src.k AND more.v IS NOT DISTINCT FROM src.v") == [2]
    assert keys("more.v > src.v") == [1, 1]
    assert keys("more.k = src.k OR more.v = src.v") == [2, 2]


@pytest.mark.parametrize(
    ("subquery", "is_counted"),
    [
        ("SELECT v FROM cdc", True),
        ("SELECT v FROM cdc WHERE cdc.k = src.k", True),
        ("SELECT v FROM cdc WHERE cdc.id = src.v", False),
        ("SELECT v FROM more ORDER BY v LIMIT 1", False),
        ("SELECT v FROM more WHERE more.k = src.k ORDER BY v LIMIT 1", False),
        ("SELECT v FROM more ORDER BY v LIMIT 2", True),
        ("SELECT MAX(v) FROM more GROUP BY k", True),
        ("SELECT MAX(v) FROM more", False),
    ],
)
def test_rows_are_counted_where_no_key_says_that_there_is_one(subquery: str, is_counted: bool) -> None:
    aggregates = kinds(f"SELECT ({subquery}) FROM src", GroupAggregate)
    functions = [c.function for a in aggregates if isinstance(a, GroupAggregate) for c in a.aggregates]
    assert (AggregateFunction.SINGLE_VALUE in functions) is is_counted


def test_a_subquery_sees_the_nearest_of_two_names() -> None:
    query = "SELECT k FROM src WHERE EXISTS (SELECT 1 FROM more WHERE k = 'x')"
    (join,) = (node for node in all_nodes(plan_of(query)) if isinstance(node, Join))
    assert join.condition is None, "k is the column of `more`"


def test_a_view_with_a_subquery() -> None:
    session = Script()
    session.run(TABLES + "CREATE VIEW seen AS SELECT k, v FROM src WHERE k IN (SELECT k FROM cdc);")
    assert isinstance(session.run("SELECT * FROM seen"), api.CompiledJob)


def test_a_view_does_not_see_the_query_around_it() -> None:
    view = "CREATE VIEW inner_view AS SELECT id FROM cdc WHERE id > 1;"
    session = Script()
    session.run(TABLES + view)
    error = error_of(TABLES + view + "SELECT k FROM src WHERE EXISTS (SELECT note2 FROM inner_view)")
    assert "`note2`" in error.message


# -- set operations -----------------------------------------------------------------------------------


def test_union_all_is_flat_and_union_groups() -> None:
    top = plan_of("SELECT k FROM src UNION ALL SELECT k FROM more UNION ALL SELECT k FROM cdc")
    assert isinstance(top, UnionAll)
    assert len(top.inputs) == 3
    query = "SELECT k FROM src UNION ALL SELECT k FROM more UNION SELECT k FROM cdc UNION ALL SELECT k FROM src"
    unions = kinds(query, UnionAll)
    assert [len(u.inputs) for u in unions if isinstance(u, UnionAll)] == [2, 2, 2]
    assert len(kinds(query, GroupAggregate)) == 1


def test_intersect_binds_tighter() -> None:
    top = plan_of("SELECT k FROM src EXCEPT SELECT k FROM more INTERSECT SELECT k FROM cdc")
    assert isinstance(top, SetOperation)
    assert top.kind.value == "except"
    assert isinstance(top.right, SetOperation)


def test_sides_have_the_common_types_and_no_time_attribute() -> None:
    top = plan_of("SELECT v, ts FROM src INTERSECT SELECT v, ts FROM timed_cdc")
    assert isinstance(top, SetOperation)
    assert [c.type.sql() for c in top.columns] == ["INT", "TIMESTAMP(3)"]
    assert all(c.type.time_attribute is None for c in top.columns)
    wider = plan_of("SELECT v FROM src EXCEPT SELECT v FROM more")
    assert isinstance(wider, SetOperation)
    assert [c.type.sql() for c in (*wider.left.columns, *wider.right.columns)] == ["BIGINT", "BIGINT"]


# -- ranks and orders ---------------------------------------------------------------------------------


def test_equal_ranks_are_one() -> None:
    rank = "RANK() OVER (PARTITION BY k ORDER BY v DESC)"
    query = f"SELECT {rank} AS a, {rank} AS b, RANK() OVER (PARTITION BY k ORDER BY v) AS c FROM src"
    assert len(kinds(query, OverRank)) == 2


@pytest.mark.parametrize(
    ("order", "is_descending", "nulls_first"),
    [("v", False, True), ("v DESC", True, False), ("v NULLS LAST", False, False), ("v DESC NULLS FIRST", True, True)],
)
def test_null_is_the_smallest_value(order: str, is_descending: bool, nulls_first: bool) -> None:
    (sort,) = kinds(f"SELECT v FROM src ORDER BY {order}", Sort)
    assert isinstance(sort, Sort)
    assert [(k.is_descending, k.nulls_first) for k in sort.order] == [(is_descending, nulls_first)]


@pytest.mark.parametrize(
    "end",
    [
        "LIMIT 3 OFFSET 2",
        "OFFSET 2 ROWS FETCH NEXT 3 ROWS ONLY",
        "OFFSET 2 LIMIT 3",
        "OFFSET 2 ROW FETCH FIRST 3 ROW ONLY",
    ],
)
def test_ways_to_say_how_many_rows(end: str) -> None:
    (limit,) = kinds(f"SELECT k FROM src {end}", Limit)
    assert isinstance(limit, Limit)
    assert (limit.count, limit.offset) == (3, 2)


def test_order_without_limit_means_nothing_in_a_subquery() -> None:
    assert kinds("SELECT k FROM (SELECT k FROM src ORDER BY v)", Sort) == []
    assert kinds("(SELECT k FROM src ORDER BY v) UNION ALL SELECT k FROM more", Sort) == []
    assert len(kinds("(SELECT k FROM src ORDER BY v)", Sort)) == 1
    assert len(kinds("SELECT k FROM (SELECT k FROM src ORDER BY v LIMIT 2)", Rank)) == 1


def test_an_alias_hides_a_column_in_order_by() -> None:
    (sort,) = kinds("SELECT v AS k, k AS v, note FROM src ORDER BY k, src.k, 3, v || note", Sort)
    assert isinstance(sort, Sort)
    assert [key.index for key in sort.order] == [0, 1, 2, 3]
    assert [c.name for c in plan_of("SELECT v AS k FROM src ORDER BY note").columns] == ["k"]


def test_a_table_as_a_query() -> None:
    assert plan_of("TABLE src") == plan_of("SELECT * FROM src")
    assert len(kinds("TABLE src UNION ALL SELECT * FROM src", UnionAll)) == 1
