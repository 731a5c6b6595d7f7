"""Operators, exchanges, chains, identities."""

from __future__ import annotations

import pytest

from planner import api
from planner.errors import SqlError
from planner.ir import operators as ir
from planner.ir.job_graph import EdgeKind, JobGraph
from planner.ir.operators import NotNullEnforcement
from planner.sql import statements as st
from tests.unit.planner.catalog import Script

TABLES = """
CREATE TABLE src (k STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
  WITH ('connector' = 'kafka', 'topic' = 'src');
CREATE TABLE files (k STRING, v INT) WITH ('connector' = 'filesystem', 'path' = '/in');
CREATE TABLE out_t (k STRING, w TIMESTAMP(3), n BIGINT, PRIMARY KEY (k, w) NOT ENFORCED)
  WITH ('connector' = 'kafka', 'topic' = 'out');
CREATE TABLE log (k STRING NOT NULL, v BIGINT) WITH ('connector' = 'print');
"""
WINDOWED = """INSERT INTO out_t SELECT k, window_start, COUNT(*)
FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY k, window_start, window_end"""


def graph_of(sql: str, settings: dict[str, str] | None = None) -> JobGraph:
    script = Script()
    script.run(TABLES)
    script.settings.update(settings or {})
    return script.job(sql).job_graph


def shape(graph: JobGraph) -> list[tuple[list[str], int]]:
    return [([type(o).__name__ for o in v.operators], v.parallelism) for v in graph.vertices]


def edges(graph: JobGraph) -> list[tuple[int, int, EdgeKind, tuple[int, ...]]]:
    return [(e.source, e.target, e.kind, e.keys) for e in graph.edges]


def test_the_worked_example_counts() -> None:
    settings = {"parallelism.default": "32", "table.exec.sink.keyed-shuffle": "FORCE"}
    graph = graph_of(WINDOWED.replace(" GROUP BY", " WHERE v > 0 GROUP BY"), settings)
    assert shape(graph) == [
        (["Source", "Calc", "LocalWindowAggregate"], 32),
        (["GlobalWindowAggregate"], 32),
        (["Sink"], 32),
    ]
    assert edges(graph) == [(0, 1, EdgeKind.HASH, (0,)), (1, 2, EdgeKind.HASH, (0, 2))]
    assert (graph.subtask_count, graph.task_count, graph.slot_count) == (160, 96, 32)


def test_a_projection_that_only_reorders_is_no_operator() -> None:
    graph = graph_of(WINDOWED)
    sink = graph.vertices[1].operators[1]
    assert isinstance(sink, ir.Sink)
    assert sink.selection == (0, 2, 1)
    assert sink.input.names == ("k", "w", "n")
    assert graph.vertices[1].operators[0].output.names == ("k", "COUNT(*)", "window_start")  # type: ignore[union-attr]


def test_partials_carry_key_window_count_and_accumulators() -> None:
    graph = graph_of(
        "SELECT k, AVG(v), SUM(v) FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '10' SECOND) "
        "GROUP BY k, window_start, window_end"
    )
    local = graph.vertices[0].operators[-1]
    assert isinstance(local, ir.LocalWindowAggregate)
    assert [c.type.sql() for c in local.output.columns] == [
        "STRING",
        "BIGINT NOT NULL",
        "BIGINT NOT NULL",
        "BIGINT",
        "BIGINT NOT NULL",
        "INT",
    ]
    (edge,) = graph.inputs(1)
    assert edge.schema == local.output
    receiver = graph.vertices[1].operators[0]
    assert isinstance(receiver, ir.GlobalWindowAggregate)
    assert receiver.keys == (0,)
    assert receiver.key_types == (local.output.types[0],)
    assert receiver.properties == ()


@pytest.mark.parametrize(
    ("settings", "hint", "expected"),
    [
        ({}, "", EdgeKind.FORWARD),
        ({"table.exec.sink.keyed-shuffle": "FORCE"}, "", EdgeKind.HASH),
        ({}, "/*+ OPTIONS('sink.parallelism' = '2') */", EdgeKind.HASH),
        ({"table.exec.sink.keyed-shuffle": "NONE"}, "/*+ OPTIONS('sink.parallelism' = '2') */", EdgeKind.REBALANCE),
        ({"table.exec.sink.keyed-shuffle": "FORCE"}, "/*+ OPTIONS('sink.parallelism' = '1') */", EdgeKind.SINGLE),
    ],
)
def test_the_way_to_a_sink_with_a_primary_key(settings: dict[str, str], hint: str, expected: EdgeKind) -> None:
    graph = graph_of(f"INSERT INTO out_t {hint} SELECT k, ts, v FROM src", {"parallelism.default": "4", **settings})
    last = graph.vertices[-1]
    assert isinstance(last.operators[-1], ir.Sink)
    if expected is EdgeKind.FORWARD:
        assert len(graph.vertices) == 1
    else:
        assert [e.kind for e in graph.inputs(last.id)] == [expected]


def test_source_parallelism_breaks_the_chain_by_rebalancing() -> None:
    graph = graph_of(
        "INSERT INTO log SELECT k, v FROM src /*+ OPTIONS('scan.parallelism' = '1') */", {"parallelism.default": "4"}
    )
    assert shape(graph) == [(["Source"], 1), (["Calc", "Sink"], 4)]
    assert edges(graph) == [(0, 1, EdgeKind.REBALANCE, ())]


def test_not_null_columns_of_the_sink_are_checked_where_null_can_come() -> None:
    graph = graph_of("INSERT INTO log SELECT k, v FROM src")
    sink = graph.vertices[-1].operators[-1]
    assert isinstance(sink, ir.Sink)
    assert sink.not_null_columns == (0,)
    assert sink.not_null_enforcement is NotNullEnforcement.ERROR
    graph = graph_of(
        "INSERT INTO log SELECT COALESCE(k, ''), v FROM src", {"table.exec.sink.not-null-enforcer": "drop"}
    )
    sink = graph.vertices[-1].operators[-1]
    assert isinstance(sink, ir.Sink)
    assert sink.not_null_columns == ()
    assert sink.not_null_enforcement is NotNullEnforcement.DROP


def test_bounded_jobs_and_queries_say_so() -> None:
    assert graph_of("SELECT k FROM files").bounded
    assert graph_of("SELECT k FROM files").is_query
    assert not graph_of("INSERT INTO log SELECT k, v FROM src").bounded
    assert graph_of("INSERT INTO log VALUES ('a', 1)").bounded
    both = "INSERT INTO log SELECT k, v FROM src UNION ALL SELECT k, v FROM files"
    assert not graph_of(both).bounded


def test_watermark_strategy_from_settings_and_options() -> None:
    def watermark(sql: str, settings: dict[str, str]) -> ir.WatermarkSpec:
        source = graph_of(sql, settings).vertices[0].operators[0]
        assert isinstance(source, ir.Source)
        assert source.watermark is not None
        return source.watermark

    spec = watermark("SELECT k FROM src", {"table.exec.source.idle-timeout": "5 s"})
    assert (spec.strategy, spec.interval_ms, spec.idle_timeout_ms) == (ir.WatermarkStrategy.ON_PERIODIC, 200, 5000)
    spec = watermark("SELECT k FROM src", {"pipeline.auto-watermark-interval": "0"})
    assert spec.strategy is ir.WatermarkStrategy.ON_EVENT
    hint = "/*+ OPTIONS('scan.watermark.emit.strategy' = 'on-event', 'scan.watermark.idle-timeout' = '1 min') */"
    spec = watermark(f"SELECT k FROM src {hint}", {})
    assert (spec.strategy, spec.idle_timeout_ms) == (ir.WatermarkStrategy.ON_EVENT, 60_000)


def test_a_source_reads_what_is_needed_and_keeps_its_time() -> None:
    source = graph_of("SELECT v FROM src").vertices[0].operators[0]
    assert isinstance(source, ir.Source)
    assert source.scan_columns.names == ("v", "ts")
    assert source.table.physical.names == ("k", "v", "ts")
    assert source.watermark is not None
    assert source.watermark.rowtime_index == 1


def test_uids_survive_edits_that_change_nothing_of_the_state() -> None:
    first = graph_of(WINDOWED)
    edited = graph_of(
        """-- a comment
        INSERT INTO out_t SELECT a.kk, a.window_start, COUNT(*) AS many FROM (
          SELECT k AS kk, window_start, window_end, v
          FROM TABLE(TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '10' SECOND))
        ) AS a WHERE a.v > 3 GROUP BY window_end, a.kk, window_start"""
    )

    def stateful(graph: JobGraph) -> dict[str, str]:
        return {f.uid: f.state for f in graph.fingerprints}

    assert stateful(first) == stateful(edited)
    assert {f.input for f in first.fingerprints} != {f.input for f in edited.fingerprints}


def test_fingerprints_notice_another_state_and_another_place() -> None:
    def prints(sql: str) -> dict[str, tuple[str, str]]:
        return {f.uid: (f.state, f.location) for f in graph_of(sql).fingerprints}

    first = prints(WINDOWED)
    other_state = prints(WINDOWED.replace("COUNT(*)", "SUM(v)"))
    changed = [uid for uid, (state, _) in first.items() if other_state[uid][0] != state]
    assert len(changed) == 1
    assert "global-window-aggregate" in changed[0]
    other_place = prints(WINDOWED.replace("TABLE src,", "TABLE (SELECT * FROM src /*+ OPTIONS('topic'='b') */),"))
    moved = [uid for uid, (_, place) in first.items() if other_place[uid][1] != place]
    assert moved == ["source/default_catalog.default_database.src/kafka/0"]


def test_statement_set_is_one_job_and_shares_its_source() -> None:
    sql = "EXECUTE STATEMENT SET BEGIN INSERT INTO log SELECT k, v FROM src; INSERT INTO log SELECT k, 1 FROM src; END"
    graph = graph_of(sql)
    sources = [o for v in graph.vertices for o in v.operators if isinstance(o, ir.Source)]
    assert len(sources) == 1
    assert sorted(v.uid for v in graph.vertices)[:2] == [
        "sink/default_catalog.default_database.log/print/0",
        "sink/default_catalog.default_database.log/print/1",
    ]
    graph = graph_of(sql, {"table.optimizer.reuse-source-enabled": "false"})
    assert len([o for v in graph.vertices for o in v.operators if isinstance(o, ir.Source)]) == 2


def test_inserts_collected_one_by_one_make_the_same_job() -> None:
    script = Script()
    script.run(TABLES)
    inserts = [api.parse(f"INSERT INTO log SELECT k, {i} FROM src")[0] for i in range(2)]
    collected = api.combine_inserts([i for i in inserts if isinstance(i, st.Insert)])
    job = script.execute(collected)
    whole = script.job(
        "EXECUTE STATEMENT SET BEGIN INSERT INTO log SELECT k, 0 FROM src; INSERT INTO log SELECT k, 1 FROM src; END"
    )
    assert isinstance(job, api.CompiledJob)
    assert job.job_graph == whole.job_graph


def test_an_error_in_a_collected_insert_points_into_its_own_text() -> None:
    script = Script()
    script.run(TABLES)
    good, bad = (api.parse(f"INSERT INTO log SELECT {c}, 1 FROM src")[0] for c in ("k", "kk"))
    assert isinstance(good, st.Insert)
    assert isinstance(bad, st.Insert)
    with pytest.raises(SqlError) as caught:
        script.execute(api.combine_inserts([good, bad]))
    assert (caught.value.line, caught.value.column) == (1, 24)


def test_time_zone_reaches_the_window() -> None:
    graph = graph_of(WINDOWED, {"table.local-time-zone": "GMT+8"})
    local = graph.vertices[0].operators[-1]
    assert isinstance(local, ir.LocalWindowAggregate)
    assert isinstance(local.window, ir.TumbleWindow)
    assert local.window.time_zone == "+08:00"


def test_a_select_ends_in_one_collector() -> None:
    graph = graph_of("SELECT v, k FROM src LIMIT 3", {"parallelism.default": "4"})
    assert shape(graph) == [(["Source"], 4), (["Limit", "Collect"], 1)]
    collect = graph.vertices[1].operators[1]
    assert isinstance(collect, ir.Collect)
    assert collect.selection == (1, 0)
    assert collect.input.names == ("v", "k")
