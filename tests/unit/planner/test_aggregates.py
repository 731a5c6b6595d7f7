"""GROUP BY, grouping sets, SELECT DISTINCT: types, nullability, and the shape of what is planned."""

from __future__ import annotations

import pytest

from planner.analysis.grouping_sets import GroupingSets, read_grouping_sets
from planner.analysis.scope import Relation, Scope, ScopeColumn
from planner.ir import operators as ir
from planner.ir import types as t
from planner.ir.expressions import Literal
from planner.sql.nodes import SelectQuery
from planner.sql.parser import parse_script
from planner.sql.statements import Insert, Select
from tests.unit.planner.catalog import Script, error_of

TABLE = """CREATE TABLE t (
  i INT, n INT NOT NULL, d DOUBLE NOT NULL, dc DECIMAL(10, 2) NOT NULL, s STRING NOT NULL, ts TIMESTAMP(3) NOT NULL,
  a ARRAY<INT>, r ROW<x INT>, pt AS PROCTIME(), WATERMARK FOR ts AS ts
) WITH ('connector' = 'kafka');"""
WINDOWS = "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"


def columns_of(query: str) -> list[str]:
    script = Script()
    script.run(TABLE)
    result = script.job(query).result
    assert result is not None
    return [c.type.summary() for c in result.columns]


def operators_of(query: str) -> list[ir.Operator]:
    script = Script()
    script.run(TABLE)
    return [operator for vertex in script.job(query).job_graph.vertices for operator in vertex.operators]


def group_aggregate(query: str) -> ir.GroupAggregate:
    (found,) = [o for o in operators_of(query) if isinstance(o, ir.GroupAggregate)]
    return found


NOT_NULL_ARGUMENTS = {
    "COUNT(*)": "BIGINT NOT NULL",
    "COUNT(i)": "BIGINT NOT NULL",
    "COUNT(DISTINCT i)": "BIGINT NOT NULL",
    "SUM(n)": "INT NOT NULL",
    "SUM(i)": "INT",
    "SUM(n) FILTER (WHERE i > 0)": "INT",
    "COUNT(n) FILTER (WHERE i > 0)": "BIGINT NOT NULL",
    "SUM(dc)": "DECIMAL(38, 2)",
    "AVG(n)": "INT NOT NULL",
    "AVG(dc)": "DECIMAL(38, 6)",
    "MIN(s)": "STRING NOT NULL",
    "MAX(ts)": "TIMESTAMP(3) NOT NULL",
    "MAX(dc)": "DECIMAL(10, 2) NOT NULL",
    "STDDEV_POP(d)": "DOUBLE NOT NULL",
    "STDDEV_SAMP(d)": "DOUBLE",
    "STDDEV(n)": "INT",
    "VARIANCE(d)": "DOUBLE",
    "VAR_POP(n)": "INT NOT NULL",
    "FIRST_VALUE(s)": "STRING NOT NULL",
    "LAST_VALUE(a)": "ARRAY<INT>",
    "LAST_VALUE(r)": "ROW<`x` INT>",
    "LISTAGG(s)": "STRING NOT NULL",
    "LISTAGG(DISTINCT s, '; ')": "STRING NOT NULL",
    "SUM(n) + COUNT(*)": "BIGINT NOT NULL",
}


@pytest.mark.parametrize("call", NOT_NULL_ARGUMENTS)
def test_type_in_a_group(call: str) -> None:
    assert columns_of(f"SELECT {call} FROM t GROUP BY i") == [NOT_NULL_ARGUMENTS[call]]


@pytest.mark.parametrize("call", ["SUM(n)", "MIN(s)", "FIRST_VALUE(s)", "LISTAGG(s)", "AVG(n)", "VAR_POP(d)"])
def test_without_group_by_all_but_count_may_be_null(call: str) -> None:
    (type_,) = columns_of(f"SELECT {call} FROM t")
    assert not type_.endswith("NOT NULL")
    assert columns_of("SELECT COUNT(*), COUNT(DISTINCT n) FROM t") == ["BIGINT NOT NULL"] * 2


def test_calls_as_the_operator_gets_them() -> None:
    node = group_aggregate(
        "SELECT i, MAX(DISTINCT n), COUNT(1), COUNT(DISTINCT n), LISTAGG(s, '|'), SUM(n) FROM t GROUP BY i"
    )
    functions = [(c.function, c.distinct, c.separator) for c in node.aggregates]
    assert functions == [
        (ir.AggregateFunction.MAX, False, ","),
        (ir.AggregateFunction.COUNT_STAR, False, ","),
        (ir.AggregateFunction.COUNT, True, ","),
        (ir.AggregateFunction.LISTAGG, False, "|"),
        (ir.AggregateFunction.SUM, False, ","),
    ]


def test_equal_calls_are_computed_once() -> None:
    node = group_aggregate(
        "SELECT SUM(n), SUM(n) + 1, SUM(DISTINCT n), AVG(n) FROM t HAVING SUM(n) > 3 AND SUM(t.n) < 9"
    )
    assert [(c.function.value, c.distinct) for c in node.aggregates] == [("SUM", False), ("SUM", True), ("AVG", False)]


def test_listagg_with_another_separator_is_another_call() -> None:
    node = group_aggregate("SELECT LISTAGG(s), LISTAGG(s, ','), LISTAGG(s, ';') FROM t")
    assert [c.separator for c in node.aggregates] == [",", ";"]


def test_an_aggregation_without_from_is_over_one_row() -> None:
    assert columns_of("SELECT COUNT(*), SUM(2)") == ["BIGINT NOT NULL", "INT"]


def test_distinct_is_a_group_aggregate_without_calls() -> None:
    node = group_aggregate("SELECT DISTINCT i, n + 1 FROM t")
    assert node.aggregates == ()
    assert len(node.keys) == 2
    assert columns_of("SELECT DISTINCT n, ts FROM t") == ["INT NOT NULL", "TIMESTAMP(3) NOT NULL"]


def test_window_columns_group_into_windows_only_together() -> None:
    together = operators_of(f"SELECT window_start, COUNT(*) FROM {WINDOWS} GROUP BY window_start, window_end")
    assert any(isinstance(o, ir.GlobalWindowAggregate) for o in together)
    for keys in ("window_start", "window_end", "window_time", "i"):
        alone = operators_of(f"SELECT COUNT(*) FROM {WINDOWS} GROUP BY {keys}")
        assert any(isinstance(o, ir.GroupAggregate) for o in alone), keys
        assert not any(isinstance(o, ir.GlobalWindowAggregate) for o in alone), keys


def test_window_columns_of_every_grouping_set_are_the_windows() -> None:
    grouped = f"SELECT COUNT(*) FROM {WINDOWS} GROUP BY GROUPING SETS "
    within = f"{grouped} ((window_start, window_end, i), (window_end, window_start))"
    assert any(isinstance(o, ir.GlobalWindowAggregate) for o in operators_of(within))
    apart = f"{grouped} ((window_start, window_end), (i))"
    assert any(isinstance(o, ir.GroupAggregate) for o in operators_of(apart))


def test_a_key_missing_from_a_set_may_be_null() -> None:
    query = "SELECT n, s, COUNT(*), GROUPING(n), GROUPING_ID(s, n), GROUP_ID() FROM t GROUP BY n, ROLLUP (s)"
    assert columns_of(query) == ["INT NOT NULL", "STRING", *["BIGINT NOT NULL"] * 4]


def test_arguments_keep_their_values_where_the_key_is_null() -> None:
    (expand,) = [o for o in operators_of("SELECT n, SUM(n) FROM t GROUP BY ROLLUP (n)") if isinstance(o, ir.Expand)]
    shown = [["NULL" if e == Literal(None, t.INT) else type(e).__name__ for e in p] for p in expand.projections]
    assert shown == [["InputRef", "Literal", "InputRef"], ["NULL", "Literal", "InputRef"]]


def grouping_sets(clause: str) -> tuple[list[str], list[tuple[str, ...]], GroupingSets]:
    """Key names, and the sets as key names."""
    columns = tuple(ScopeColumn(name, t.INT) for name in "abcd")
    (statement,) = parse_script(f"SELECT 1 FROM t GROUP BY {clause}")
    assert isinstance(statement, Select)
    body = statement.query.tree.this
    assert isinstance(body, SelectQuery)
    read = read_grouping_sets(body.args["group"], Scope((Relation((), columns),)), statement.text, frozenset())
    return list(read.names), [tuple(read.names[i] for i in sorted(s)) for s in read.sets], read


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("a, b", [("a", "b")]),
        ("()", [()]),
        ("(a, b), c", [("a", "b", "c")]),
        ("a, a", [("a",)]),
        ("ROLLUP (a, b)", [("a", "b"), ("a",), ()]),
        ("ROLLUP ((a, b), c)", [("a", "b", "c"), ("a", "b"), ()]),
        ("CUBE (a, b)", [("a", "b"), ("a",), ("b",), ()]),
        ("GROUPING SETS (a, (b, c), ())", [("a",), ("b", "c"), ()]),
        ("GROUPING SETS (a, ROLLUP (b))", [("a",), ("b",), ()]),
        ("GROUPING SETS (GROUPING SETS (a), CUBE (b))", [("a",), ("b",), ()]),
        ("a, ROLLUP (b), CUBE (c)", [("a", "b", "c"), ("a", "b"), ("a", "c"), ("a",)]),
        ("GROUPING SETS ((a), (a), ())", [("a",), ("a",), ()]),
    ],
)
def test_grouping_sets(clause: str, expected: list[tuple[str, ...]]) -> None:
    assert grouping_sets(clause)[1] == expected


def test_grouping_ids_follow_flink_and_tell_repeated_sets_apart() -> None:
    _, _, read = grouping_sets("GROUPING SETS ((a, b), (a), (b), (), (a))")
    assert read.grouping_ids() == (0b00, 0b01, 0b10, 0b11, 0b101)
    assert read.repetitions() == (0, 0, 0, 0, 1)
    assert GroupingSets.grouping_value(frozenset({1}), (1, 0)) == 0b01


@pytest.mark.parametrize("action", ["NOTHING", "ERROR", "DEDUPLICATE"])
def test_on_conflict_is_read_with_its_place(action: str) -> None:
    text = f"INSERT INTO t SELECT 1 FROM u ON CONFLICT DO {action.lower()}"
    (statement,) = parse_script(text)
    assert isinstance(statement, Insert)
    assert statement.conflict is not None
    assert statement.conflict.action == action
    assert text[statement.conflict.span.start : statement.conflict.span.end] == f"ON CONFLICT DO {action.lower()}"
    assert statement.query.text == "SELECT 1 FROM u"


def test_the_loss_of_a_time_attribute_is_named() -> None:
    window = "SELECT * FROM TUMBLE(({}), DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
    cases = {
        "SELECT DISTINCT ts FROM t": "SELECT DISTINCT made",
        "SELECT ts, COUNT(*) AS c FROM t GROUP BY ts": "GROUP BY without a window made",
        "SELECT MAX(ts) AS ts FROM t GROUP BY i": "the aggregate MAX(ts) made",
        "SELECT ts FROM (SELECT DISTINCT ts FROM t)": "SELECT DISTINCT made",
    }
    for query, reason in cases.items():
        error = error_of(TABLE + window.format(query))
        assert reason in error.hint, query
