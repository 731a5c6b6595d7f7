"""What the server answers beside the gateway API: health, metrics, jobs, limits, foreign pages."""

from __future__ import annotations

import pytest

from runtime.api import Failure, JobState, SavepointEntry
from tests.unit.server.fakes import FakeServer
from tests.unit.server.gateway_client import Gateway


def test_health_and_readiness(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = FakeServer(tmp_path_factory.mktemp("ready"), **{"jobmanager.slots-expected": "4"})
    try:
        with Gateway(server.url) as gateway:
            assert gateway.http.get("/healthz").json() == {"status": "ok"}
            waiting = gateway.http.get("/readyz")
            assert waiting.status_code == 503
            assert waiting.json()["slotsTotal"] == 2
            server.jobs.slots_total = 4
            assert gateway.http.get("/readyz").status_code == 200
    finally:
        server.stop()


def test_the_product_is_ours(gateway: Gateway) -> None:
    for path in ("/info", "/v1/info", "/v4/info"):
        assert gateway.http.get(path).json()["productName"] == "Headrace"
    paths = gateway.http.get("/openapi.json").json()["paths"]
    assert "/v4/sessions/{session_handle}/statements" in paths
    assert "/jobs/{job_id}" in paths


def test_jobs_as_tools_read_them(server: FakeServer, gateway: Gateway) -> None:
    gateway.run("CREATE TABLE s (k INT) WITH ('connector' = 'datagen')")
    gateway.run("CREATE TABLE o (k INT) WITH ('connector' = 'blackhole')")
    job_id = gateway.run("INSERT INTO o SELECT k FROM s")[0][0]
    http = gateway.http
    assert http.get("/v1/jobs").json() == {"jobs": [{"id": job_id, "status": "RUNNING"}]}
    overview = http.get("/jobs/overview").json()["jobs"][0]
    assert (overview["jid"], overview["state"], overview["end-time"]) == (job_id, "RUNNING", -1)
    details = http.get(f"/jobs/{job_id}").json()
    assert details["timestamps"]["RUNNING"] == details["start-time"]
    assert http.get(f"/jobs/{job_id}/checkpoints").json()["counts"]["completed"] == 0
    assert http.get("/overview").json()["jobs-running"] == 1
    assert http.get("/taskmanagers").json()["taskmanagers"][0]["id"] == "tm-1"
    assert http.get("/taskmanagers/tm-2").status_code == 404
    assert http.get("/config").json()["features"]["web-cancel"] is True
    assert http.get("/jobs/xyz").status_code == 400
    assert http.get(f"/jobs/{'0' * 32}").status_code == 404
    assert http.patch(f"/jobs/{job_id}?mode=stop").status_code == 400
    assert http.patch(f"/jobs/{job_id}?mode=cancel").status_code == 202
    assert server.jobs.states[job_id] is JobState.CANCELED
    metrics = http.get("/metrics").text
    assert "flink_jobmanager_taskSlotsTotal 2" in metrics


def test_secrets_do_not_show_in_job_names(server: FakeServer, gateway: Gateway) -> None:
    gateway.run("CREATE TABLE s (k INT) WITH ('connector' = 'datagen')")
    server.jobs.query.ended = False
    gateway.refusal("SELECT k FROM s /*+ OPTIONS('my.password' = 'hunter2') */")
    gateway.first(gateway.submit("SELECT 'password' = 'hunter2' AS a FROM s"))
    assert "hunter2" not in gateway.http.get("/jobs/overview").text
    assert "hunter2" not in gateway.http.get("/metrics").text


def test_pages_of_other_origins_are_refused(gateway: Gateway) -> None:
    refused = gateway.http.post("/sessions", headers={"origin": "http://evil.example"})
    assert refused.status_code == 403
    own = str(gateway.http.base_url).rstrip("/")
    assert gateway.http.post("/sessions", headers={"origin": own}).status_code == 200


def test_bodies_are_limited_and_must_be_json(gateway: Gateway) -> None:
    path = f"/v4/sessions/{gateway.session}/statements"
    assert gateway.http.post(path, content=b'{"statement": "' + b"x" * 17_000_000 + b'"}').status_code == 413
    for body in (b"{bad", b'{"statement": "\xff"}', b"[]", b'{"statement": 7}'):
        assert gateway.http.post(path, content=body).status_code == 400, body
    assert gateway.run("SHOW CURRENT DATABASE") == [["default_database"]]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT * FROM ord", ["default_catalog.default_database.orders"]),
        ("SELECT * FROM default_catalog.", ["default_catalog.default_database.orders"]),
        ("DESCRIBE ", ["default_catalog.default_database.orders"]),
        ("SHOW CA", ["CATALOGS"]),
        ("DROP ", ["SAVEPOINT", "TABLE", "TEMPORARY", "VIEW"]),
        ("USE CATALOG h", ["headrace"]),
        ("SEL", ["SELECT"]),
        ("SELECT 'ord", []),
        ("CREATE TABLE x (a I", []),
    ],
)
def test_completion(gateway: Gateway, statement: str, expected: list[str]) -> None:
    gateway.run("CREATE TABLE orders (order_id BIGINT, order_amount INT) WITH ('connector' = 'datagen')")
    assert complete(gateway, statement, len(statement)) == expected


def test_completion_of_columns(gateway: Gateway) -> None:
    gateway.run("CREATE TABLE orders (order_id BIGINT, order_amount INT) WITH ('connector' = 'datagen')")
    assert complete(gateway, "SELECT order_ FROM orders", 13) == ["order_amount", "order_id"]
    assert "UPPER" in complete(gateway, "SELECT upp FROM orders", 10)
    assert complete(gateway, "SELECT order_ FROM nowhere", 13) == []


def complete(gateway: Gateway, statement: str, position: int) -> list[str]:
    path = f"/v4/sessions/{gateway.session}/complete-statement"
    answer = gateway.http.request("GET", path, json={"statement": statement, "position": position})
    return list(answer.json()["candidates"])


def test_any_version_serves_a_statement(server: FakeServer) -> None:
    for api in ("", "/v1", "/v2", "/v3", "/v4"):
        with Gateway(server.url, api) as gateway:
            operation = gateway.submit("SHOW CATALOGS;", executionTimeout=0)
            page = gateway.first(operation)
            suffix = "" if api == "/v1" else "?rowFormat=JSON"
            assert page["nextResultUri"].endswith(f"/result/1{suffix}")
            assert page["nextResultUri"].startswith(api or "/v4")
            assert [row["fields"] for row in page["results"]["data"]] == [["default_catalog"], ["headrace"]]


def test_savepoints_have_the_shapes_of_flinks_api(server: FakeServer, gateway: Gateway) -> None:
    http = gateway.http
    gateway.run("CREATE TABLE s (k INT) WITH ('connector' = 'datagen')")
    gateway.run("CREATE TABLE o (k INT) WITH ('connector' = 'blackhole')")
    job_id = gateway.run("INSERT INTO o SELECT k FROM s")[0][0]
    trigger = "0123456789abcdef0123456789abcdef"
    answer = http.post(f"/jobs/{job_id}/savepoints", json={"target-directory": "/sp", "triggerId": trigger})
    assert (answer.status_code, answer.json()) == (202, {"request-id": trigger})
    location = f"/sp/savepoint-{job_id[:6]}-0123456789ab"
    status = f"/v1/jobs/{job_id}/savepoints/{trigger}"
    assert http.get(status).json() == {"status": {"id": "COMPLETED"}, "operation": {"location": location}}
    server.jobs.savepoint_in_progress = True
    assert http.get(status).json() == {"status": {"id": "IN_PROGRESS"}}
    server.jobs.savepoint_in_progress = False
    server.jobs.savepoint_failure = Failure("the disk is full", "external", True, "Make room.")
    name = "org.apache.flink.runtime.checkpoint.CheckpointException"
    cause = {"class": name, "stack-trace": f"{name}: the disk is full", "hint": "Make room."}
    assert http.get(status).json() == {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": cause}}
    server.jobs.savepoint_failure = None

    assert http.get(f"/jobs/{job_id}/savepoints/{'f' * 32}").status_code == 404
    assert http.get(f"/jobs/{'0' * 32}/savepoints/{trigger}").status_code == 404
    assert http.get(f"/jobs/{job_id}/savepoints/xyz").status_code == 400
    assert http.post(f"/jobs/{'0' * 32}/stop", json={"targetDirectory": "/sp"}).status_code == 404
    refused = http.post(f"/jobs/{job_id}/stop", json={})
    assert refused.status_code == 400
    assert "no directory for the savepoint is given. Name one." in refused.json()["errors"][0]
    assert http.post(f"/jobs/{job_id}/stop", json={"formatType": "ODD", "targetDirectory": "/"}).status_code == 400
    stop = {"targetDirectory": "/sp", "drain": True, "formatType": "CANONICAL", "triggerId": None}
    answer = http.post(f"/jobs/{job_id}/stop", json=stop)
    assert answer.status_code == 202
    request = server.jobs.savepoint_requests[answer.json()["request-id"]]
    assert (request.directory, request.stop, request.drain) == ("/sp", True, True)
    assert server.jobs.states[job_id] is JobState.FINISHED


def test_what_a_savepoint_changed_is_noticed(server: FakeServer, gateway: Gateway) -> None:
    gateway.run("CREATE TABLE s (k INT) WITH ('connector' = 'datagen')")
    gateway.run("CREATE TABLE o (k INT) WITH ('connector' = 'blackhole')")
    server.jobs.restore_notes = ("The query below 'sink' has changed.",)
    page = gateway.first(gateway.submit("INSERT INTO o SELECT k FROM s"))
    assert page["warnings"][-1] == server.jobs.restore_notes[0]


def test_resource_requirements_rescale_a_job(server: FakeServer, gateway: Gateway) -> None:
    http = gateway.http
    gateway.run("CREATE TABLE s (k INT) WITH ('connector' = 'datagen')")
    gateway.run("CREATE TABLE o (k INT) WITH ('connector' = 'blackhole', 'sink.parallelism' = '1')")
    gateway.run("SET 'parallelism.default' = '2'")
    job_id = gateway.run("INSERT INTO o SELECT k FROM s")[0][0]
    url = f"/v1/jobs/{job_id}/resource-requirements"

    def body(*bounds: tuple[int, int]) -> dict[str, object]:
        return {f"{i:032x}": {"parallelism": {"lowerBound": a, "upperBound": b}} for i, (a, b) in enumerate(bounds)}

    assert http.get(url).json() == body((1, 2), (1, 1))
    answer = http.put(url, json=body((1, 5), (1, 1)))
    assert (answer.status_code, answer.json()) == (200, {})
    assert http.get(url).json() == body((1, 5), (1, 1))
    for wrong, message in (
        (body((1, 5)), "each of them"),
        (body((3, 2), (1, 1)), "does not hold"),
        (body((1, 5), (2, 5)), "would run at parallelism 1, outside of 2 to 5"),
        (body((1, 200), (1, 1)), "'200'"),
        ({"x": 1}, ""),
    ):
        refused = http.put(url, json=wrong)
        assert refused.status_code == 400
        assert message in refused.json()["errors"][0]
    assert http.get(f"/jobs/{'0' * 32}/resource-requirements").status_code == 404
    assert http.put(f"/jobs/{'0' * 32}/resource-requirements", json=body((1, 1))).status_code == 404


def test_savepoints_are_disposed_of(server: FakeServer, gateway: Gateway) -> None:
    http = gateway.http
    server.jobs.taken = [SavepointEntry("/sp/savepoint-1", 7, 0, 1)]
    answer = http.post("/v1/savepoint-disposal", json={"savepoint-path": "/sp/savepoint-1"})
    assert answer.status_code == 202
    status = http.get(f"/savepoint-disposal/{answer.json()['request-id']}")
    assert status.json() == {"status": {"id": "COMPLETED"}, "operation": {}}
    answer = http.post("/savepoint-disposal", json={"savepoint-path": "/sp/x"})
    cause = http.get(f"/savepoint-disposal/{answer.json()['request-id']}").json()["operation"]["failure-cause"]
    assert "there is no savepoint at /sp/x" in cause["stack-trace"]
    assert http.get(f"/savepoint-disposal/{'a' * 32}").status_code == 404
    assert http.post("/savepoint-disposal", json={}).status_code == 400
