"""Joins in the planner: where conditions go, what becomes a key, what a regular join loses, keys, state, identities."""

from __future__ import annotations

import pytest

from planner.errors import SqlError
from planner.ir import operators as ir
from planner.ir.expressions import input_indexes
from planner.ir.job_graph import EdgeKind, JobGraph
from planner.ir.operators import ChangelogMode, JoinKind
from planner.logical.joins import settle_joins
from planner.logical.nodes import Calc, Column, Join, Plan, SetOperation, inputs_of
from planner.streaming.derive import derive
from planner.streaming.properties import Changelog, Deletes, StateBound
from tests.unit.planner.test_changelog import bound, graph_of, named_keys, operators, script

SRC, CDC = "(SELECT k, v, w FROM src)", "(SELECT k AS id, v FROM cdc)"
COUNTS = "(SELECT k, COUNT(*) AS n FROM src GROUP BY k)"


def joins_in(plan: Plan) -> list[Join]:
    found = [join for below in inputs_of(plan) for join in joins_in(below)]
    return [plan, *found] if isinstance(plan, Join) else found


def the_join(sql: str) -> Join:
    (join,) = joins_in(bound(sql))
    return join


def filters_in(plan: Plan) -> int:
    own = int(isinstance(plan, Calc) and plan.condition is not None)
    return own + sum(filters_in(below) for below in inputs_of(plan))


def ir_joins(graph: JobGraph) -> list[ir.Join]:
    return [o for o in operators(graph) if isinstance(o, ir.Join)]


# -- where conditions go ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "left", "right", "is_residual"),
    [
        ("JOIN", 1, 1, False),
        ("LEFT JOIN", 0, 1, True),
        ("RIGHT JOIN", 1, 0, True),
        ("FULL JOIN", 0, 0, True),
    ],
)
def test_conditions_of_on_go_below_sides_that_are_not_kept(kind: str, left: int, right: int, is_residual: bool) -> None:
    join = the_join(f"SELECT a.k FROM src a {kind} src b ON a.k = b.k AND a.v > 1 AND b.v > 2")
    assert (filters_in(join.left), filters_in(join.right)) == (left, right)
    assert (join.condition is not None) is is_residual


@pytest.mark.parametrize(
    ("kind", "where", "left", "right", "becomes"),
    [
        ("JOIN", "a.v > 1 AND b.v > 1", 1, 1, JoinKind.INNER),
        ("LEFT JOIN", "a.v > 1", 1, 0, JoinKind.LEFT),
        ("LEFT JOIN", "b.v > 1", 0, 1, JoinKind.INNER),
        ("LEFT JOIN", "b.v IS NULL", 0, 0, JoinKind.LEFT),
        ("LEFT JOIN", "COALESCE(b.v, 5) > 1", 0, 0, JoinKind.LEFT),
        ("LEFT JOIN", "b.v > 1 OR b.w > 1", 0, 1, JoinKind.INNER),
        ("LEFT JOIN", "b.v > 1 OR a.w > 1", 0, 0, JoinKind.LEFT),
        ("LEFT JOIN", "NOT (b.v > 1)", 0, 1, JoinKind.INNER),
        ("LEFT JOIN", "(b.v > 1) IS NOT TRUE", 0, 0, JoinKind.LEFT),
        ("RIGHT JOIN", "b.v > 1", 0, 1, JoinKind.RIGHT),
        ("RIGHT JOIN", "a.v > 1", 1, 0, JoinKind.INNER),
        ("FULL JOIN", "a.v > 1", 1, 0, JoinKind.LEFT),
        ("FULL JOIN", "b.v > 1", 0, 1, JoinKind.RIGHT),
        ("FULL JOIN", "a.v > b.v", 0, 0, JoinKind.INNER),
        ("FULL JOIN", "a.v IS NULL", 0, 0, JoinKind.FULL),
    ],
)
def test_where_goes_below_and_narrows_outer_joins(
    kind: str, where: str, left: int, right: int, becomes: JoinKind
) -> None:
    join = the_join(f"SELECT a.k FROM src a {kind} src b ON a.k = b.k WHERE {where}")
    assert (filters_in(join.left), filters_in(join.right), join.kind) == (left, right, becomes)


def test_where_reaches_joins_of_sub_queries() -> None:
    join = the_join("SELECT * FROM (SELECT a.k, b.v AS x FROM src a LEFT JOIN src b ON a.k = b.k) WHERE x > 1")
    assert (join.kind, filters_in(join.right)) == (JoinKind.INNER, 1)


def test_what_may_fail_stays_behind_what_stands_before_it() -> None:
    join = the_join("SELECT a.k FROM src a JOIN src b ON a.k = b.k WHERE a.v <> b.v AND 1 / a.v > 0")
    assert filters_in(join.left) == 0
    assert join.condition is not None
    first = the_join("SELECT a.k FROM src a JOIN src b ON a.v > 0 AND 1 / a.v > 0 AND a.k = b.k")
    assert filters_in(first.left) == 1


def test_a_key_that_may_fail_is_computed_only_where_its_guard_lets_it() -> None:
    join = the_join("SELECT a.k FROM src a LEFT JOIN src b ON a.w > 0 AND CAST(a.k AS INT) = b.v")
    assert isinstance(join.left, Calc)
    key = join.left.projections[join.left_keys[0]]
    assert getattr(key, "function", "") == "CASE"
    assert join.condition is not None  # The guard decides on partners still.


def test_random_conditions_stay_where_they_are() -> None:
    join = the_join("SELECT a.k FROM src a JOIN src b ON a.k = b.k WHERE a.k > UUID()")
    assert filters_in(join.left) == 0
    assert join.condition is not None


# -- keys ---------------------------------------------------------------------------------------------


def test_keys_are_columns_of_one_type() -> None:
    join = the_join("SELECT a.k FROM src a JOIN src b ON a.v = b.w AND b.v + 1 = a.v AND a.k IS NOT DISTINCT FROM b.k")
    assert join.condition is None
    assert join.null_safe == (False, False, True)
    for left, right in zip(join.left_keys, join.right_keys, strict=True):
        a, b = join.left.columns[left].type, join.right.columns[right].type
        assert a.with_nullable(True) == b.with_nullable(True)


def test_equal_or_both_null_is_a_null_safe_key() -> None:
    join = the_join("SELECT a.k FROM src a JOIN src b ON a.k = b.k OR (a.k IS NULL AND b.k IS NULL)")
    assert (join.null_safe, join.condition) == ((True,), None)


def test_a_comma_is_no_cross_join_where_a_third_table_says_what_is_equal() -> None:
    plan = bound("SELECT a.k FROM src a, src b, src c WHERE a.k = c.k AND b.k = c.k")
    assert all(join.left_keys for join in joins_in(plan))


def test_null_safe_keys_imply_no_plain_equality() -> None:
    plan = bound(
        "SELECT a.k FROM src a, src b, src c WHERE a.k IS NOT DISTINCT FROM c.k AND b.k IS NOT DISTINCT FROM c.k"
    )
    assert sorted(len(join.left_keys) for join in joins_in(plan)) == [0, 2]


@pytest.mark.parametrize(
    ("kind", "left", "right"),
    [("JOIN", 1, 1), ("LEFT JOIN", 1, 1), ("RIGHT JOIN", 1, 1), ("FULL JOIN", 1, 0)],
)
def test_a_filter_of_a_key_column_holds_for_the_other_side(kind: str, left: int, right: int) -> None:
    join = the_join(f"SELECT a.k FROM src a {kind} src b ON a.k = b.k WHERE a.k > 'm'")
    assert (filters_in(join.left), filters_in(join.right)) == (left, left if kind == "RIGHT JOIN" else right or 1)


# -- time attributes ----------------------------------------------------------------------------------


def test_a_regular_join_makes_ordinary_values_of_time_attributes() -> None:
    plan = bound("SELECT a.ts, b.k FROM src a JOIN src b ON a.k = b.k")
    (time, _) = plan.columns
    assert time.type.time_attribute is None
    with pytest.raises(SqlError) as caught:
        script().run(
            "SELECT window_start, COUNT(*) FROM TUMBLE(TABLE (SELECT a.ts, b.k FROM src a JOIN src b ON a.k = b.k), "
            "DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end"
        )
    assert "a regular join made an ordinary value of it" in caught.value.hint


def test_settling_again_changes_nothing() -> None:
    plan = bound("SELECT a.k FROM src a LEFT JOIN src b ON a.v = b.w AND a.v > 1 WHERE a.w > b.w OR b.w IS NULL")
    (below,) = inputs_of(plan)
    assert isinstance(below, Calc)
    again = settle_joins(below.input, below.condition)
    assert settle_joins(*again) == again


# -- changelogs and upsert keys -----------------------------------------------------------------------

INSERTS = Changelog()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT a.k FROM src a JOIN src b ON a.k = b.k", INSERTS),
        ("SELECT a.k FROM src a LEFT JOIN src b ON a.k = b.k", Changelog(deletes=Deletes.FULL)),
        ("SELECT b.k FROM src a RIGHT JOIN src b ON a.k = b.k", Changelog(deletes=Deletes.FULL)),
        ("SELECT b.k FROM src a FULL JOIN src b ON a.k = b.k", Changelog(deletes=Deletes.FULL)),
        ("SELECT a.k FROM src a JOIN cdc b ON a.v = b.k", Changelog(True, True, Deletes.FULL)),
        (f"SELECT a.k FROM src a JOIN {COUNTS} b ON a.k = b.k", Changelog(True, True, Deletes.NONE)),
        (f"SELECT a.k FROM src a LEFT JOIN {COUNTS} b ON a.k = b.k", Changelog(True, True, Deletes.FULL)),
    ],
)
def test_changelog_of_a_join(query: str, expected: Changelog) -> None:
    assert derive(bound(query)).changelog == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        # Each side's key is its join key: either names the row.
        ("SELECT a.k, b.k AS l FROM cdc a JOIN cdc b ON a.k = b.k", [{"k"}, {"l"}]),
        # A row of b has one partner at most; its changes of v part, so v is needed.
        ("SELECT b.k, b.v FROM cdc a JOIN cdc b ON a.k = b.v", [{"k", "v"}]),
        # Appended rows have no key; neither has what they join with.
        ("SELECT a.k, b.k AS l FROM src a JOIN cdc b ON a.v = b.k", []),
        # Rows that never change keep their key whatever the join key is.
        ("SELECT a.k, a.v, b.v AS x FROM (SELECT DISTINCT k, v FROM src) a JOIN cdc b ON a.v = b.k", [{"k", "v"}]),
        # Several partners on both sides.
        ("SELECT a.k, a.v, b.k AS l FROM cdc a JOIN cdc b ON a.v = b.v", [{"k", "v", "l"}]),
        ("SELECT a.k, b.k AS l FROM cdc a JOIN cdc b ON a.v = b.v", []),
        # Padding on the right loses the right names only; on the left the left keys.
        ("SELECT a.k, b.k AS l FROM cdc a LEFT JOIN cdc b ON a.k = b.k", [{"k"}]),
        ("SELECT a.k, b.k AS l FROM cdc a RIGHT JOIN cdc b ON a.k = b.k", [{"l"}]),
        # Padded rows of both kinds differ, as k is never NULL of itself.
        ("SELECT a.k, b.k AS l FROM cdc a FULL JOIN cdc b ON a.k = b.k", [{"k", "l"}]),
        # Here it may be: (NULL, NULL) may be two rows.
        (f"SELECT a.k, b.k AS l FROM {COUNTS} a FULL JOIN {COUNTS} b ON a.k = b.k", []),
        # One row on the right.
        (f"SELECT a.k, b.n FROM {COUNTS} a CROSS JOIN (SELECT COUNT(*) AS n FROM src) b", [{"k"}]),
        # Keys through a cast that loses nothing.
        ("SELECT a.k, b.k AS l FROM cdc a JOIN wide b ON a.k = b.k", [{"k"}, {"l"}]),
        # 0.0 and -0.0 join, and are two keys.
        (
            """SELECT a.f, b.f AS g FROM (SELECT DISTINCT CAST(v AS DOUBLE) AS f FROM src) a
            JOIN (SELECT DISTINCT CAST(v AS DOUBLE) AS f FROM src) b ON a.f = b.f""",
            [{"f"}, {"g"}],
        ),
    ],
)
def test_upsert_keys_of_a_join(query: str, expected: list[set[str]]) -> None:
    assert named_keys(bound(query)) == {frozenset(key) for key in expected}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT a.k FROM src a JOIN src b ON a.k = b.k", StateBound.UNBOUNDED),
        ("SELECT a.k FROM cdc a JOIN upserts b ON a.k = b.v", StateBound.BY_KEYS),
        ("SELECT a.k FROM files a JOIN files b ON a.k = b.k", StateBound.BY_INPUT),
        ("SELECT a.k FROM files a JOIN cdc b ON a.v = b.k", StateBound.BY_KEYS),
    ],
)
def test_state_of_a_join(query: str, expected: StateBound) -> None:
    assert derive(the_join(query)).state is expected


def test_state_with_a_time_to_live() -> None:
    (join,) = ir_joins(graph_of("SELECT a.k FROM src a JOIN src b ON a.k = b.k", {"table.exec.state.ttl": "1 h"}))
    assert (join.left_state_ttl_ms, join.right_state_ttl_ms) == (3_600_000, 3_600_000)


# -- set operations -----------------------------------------------------------------------------------


def set_operation(left: str, right: str, kind: ir.SetOperationKind) -> SetOperation:
    a, b = (inputs_of(bound(query))[0] for query in (left, right))
    return SetOperation(a, b, kind, tuple(Column(c.name, c.type) for c in a.columns))


@pytest.mark.parametrize(
    ("kind", "left", "right", "changelog", "keys"),
    [
        ("INTERSECT", "src", "src", INSERTS, [{"k", "v"}]),
        ("INTERSECT_ALL", "src", "src", INSERTS, []),
        ("EXCEPT", "src", "src", Changelog(deletes=Deletes.FULL), [{"k", "v"}]),
        ("EXCEPT_ALL", "cdc", "cdc", Changelog(deletes=Deletes.FULL), [{"k", "v"}]),
        ("INTERSECT", "cdc", "cdc", Changelog(deletes=Deletes.FULL), [{"k", "v"}]),
    ],
)
def test_set_operations(kind: str, left: str, right: str, changelog: Changelog, keys: list[set[str]]) -> None:
    plan = set_operation(f"SELECT k, v FROM {left}", f"SELECT k, v FROM {right}", ir.SetOperationKind[kind])
    assert derive(plan).changelog == changelog
    assert named_keys(plan) == {frozenset(key) for key in keys}


# -- the job ------------------------------------------------------------------------------------------


def test_both_sides_are_hashed_by_their_keys() -> None:
    graph = graph_of("SELECT a.k FROM src a JOIN src b ON a.k = b.k AND a.v = b.w", {"parallelism.default": "3"})
    vertex = next(v for v in graph.vertices if isinstance(v.operators[0], ir.Join))
    edges = graph.inputs(vertex.id)
    assert vertex.parallelism == 3
    assert [(e.input_index, e.kind, len(e.keys)) for e in edges] == [(0, EdgeKind.HASH, 2), (1, EdgeKind.HASH, 2)]


def test_a_table_joined_with_itself_is_read_once() -> None:
    graph = graph_of("SELECT a.k, a.v, b.v FROM cdc a JOIN cdc b ON a.k = b.k", {"parallelism.default": "2"})
    assert len([o for o in operators(graph) if isinstance(o, ir.Source)]) == 1
    vertex = next(v for v in graph.vertices if isinstance(v.operators[0], ir.Join))
    assert [(e.source, e.input_index) for e in graph.inputs(vertex.id)] == [(0, 0), (0, 1)]


def test_without_keys_all_rows_meet_in_one_subtask() -> None:
    graph = graph_of("SELECT a.k FROM src a JOIN src b ON a.v > b.v", {"parallelism.default": "3"})
    vertex = next(v for v in graph.vertices if isinstance(v.operators[0], ir.Join))
    assert vertex.parallelism == 1
    assert [e.kind for e in graph.inputs(vertex.id)] == [EdgeKind.SINGLE, EdgeKind.SINGLE]


def test_joins_take_old_rows_and_unique_keys() -> None:
    (join,) = ir_joins(graph_of("INSERT INTO numbers SELECT a.k, b.v FROM upserts a LEFT JOIN cdc b ON a.v = b.k"))
    assert (join.left_changelog, join.right_changelog) == (ChangelogMode.RETRACT, ChangelogMode.RETRACT)
    assert join.left_unique_key == (0,)
    assert join.right_unique_key == join.right_keys


def test_state_has_the_columns_that_are_read_and_those_that_find_a_row() -> None:
    (join,) = ir_joins(graph_of("INSERT INTO numbers SELECT b.v, 1 FROM upserts a JOIN src b ON a.v = b.v"))
    assert [c.name for c in join.left.columns] == ["k", "v"]
    assert [c.name for c in join.right.columns] == ["v"]


def test_a_key_of_many_columns_is_not_kept_for_itself() -> None:
    """Rows of the lower join have a key of three columns, two of which nobody reads: they are found by content."""
    graph = graph_of("INSERT INTO numbers SELECT c.k, 1 FROM cdc a JOIN cdc b ON a.v = b.v JOIN upserts c ON a.v = c.k")
    upper = ir_joins(graph)[-1]
    assert ([c.name for c in upper.left.columns], upper.left_unique_key) == (["v"], None)


def test_equal_joins_of_a_statement_set_are_one() -> None:
    graph = graph_of(
        """EXECUTE STATEMENT SET BEGIN
        INSERT INTO numbers SELECT a.v, b.w FROM src a JOIN src b ON a.k = b.k;
        INSERT INTO log SELECT a.k, b.w FROM src a JOIN src b ON a.k = b.k WHERE b.w IS NOT NULL OR a.v > b.v; END"""
    )
    assert len(ir_joins(graph)) == 2  # Other columns, other conditions.
    graph = graph_of(
        """EXECUTE STATEMENT SET BEGIN
        INSERT INTO numbers SELECT a.v, b.w FROM src a LEFT JOIN src b ON a.k = b.k;
        INSERT INTO numbers SELECT a.v, b.w + 1 FROM src a LEFT JOIN src b ON a.k = b.k; END"""
    )
    assert len(ir_joins(graph)) == 1


def test_in_batch_mode_joined_rows_are_final() -> None:
    settings = {"execution.runtime-mode": "batch"}
    job = script(settings).job("SELECT a.k FROM files a LEFT JOIN files b ON a.k = b.k")
    (join,) = ir_joins(job.job_graph)
    assert join.emits_at_end
    assert job.changelog is ChangelogMode.INSERT_ONLY


def uids_and_states(sql: str) -> dict[str, str]:
    graph = graph_of(sql)
    uids = {join.uid for join in ir_joins(graph)}
    return {print_.uid: print_.state for print_ in graph.fingerprints if print_.uid in uids}


BASE = "INSERT INTO log SELECT a.k, b.w FROM src a LEFT JOIN src b ON a.k = b.k AND a.v > b.v"


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        ("INSERT INTO log SELECT x.k, y.w AS z FROM src AS x LEFT JOIN src AS y ON y.k = x.k AND x.v > y.v", True),
        ("INSERT INTO log SELECT a.k, b.w FROM src a LEFT JOIN src b ON a.k = b.k AND a.v >= b.v", False),
        ("INSERT INTO log SELECT a.k, b.w + a.w FROM src a LEFT JOIN src b ON a.k = b.k AND a.v > b.v", False),
    ],
)
def test_identity_of_a_join(other: str, is_same: bool) -> None:
    """The condition decides how many partners are counted; the columns are what is kept."""
    mine, theirs = uids_and_states(BASE), uids_and_states(other)
    assert set(mine) == set(theirs)
    assert (mine == theirs) is is_same


def test_the_condition_of_an_inner_join_is_no_part_of_its_state() -> None:
    texts = [BASE.replace("LEFT JOIN", "JOIN").replace(">", sign) for sign in (">", "<")]
    first, second = (uids_and_states(text) for text in texts)
    assert first == second


def test_upsert_sink_of_a_foreign_key_needs_a_materializer() -> None:
    graph = graph_of("INSERT INTO wide SELECT a.k, a.v FROM cdc a JOIN upserts b ON a.v = b.k")
    assert any(isinstance(o, ir.SinkMaterializer) for o in operators(graph))
    keyed = graph_of("INSERT INTO wide SELECT a.k, a.v FROM cdc a JOIN upserts b ON a.k = b.k")
    assert not any(isinstance(o, ir.SinkMaterializer) for o in operators(keyed))


def test_what_one_subtask_joins_is_spread_by_the_sinks_key() -> None:
    """Both the number and the text are upsert keys of the one subtask's output; the primary key is the second."""
    graph = graph_of(
        """CREATE TABLE named (k INT, t STRING, n BIGINT, PRIMARY KEY (t) NOT ENFORCED)
          WITH ('connector' = 'upsert-kafka', 'topic' = 'n');
        INSERT INTO named SELECT a.k, a.t, b.c
          FROM (SELECT k, CAST(k AS STRING) AS t, COUNT(*) AS n FROM cdc GROUP BY k) a
          CROSS JOIN (SELECT COUNT(*) AS c FROM src) b""",
        {"parallelism.default": "3"},
    )
    sink = next(v for v in graph.vertices if any(isinstance(o, ir.Sink) for o in v.operators))
    (edge,) = graph.inputs(sink.id)
    assert (edge.kind, [edge.schema.columns[i].name for i in edge.keys]) == (EdgeKind.HASH, ["t"])


def test_a_sink_of_inserts_takes_no_outer_join() -> None:
    with pytest.raises(SqlError) as caught:
        script().run(
            "CREATE TABLE t (k STRING) WITH ('connector' = 'kafka', 'topic' = 't');"
            "INSERT INTO t SELECT a.k FROM src a LEFT JOIN src b ON a.k = b.k"
        )
    assert "delete changes, which is produced by node Join(joinType=[left]" in caught.value.message


def test_conditions_read_both_sides_by_position() -> None:
    (join,) = ir_joins(graph_of("SELECT a.k FROM src a JOIN src b ON a.k = b.k AND a.v > b.w"))
    assert join.condition is not None
    width = len(join.left.columns)
    assert {i < width for i in input_indexes(join.condition)} == {True, False}


@pytest.mark.parametrize(
    ("query", "is_warned"),
    [
        ("SELECT a.v, b.w FROM cdc a JOIN src b ON a.k = b.v AND b.k > UUID()", True),
        ("SELECT a.v, b.w FROM src a JOIN src b ON a.k = b.k AND b.k > UUID()", False),
        ("SELECT v, v FROM cdc WHERE UUID() > 'x'", True),
    ],
)
def test_conditions_of_chance_over_changes(query: str, is_warned: bool) -> None:
    sql = f"EXPLAIN INSERT INTO numbers {query}"
    assert ("gives another answer each time" in str(script().run(sql))) is is_warned
    if is_warned:
        with pytest.raises(SqlError):
            script({"table.optimizer.non-deterministic-update.strategy": "TRY_RESOLVE"}).run(sql)
