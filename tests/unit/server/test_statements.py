"""Definitions, look-ups, settings and refusals, through the gateway."""

from __future__ import annotations

import http.client
import json
import time

import pytest

from runtime.api import Failure, JobId, JobState, SavepointEntry
from tests.unit.server.fakes import FakeServer
from tests.unit.server.gateway_client import Gateway

SOURCE = "CREATE TABLE s (k INT, v INT) WITH ('connector' = 'datagen')"
SINK = "CREATE TABLE o (k INT, c BIGINT) WITH ('connector' = 'blackhole')"


# -- definitions


def test_the_default_catalog_belongs_to_the_session(server: FakeServer, gateway: Gateway) -> None:
    gateway.run(SOURCE)
    assert gateway.run("SHOW TABLES") == [["s"]]
    with Gateway(server.url) as other:
        assert other.run("SHOW TABLES") == []
        other.run(SOURCE)


def test_the_shared_catalog_is_everyones(server: FakeServer, gateway: Gateway) -> None:
    gateway.run("USE CATALOG headrace")
    gateway.run(SOURCE)
    with Gateway(server.url) as other:
        assert other.run("SHOW TABLES FROM headrace.default_database") == [["s"]]
        other.run("USE CATALOG headrace")
        assert "already exists" in other.refusal(SOURCE)["message"]
        assert other.run(SOURCE.replace("TABLE s", "TABLE IF NOT EXISTS s")) == [["OK"]]
        other.run("DROP TABLE s")
    assert gateway.run("SHOW TABLES") == []


def test_temporary_objects_hide_permanent_ones(gateway: Gateway) -> None:
    gateway.run(SOURCE)
    gateway.run("CREATE TEMPORARY TABLE s (other STRING) WITH ('connector' = 'datagen')")
    assert [row[0] for row in gateway.run("DESCRIBE s")] == ["other"]
    assert "DROP TEMPORARY TABLE" in gateway.refusal("DROP TABLE s")["hint"]
    gateway.run("DROP TEMPORARY TABLE s")
    assert [row[0] for row in gateway.run("DESCRIBE s")] == ["k", "v"]


def test_dropping_says_what_is_wrong(gateway: Gateway) -> None:
    gateway.run(SOURCE)
    gateway.run("CREATE VIEW twice AS SELECT k * 2 AS k2 FROM s")
    assert gateway.refusal("DROP TABLE twice")["hint"] == "Write DROP VIEW."
    assert gateway.refusal("DROP VIEW s")["hint"] == "Write DROP TABLE."
    assert gateway.refusal("DROP TABLE twic")["hint"].startswith("Did you mean `twice`?")
    assert gateway.run("DROP TABLE IF EXISTS nothing") == [["OK"]]
    assert gateway.run("SHOW VIEWS") == [["twice"]]
    assert gateway.run("SHOW TABLES") == [["s"], ["twice"]]
    assert gateway.run("SHOW TABLES LIKE 't%'") == [["twice"]]
    gateway.run("DROP VIEW twice")


def test_a_view_is_checked_when_it_is_created_and_keeps_its_text(gateway: Gateway) -> None:
    gateway.run(SOURCE)
    refusal = gateway.refusal("CREATE VIEW wrong AS SELECT nope FROM s")
    assert (refusal["sqlState"], refusal["line"], refusal["column"]) == ("42703", 1, 29)
    gateway.run("CREATE VIEW twice AS SELECT k * 2 AS k2 FROM s")
    assert "SELECT k * 2 AS k2 FROM s" in gateway.run("SHOW CREATE VIEW twice")[0][0]
    assert gateway.run("DESCRIBE twice")[0][:2] == ["k2", "INT"]


@pytest.mark.parametrize(
    ("options", "line", "column", "hint"),
    [
        ("'connector' = 'datagne'", 2, 2, "Did you mean 'datagen'?"),
        ("'connector' = 'datagen',\n 'rows-per-secnd' = '1'", 3, 2, "rows-per-second"),
        ("'connector' = 'datagen',\n 'rows-per-second' = 'many'", 3, 2, ""),
    ],
)
def test_wrong_options_are_refused_at_their_place(
    gateway: Gateway, options: str, line: int, column: int, hint: str
) -> None:
    refusal = gateway.refusal(f"CREATE TABLE t (a INT) WITH (\n {options})")
    assert (refusal["line"], refusal["column"]) == (line, column)
    assert hint in refusal.get("hint", "")
    assert gateway.run("SHOW TABLES") == []


def test_secrets_are_masked_wherever_they_are_shown(gateway: Gateway) -> None:
    gateway.run(
        "CREATE TABLE t (a INT) WITH ('connector' = 'kafka', 'topic' = 'x', 'format' = 'json', "
        "'properties.bootstrap.servers' = 'b:1', "
        "'properties.sasl.password' = 'hunter2', 'scan.startup.mode' = 'earliest-offset')"
    )
    shown = gateway.run("SHOW CREATE TABLE t")[0][0]
    assert "hunter2" not in shown
    assert "'properties.sasl.password' = '******'" in shown
    gateway.run("SET 'my.secret' = 'hunter2'")
    assert ["my.secret", "******"] in gateway.run("SET")
    assert gateway.http.get(f"/v4/sessions/{gateway.session}").json()["properties"]["my.secret"] == "******"
    refusal = gateway.refusal(
        "CREATE TABLE u (a INT) WITH ('connector' = 'kafka', 'properties.sasl.password' = 'hunter2')"
    )
    assert "hunter2" not in str(refusal)


# -- settings


def test_a_setting_with_effect_is_typed(gateway: Gateway) -> None:
    refusal = gateway.refusal("SET 'execution.checkpointing.interval' = 'often'")
    assert refusal["sqlState"] == "22023"
    assert "'10 s'" in refusal["hint"]
    assert gateway.run("SET 'parallelism.default' = '2'") == [["OK"]]
    assert ["parallelism.default", "2"] in gateway.run("SET")
    gateway.run("RESET 'parallelism.default'")
    assert ["parallelism.default", "2"] not in gateway.run("SET")


def test_settings_without_effect_are_remarked_on_once(gateway: Gateway) -> None:
    def warnings(statement: str) -> list[str]:
        return list(gateway.first(gateway.submit(statement)).get("warnings", []))

    assert "no meaning here" in warnings("SET 'table.exec.sort.default-limit' = '5'")[0]
    assert warnings("SET 'table.exec.sort.default-limit' = '6'") == []
    assert "Did you mean 'parallelism.default'?" in warnings("SET 'paralelism.default' = '2'")[0]
    assert (
        "Did you mean 'table.exec.sink.keyed-shuffle'?" in warnings("SET 'table.exec.sink.keyed-shufle' = 'FORCE'")[0]
    )
    assert warnings("SET 'sql-client.execution.result-mode' = 'tableau'") == []


def test_bad_properties_of_a_session_fail_with_its_first_statement(server: FakeServer) -> None:
    with Gateway(server.url) as gateway:
        gateway._session = gateway.open(**{"parallelism.default": "many"})
        assert gateway.refusal("SHOW TABLES")["sqlState"] == "22023"
        gateway.run("SET 'parallelism.default' = '1'")
        assert gateway.run("SHOW TABLES") == []


def test_settings_of_a_job(server: FakeServer, gateway: Gateway) -> None:
    gateway.run(SOURCE)
    gateway.run("CREATE TABLE o (k INT) WITH ('connector' = 'blackhole')")
    gateway.run("SET 'execution.checkpointing.interval' = '3 s'")
    gateway.run("SET 'table.exec.sort.default-limit' = '5'")
    job_id = gateway.run("INSERT INTO o SELECT k FROM s")[0][0]
    graph = server.jobs.graphs[job_id]
    assert graph.name == "insert-into_default_catalog.default_database.o"
    assert graph.settings["execution.checkpointing.interval"] == "3 s"
    assert "table.exec.sort.default-limit" not in graph.settings
    operation = gateway.submit("INSERT INTO o SELECT k FROM s", executionConfig={"pipeline.name": "mine"})
    assert server.jobs.graphs[gateway.first(operation)["jobID"]].name == "mine"


# -- jobs


def test_a_synchronous_insert_answers_when_its_job_has_ended(server: FakeServer, gateway: Gateway) -> None:
    gateway.run(SOURCE)
    gateway.run("CREATE TABLE o (k INT) WITH ('connector' = 'blackhole')")
    gateway.run("SET 'table.dml-sync' = 'true'")
    operation = gateway.submit("INSERT INTO o SELECT k FROM s")
    assert gateway.page(operation, 0).json()["resultType"] == "NOT_READY"
    assert gateway.run("SHOW TABLES") == [["o"], ["s"]]  # Waiting for a job holds nobody up.
    job_id = next(iter(server.jobs.states))
    server.jobs.states[job_id] = JobState.FINISHED
    assert gateway.first(operation)["jobID"] == job_id


def test_a_synchronous_insert_fails_with_its_job(server: FakeServer, gateway: Gateway) -> None:
    gateway.run(SOURCE)
    gateway.run("CREATE TABLE o (k INT) WITH ('connector' = 'blackhole')")
    gateway.run("SET 'table.dml-sync' = 'true'")
    server.jobs.insert_failure = Failure("broker down", "external", True)
    assert gateway.refusal("INSERT INTO o SELECT k FROM s")["message"] == "broker down"


def test_jobs_are_shown_and_stopped(server: FakeServer, gateway: Gateway) -> None:
    gateway.run(SOURCE)
    gateway.run("CREATE TABLE o (k INT) WITH ('connector' = 'blackhole')")
    job_id = gateway.run("INSERT INTO o SELECT k FROM s")[0][0]
    expected = [job_id, "insert-into_default_catalog.default_database.o", "RUNNING", "2026-11-29T15:36:16.35Z"]
    assert gateway.run("SHOW JOBS") == [expected]
    assert gateway.run(f"DESCRIBE JOB '{job_id}'") == [expected]
    server.jobs.slots_missing = 3
    page = gateway.first(gateway.submit("SHOW JOBS"))
    assert page["warnings"] == [f"Job {job_id} waits for 3 more slots."]
    server.jobs.slots_missing = 0
    server.jobs.states[job_id] = JobState.RESTARTING
    server.jobs.insert_failure = Failure("slot tm1/0/1 is gone", "internal", True)
    page = gateway.first(gateway.submit("SHOW JOBS"))
    assert page["warnings"] == [f"Job {job_id} is RESTARTING: slot tm1/0/1 is gone"]
    assert gateway.run(f"STOP JOB '{job_id}'") == [["OK"]]
    assert server.jobs.states[job_id] is JobState.CANCELED
    assert "does not exist" in gateway.refusal("STOP JOB '00000000000000000000000000000000'")["message"]


def test_a_job_is_stopped_with_a_savepoint(server: FakeServer, gateway: Gateway) -> None:
    gateway.run(SOURCE)
    gateway.run("CREATE TABLE o (k INT) WITH ('connector' = 'blackhole')")
    job_id = gateway.run("INSERT INTO o SELECT k FROM s")[0][0]
    assert "needs WITH SAVEPOINT" in gateway.refusal(f"STOP JOB '{job_id}' WITH DRAIN")["message"]
    refusal = gateway.refusal(f"STOP JOB '{job_id}' WITH SAVEPOINT")
    assert (refusal["sqlState"], refusal["hint"]) == ("55000", "Name one.")
    gateway.run("SET 'state.savepoints.dir' = '/savepoints'")
    server.jobs.savepoint_failure = Failure("the disk is full", "external", True, "Make room.")
    refusal = gateway.refusal(f"STOP JOB '{job_id}' WITH SAVEPOINT")
    assert refusal["message"] == f"job '{job_id}' is not stopped: the disk is full"
    assert server.jobs.states[job_id] is JobState.RUNNING
    server.jobs.savepoint_failure = None
    path = f"/savepoints/savepoint-{job_id[:6]}-0123456789ab"
    assert gateway.run(f"STOP JOB '{job_id}' WITH SAVEPOINT WITH DRAIN") == [[path]]
    request = next(iter(server.jobs.savepoint_requests.values()))
    assert (request.stop, request.drain) == (True, True)
    assert "does not exist" in gateway.refusal(f"STOP JOB '{'0' * 32}' WITH SAVEPOINT")["message"]


def test_a_statement_set_collects_only_right_inserts(server: FakeServer, gateway: Gateway) -> None:
    gateway.run(SOURCE)
    gateway.run("CREATE TABLE o (k INT) WITH ('connector' = 'blackhole')")
    gateway.run("BEGIN STATEMENT SET")
    assert "only INSERT" in gateway.refusal("SHOW TABLES")["message"]
    assert gateway.refusal("INSERT INTO o SELECT nope FROM s")["sqlState"] == "42703"
    gateway.run("INSERT INTO o SELECT k FROM s")
    gateway.run("INSERT INTO o SELECT v FROM s")
    job_id = gateway.run("END")[0][0]
    assert len(server.jobs.graphs) == 1
    target = "default_catalog.default_database.o"
    assert server.jobs.graphs[job_id].name == f"insert-into_{target},{target}"
    assert gateway.run("SHOW TABLES") == [["o"], ["s"]]
    assert gateway.refusal("END")["message"] == "END without BEGIN STATEMENT SET"


# -- refusals


@pytest.mark.parametrize(
    ("statement", "state", "line", "column"),
    [
        ("SELEC 1", "42601", 1, 1),
        ("SELECT\n  nope FROM (VALUES (1)) AS t(a)", "42703", 2, 3),
        ("SELECT * FROM missing", "42P01", 1, 15),
        ("SELECT 1 +", "42601", 1, 11),
        ("SELECT 1; SELECT 2", "42601", 1, 11),
        ("USE CATALOG nowhere", "42704", 1, 13),
    ],
)
def test_wrong_sql_is_refused_with_its_place(
    server: FakeServer, gateway: Gateway, statement: str, state: str, line: int, column: int
) -> None:
    refusal = gateway.refusal(statement)
    assert (refusal["sqlState"], refusal["line"], refusal["column"]) == (state, line, column)
    shown = refusal["errors"][1].rpartition("Caused by: ")[2].partition("\n\tat ")[0]
    assert f"(line {line}, column {column})" in shown
    assert server.jobs.graphs == {}


@pytest.mark.parametrize("statement", ["", "  ", ";", "-- only a comment"])
def test_an_empty_statement_is_refused(gateway: Gateway, statement: str) -> None:
    assert gateway.refusal(statement)["message"] == "the statement is empty"
    assert gateway.run("SHOW CURRENT DATABASE") == [["default_database"]]


def test_text_of_a_user_cannot_forge_the_end_of_the_cause(gateway: Gateway) -> None:
    refusal = gateway.refusal("SELECT * FROM `a\n\tat b Caused by: c`")
    shown = refusal["errors"][1].rpartition("Caused by: ")[2].partition("\n\tat ")[0]
    assert shown.startswith("headrace.SqlError: [42P01]")
    assert "does not exist" in shown or "no table" in shown


def test_clients_without_accept_header_get_errors_alone(gateway: Gateway) -> None:
    """Flink's own clients refuse an error body with fields they do not know."""
    operation = gateway.submit("SELECT * FROM missing")
    while gateway.status(operation) == "RUNNING":
        pass
    connection = http.client.HTTPConnection(gateway.http.base_url.host, gateway.http.base_url.port, timeout=30)
    for path, status in ((f"{gateway.operation_path(operation)}/result/0", 500), ("/v4/nothing", 404)):
        connection.putrequest("GET", path, skip_accept_encoding=True)
        connection.endheaders()
        answer = connection.getresponse()
        assert answer.status == status
        assert list(json.loads(answer.read())) == ["errors"]
    connection.close()


def test_idle_queries_and_sessions_end(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = {"gateway.query-idle-s": "0.4", "gateway.session-idle-s": "1.5", "gateway.check-interval-s": "0.05"}
    server = FakeServer(tmp_path_factory.mktemp("idle"), **settings)
    try:
        server.jobs.query.ended = False
        with Gateway(server.url) as gateway:
            operation = gateway.submit("SELECT 1 AS a")
            job_id = gateway.first(operation)["jobID"]
            deadline_s = time.monotonic() + 10
            while server.jobs.states[job_id] is not JobState.CANCELED:
                assert time.monotonic() < deadline_s
                time.sleep(0.02)
            assert "nobody read its result" in gateway.page(operation, 1).json()["message"]
            while server.recorded_sessions():
                assert time.monotonic() < deadline_s
                time.sleep(0.02)
            assert gateway.http.get(f"/v4/sessions/{gateway.session}").json()["code"] == "UNKNOWN_SESSION"
    finally:
        server.stop()


# -- restart


def test_sessions_catalogs_and_inserts_survive_a_restart(server: FakeServer, gateway: Gateway) -> None:
    gateway.run(SOURCE)
    gateway.run("CREATE TEMPORARY VIEW twice AS SELECT k * 2 AS k2 FROM s")
    gateway.run("CREATE TABLE headrace.default_database.o (k INT) WITH ('connector' = 'blackhole')")
    gateway.run("SET 'pipeline.name' = 'kept'")
    insert = gateway.submit("INSERT INTO headrace.default_database.o SELECT k FROM s")
    job_id = gateway.first(insert)["jobID"]
    server.jobs.query.ended = False
    query = gateway.submit("SELECT k FROM s")
    gateway.first(query)
    gateway.run("USE CATALOG headrace")
    gateway.run("BEGIN STATEMENT SET")
    gateway.run("INSERT INTO o SELECT k FROM default_catalog.default_database.s")

    server.restart()

    assert gateway.page(insert, 0).json()["jobID"] == job_id
    lost = gateway.page(query, 0)
    assert lost.status_code == 500
    assert lost.json()["code"] == "RESULT_LOST"
    assert gateway.run("INSERT INTO o SELECT v FROM default_catalog.default_database.s") == [["OK"]]
    collected = gateway.run("END")[0][0]
    assert len(server.jobs.graphs[collected].vertices) >= 1
    assert server.jobs.graphs[collected].name == "kept"
    assert gateway.run("SHOW TABLES") == [["o"]]
    assert gateway.run("DESCRIBE default_catalog.default_database.twice")[0][0] == "k2"


def test_a_synchronous_insert_still_waits_after_a_restart(server: FakeServer, gateway: Gateway) -> None:
    gateway.run(SOURCE)
    gateway.run("CREATE TABLE o (k INT) WITH ('connector' = 'blackhole')")
    gateway.run("SET 'table.dml-sync' = 'true'")
    operation = gateway.submit("INSERT INTO o SELECT k FROM s")
    while not server.jobs.states:
        assert gateway.page(operation, 0).json()["resultType"] == "NOT_READY"
    assert gateway.run("SHOW TABLES") == [["o"], ["s"]]
    server.restart()
    assert gateway.status(operation) == "RUNNING"
    job_id = next(iter(server.jobs.states))
    server.jobs.states[job_id] = JobState.FINISHED
    assert gateway.first(operation)["jobID"] == job_id


def test_a_jobs_parallelism_is_altered(server: FakeServer, gateway: Gateway) -> None:
    gateway.run("SET 'parallelism.default' = '2'")
    gateway.run(SOURCE)
    gateway.run("CREATE TABLE o (k INT) WITH ('connector' = 'blackhole')")
    job_id = gateway.run("INSERT INTO o SELECT k FROM s")[0][0]

    def parallelism() -> set[int]:
        return {vertex.parallelism for vertex in server.jobs.graphs[JobId(job_id)].vertices}

    gateway.run("DROP TABLE s")  # The job keeps what it was made from.
    assert gateway.run(f"ALTER JOB '{job_id}' SET ('parallelism' = '4')") == [["OK"]]
    assert parallelism() == {4}
    assert gateway.run(f"ALTER JOB '{job_id}' RESET ('parallelism')") == [["OK"]]
    assert parallelism() == {1}
    for text, message in (
        ("SET ('parallelism' = '129')", "'129'"),
        ("SET ('parallelism' = '0')", "'0' is no parallelism"),
        ("SET ('parallelism' = '-1')", "'-1' is no parallelism"),
        ("SET ('state.backend.type' = 'rocksdb')", "cannot be changed while a job runs"),
        ("SET ('parallelism' = '2', 'parallelism.default' = '2')", "one setting"),
        ("SET ()", "one setting"),
    ):
        assert message in gateway.refusal(f"ALTER JOB '{job_id}' {text}")["message"]
    server.jobs.rescale_refusal = "the job would need 8 slots"
    refusal = gateway.refusal(f"ALTER JOB '{job_id}' SET ('parallelism' = '8')")
    assert refusal["message"] == f"job '{job_id}' keeps its parallelism: the job would need 8 slots"
    assert (refusal["sqlState"], refusal["hint"]) == ("55000", "Start more TaskManagers first.")
    assert parallelism() == {1}
    assert "does not exist" in gateway.refusal(f"ALTER JOB '{'0' * 32}' SET ('parallelism' = '2')")["message"]
    gateway.run(f"STOP JOB '{job_id}'")
    assert "it has ended" in gateway.refusal(f"ALTER JOB '{job_id}' SET ('parallelism' = '2')")["message"]


def test_savepoints_are_listed_and_dropped(server: FakeServer, gateway: Gateway) -> None:
    gateway.run(SOURCE)
    gateway.run("CREATE TABLE o (k INT) WITH ('connector' = 'blackhole')")
    job_id = gateway.run("INSERT INTO o SELECT k FROM s")[0][0]
    server.jobs.taken = [SavepointEntry("/sp/savepoint-1", 7, 1_795_966_576_350, 12_345, stopped=True)]
    assert gateway.run(f"SHOW SAVEPOINTS FOR JOB '{job_id}'") == [
        ["/sp/savepoint-1", 7, "2026-11-29T15:36:16.35Z", 12_345, "stop"]
    ]
    assert gateway.run("DROP SAVEPOINT '/sp/savepoint-1'") == [["OK"]]
    assert server.jobs.disposed == ["/sp/savepoint-1"]
    assert "is not dropped: there is no savepoint at" in gateway.refusal("DROP SAVEPOINT '/sp/x'")["message"]
    assert "does not exist" in gateway.refusal(f"SHOW SAVEPOINTS FOR JOB '{'0' * 32}'")["message"]
