"""What a changed query is told when it meets the state of the old one: which parts of it differ."""

from __future__ import annotations

import pytest

from planner.ir import operators as ir
from planner.ir.job_graph import Fingerprint, StatePart
from runtime.checkpoint.state_changes import state_changes, state_hint
from tests.unit.planner.catalog import Script

TABLES = """
CREATE TABLE a (id INT, k INT, v INT, w BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'kafka', 'topic' = 'a');
CREATE TABLE b (id INT, k INT, v INT, s STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'kafka', 'topic' = 'b');
CREATE TABLE u (k INT, v INT, s STRING, PRIMARY KEY (k) NOT ENFORCED)
  WITH ('connector' = 'upsert-kafka', 'topic' = 'u');
CREATE TABLE one (x BIGINT) WITH ('connector' = 'print');
CREATE TABLE two (x BIGINT, y BIGINT) WITH ('connector' = 'print');
CREATE TABLE kept (id INT, v INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'o');
"""
OF_ROWS = (ir.Join, ir.IntervalJoin, ir.WindowJoin, ir.TemporalJoin, ir.Rank, ir.WindowRank, ir.Sort, ir.Deduplicate)
KINDS = (
    *OF_ROWS,
    ir.SetOperation,
    ir.GroupAggregate,
    ir.GlobalWindowAggregate,
    ir.SinkMaterializer,
    ir.ChangelogNormalize,
)

JOIN = "INSERT INTO two SELECT {} FROM a JOIN b ON a.k = b.k"
OUTER = "INSERT INTO one SELECT a.id FROM a LEFT JOIN b ON a.k = b.k AND {}"
INTERVAL = (
    "INSERT INTO one SELECT {} FROM a LEFT JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '{}' SECOND"
)
TOP = """INSERT INTO two SELECT k, {} FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {}) rn FROM a) WHERE rn <= {}"""
GROUPED = "INSERT INTO two SELECT k, {} FROM a GROUP BY k"
WINDOWED = """INSERT INTO one SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '{}' SECOND))
  GROUP BY window_start, window_end"""

CASES = [
    (JOIN.format("a.id, a.k"), JOIN.format("a.id, b.v"), "columns of the right side: new b.v INT"),
    (
        JOIN.format("a.id, a.v"),
        JOIN.format("a.id, b.v"),
        "columns of the left side: missing a.v INT; columns of the right side: new b.v INT",
    ),
    (
        OUTER.format("a.v > 1"),
        OUTER.format("a.v > 2"),
        "condition: was GT(left.a.v, 1:INT NOT NULL), is GT(left.a.v, 2:INT NOT NULL)",
    ),
    (
        INTERVAL.format("a.id", 5),
        INTERVAL.format("a.id", 9),
        "bounds: was from 0 ms to 5000 ms, is from 0 ms to 9000 ms",
    ),
    (
        INTERVAL.format("a.id", 5),
        INTERVAL.format("b.id", 5),
        "columns of the left side: missing a.id INT; columns of the right side: new b.id INT",
    ),
    (TOP.format("v", "v DESC", 3), TOP.format("v", "v", 3), "ORDER BY: was a.v DESC, is a.v"),
    (
        TOP.format("v", "v DESC", 3),
        TOP.format("w", "v DESC", 4),
        "columns: new a.w BIGINT; ranks: was ROW_NUMBER from 1 to 3, is ROW_NUMBER from 1 to 4",
    ),
    (
        TOP.format("v", "ts", 1),
        TOP.format("v", "ts DESC", 1),
        "row kept: was the first row by a.ts, is the last row by a.ts",
    ),
    (GROUPED.format("SUM(v)"), GROUPED.format("SUM(w)"), "aggregates: was SUM(a.v INT), is SUM(a.w BIGINT)"),
    (
        GROUPED.format("SUM(v) + COUNT(*)"),
        GROUPED.format("COUNT(*) + MAX(w)"),
        "aggregates: new MAX(a.w BIGINT), missing SUM(a.v INT)",
    ),
    (
        GROUPED.format("SUM(v) + COUNT(DISTINCT w)"),
        GROUPED.format("COUNT(DISTINCT w) + SUM(v)"),
        "aggregates: in another order",
    ),
    (WINDOWED.format(5), WINDOWED.format(6), "window: was TUMBLE of 5000 ms, is TUMBLE of 6000 ms"),
]


def states(sql: str) -> dict[str, tuple[ir.Operator, Fingerprint]]:
    """By uid, of the operators that keep something by key."""
    script = Script()
    script.run(TABLES)
    graph = script.job(sql).job_graph
    operators = {o.uid: o for vertex in graph.vertices for o in vertex.operators if isinstance(o, KINDS)}
    return {f.uid: (operators[f.uid], f) for f in graph.fingerprints if f.uid in operators}


@pytest.mark.parametrize(("then", "now", "expected"), CASES)
def test_the_parts_that_differ_are_named(then: str, now: str, expected: str) -> None:
    old, new = states(then), states(now)
    changes = [
        state_changes(old[uid][1].parts, new[uid][1].parts)
        for uid in old.keys() & new.keys()
        if old[uid][1].state != new[uid][1].state
    ]
    assert changes == [expected]


OTHERS = [
    "INSERT INTO two SELECT k, v FROM a INTERSECT SELECT k, v FROM b",
    "INSERT INTO kept SELECT a.id, b.v FROM a LEFT JOIN (SELECT k, MAX(v) v FROM b GROUP BY k) b ON a.k = b.k",
    "INSERT INTO two SELECT k, COUNT(*) FROM u GROUP BY k",
]


@pytest.mark.parametrize("sql", sorted({*OTHERS, *(sql for then, now, _ in CASES for sql in (then, now))}))
def test_what_says_nothing_of_the_state_is_no_part_of_it(sql: str) -> None:
    for operator, print_ in states(sql).values():
        assert print_.parts
        assert state_changes(print_.parts, print_.parts) == ""
        assert state_hint(operator).endswith(", or start the statement without the savepoint.")


def test_a_savepoint_of_before_there_were_parts_says_no_more_than_that_they_differ() -> None:
    assert state_changes((), (StatePart("keys", ("a.k INT",)),)) == ""
