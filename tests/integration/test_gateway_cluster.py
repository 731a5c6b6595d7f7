"""Gateway and shell on a real cluster: pages, failing queries, huge results, and a JobManager killed with -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from server.demo.cluster import LocalCluster
from tests.unit.server.gateway_client import Gateway, StatementFailedError

DEADLINE_S = 90.0
MEMORY_BYTES_MAX = 500_000_000
SHELL = [sys.executable, "-P", "-m", "server", "sql"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(taskmanagers=1, slots=2) as running:
        yield running


@pytest.fixture
def gateway(cluster: LocalCluster) -> Iterator[Gateway]:
    with Gateway(cluster.url) as client:
        yield client


def process_below(launcher: int, role: str) -> int:
    """The process of the launcher's child with this role."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if parent == launcher and role.encode() in arguments:
            return int(entry.name)
    raise AssertionError(f"no {role} below {launcher}")


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def job_state(gateway: Gateway, job_id: str) -> str:
    return str(gateway.http.get(f"/jobs/{job_id}").json()["state"])


def wait_for_state(gateway: Gateway, job_id: str, state: str) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while job_state(gateway, job_id) != state:
        assert time.monotonic() < deadline_s, gateway.http.get(f"/jobs/{job_id}").text
        time.sleep(0.05)


def json_file(folder: Path, rows: list[dict[str, object]]) -> Path:
    path = folder / "input.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_pages_of_a_file_hold_every_row_once(gateway: Gateway, tmp_path: Path) -> None:
    path = json_file(tmp_path, [{"id": i} for i in range(25)])
    gateway.run(f"CREATE TABLE t (id INT) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'json')")
    operation = gateway.submit("SELECT id FROM t")
    pages = []
    for page in gateway.pages(operation, maxRows=10):
        pages.append(page)
        if len(pages) == 2:
            again = gateway.page(operation, 1, maxRows=10)
            assert again.json() == page
    assert max(len(page["results"]["data"]) for page in pages) <= 10
    assert sorted(row["fields"][0] for page in pages for row in page["results"]["data"]) == list(range(25))
    assert gateway.page(operation, 0).status_code == 410


def test_a_query_that_fails_while_running_tells_its_reader(
    cluster: LocalCluster, gateway: Gateway, tmp_path: Path
) -> None:
    path = json_file(tmp_path, [{"id": 1, "s": "1"}, {"id": 2, "s": "x"}, {"id": 3, "s": "3"}])
    table = f"CREATE TABLE t (id INT, s STRING) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'json')"
    query = "SELECT id, CAST(s AS INT) AS n FROM t"
    gateway.run(table)
    operation = gateway.submit(query)
    with pytest.raises(StatementFailedError) as failure:
        list(gateway.pages(operation))
    assert "'x'" in failure.value.body["message"]
    assert gateway.status(operation) == "ERROR"

    arguments = ["--url", cluster.url, "--catalog", "default_catalog", "-c", table, "-c", query]
    done = subprocess.run([*SHELL, *arguments], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 3
    assert "'x'" in done.stderr


def test_an_insert_of_bounded_input_finishes(gateway: Gateway) -> None:
    gateway.run("CREATE TABLE o (a INT) WITH ('connector' = 'blackhole')")
    gateway.run("SET 'table.dml-sync' = 'true'")
    job_id = gateway.run("INSERT INTO o VALUES (1), (2)")[0][0]
    assert job_state(gateway, job_id) == "FINISHED"
    jobs = {row[0]: row[2] for row in gateway.run("SHOW JOBS")}
    assert jobs[job_id] == "FINISHED"


def test_stopping_a_job(gateway: Gateway) -> None:
    gateway.run("CREATE TABLE s (a INT) WITH ('connector' = 'datagen', 'rows-per-second' = '10')")
    gateway.run("CREATE TABLE o (a INT) WITH ('connector' = 'blackhole')")
    job_id = gateway.run(
        "EXECUTE STATEMENT SET BEGIN INSERT INTO o SELECT a FROM s; INSERT INTO o SELECT a FROM s; END"
    )[0][0]
    wait_for_state(gateway, job_id, "RUNNING")
    gateway.run(f"STOP JOB '{job_id}'")
    wait_for_state(gateway, job_id, "CANCELED")


def test_closing_a_streaming_query_frees_its_slots(cluster: LocalCluster, gateway: Gateway) -> None:
    gateway.run("CREATE TABLE s (a INT) WITH ('connector' = 'datagen', 'rows-per-second' = '100')")
    operation = gateway.submit("SELECT a FROM s")
    rows, job_id = 0, ""
    for page in gateway.pages(operation):
        rows, job_id = rows + len(page["results"]["data"]), page["jobID"]
        if rows > 20:
            break
    assert gateway.http.delete(f"{gateway.operation_path(operation)}/close").status_code == 200
    wait_for_state(gateway, job_id, "CANCELED")
    deadline_s = time.monotonic() + DEADLINE_S
    while cluster.get("/overview")["slots-available"] < 2:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_metrics_name_what_runs(gateway: Gateway) -> None:
    gateway.run("CREATE TABLE s (a INT) WITH ('connector' = 'datagen', 'rows-per-second' = '100')")
    gateway.run("CREATE TABLE o (a INT) WITH ('connector' = 'blackhole')")
    gateway.run("SET 'pipeline.name' = 'measured'")
    job_id = gateway.run("INSERT INTO o SELECT a FROM s")[0][0]
    deadline_s = time.monotonic() + DEADLINE_S
    wanted = 'flink_taskmanager_job_task_numRecordsOut{job_id="' + job_id
    while wanted not in gateway.http.get("/metrics").text:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    vertices = gateway.http.get(f"/v1/jobs/{job_id}").json()["vertices"]
    assert [v["status"] for v in vertices] == ["RUNNING"] * len(vertices)
    assert gateway.http.patch(f"/jobs/{job_id}?mode=cancel").status_code == 202
    wait_for_state(gateway, job_id, "CANCELED")


def test_a_huge_result_does_not_fill_the_memory(cluster: LocalCluster) -> None:
    """Five million rows wait behind five: the first come at once, and the closed pipe ends the query."""
    table = (
        "CREATE TABLE IF NOT EXISTS g (id BIGINT, s STRING) WITH ('connector' = 'datagen', "
        "'number-of-rows' = '5000000', 'fields.id.kind' = 'sequence', 'fields.id.start' = '1', "
        "'fields.id.end' = '5000000', 'fields.s.length' = '100')"
    )
    shell = subprocess.Popen(
        [*SHELL, "--url", cluster.url, "-q", "-c", table, "-c", "SELECT id, s FROM g"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert shell.stdout is not None
    assert shell.stderr is not None
    first = [json.loads(shell.stdout.readline()) for _ in range(5)]
    assert [row["id"] for row in first] == [1, 2, 3, 4, 5]
    for _ in range(100_000):
        shell.stdout.readline()
    assert rss_bytes(shell.pid) < MEMORY_BYTES_MAX
    assert rss_bytes(process_below(cluster.pid, "jobmanager")) < MEMORY_BYTES_MAX
    shell.stdout.close()
    assert shell.wait(DEADLINE_S) == 0
    assert shell.stderr.read() == ""
    shell.stderr.close()
    deadline_s = time.monotonic() + DEADLINE_S
    while any(j["state"] == "RUNNING" for j in cluster.get("/jobs/overview")["jobs"]):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_one_huge_value_is_delivered(gateway: Gateway) -> None:
    rows = gateway.run("SELECT LPAD('x', 1000000, 'y') AS s")
    assert len(rows[0][0]) == 1_000_000


def test_sessions_catalog_and_jobs_survive_the_death_of_the_job_manager() -> None:
    with LocalCluster(taskmanagers=1, slots=2) as cluster, Gateway(cluster.url) as gateway:
        gateway.run(
            "CREATE TABLE headrace.default_database.s (a INT) WITH ('connector' = 'datagen', 'rows-per-second' = '10')"
        )
        gateway.run("CREATE TEMPORARY TABLE o (a INT) WITH ('connector' = 'blackhole')")
        insert = gateway.submit("INSERT INTO o SELECT a FROM headrace.default_database.s")
        job_id = gateway.first(insert)["jobID"]
        query = gateway.submit("SELECT a FROM headrace.default_database.s")
        gateway.first(query)
        wait_for_state(gateway, job_id, "RUNNING")

        killed = process_below(cluster.pid, "jobmanager")
        os.kill(killed, signal.SIGKILL)
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            assert time.monotonic() < deadline_s
            try:
                if (
                    process_below(cluster.pid, "jobmanager") != killed
                    and gateway.http.get("/readyz").status_code == 200
                ):
                    break
            except (AssertionError, httpx2.TransportError):
                pass  # Not up again yet.
            time.sleep(0.1)

        wait_for_state(gateway, job_id, "RUNNING")
        assert gateway.first(insert)["jobID"] == job_id
        assert gateway.page(query, 1).json()["code"] == "RESULT_LOST"
        assert gateway.run("SHOW TABLES") == [["o"]]
        assert gateway.run("SHOW TABLES FROM headrace.default_database") == [["s"]]
