"""The table of docs/operators.md says what the planner derives: each row is compared with the nodes of example queries.

A cell is words of a small vocabulary; what cannot be understood, and a node without a row, fail.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from planner import api
from planner.errors import SqlError
from planner.ir.operators import JoinKind, RankFunction, SetOperationKind
from planner.logical import nodes as n
from planner.logical.inserts import build_insert, build_select
from planner.logical.optimize import optimize
from planner.plan_text import node_text
from planner.settings import PlannerSettings
from planner.sql import statements as st
from planner.streaming.demand import Streaming, asked_of_input
from planner.streaming.derive import Derivation, merged
from planner.streaming.properties import Changelog, Deletes, StateBound, UpsertKey
from tests.unit.planner.test_changelog import script

PAGE = Path(__file__).parents[3] / "docs" / "operators.md"
COLUMNS = ("node", "inserts", "changes", "keys", "asks", "state", "ttl")

TABLES = """
CREATE TABLE other (k STRING, x INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'kafka', 'topic' = 'o');
CREATE TABLE cdc2 (k2 INT, x INT, PRIMARY KEY (k2) NOT ENFORCED)
  WITH ('connector' = 'kafka', 'topic' = 'c2', 'format' = 'debezium-json');
CREATE TABLE timed_cdc (k INT, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, PRIMARY KEY (k) NOT ENFORCED)
  WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'debezium-json');
CREATE TABLE rates (c STRING, r INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, PRIMARY KEY (c) NOT ENFORCED)
  WITH ('connector' = 'kafka', 'topic' = 'r', 'format' = 'debezium-json');
CREATE TABLE looked_up (id INT, kind INT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'jdbc');
CREATE TABLE tagged (k STRING, tags ARRAY<STRING>, m MAP<STRING, INT>) WITH ('connector' = 'kafka', 'topic' = 'g');
CREATE TABLE tagged_cdc (k INT, m MAP<STRING, INT>, PRIMARY KEY (k) NOT ENFORCED)
  WITH ('connector' = 'kafka', 'topic' = 'gc', 'format' = 'debezium-json');
"""

WINDOW = "TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
HOP = "HOP(TABLE {}, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' HOUR)"
COUNTED = f"""SELECT k, window_start, window_end, window_time, COUNT(*) AS c
FROM {WINDOW} GROUP BY k, window_start, window_end, window_time"""
JOIN = "SELECT a.k, v, x FROM src a {} JOIN other b ON a.k = b.k"
JOIN_CHANGES = "SELECT a.k, k2, v, x FROM cdc a {} JOIN cdc2 b ON a.v = b.k2"


def ranked(table: str, condition: str, shown: str = "k, v", function: str = "ROW_NUMBER", order: str = "v DESC") -> str:
    return (
        f"SELECT {shown} FROM (SELECT *, {function}() OVER (PARTITION BY k ORDER BY {order}) AS rn FROM {table}) "
        f"WHERE {condition}"
    )


class Example(msgspec.Struct, frozen=True):
    """A row of the table: the class of its node, what else tells the node, and queries that have it."""

    node: type
    inserts: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    is_it: Callable[[n.Plan], bool] = lambda plan: True


def _join(*kinds: JoinKind) -> Callable[[n.Plan], bool]:
    return lambda plan: isinstance(plan, n.Join) and plan.kind in kinds


def _rank(test: Callable[[n.Rank], bool]) -> Callable[[n.Plan], bool]:
    return lambda plan: isinstance(plan, n.Rank) and test(plan)


def _set(*kinds: SetOperationKind) -> Callable[[n.Plan], bool]:
    return lambda plan: isinstance(plan, n.SetOperation) and plan.kind in kinds


def _is_arrival(plan: n.Plan) -> bool:
    return isinstance(plan, n.Deduplicate) and plan.is_processing_time and not plan.keeps_last


_NUMBERED = RankFunction.ROW_NUMBER
_OUTER = (JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL)
_INTERSECTS = (SetOperationKind.INTERSECT, SetOperationKind.INTERSECT_ALL)
_EXCEPTS = (SetOperationKind.EXCEPT, SetOperationKind.EXCEPT_ALL)

EXAMPLES = {
    "TableSourceScan": Example(n.Scan, ("SELECT k FROM src",), ("SELECT k, v FROM cdc",)),
    "ChangelogNormalize": Example(n.ChangelogNormalize, (), ("SELECT * FROM upserts",)),
    "Values": Example(n.Values, ("SELECT * FROM (VALUES (1, 2)) AS t (a, b)",)),
    "Calc": Example(n.Calc, ("SELECT k FROM src WHERE v > 1",), ("SELECT v, k FROM cdc WHERE v > 1",)),
    "Expand": Example(
        n.Expand,
        ("SELECT k, v, COUNT(*) FROM src GROUP BY ROLLUP (k, v)",),
        ("SELECT k, v, COUNT(*) FROM cdc GROUP BY GROUPING SETS ((k), (k, v))",),
    ),
    "Unnest": Example(
        n.Unnest,
        ("SELECT k, tag FROM tagged CROSS JOIN UNNEST(tags) AS t (tag)",),
        ("SELECT k, a, b FROM tagged_cdc CROSS JOIN UNNEST(m) AS t (a, b)",),
    ),
    "UnionAll": Example(
        n.UnionAll,
        ("SELECT k FROM src UNION ALL SELECT k FROM files",),
        ("SELECT k, v FROM cdc UNION ALL SELECT k, v FROM cdc2 AS c (k, v)",),
    ),
    "WindowTableFunction": Example(
        n.WindowTableFunction,
        (f"SELECT k, window_end FROM {HOP.format('src')}",),
        (f"SELECT k, window_end FROM {HOP.format('timed_cdc')}",),
    ),
    "WindowAggregate": Example(
        n.WindowAggregate,
        (f"SELECT k, window_end, COUNT(*) FROM {WINDOW} GROUP BY k, window_start, window_end",),
        (f"SELECT k, window_end, COUNT(*) FROM {HOP.format('timed_cdc')} GROUP BY k, window_start, window_end",),
    ),
    "GroupAggregate": Example(
        n.GroupAggregate,
        ("SELECT k, SUM(v) FROM src GROUP BY k", "SELECT k, v, COUNT(*) FROM src GROUP BY k, v"),
        ("SELECT v, COUNT(*) FROM cdc GROUP BY v",),
    ),
    "Join INNER": Example(n.Join, (JOIN.format(""),), (JOIN_CHANGES.format(""),), _join(JoinKind.INNER)),
    "Join LEFT, RIGHT, FULL": Example(
        n.Join,
        tuple(JOIN.format(kind) for kind in ("LEFT", "RIGHT", "FULL")),
        tuple(JOIN_CHANGES.format(kind) for kind in ("LEFT", "RIGHT", "FULL")),
        _join(*_OUTER),
    ),
    "Join SEMI": Example(
        n.Join,
        ("SELECT k FROM src WHERE k IN (SELECT k FROM other)",),
        ("SELECT k, v FROM cdc WHERE v IN (SELECT k2 FROM cdc2)",),
        _join(JoinKind.SEMI),
    ),
    "Join ANTI": Example(
        n.Join,
        ("SELECT k FROM src a WHERE NOT EXISTS (SELECT 1 FROM other b WHERE a.k = b.k)",),
        ("SELECT k, v FROM cdc WHERE NOT EXISTS (SELECT 1 FROM cdc2 WHERE k2 = v)",),
        _join(JoinKind.ANTI),
    ),
    "IntervalJoin": Example(
        n.IntervalJoin,
        (
            "SELECT a.k, x FROM src a JOIN other b ON a.k = b.k AND a.ts BETWEEN b.ts - INTERVAL '1' MINUTE AND b.ts",
            f"""SELECT a.k, a.c, b.c, a.window_end, b.window_end FROM ({COUNTED}) a JOIN ({COUNTED}) b
            ON a.k = b.k AND a.window_time BETWEEN b.window_time - INTERVAL '1' MINUTE AND b.window_time""",
        ),
        (
            """SELECT a.k, b.v FROM timed_cdc a JOIN timed_cdc b
            ON a.k = b.k AND a.ts BETWEEN b.ts - INTERVAL '1' MINUTE AND b.ts""",
        ),
    ),
    "WindowJoin": Example(
        n.WindowJoin,
        (
            f"""SELECT a.k, a.c, b.c, a.window_end FROM ({COUNTED}) a JOIN ({COUNTED}) b
            ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end""",
        ),
        (
            f"""SELECT a.k, b.v FROM (SELECT * FROM {HOP.format("timed_cdc")}) a
            JOIN (SELECT * FROM {HOP.format("timed_cdc")}) b
            ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end""",
        ),
    ),
    "TemporalJoin": Example(
        n.TemporalJoin,
        ("SELECT k, r FROM src a JOIN rates FOR SYSTEM_TIME AS OF a.ts AS b ON a.k = b.c",),
        ("SELECT a.k, b.v FROM timed_cdc a JOIN timed_cdc FOR SYSTEM_TIME AS OF a.ts AS b ON a.k = b.k",),
    ),
    "LookupJoin": Example(
        n.LookupJoin,
        ("SELECT a.k, name FROM src a JOIN looked_up FOR SYSTEM_TIME AS OF PROCTIME() AS b ON a.v = b.id",),
        (
            "SELECT a.k, name FROM cdc a JOIN looked_up FOR SYSTEM_TIME AS OF PROCTIME() AS b ON a.v = b.id",
            "SELECT a.k, name FROM cdc a LEFT JOIN looked_up FOR SYSTEM_TIME AS OF PROCTIME() AS b ON b.kind = a.v",
        ),
    ),
    "Intersect, IntersectAll": Example(
        n.SetOperation,
        ("SELECT k FROM src INTERSECT SELECT k FROM other",),
        ("SELECT k, v FROM cdc INTERSECT ALL SELECT k2, x FROM cdc2",),
        _set(*_INTERSECTS),
    ),
    "Except, ExceptAll": Example(
        n.SetOperation,
        ("SELECT k FROM src EXCEPT SELECT k FROM other",),
        ("SELECT k, v FROM cdc EXCEPT ALL SELECT k2, x FROM cdc2",),
        _set(*_EXCEPTS),
    ),
    "Rank ROW_NUMBER, with its rank": Example(
        n.Rank,
        (ranked("src", "rn <= 3", "k, v, rn"),),
        (ranked("cdc", "rn <= 3", "k, v, rn"),),
        _rank(lambda r: r.function is _NUMBERED and r.puts_out_rank),
    ),
    "Rank ROW_NUMBER, one row": Example(
        n.Rank,
        (ranked("src", "rn = 1", "k, v, rn"), ranked("src", "rn = 3")),
        (ranked("cdc", "rn = 1"),),
        _rank(lambda r: r.function is _NUMBERED and r.first == r.last),
    ),
    "Rank ROW_NUMBER, without its rank": Example(
        n.Rank,
        (ranked("src", "rn <= 3"), ranked("src", "rn BETWEEN 2 AND 3")),
        (ranked("cdc", "rn <= 3"),),
        _rank(lambda r: r.function is _NUMBERED and r.first < r.last and not r.puts_out_rank),
    ),
    "Rank RANK, DENSE_RANK": Example(
        n.Rank,
        (ranked("src", "rn <= 3", "k, v, rn", "RANK"), ranked("src", "rn <= 3", "k, v, rn", "DENSE_RANK")),
        (ranked("cdc", "rn <= 3", "k, v, rn", "DENSE_RANK"),),
        _rank(lambda r: r.function is not _NUMBERED),
    ),
    "Rank by arrival": Example(
        n.Rank,
        ("SELECT COUNT(*) FROM (SELECT k FROM src LIMIT 3)",),
        ("SELECT k, v FROM cdc LIMIT 3",),
        _rank(lambda r: not r.order),
    ),
    "Deduplicate": Example(
        n.Deduplicate,
        (
            ranked("src", "rn = 1", order="ts"),
            ranked("src", "rn = 1", order="ts DESC"),
            ranked("(SELECT k, v, PROCTIME() AS p FROM src)", "rn = 1", order="p DESC"),
        ),
    ),
    "Deduplicate first row by arrival": Example(
        n.Deduplicate,
        (ranked("(SELECT k, v, PROCTIME() AS p FROM src)", "rn = 1", order="p"),),
        (),
        _is_arrival,
    ),
    "WindowRank": Example(
        n.WindowRank,
        (
            f"""SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY c DESC) AS rn
            FROM ({COUNTED})) WHERE rn <= 3""",
            f"""SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER
            (PARTITION BY window_start, window_end, k ORDER BY ts DESC) AS rn FROM {WINDOW}) WHERE rn = 1""",
        ),
    ),
    "Sort": Example(
        n.Sort,
        ("SELECT k, ts FROM src ORDER BY ts", f"{COUNTED} ORDER BY window_time"),
        ("SELECT k, ts FROM timed_cdc ORDER BY ts",),
    ),
    "Limit": Example(n.Limit, ("SELECT k FROM src LIMIT 3", f"{COUNTED} LIMIT 3")),
    "Sink": Example(
        n.TableSink,
        ("INSERT INTO log SELECT k, w FROM src",),
        ("INSERT INTO totals SELECT k, COUNT(*) FROM src GROUP BY k",),
    ),
    "ResultSink": Example(n.ResultSink, ("SELECT k FROM src",), ("SELECT k, v FROM cdc",)),
}

NOT_OPTIMISED = {n.AsOfJoin, n.OverRank}
"""What the rules leave nothing of."""


# -- the table ----------------------------------------------------------------------------------------


def rows() -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for line in PAGE.read_text().splitlines():
        cells = [c.strip().replace("`", "") for c in line.strip().strip("|").split("|")]
        if line.startswith("| `"):
            assert len(cells) == len(COLUMNS), line
            found.append(dict(zip(COLUMNS, cells, strict=True)))
    return found


ROWS = {row["node"]: row for row in rows()}


def trees(sql: str) -> tuple[n.Plan, ...]:
    session = script()
    session.run(TABLES)
    (statement,) = api.parse(sql)
    match statement:
        case st.Select():
            bound: n.Plan = build_select(statement, session.catalog)
        case st.Insert():
            bound = build_insert(statement, session.catalog)
        case _:
            raise AssertionError(sql)
    return optimize((bound,), PlannerSettings())


def nodes_of(sql: str, example: Example) -> list[n.Plan]:
    found: list[n.Plan] = []
    pending = list(trees(sql))
    while pending:
        plan = pending.pop()
        if isinstance(plan, example.node) and example.is_it(plan):
            found.append(plan)
        pending += n.inputs_of(plan)
    assert found, f"no such node in {sql}"
    return found


def test_every_node_has_a_row_and_every_row_an_example() -> None:
    assert set(ROWS) == set(EXAMPLES)
    described = {example.node for example in EXAMPLES.values()}
    assert described == set(get_args(n.Plan)) - NOT_OPTIMISED


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_row_is_what_is_derived(name: str) -> None:
    row, example = ROWS[name], EXAMPLES[name]
    derivation, with_ttl = Derivation(), Derivation(state_ttl_ms=1000)
    has_keys = False
    for cell, bounds, queries in (("inserts", 0, example.inserts), ("changes", 1, example.changes)):
        assert bool(row[cell]) is bool(queries), f"{name}: {cell}"
        for sql in queries:
            if row[cell] == "refused":
                with pytest.raises(SqlError):
                    Streaming(trees(sql), PlannerSettings())
                continue
            for plan in nodes_of(sql, example):
                assert node_text(plan).split("(")[0] in name.replace(",", "").split()
                derived = derivation.of(plan)
                expected = row[cell]
                if expected.startswith("as its"):
                    inputs = n.inputs_of(plan)[: 1 if "left" in expected else None]
                    expected = kinds(merged(tuple(derivation.of(i).changelog for i in inputs)))
                assert kinds(derived.changelog) == expected, sql
                has_keys = has_keys or bool(derived.upsert_keys)
                assert KEYS[row["keys"]](plan, derived.upsert_keys, derivation), (sql, derived.upsert_keys)
                assert ASKS[row["asks"]](plan), sql
                assert derived.state is state_of(row["state"], bounds), sql
                if with_ttl.of(plan).state is not StateBound.BY_CONSTANT:
                    assert (with_ttl.of(plan).state is StateBound.BY_TTL) is ("session" in row["ttl"]), sql
                has_hint = hasattr(plan, "state_ttl_ms") or hasattr(plan, "left_ttl_ms")
                assert has_hint is ("hint" in row["ttl"])
    assert has_keys is (row["keys"] != "none"), "an example with upsert keys is wanted"


def kinds(changelog: Changelog) -> str:
    updates = ["-U", "+U"] if changelog.has_updates else []
    return " ".join(["+I", *updates, *([] if changelog.deletes is Deletes.NONE else ["-D"])])


def state_of(cell: str, position: int) -> StateBound:
    """`A; over changes B`."""
    first, _, second = cell.partition("; over changes ")
    return StateBound(second if position and second else first)


# -- words of cells -----------------------------------------------------------------------------------

Keys = frozenset[UpsertKey]


def _inputs_keys(plan: n.Plan, derivation: Derivation, side: int = 0) -> Keys:
    return derivation.of(n.inputs_of(plan)[side]).upsert_keys


def _primary_key(plan: n.Plan, keys: Keys, derivation: Derivation) -> bool:
    scan = plan if isinstance(plan, n.Scan) else n.inputs_of(plan)[0]
    assert isinstance(scan, n.Scan)
    if scan.entry.primary_key is None:
        return not keys
    return {frozenset(plan.columns[i].name for i in key) for key in keys} == {frozenset(scan.entry.primary_key.columns)}


def _passed(plan: n.Plan, keys: Keys, derivation: Derivation) -> bool:
    assert isinstance(plan, n.Calc)
    below = {frozenset(getattr(plan.projections[i], "index", None) for i in key) for key in keys}
    return below == _inputs_keys(plan, derivation)


def _with_grouping_id(plan: n.Plan, keys: Keys, derivation: Derivation) -> bool:
    last = len(plan.columns) - 1
    return all(last in key and key - {last} in _inputs_keys(plan, derivation) for key in keys)


def _with_marker(plan: n.Plan, keys: Keys, derivation: Derivation) -> bool:
    width = len(plan.columns)
    return all(len(key & set(range(width - 2, width))) == 1 and len(key) > 1 for key in keys)


def _with_window_end(plan: n.Plan, keys: Keys, derivation: Derivation) -> bool:
    end = [c.name for c in plan.columns].index("window_end")
    return keys == {key | {end} for key in _inputs_keys(plan, derivation)}


def _group_and_bound(plan: n.Plan, keys: Keys, derivation: Derivation) -> bool:
    assert isinstance(plan, n.WindowAggregate)
    groups = frozenset(range(len(plan.keys)))
    first = len(groups) + len(plan.aggregates)
    return all(key >= groups and all(i >= first for i in key - groups) and len(key - groups) == 1 for key in keys)


def _of_sides(plan: n.Plan, keys: Keys, derivation: Derivation) -> bool:
    """Each lies within a key of the left side, one of the right side and the columns that the join compares, and has
    one of both or of one side, or columns that equal it."""
    left, right = n.inputs_of(plan)
    width = len(left.columns)
    compared = {*plan.left_keys, *(k + width for k in plan.right_keys)}  # type: ignore[union-attr]
    names = {plan.columns[i].name for i in compared if i < len(plan.columns)} | {"window_start", "window_end"}
    of_left = derivation.of(left).upsert_keys or {frozenset[int]()}
    of_right = derivation.of(right).upsert_keys or {frozenset[int]()}
    known = {frozenset({*a, *(i + width for i in b)}) for a in of_left for b in of_right}
    return all(any({i for i in key - k if plan.columns[i].name not in names} == set() for k in known) for key in keys)


def _of_left(plan: n.Plan, keys: Keys, derivation: Derivation) -> bool:
    extra = {*getattr(plan, "left_keys", ()), getattr(plan, "left_time", -1)}
    known = _inputs_keys(plan, derivation)
    return all(any(k <= key <= k | extra for k in known) for key in keys) and bool(keys) is bool(known)


def _of_input_if_one_row(plan: n.Plan, keys: Keys, derivation: Derivation) -> bool:
    assert isinstance(plan, n.LookupJoin)
    return keys == (_inputs_keys(plan, derivation) if plan.finds_one_row else frozenset())


def _partition_and(plan: n.Plan, keys: Keys, last: bool) -> bool:
    assert isinstance(plan, n.Rank | n.Deduplicate)
    return keys == {frozenset(plan.keys) | ({len(plan.input.columns)} if last else set())}


def _inputs_with_partition(plan: n.Plan, keys: Keys, derivation: Derivation) -> bool:
    assert isinstance(plan, n.Rank)
    return keys == {key | frozenset(plan.keys) for key in _inputs_keys(plan, derivation)}


def _window_rank(plan: n.Plan, keys: Keys, derivation: Derivation) -> bool:
    assert isinstance(plan, n.WindowRank)
    rank = {len(plan.input.columns)} if plan.puts_out_rank else set()
    return keys == {frozenset({*plan.keys, plan.end, *rank}), *_inputs_keys(plan, derivation)}


KEYS: dict[str, Callable[[n.Plan, Keys, Derivation], bool]] = {
    "none": lambda plan, keys, derivation: not keys,
    "the primary key of a table that changes": _primary_key,
    "the primary key": _primary_key,
    "those of which it passes every column": _passed,
    "those it passes, with the grouping id": _with_grouping_id,
    "the input's, with the ordinality or the map's key": _with_marker,
    "the input's, with window_end": _with_window_end,
    "the input's": lambda plan, keys, derivation: keys == _inputs_keys(plan, derivation),
    "group keys and a window bound": _group_and_bound,
    "the group keys": lambda plan, keys, derivation: keys == {frozenset(range(len(plan.keys)))},  # type: ignore[union-attr]
    "of both sides, or of one": _of_sides,
    "of the left side": _of_left,
    "the input's, if the table's primary key is looked up": _of_input_if_one_row,
    "all columns": lambda plan, keys, derivation: keys == {frozenset(range(len(plan.columns)))},
    "the partition and the rank": lambda plan, keys, derivation: _partition_and(plan, keys, True),
    "the partition": lambda plan, keys, derivation: _partition_and(plan, keys, False),
    "the input's, with the partition": _inputs_with_partition,
    "the partition and window_end, with the rank; the input's": _window_rank,
}


def _asks(plan: n.Plan, needs: bool) -> list[bool]:
    return [asked_of_input(plan, side, needs, False)[0] for side in range(len(n.inputs_of(plan)))]


def _sink_asks(plan: n.Plan) -> bool:
    assert isinstance(plan, n.TableSink)
    streaming = Streaming((plan,), PlannerSettings())
    is_known = frozenset(streaming.sink(plan).key) in streaming.of(plan.input).upsert_keys
    return streaming.of(plan.input).changelog.has_update_before is (
        streaming.of(plan.input).changelog.has_updates and not is_known
    )


ASKS: dict[str, Callable[[n.Plan], bool]] = {
    "": lambda plan: not n.inputs_of(plan),
    "always": lambda plan: all(_asks(plan, False)),
    "never": lambda plan: not any(_asks(plan, True)),
    "as asked of it": lambda plan: not any(_asks(plan, False)) and all(_asks(plan, True)),
    "left as asked of it, right never": lambda plan: (
        _asks(plan, False) == [False, False] and _asks(plan, True)[1] is False
    ),
    "unless it takes upserts by one of them": _sink_asks,
}
