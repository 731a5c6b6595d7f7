"""FROM: how joins nest, what names mean over several tables, and the trees the binder makes of it."""

from __future__ import annotations

from typing import TypeVar

import pytest
from sqlglot import exp

from planner.errors import SqlError, SqlState
from planner.ir.expressions import Call, canonical
from planner.ir.operators import JoinKind
from planner.logical.build import PlanBuilder
from planner.logical.nodes import AsOfJoin, Calc, Join, Plan, Unnest, inputs_of
from planner.sql import nodes
from planner.sql.parser import parse_script
from planner.sql.statements import Select
from tests.unit.planner.catalog import Script
from tests.unit.planner.trees import show

TABLES = """
CREATE TABLE a (
  k STRING NOT NULL, v INT, tags ARRAY<STRING NOT NULL>, m MAP<STRING NOT NULL, INT>, s MULTISET<INT>,
  r ARRAY<ROW<x INT NOT NULL, y STRING>>, ts TIMESTAMP(3), p AS PROCTIME(), WATERMARK FOR ts AS ts
) WITH ('connector' = 'kafka', 'topic' = 'a', 'format' = 'json');
CREATE TABLE b (k STRING NOT NULL, v BIGINT, w INT) WITH ('connector' = 'kafka', 'topic' = 'b', 'format' = 'json');
CREATE TABLE c (k STRING NOT NULL, w INT, z INT) WITH ('connector' = 'kafka', 'topic' = 'c', 'format' = 'json');
CREATE TABLE u (k STRING, n INT, PRIMARY KEY (k) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = 'u', 'key.format' = 'json', 'value.format' = 'json');
"""


T = TypeVar("T")


def from_tree(text: str) -> str:
    """FROM as fully bracketed text."""
    (statement,) = parse_script(f"SELECT 1 FROM {text}")
    assert isinstance(statement, Select)
    return _shown(statement.query.tree.this.args["from_"])


def _shown(node: exp.Expr) -> str:
    if isinstance(node, nodes.JoinTable):
        condition = ""
        if node.args.get("on") is not None:
            condition = f" ON {show(node.args['on'])}"
        elif node.args.get("using"):
            condition = f" USING {', '.join(i.this for i in node.args['using'])}"
        natural = "NATURAL " if node.args.get("natural") else ""
        right = _shown(node.args["expression"])
        return f"({_shown(node.this)} {natural}{node.args['kind']} {right}{condition})"
    if isinstance(node, nodes.TableName):
        name = ".".join(i.this for i in node.this.args["expressions"])
        return name + (f" AS OF {show(node.args['as_of'])}" if node.args.get("as_of") is not None else "")
    if isinstance(node, nodes.UnnestTable):
        return f"UNNEST({show(node.this)})" + (" WITH ORDINALITY" if node.args.get("ordinality") else "")
    kind = "query" if isinstance(node, nodes.DerivedTable) else "function"
    return ("LATERAL " if node.args.get("lateral") else "") + kind


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a, b, c", "((a COMMA b) COMMA c)"),
        ("a, b JOIN c ON x = y", "((a COMMA b) INNER c ON (x = y))"),
        ("a JOIN b ON x = y, c", "((a INNER b ON (x = y)) COMMA c)"),
        ("a JOIN b ON x LEFT JOIN c ON y", "((a INNER b ON x) LEFT c ON y)"),
        ("a JOIN (b JOIN c ON y) ON x", "(a INNER (b INNER c ON y) ON x)"),
        ("a, (b, c)", "(a COMMA (b COMMA c))"),
        ("((a))", "a"),
        ("((a JOIN b ON x) CROSS JOIN c)", "((a INNER b ON x) CROSS c)"),
        ("a FULL OUTER JOIN b USING (k, v)", "(a FULL b USING k, v)"),
        ("a NATURAL LEFT OUTER JOIN b", "(a NATURAL LEFT b)"),
        ("a NATURAL JOIN b RIGHT JOIN c USING (k)", "((a NATURAL INNER b) RIGHT c USING k)"),
        ("a INNER JOIN b ON x = 1 OR y = 2 AND z", "(a INNER b ON ((x = 1) OR ((y = 2) AND z)))"),
        ("(SELECT 1) AS x JOIN (VALUES (1)) AS y ON z", "(query INNER query ON z)"),
        ("((SELECT 1) UNION ALL (SELECT 2)) AS x, b", "(query COMMA b)"),
        ("(((SELECT 1)))", "query"),
        ("((SELECT 1) AS x JOIN b ON z)", "(query INNER b ON z)"),
        ("((SELECT 1) x)", "query"),
        ("((WITH q AS (SELECT 1) SELECT * FROM q) ORDER BY 1)", "query"),
        ("a, LATERAL (SELECT 1) AS x", "(a COMMA LATERAL query)"),
        ("a CROSS JOIN UNNEST(a.tags) WITH ORDINALITY AS t (x, o)", "(a CROSS UNNEST(a.tags) WITH ORDINALITY)"),
        ("a, LATERAL UNNEST(tags) JOIN b ON x", "((a COMMA UNNEST(tags)) INNER b ON x)"),
        ("a JOIN u FOR SYSTEM_TIME AS OF a.ts AS v ON a.k = v.k", "(a INNER u AS OF a.ts ON (a.k = v.k))"),
        ("TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) w JOIN b ON x", "(function INNER b ON x)"),
        ("TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' MINUTE), b", "(function COMMA b)"),
    ],
)
def test_how_tables_nest(text: str, tree: str) -> None:
    assert from_tree(text) == tree


def test_a_join_knows_where_it_was_written() -> None:
    text = "SELECT 1 FROM a LEFT JOIN b ON a.k = b.k, c"
    join = built(text, Join)
    assert join.place is not None
    span = join.place.span
    assert text[span.start : span.end] == "a LEFT JOIN b ON a.k = b.k, c"
    inner = join.left
    assert isinstance(inner, Join)
    assert inner.place is not None
    assert text[inner.place.span.start : inner.place.span.end] == "a LEFT JOIN b ON a.k = b.k"


def test_many_tables_are_refused_at_the_first_too_many() -> None:
    tables = ", ".join(f"a AS a{i}" for i in range(65))
    with pytest.raises(SqlError) as caught:
        parse_script(f"SELECT 1 FROM {tables}")
    assert caught.value.sqlstate == SqlState.TOO_COMPLEX
    assert caught.value.caret().splitlines()[0].rstrip("…").endswith("a AS a64")


# -- plans --------------------------------------------------------------------------------------------


def plan_of(sql: str) -> Plan:
    script = Script()
    script.run(TABLES)
    (statement,) = parse_script(sql)
    assert isinstance(statement, Select)
    tree = statement.query.tree
    assert isinstance(tree, nodes.QueryNode)
    return PlanBuilder(script.catalog, sql).query(tree, is_top=True)


def built(sql: str, kind: type[T]) -> T:
    """The topmost node of a kind in the plan of a query."""
    pending = [plan_of(sql)]
    while pending:
        plan = pending.pop(0)
        if isinstance(plan, kind):
            return plan
        pending += inputs_of(plan)
    raise AssertionError(f"no {kind.__name__}")


def columns(sql: str) -> str:
    return ", ".join(f"{c.name} {c.type.sql()}" for c in plan_of(sql).columns)


@pytest.mark.parametrize(
    ("join", "kind", "nullable"),
    [
        ("b JOIN c ON b.w = c.w", JoinKind.INNER, (False, False)),
        ("b CROSS JOIN c", JoinKind.INNER, (False, False)),
        ("b, c", JoinKind.INNER, (False, False)),
        ("b LEFT JOIN c ON b.w = c.w", JoinKind.LEFT, (False, True)),
        ("b RIGHT JOIN c ON b.w = c.w", JoinKind.RIGHT, (True, False)),
        ("b FULL JOIN c ON b.w = c.w", JoinKind.FULL, (True, True)),
    ],
)
def test_columns_of_a_side_that_may_be_missing_are_nullable(
    join: str, kind: JoinKind, nullable: tuple[bool, bool]
) -> None:
    node = built(f"SELECT b.k, c.k FROM {join}", Join)
    assert node.kind is kind
    assert (node.columns[0].type.nullable, node.columns[3].type.nullable) == nullable
    assert tuple(c.type.nullable for c in plan_of(f"SELECT b.k, c.k FROM {join}").columns) == nullable


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        # The merged columns come first, once; then the others from left to right.
        ("SELECT * FROM b JOIN c USING (k)", "k STRING NOT NULL, v BIGINT, w INT, w0 INT, z INT"),
        ("SELECT * FROM b JOIN c USING (w, k)", "w INT, k STRING NOT NULL, v BIGINT, z INT"),
        ("SELECT * FROM b NATURAL JOIN c", "k STRING NOT NULL, w INT, v BIGINT, z INT"),
        ("SELECT * FROM b LEFT JOIN c USING (k)", "k STRING NOT NULL, v BIGINT, w INT, w0 INT, z INT"),
        ("SELECT * FROM b RIGHT JOIN c USING (k)", "k STRING NOT NULL, v BIGINT, w INT, w0 INT, z INT"),
        ("SELECT * FROM b FULL JOIN c USING (k)", "k STRING, v BIGINT, w INT, w0 INT, z INT"),
        # A qualified star has all columns of its table; qualified names reach what is merged.
        ("SELECT c.* FROM b LEFT JOIN c USING (k)", "k STRING, w INT, z INT"),
        (
            "SELECT k, b.k AS bk, c.k AS ck FROM b LEFT JOIN c USING (k)",
            "k STRING NOT NULL, bk STRING NOT NULL, ck STRING",
        ),
        # The common type of both sides.
        ("SELECT v FROM (SELECT k, v FROM a) AS x JOIN b USING (v)", "v BIGINT"),
        ("SELECT v FROM (SELECT k, v FROM a) AS x RIGHT JOIN b USING (v)", "v BIGINT"),
        # Merged columns merge again.
        (
            "SELECT * FROM b JOIN c USING (k) JOIN u USING (k)",
            "k STRING NOT NULL, v BIGINT, w INT, w0 INT, z INT, n INT",
        ),
        ("SELECT * FROM (b JOIN c USING (k)) AS j", ""),
        # Nothing in common: NATURAL is a cross join.
        ("SELECT COUNT(*) FROM c NATURAL JOIN (SELECT n FROM u) AS x", "EXPR$0 BIGINT NOT NULL"),
        # Names that * repeats get numbers; a query above can use them.
        ("SELECT * FROM b, c", "k STRING NOT NULL, v BIGINT, w INT, k0 STRING NOT NULL, w0 INT, z INT"),
        ("SELECT k0, w0 FROM (SELECT * FROM b, c)", "k0 STRING NOT NULL, w0 INT"),
        ("SELECT x, y FROM (SELECT k, w FROM b) AS t (x, y), c", "x STRING NOT NULL, y INT"),
        ("SELECT default_database.b.w, c.z FROM b, c", "w INT, z INT"),
        ("SELECT t FROM (VALUES (1), (2)) AS t", "t INT NOT NULL"),
        ("SELECT t.x FROM b JOIN (VALUES (1, 'a')) AS t (x, y) ON b.w = t.x", "x INT NOT NULL"),
    ],
)
def test_columns_of_joins(sql: str, expected: str) -> None:
    if not expected:
        with pytest.raises(SqlError, match="a name for a join in brackets"):
            plan_of(sql)
        return
    assert columns(sql) == expected


@pytest.mark.parametrize(
    ("kind", "value"),
    [("INNER", "$0"), ("LEFT", "$0"), ("RIGHT", "$3"), ("FULL", "COALESCE($0, $3):STRING")],
)
def test_a_merged_column_is_the_side_that_is_always_there(kind: str, value: str) -> None:
    plan = plan_of(f"SELECT k FROM b {kind} JOIN c USING (k)")
    assert isinstance(plan, Calc)
    assert [canonical(p) for p in plan.projections] == [value]


def test_on_sees_both_sides_and_all_tables_to_the_left() -> None:
    join = built("SELECT 1 FROM a, b JOIN c ON a.k = c.k AND b.w = c.w", Join)
    assert len(join.left_keys) == 2
    assert [join.left.columns[i].name for i in join.left_keys] == ["k", "w"]


def test_sides_of_on_are_compared_in_their_common_type() -> None:
    join = built("SELECT 1 FROM a JOIN b ON a.v < b.v", Join)
    assert isinstance(join.condition, Call)
    assert {argument.type.sql() for argument in join.condition.args} == {"BIGINT"}


def test_a_regular_join_makes_ordinary_values_of_time_attributes_and_says_so() -> None:
    sql = """SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE (SELECT a.ts FROM a JOIN b ON a.k = b.k), DESCRIPTOR(ts),
      INTERVAL '1' MINUTE)) GROUP BY window_start, window_end"""
    with pytest.raises(SqlError) as caught:
        plan_of(sql)
    assert "a regular join" in caught.value.hint


# -- UNNEST -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT t.* FROM a CROSS JOIN UNNEST(tags) AS t (x)", "x STRING NOT NULL"),
        ("SELECT t.* FROM a, UNNEST(tags) WITH ORDINALITY AS t (x, o)", "x STRING NOT NULL, o INT NOT NULL"),
        ("SELECT t.* FROM a LEFT JOIN UNNEST(tags) WITH ORDINALITY AS t (x, o) ON TRUE", "x STRING, o INT"),
        ("SELECT t.* FROM a, UNNEST(m) AS t (x, y)", "x STRING NOT NULL, y INT"),
        ("SELECT t.* FROM a, UNNEST(m) AS t", "KEY STRING NOT NULL, VALUE INT"),
        ("SELECT t.* FROM a, UNNEST(s) AS t (x)", "x INT"),
        ("SELECT t.* FROM a, UNNEST(r) AS t (x, y)", "x INT, y STRING"),
        ("SELECT y, x FROM a, UNNEST(r)", "y STRING, x INT"),
        ("SELECT x FROM a, UNNEST(tags) AS x", "x STRING NOT NULL"),
        (
            "SELECT `EXPR$0`, `ORDINALITY` FROM a, UNNEST(tags) WITH ORDINALITY",
            "EXPR$0 STRING NOT NULL, ORDINALITY INT NOT NULL",
        ),
        ("SELECT * FROM UNNEST(ARRAY[1, 2]) AS t (x)", "x INT NOT NULL"),
        ("SELECT a.v, x FROM a CROSS JOIN UNNEST(ARRAY[v, 1]) AS t (x)", "v INT, x INT"),
        (
            "SELECT x, y FROM a, UNNEST(ARRAY[tags]) AS t (x), UNNEST(x) AS s (y)",
            "x ARRAY<STRING NOT NULL>, y STRING NOT NULL",
        ),
        ("SELECT b.w, x FROM b JOIN a USING (k), UNNEST(tags) AS t (x)", "w INT, x STRING NOT NULL"),
    ],
)
def test_columns_of_unnest(sql: str, expected: str) -> None:
    assert columns(sql) == expected


def test_a_computed_collection_is_not_in_the_result() -> None:
    plan = plan_of("SELECT * FROM b, UNNEST(ARRAY[w, w + 1]) AS t (x)")
    assert [c.name for c in plan.columns] == ["k", "v", "w", "x"]
    unnest = built("SELECT * FROM b, UNNEST(ARRAY[w, w + 1]) AS t (x)", Unnest)
    assert [c.name for c in unnest.columns] == ["k", "v", "w", "UNNEST", "x"]


def test_conditions_of_unnest() -> None:
    inner = built("SELECT 1 FROM a JOIN UNNEST(tags) AS t (x) ON x = 'p' AND v > 1", Unnest)
    assert inner.condition is None
    outer = built("SELECT 1 FROM a LEFT JOIN UNNEST(tags) AS t (x) ON x = 'p' AND v > 1", Unnest)
    assert outer.is_outer
    assert outer.condition is not None


# -- LATERAL ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT t.* FROM b, LATERAL (SELECT z FROM c WHERE c.k = b.k ORDER BY z LIMIT 2) AS t", "z INT"),
        (
            "SELECT t.* FROM b, LATERAL (SELECT COUNT(*), MAX(z) FROM c WHERE c.k = b.k) AS t (n, m)",
            "n BIGINT NOT NULL, m INT",
        ),
        ("SELECT t.* FROM b LEFT JOIN LATERAL (SELECT k FROM c WHERE c.w = b.w) AS t ON TRUE", "k STRING"),
        ("SELECT * FROM b, LATERAL (SELECT b.w + 1) AS t (x)", "k STRING NOT NULL, v BIGINT, w INT, x INT"),
        ("SELECT w, x FROM LATERAL (SELECT 1) AS t (x), b", "w INT, x INT NOT NULL"),
    ],
)
def test_columns_of_lateral(sql: str, expected: str) -> None:
    assert columns(sql) == expected


def test_lateral_joins_by_what_its_query_compares() -> None:
    join = built("SELECT 1 FROM b, LATERAL (SELECT z FROM c WHERE c.k = b.k ORDER BY z LIMIT 2) AS t", Join)
    assert join.kind is JoinKind.INNER
    assert [join.left.columns[i].name for i in join.left_keys] == ["k"]
    counted = built("SELECT 1 FROM b, LATERAL (SELECT COUNT(*) FROM c WHERE c.k = b.k) AS t (n)", Join)
    assert counted.kind is JoinKind.LEFT  # Rows without partner count 0.
    both = built("SELECT 1 FROM b LEFT JOIN LATERAL (SELECT COUNT(*) FROM c WHERE c.k = b.k) AS t (n) ON n > 1", Join)
    assert both.kind is JoinKind.LEFT
    assert both.null_safe == (True,)  # By the values of b that the query reads.


# -- FOR SYSTEM_TIME AS OF ----------------------------------------------------------------------------


def as_of(sql: str) -> AsOfJoin:
    """The join as the binder has it, before a rule decides what it becomes."""
    script = Script()
    script.run(TABLES)
    (statement,) = parse_script(sql)
    assert isinstance(statement, Select)
    select = statement.query.tree.this
    plan: Plan = PlanBuilder(script.catalog, sql).from_clause(select.args["from_"]).plan
    while not isinstance(plan, AsOfJoin):
        (plan,) = inputs_of(plan)
    return plan


def test_the_time_is_a_column_of_the_left_side() -> None:
    join = as_of("SELECT 1 FROM b, a LEFT JOIN u FOR SYSTEM_TIME AS OF a.ts AS v ON a.k = v.k")
    assert join.kind is JoinKind.LEFT
    assert join.left.columns[join.as_of].name == "ts"
    assert join.condition is not None
    assert canonical(join.condition) == "EQ($3, $11):BOOLEAN NOT NULL"
    assert join.columns[-1].type.nullable


def test_proctime_becomes_a_column_of_the_left_side_that_nobody_sees() -> None:
    sql = "SELECT * FROM b JOIN u FOR SYSTEM_TIME AS OF PROCTIME() ON b.k = u.k"
    join = as_of(sql)
    assert join.left.columns[join.as_of].type.is_proctime
    assert join.condition is not None
    assert canonical(join.condition) == "EQ($0, $4):BOOLEAN NOT NULL"


def test_a_lookup_hint_reaches_the_join_it_names() -> None:
    sql = """SELECT /*+ LOOKUP('table' = 'x', 'async' = 'true', 'retry-predicate' = 'lookup_miss',
      'retry-strategy' = 'fixed_delay', 'fixed-delay' = '1 s', 'max-attempts' = '3') */ 1
      FROM a JOIN u FOR SYSTEM_TIME AS OF a.p AS x ON a.k = x.k"""
    with pytest.raises(SqlError, match="as of processing time"):
        plan_of(sql)  # It binds; this connector answers no look-ups.


@pytest.mark.parametrize(
    ("hint", "ttl"),
    [
        ("STATE_TTL('b' = '1 d', 'c' = '2 h')", [(None, None), (86_400_000, 7_200_000)]),
        ("STATE_TTL('c' = '0 s', 'u' = '5 s')", [(None, 5_000), (None, 0)]),
        ("STATE_TTL('b' = '1 s'), STATE_TTL('u' = '2 s')", [(None, 2_000), (1_000, None)]),
        ("BROADCAST(b), SHUFFLE_HASH(c, u), NEST_LOOP(b), SHUFFLE_MERGE(b)", [(None, None), (None, None)]),
    ],
)
def test_hints_of_joins(hint: str, ttl: list[tuple[int | None, int | None]]) -> None:
    """STATE_TTL holds for the tables that a join joins directly; a batch job's hints mean nothing here."""
    upper = built(f"SELECT /*+ {hint} */ 1 FROM b JOIN c ON b.k = c.k JOIN u ON c.k = u.k", Join)
    lower = upper.left
    while not isinstance(lower, Join):
        (lower,) = inputs_of(lower)
    assert [(j.left_ttl_ms, j.right_ttl_ms) for j in (upper, lower)] == ttl
