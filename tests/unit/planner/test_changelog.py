"""Changelogs: upsert keys, who needs −U, emission, exchanges that keep order, reuse, identities."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from planner import api
from planner.ir import operators as ir
from planner.ir.job_graph import EdgeKind, JobGraph
from planner.ir.operators import ChangelogMode, Emission
from planner.logical.inserts import build_insert, build_select
from planner.logical.nodes import Plan
from planner.sql import statements as st
from planner.streaming.derive import derive
from tests.unit.planner.catalog import Script

TABLES = """
CREATE TABLE src (k STRING, v INT, w BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
  WITH ('connector' = 'kafka', 'topic' = 'src');
CREATE TABLE files (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = '/in');
CREATE TABLE upserts (k INT, v INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'u');
CREATE TABLE cdc (k INT, v INT, PRIMARY KEY (k) NOT ENFORCED)
  WITH ('connector' = 'kafka', 'topic' = 'c', 'format' = 'debezium-json');
CREATE TABLE events (k INT, v INT) WITH ('connector' = 'kafka', 'topic' = 'e', 'format' = 'debezium-json');
CREATE TABLE totals (k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED)
  WITH ('connector' = 'upsert-kafka', 'topic' = 't');
CREATE TABLE wide (k BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'w');
CREATE TABLE narrow (k SMALLINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED)
  WITH ('connector' = 'upsert-kafka', 'topic' = 'n');
CREATE TABLE log (k STRING, n BIGINT) WITH ('connector' = 'print');
CREATE TABLE numbers (k INT, n BIGINT) WITH ('connector' = 'print');
"""


def script(settings: dict[str, str] | None = None) -> Script:
    session = Script()
    session.run(TABLES)
    session.settings.update(settings or {})
    return session


def graph_of(sql: str, settings: dict[str, str] | None = None) -> JobGraph:
    return script(settings).job(sql).job_graph


def operators(graph: JobGraph) -> Iterator[ir.Operator]:
    return itertools.chain.from_iterable(v.operators for v in graph.vertices)


def group_aggregates(graph: JobGraph) -> list[ir.GroupAggregate]:
    return [o for o in operators(graph) if isinstance(o, ir.GroupAggregate)]


def kinds(graph: JobGraph) -> list[str]:
    return [type(o).__name__ for o in operators(graph)]


def bound(sql: str) -> Plan:
    session = script()
    (statement,) = api.parse(sql)
    match statement:
        case st.Select():
            return build_select(statement, session.catalog)
        case st.Insert():
            return build_insert(statement, session.catalog)
        case _:
            raise AssertionError(sql)


def named_keys(plan: Plan) -> set[frozenset[str]]:
    return {frozenset(plan.columns[i].name for i in key) for key in derive(plan).upsert_keys}


# -- what a plan gives --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT k, v FROM src", []),
        ("SELECT k, v FROM cdc", [{"k"}]),
        ("SELECT k, v FROM events", []),
        ("SELECT v, k AS kk FROM upserts WHERE v > 1", [{"kk"}]),
        ("SELECT v FROM cdc", []),
        ("SELECT k + 1 AS k FROM cdc", []),
        ("SELECT CAST(k AS BIGINT) AS big, v FROM cdc", [{"big"}]),
        ("SELECT CAST(k AS STRING) AS text, v FROM cdc", [{"text"}]),
        ("SELECT CAST(k AS SMALLINT) AS small, v FROM cdc", []),
        ("SELECT k, COUNT(*) AS c FROM src GROUP BY k", [{"k"}]),
        ("SELECT COUNT(*) AS c, v, k FROM src GROUP BY k, v", [{"k", "v"}]),
        ("SELECT COUNT(*) AS c FROM src", [set()]),
        ("SELECT COUNT(*) AS c FROM src GROUP BY k", []),
        ("SELECT DISTINCT k, v FROM src", [{"k", "v"}]),
        ("SELECT k, COUNT(*) AS c FROM src GROUP BY k UNION ALL SELECT k, COUNT(*) FROM src GROUP BY k", []),
        (
            """SELECT k, window_start, COUNT(*) AS c FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
            GROUP BY k, window_start, window_end""",
            [{"k", "window_start"}],
        ),
        (
            """SELECT k, window_start, window_end, COUNT(*) AS c
            FROM CUMULATE(TABLE src, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' HOUR)
            GROUP BY k, window_start, window_end""",
            [{"k", "window_end"}],
        ),
    ],
)
def test_upsert_keys(query: str, expected: list[set[str]]) -> None:
    assert named_keys(bound(query)) == {frozenset(key) for key in expected}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT k FROM src", ChangelogMode.INSERT_ONLY),
        ("SELECT DISTINCT k FROM src", ChangelogMode.INSERT_ONLY),
        ("SELECT DISTINCT k FROM cdc", ChangelogMode.RETRACT),
        ("SELECT k, COUNT(*) FROM src GROUP BY k", ChangelogMode.RETRACT),
        ("SELECT k FROM upserts", ChangelogMode.UPSERT),
        ("SELECT k FROM cdc", ChangelogMode.RETRACT),
        ("SELECT k FROM cdc UNION ALL SELECT v FROM src", ChangelogMode.RETRACT),
    ],
)
def test_modes_of_bound_plans(query: str, expected: ChangelogMode) -> None:
    assert derive(bound(query)).changelog.mode is expected


# -- what consumers need ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "has_update_before"),
    [
        ("INSERT INTO totals SELECT k, COUNT(*) FROM src GROUP BY k", False),
        ("INSERT INTO totals SELECT * FROM (SELECT k, COUNT(*) AS c FROM src GROUP BY k) WHERE c < 3", True),
        ("INSERT INTO totals SELECT * FROM (SELECT k, COUNT(*) AS c FROM src GROUP BY k) WHERE k > 'm'", False),
        ("INSERT INTO totals SELECT * FROM (SELECT k, COUNT(*) AS c FROM src GROUP BY k) WHERE UUID() > 'a'", True),
        (
            "INSERT INTO totals SELECT k, MAX(c) FROM (SELECT k, v, COUNT(*) AS c FROM src GROUP BY k, v) GROUP BY k",
            None,
        ),
        ("INSERT INTO totals SELECT UPPER(k), COUNT(*) FROM src GROUP BY k", True),
        ("INSERT INTO totals SELECT 'all', COUNT(*) FROM src", False),
        ("INSERT INTO log SELECT k, COUNT(*) FROM src GROUP BY k", True),
        ("SELECT k, COUNT(*) FROM src GROUP BY k", True),
        ("INSERT INTO wide SELECT v, COUNT(*) FROM src GROUP BY v", False),
        ("INSERT INTO narrow SELECT CAST(v AS SMALLINT), COUNT(*) FROM src GROUP BY v", True),
    ],
)
def test_update_before_is_left_out_only_where_nobody_needs_it(sql: str, has_update_before: bool | None) -> None:
    found = group_aggregates(graph_of(sql))
    if has_update_before is None:
        inner, outer = found
        assert inner.emits_update_before, "an aggregate takes the old row back"
        assert not outer.emits_update_before
        return
    assert [o.emits_update_before for o in found] == [has_update_before]


def test_one_consumer_in_need_of_update_before_is_enough() -> None:
    graph = graph_of(
        "EXECUTE STATEMENT SET BEGIN INSERT INTO totals SELECT k, COUNT(*) FROM src GROUP BY k; "
        "INSERT INTO log SELECT k, COUNT(*) FROM src GROUP BY k; END"
    )
    (shared,) = group_aggregates(graph)
    assert shared.emits_update_before
    assert shared.emission is Emission.EVERY
    assert kinds(graph).count("DropUpdateBefore") == 1


def test_a_filter_on_the_way_lets_update_before_through_to_the_sink() -> None:
    graph = graph_of("INSERT INTO totals SELECT k, COUNT(*) FROM src GROUP BY k HAVING COUNT(*) < 3")
    sink = graph.vertices[-1].operators[-1]
    assert isinstance(sink, ir.Sink)
    assert sink.changelog is ChangelogMode.RETRACT
    assert "DropUpdateBefore" not in kinds(graph)


@pytest.mark.parametrize(
    ("sql", "settings", "expected"),
    [
        ("INSERT INTO totals SELECT k, COUNT(*) FROM src GROUP BY k", {}, Emission.NET),
        ("INSERT INTO totals SELECT k, COUNT(*) FROM src GROUP BY k HAVING COUNT(*) < 3", {}, Emission.NET),
        ("INSERT INTO log SELECT k, COUNT(*) FROM src GROUP BY k", {}, Emission.EVERY),
        ("SELECT k, COUNT(*) FROM src GROUP BY k", {}, Emission.EVERY),
        (
            "SELECT k, COUNT(*) FROM src GROUP BY k",
            {
                "table.exec.mini-batch.enabled": "true",
                "table.exec.mini-batch.allow-latency": "1 s",
                "table.exec.mini-batch.size": "7",
            },
            Emission.NET,
        ),
        ("SELECT k, COUNT(*) FROM files GROUP BY k", {"execution.runtime-mode": "batch"}, Emission.NET),
    ],
)
def test_emission(sql: str, settings: dict[str, str], expected: Emission) -> None:
    (aggregate,) = group_aggregates(graph_of(sql, settings))
    assert aggregate.emission is expected
    assert aggregate.mini_batch == (ir.MiniBatch(7, 1000) if "table.exec.mini-batch.size" in settings else None)
    assert aggregate.emits_at_end == ("execution.runtime-mode" in settings)


def test_batch_results_are_final_rows() -> None:
    job = script({"execution.runtime-mode": "batch"}).job("SELECT k, COUNT(*) FROM files GROUP BY k LIMIT 3")
    assert job.changelog is ChangelogMode.INSERT_ONLY
    assert all(e.changelog is ChangelogMode.INSERT_ONLY for e in job.job_graph.edges)


@pytest.mark.parametrize(
    ("sql", "has_row"),
    [
        ("SELECT COUNT(*) FROM files", True),
        ("SELECT COUNT(*) FROM src", False),
        ("SELECT k, COUNT(*) FROM files GROUP BY k", False),
        ("SELECT 1 FROM (SELECT COUNT(*), SUM(v) FROM files)", True),
    ],
)
def test_the_row_over_nothing_belongs_to_global_aggregates_over_bounded_input(sql: str, has_row: bool) -> None:
    (aggregate,) = group_aggregates(graph_of(sql))
    assert aggregate.emits_row_over_nothing is has_row
    assert aggregate.aggregates or aggregate.keys


# -- phases -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "settings", "is_two_phase"),
    [
        ("INSERT INTO totals SELECT k, SUM(v) FROM src GROUP BY k", {}, True),
        ("INSERT INTO totals SELECT k, SUM(v) FROM src GROUP BY k", {"parallelism.default": "1"}, True),
        ("INSERT INTO totals SELECT k, COUNT(DISTINCT v) FROM src GROUP BY k", {}, False),
        ("INSERT INTO totals SELECT k, MAX(v) FROM src GROUP BY k", {}, True),
        ("INSERT INTO wide SELECT v, MAX(k) FROM cdc GROUP BY v", {}, False),
        ("INSERT INTO wide SELECT v, SUM(k) FROM cdc GROUP BY v", {}, True),
        ("INSERT INTO log SELECT k, SUM(v) FROM src GROUP BY k", {}, False),
        (
            "INSERT INTO log SELECT k, SUM(v) FROM src GROUP BY k",
            {"table.optimizer.agg-phase-strategy": "TWO_PHASE"},
            False,
        ),
        (
            "INSERT INTO totals SELECT k, SUM(v) FROM src GROUP BY k",
            {"table.optimizer.agg-phase-strategy": "ONE_PHASE"},
            False,
        ),
    ],
)
def test_two_phases(sql: str, settings: dict[str, str], is_two_phase: bool) -> None:
    graph = graph_of(sql, {"parallelism.default": "4", **settings})
    assert ("LocalGroupAggregate" in kinds(graph)) is is_two_phase
    (aggregate,) = group_aggregates(graph)
    assert aggregate.from_partials is is_two_phase


def test_signed_partials_over_a_changing_input() -> None:
    graph = graph_of("INSERT INTO wide SELECT v, SUM(k) FROM cdc GROUP BY v", {"parallelism.default": "2"})
    (local,) = (o for o in operators(graph) if isinstance(o, ir.LocalGroupAggregate))
    assert local.input_changelog is ChangelogMode.RETRACT
    assert [c.name for c in local.output.columns] == ["v", "$row_count", "$accumulator0_0", "$accumulator0_1"]
    (edge,) = graph.inputs(1)
    assert (edge.kind, edge.keys, edge.changelog) == (EdgeKind.HASH, (0,), ChangelogMode.INSERT_ONLY)


# -- order --------------------------------------------------------------------------------------------

_QUERIES = (
    "SELECT k, v FROM cdc WHERE v > 1",
    "SELECT k, v + 1 FROM cdc /*+ OPTIONS('scan.parallelism' = '2') */",
    "SELECT k, v FROM upserts WHERE v > 1",
    "SELECT k, v FROM upserts /*+ OPTIONS('scan.parallelism' = '3') */",
    "SELECT k, v FROM events",
    "SELECT v, COUNT(*) FROM src GROUP BY v",
    "SELECT 1, COUNT(*) FROM cdc",
    "SELECT v, COUNT(*) FROM src GROUP BY v UNION ALL SELECT 1, COUNT(*) FROM src",
    "SELECT v, COUNT(*) FROM (SELECT * FROM src UNION ALL SELECT * FROM src) GROUP BY v",
    "SELECT DISTINCT k, v FROM cdc UNION ALL SELECT k, v FROM events",
)


@pytest.mark.parametrize("query", _QUERIES)
@pytest.mark.parametrize("sink", ["numbers", "wide", "wide /*+ OPTIONS('sink.parallelism' = '3') */"])
@pytest.mark.parametrize("parallelism", ["1", "4"])
def test_changes_never_travel_in_turn(query: str, sink: str, parallelism: str) -> None:
    graph = graph_of(f"INSERT INTO {sink} {query}", {"parallelism.default": parallelism})
    for edge in graph.edges:
        if edge.changelog is not ChangelogMode.INSERT_ONLY:
            assert edge.kind in (EdgeKind.FORWARD, EdgeKind.SINGLE, EdgeKind.HASH), edge
        if edge.kind is EdgeKind.FORWARD:
            assert graph.vertex(edge.source).parallelism == graph.vertex(edge.target).parallelism


def test_a_materializer_gets_whole_rows_by_the_primary_key() -> None:
    graph = graph_of(
        "INSERT INTO totals SELECT CAST(c AS STRING), v FROM (SELECT v, k, COUNT(*) AS c FROM src GROUP BY k, v)",
        {"parallelism.default": "4", "table.exec.state.ttl": "1 h"},
    )
    (materializer,) = (o for o in operators(graph) if isinstance(o, ir.SinkMaterializer))
    assert materializer.keys == (0,)
    assert materializer.upsert_key == ()
    assert materializer.state_ttl_ms == 3_600_000
    (edge,) = graph.inputs(graph.vertices[-1].id)
    assert (edge.kind, edge.keys, edge.changelog) == (EdgeKind.HASH, (0,), ChangelogMode.RETRACT)


@pytest.mark.parametrize(
    ("sql", "mode", "expected"),
    [
        ("INSERT INTO totals SELECT k, COUNT(*) FROM src GROUP BY k", "AUTO", None),
        ("INSERT INTO totals SELECT k, COUNT(*) FROM src GROUP BY k", "FORCE", "DEDUPLICATE"),
        ("INSERT INTO totals SELECT UPPER(k), COUNT(*) FROM src GROUP BY k", "AUTO", "DEDUPLICATE"),
        ("INSERT INTO totals SELECT UPPER(k), COUNT(*) FROM src GROUP BY k", "NONE", None),
        ("INSERT INTO totals SELECT k, v FROM src", "AUTO", None),
        ("INSERT INTO totals SELECT k, v FROM src ON CONFLICT DO ERROR", "AUTO", "ERROR"),
        ("INSERT INTO totals SELECT k, v FROM src ON CONFLICT DO DEDUPLICATE", "AUTO", None),
        ("INSERT INTO totals SELECT k, COUNT(*) FROM src GROUP BY k ON CONFLICT DO NOTHING", "AUTO", None),
        ("INSERT INTO totals SELECT UPPER(k), COUNT(*) FROM src GROUP BY k ON CONFLICT DO NOTHING", "NONE", "NOTHING"),
    ],
)
def test_materialize(sql: str, mode: str, expected: str | None) -> None:
    graph = graph_of(sql, {"table.exec.sink.upsert-materialize": mode, "parallelism.default": "4"})
    found = [o.action.value for o in operators(graph) if isinstance(o, ir.SinkMaterializer)]
    assert found == ([] if expected is None else [expected])


def test_an_upsert_source_is_left_as_it_is_only_for_a_sink_by_the_same_key() -> None:
    copy = "INSERT INTO wide SELECT k, v FROM upserts"
    assert "ChangelogNormalize" not in kinds(graph_of(copy))
    assert "ChangelogNormalize" in kinds(graph_of(copy, {"table.exec.sink.upsert-materialize": "FORCE"}))
    for sql in (
        "INSERT INTO wide SELECT k, v FROM upserts WHERE v > 3",
        "INSERT INTO wide SELECT v, k FROM upserts",
        "INSERT INTO numbers SELECT k, v FROM upserts",
        "SELECT k FROM upserts",
        "INSERT INTO wide SELECT v, COUNT(*) FROM upserts GROUP BY v",
    ):
        assert "ChangelogNormalize" in kinds(graph_of(sql)), sql


# -- reuse and identities -----------------------------------------------------------------------------


def test_what_is_not_the_same_twice_is_not_shared() -> None:
    def count(query: str, settings: dict[str, str] | None = None) -> int:
        both = f"INSERT INTO totals {query}; INSERT INTO log {query};"
        return len(group_aggregates(graph_of(f"EXECUTE STATEMENT SET BEGIN {both} END", settings)))

    assert count("SELECT k, COUNT(*) FROM src GROUP BY k") == 1
    assert count("SELECT u, COUNT(*) FROM (SELECT UUID() AS u FROM src) GROUP BY u") == 2
    off = {"table.optimizer.reuse-sub-plan-enabled": "false"}
    assert count("SELECT k, COUNT(*) FROM src GROUP BY k", off) == 2


def test_tables_with_other_options_are_other_sources() -> None:
    sql = (
        "EXECUTE STATEMENT SET BEGIN INSERT INTO log SELECT k, v FROM src; "
        "INSERT INTO log SELECT k, v FROM src /*+ OPTIONS('scan.startup.mode' = 'latest-offset') */; END"
    )
    assert kinds(graph_of(sql)).count("Source") == 2


def stateful(sql: str, settings: dict[str, str] | None = None) -> dict[str, str]:
    return {f.uid: f.state for f in graph_of(sql, settings).fingerprints}


def test_identities_survive_edits_that_leave_the_state_alone() -> None:
    first = stateful("INSERT INTO totals SELECT k, SUM(v) FROM src GROUP BY k")
    edited = (
        """/* other text */ INSERT INTO totals
        SELECT a.kk, SUM(a.x) AS total FROM (SELECT k AS kk, v AS x, w FROM src WHERE w > 3) AS a
        GROUP BY a.kk HAVING SUM(a.x) IS NOT NULL""",
        "INSERT INTO totals (n, k) SELECT SUM(v), k FROM src GROUP BY k",
        "INSERT INTO totals WITH c AS (SELECT * FROM src) SELECT k, SUM(v) FROM c GROUP BY k",
    )
    for sql in edited:
        assert stateful(sql) == first
    assert stateful("INSERT INTO totals SELECT k, SUM(v) FROM src GROUP BY k", {"parallelism.default": "4"}) == first


def test_another_sink_in_the_set_leaves_the_first_ones_alone() -> None:
    first = stateful("INSERT INTO totals SELECT k, SUM(v) FROM src GROUP BY k")
    both = stateful(
        "EXECUTE STATEMENT SET BEGIN INSERT INTO wide SELECT v, COUNT(*) FROM src GROUP BY v; "
        "INSERT INTO totals SELECT k, SUM(v) FROM src GROUP BY k; END"
    )
    assert {uid: both[uid] for uid in first} == first


@pytest.mark.parametrize(
    "changed",
    [
        "SELECT k, SUM(w) FROM src GROUP BY k",
        "SELECT k, SUM(v) FILTER (WHERE w > 1) FROM src GROUP BY k",
        "SELECT k, SUM(DISTINCT v) FROM src GROUP BY k",
        "SELECT k, SUM(v) + COUNT(*) FROM src GROUP BY k",
        "SELECT k, SUM(CAST(v AS BIGINT)) FROM src GROUP BY k",
    ],
)
def test_a_change_of_the_state_is_noticed(changed: str) -> None:
    first = stateful("INSERT INTO totals SELECT k, SUM(v) FROM src GROUP BY k")
    second = stateful(f"INSERT INTO totals {changed}")
    assert set(first) == set(second)
    differing = [uid for uid in first if first[uid] != second[uid]]
    assert len(differing) == 1
    assert "/group-aggregate/" in differing[0]


def test_another_way_of_aggregating_is_another_state() -> None:
    """So it is refused at restore; another parallelism is not."""
    sql = "INSERT INTO totals SELECT k, SUM(v) FROM src GROUP BY k"
    two_phase, one_phase = stateful(sql), stateful(sql, {"table.optimizer.agg-phase-strategy": "ONE_PHASE"})
    assert set(two_phase) == set(one_phase)
    assert [uid for uid in two_phase if two_phase[uid] != one_phase[uid] and "/group-aggregate/" in uid]
    assert stateful(sql, {"parallelism.default": "7"}) == two_phase


def test_other_keys_are_another_operator() -> None:
    first = stateful("INSERT INTO totals SELECT k, SUM(v) FROM src GROUP BY k")
    second = stateful("INSERT INTO totals SELECT UPPER(k), SUM(v) FROM src GROUP BY UPPER(k)")
    assert len(set(first) - set(second)) == 1


def test_time_to_live_reaches_every_state() -> None:
    graph = graph_of("INSERT INTO log SELECT k, COUNT(*) FROM src GROUP BY k", {"table.exec.state.ttl": "2 min"})
    assert [o.state_ttl_ms for o in group_aggregates(graph)] == [120_000]
    graph = graph_of("SELECT k FROM upserts", {"table.exec.state.ttl": "2 min"})
    assert [o.state_ttl_ms for o in operators(graph) if isinstance(o, ir.ChangelogNormalize)] == [120_000]


def test_split_distinct_needs_one_argument_and_functions_that_add_up() -> None:
    def levels(aggregates: str) -> int:
        settings = {"table.optimizer.distinct-agg.split.enabled": "true"}
        return len(
            group_aggregates(graph_of(f"INSERT INTO totals SELECT k, {aggregates} FROM src GROUP BY k", settings))
        )

    assert levels("COUNT(DISTINCT v)") == 2
    assert levels("COUNT(DISTINCT v) + SUM(w) + MAX(w) + COUNT(*)") == 2
    assert levels("COUNT(DISTINCT v) + SUM(DISTINCT v)") == 2
    assert levels("COUNT(DISTINCT v) + COUNT(DISTINCT w)") == 1
    assert levels("COUNT(DISTINCT v) + AVG(w)") == 1
    assert levels("COUNT(v)") == 1


def test_columns_nobody_reads_leave_aggregates_and_their_inputs() -> None:
    graph = graph_of("SELECT k, c FROM (SELECT k, COUNT(*) AS c, SUM(v) AS s, MAX(w) AS m FROM src GROUP BY k)")
    (aggregate,) = group_aggregates(graph)
    assert len(aggregate.aggregates) == 1
    source = graph.vertices[0].operators[0]
    assert isinstance(source, ir.Source)
    assert source.scan_columns.names == ("k", "ts")


def test_a_changelog_source_keeps_its_key_read_or_not() -> None:
    source = graph_of("SELECT v FROM cdc").vertices[0].operators[0]
    assert isinstance(source, ir.Source)
    assert source.scan_columns.names == ("k", "v")
    assert source.changelog is ChangelogMode.RETRACT


def test_columns_that_differ_each_time_are_computed_above_the_normalisation() -> None:
    session = script()
    session.run(
        "CREATE TABLE marked (k INT, id AS CONCAT(UUID(), CAST(v AS STRING)), v INT, w AS v + 1, "
        "PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', 'topic' = 'm')"
    )
    graph = session.job("SELECT v, id, w FROM marked").job_graph
    source, normalize, calc = itertools.islice(operators(graph), 3)
    assert isinstance(source, ir.Source)
    assert source.output.names == ("k", "v", "w")
    assert isinstance(normalize, ir.ChangelogNormalize)
    assert isinstance(calc, ir.Calc)
    assert calc.output.names == ("v", "id", "w")
    graph = session.job("SELECT v, w FROM marked").job_graph
    assert kinds(graph) == ["Source", "ChangelogNormalize", "Collect"]


def test_a_hint_gives_one_query_block_a_time_to_live_of_its_own() -> None:
    graph = graph_of(
        "SELECT k, MAX(c) FROM (SELECT /*+ STATE_TTL('src' = '2 min') */ k, v, COUNT(*) AS c FROM src GROUP BY k, v) "
        "GROUP BY k",
        {"table.exec.state.ttl": "1 h"},
    )
    assert [o.state_ttl_ms for o in group_aggregates(graph)] == [120_000, 3_600_000]
