"""Stop with savepoint, start from one, over HTTP on a standalone cluster and a real broker: at another parallelism,
after a drain, with a changed query, and with kill -9 in the middle. The read-committed output is exactly what it must
be."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import events as ev
from tests.support.cluster import Cluster, Role
from tests.support.standalone import AWAY, POLL_S, GatewayError, late_rows, request
from tests.support.topics import create_topic, open_transactions, read_topic, unique_name

SETTINGS = {
    "execution.checkpointing.interval": "300 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "100 ms",
}
TIMEOUT_S = 90.0
RECOVERY_PATH = "execution.state-recovery.path"
WINDOW_COLUMNS = "k STRING, window_start TIMESTAMP(3), cnt BIGINT, total INT"
WINDOW_QUERY = """SELECT k, window_start, COUNT(*), SUM(v)
  FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY k, window_start, window_end"""


KAFKA_SINK = "'connector' = 'kafka', 'format' = 'json'"
UPSERT_SINK = "'connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json'"
GROUP_COLUMNS = "k STRING, cnt BIGINT, total INT, largest INT, PRIMARY KEY (k) NOT ENFORCED"
GROUP_QUERY = "SELECT k, COUNT(*), SUM(v), MAX(v) FROM src GROUP BY k"


def until(what: str, condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(POLL_S)


class Pipeline:
    """A windowed job from topic to topic, started and stopped as often as wanted."""

    source_columns = f"""id BIGINT, k STRING, v INT, ts TIMESTAMP(3),
              WATERMARK FOR ts AS ts - INTERVAL '{ev.WATERMARK_DELAY_MS // 1000}' SECOND"""
    source_format = "json"
    source_options = ""
    """Further ones, each with a comma before it."""

    def __init__(self, cluster: Cluster, kafka: str, count: int, seed: int = 1) -> None:
        self.cluster, self.kafka = cluster, kafka
        self.events = list(ev.events(count, seed))
        self.source, self.target, self.prefix = unique_name("in"), unique_name("out"), unique_name("eos")
        self.directory = str(cluster.data / "savepoints")
        create_topic(kafka, self.source, ev.PARTITIONS)
        create_topic(kafka, self.target, ev.PARTITIONS)

    def produce(self, duration_s: float, part: slice = slice(None)) -> ev.PacedProducer:
        producer = ev.PacedProducer(self.kafka, self.source, self.events[part], duration_s)
        producer.start()
        return producer

    def start(
        self,
        parallelism: int = 1,
        savepoint: str = "",
        columns: str = WINDOW_COLUMNS,
        query: str = WINDOW_QUERY,
        bounded: bool = False,
        settings: dict[str, str] | None = None,
        sink: str = KAFKA_SINK,
    ) -> str:
        session = self.cluster.session({**SETTINGS, "parallelism.default": str(parallelism), **(settings or {})})
        end = (
            f"'scan.bounded.mode' = 'specific-offsets', "
            f"'scan.bounded.specific-offsets' = '{ev.bounded_offsets(self.events)}',"
        )
        session.execute(
            f"""CREATE TABLE src ({self.source_columns}) WITH (
              'connector' = 'kafka', 'properties.bootstrap.servers' = '{self.kafka}', 'topic' = '{self.source}',
              {end if bounded else ""} 'format' = '{self.source_format}', 'scan.startup.mode' = 'earliest-offset'
              {self.source_options}
            )"""
        )
        session.execute(
            f"""CREATE TABLE dst ({columns}) WITH (
              {sink}, 'properties.bootstrap.servers' = '{self.kafka}', 'topic' = '{self.target}',
              'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{self.prefix}'
            )"""
        )
        if savepoint:
            session.execute(f"SET '{RECOVERY_PATH}' = '{savepoint}'")
        job_id = session.execute(f"INSERT INTO dst {query}").job_id
        assert job_id is not None
        return job_id

    def checkpointed(self, job_id: str, count: int = 2) -> None:
        def enough() -> bool:
            counts = request("GET", f"{self.cluster.url}/jobs/{job_id}/checkpoints")["counts"]
            return bool(counts["completed"] >= count)

        until("checkpoints", enough)

    def stop(self, job_id: str, drain: bool = False) -> str:
        """By SQL; returns the savepoint's path."""
        session = self.cluster.session({"state.savepoints.dir": self.directory})
        how = "WITH SAVEPOINT" + (" WITH DRAIN" if drain else "")
        result = session.execute(f"STOP JOB '{job_id}' {how}")
        assert result.columns == ["savepoint path"]
        assert self.cluster.job(job_id)["state"] == "FINISHED"
        assert open_transactions(self.kafka, self.prefix) == []
        return str(result.rows[0][0])

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(record.value or b"null") for record in read_topic(self.kafka, self.target)]

    def expected(self) -> Counter[tuple[Any, ...]]:
        totals = ev.window_totals(iter(self.events))
        return Counter((key, ev.time_text(start), count, total) for (key, start), (count, total) in totals.items())


def windows(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter((row["k"], row["window_start"], row["cnt"], row["total"]) for row in rows)


@pytest.mark.timeout(240)
def test_from_parallelism_1_to_4_to_2(cluster: Cluster, kafka: str) -> None:
    """The second start also loses a slot: a job goes on from its savepoint as it does from a checkpoint."""
    pipeline = Pipeline(cluster, kafka, 24_000)
    job_id = pipeline.start(1, bounded=True)
    pipeline.checkpointed(job_id, 1)
    producer = pipeline.produce(2.0, slice(0, 10_000))
    pipeline.checkpointed(job_id, 3)
    job_id = pipeline.start(4, pipeline.stop(job_id), bounded=True)
    producer.join()
    cluster.wait_for_job(job_id, "RUNNING", TIMEOUT_S)
    cluster.kill("slot")
    pipeline.checkpointed(job_id, 1)
    producer = pipeline.produce(2.0, slice(10_000, 20_000))
    pipeline.checkpointed(job_id, 3)
    job_id = pipeline.start(2, pipeline.stop(job_id), bounded=True)
    producer.join()
    pipeline.produce(0.0, slice(20_000, 24_000)).join()
    job = cluster.wait_for_job(job_id, "FINISHED", TIMEOUT_S)
    assert late_rows(job) == 0
    found, expected = windows(pipeline.rows()), pipeline.expected()
    assert (found - expected, expected - found) == (Counter(), Counter())


@pytest.mark.timeout(240)
def test_groups_without_windows_from_parallelism_1_to_4(cluster: Cluster, kafka: str) -> None:
    pipeline = Pipeline(cluster, kafka, 6_000)
    savepoint = ""
    for number, parallelism in enumerate((1, 4)):
        job_id = pipeline.start(parallelism, savepoint, GROUP_COLUMNS, GROUP_QUERY, bounded=True, sink=UPSERT_SINK)
        pipeline.checkpointed(job_id, 1)
        producer = pipeline.produce(1.0, slice(3_000 * number, 3_000 * (number + 1)))
        if number < 1:
            savepoint = pipeline.stop(job_id)
        producer.join()
    cluster.wait_for_job(job_id, "FINISHED", TIMEOUT_S)
    table: dict[bytes, dict[str, Any]] = {}
    for record in read_topic(kafka, pipeline.target):
        table[record.key or b""] = json.loads(record.value or b"null")
    expected: dict[str, tuple[int, int, int]] = {}
    for event in pipeline.events:
        count, total, largest = expected.get(event.k, (0, 0, event.v))
        expected[event.k] = (count + 1, total + event.v, max(largest, event.v))
    assert {row["k"]: (row["cnt"], row["total"], row["largest"]) for row in table.values()} == expected


@pytest.mark.timeout(240)
def test_a_drained_job_has_fired_everything_and_cannot_go_on(cluster: Cluster, kafka: str) -> None:
    pipeline = Pipeline(cluster, kafka, 4_000)
    pipeline.produce(0.0).join()
    job_id = pipeline.start(2)

    def read() -> bool:
        vertices = cluster.job(job_id)["vertices"]
        return int(vertices[0]["metrics"]["write-records"]) > 0 and pending(vertices) == 0

    def pending(vertices: list[dict[str, Any]]) -> int:
        return int(sum(o.get("pendingRecords", 0) for o in vertices[0]["operators"].values()))

    until("all rows read", read)
    savepoint = pipeline.stop(job_id, drain=True)
    found, expected = windows(pipeline.rows()), pipeline.expected()
    assert (found - expected, expected - found) == (Counter(), Counter())
    with pytest.raises(GatewayError, match="the job was drained before this savepoint"):
        pipeline.start(2, savepoint)


@pytest.mark.timeout(240)
def test_output_that_only_a_savepoint_holds_is_written_by_the_next_job(cluster: Cluster, kafka: str) -> None:
    """A savepoint without stop commits nothing. When its job dies before the next checkpoint, the rows until then
    are in the savepoint alone."""
    pipeline = Pipeline(cluster, kafka, 6_000)
    job_id = pipeline.start(2, bounded=True, settings={"execution.checkpointing.interval": "1 h"})
    pipeline.produce(0.0, slice(0, 3_000)).join()

    def written() -> bool:
        vertices = cluster.job(job_id)["vertices"]
        return any(o.get("numRecordsSend", 0) > 0 for v in vertices for o in v["operators"].values())

    until("rows written", written)
    url = f"{cluster.url}/jobs/{job_id}/savepoints"
    trigger = request("POST", url, {"target-directory": pipeline.directory})["request-id"]
    until("the savepoint", lambda: bool(request("GET", f"{url}/{trigger}")["status"]["id"] == "COMPLETED"))
    savepoint = request("GET", f"{url}/{trigger}")["operation"]["location"]
    request("PATCH", f"{cluster.url}/jobs/{job_id}?mode=cancel")
    cluster.wait_for_job(job_id, "CANCELED", TIMEOUT_S)
    assert pipeline.rows() == []
    assert list(Path(savepoint, "epochs").iterdir()) != []
    job_id = pipeline.start(3, savepoint, bounded=True)
    pipeline.produce(0.0, slice(3_000, None)).join()
    cluster.wait_for_job(job_id, "FINISHED", TIMEOUT_S)
    found, expected = windows(pipeline.rows()), pipeline.expected()
    assert (found - expected, expected - found) == (Counter(), Counter())


@pytest.mark.timeout(240)
def test_a_changed_query_keeps_what_is_the_same_and_refuses_the_rest_by_name(cluster: Cluster, kafka: str) -> None:
    pipeline = Pipeline(cluster, kafka, 8_000)
    pipeline.produce(0.0, slice(0, 4_000)).join()
    job_id = pipeline.start(2, bounded=True)
    pipeline.checkpointed(job_id)
    savepoint = pipeline.stop(job_id)

    aggregate = r"the state of 'GlobalWindowAggregate' .* has another shape .*\(aggregates: .*MAX\(.*v INT\)"
    with pytest.raises(GatewayError, match=aggregate):
        pipeline.start(2, savepoint, query=WINDOW_QUERY.replace("SUM(v)", "MAX(v)"))
    with pytest.raises(GatewayError, match=r"SET 'pipeline.max-parallelism' = '128'"):
        pipeline.start(2, savepoint, settings={"pipeline.max-parallelism": "64"})
    stateless = "SELECT k, ts, id, v FROM src"
    with pytest.raises(GatewayError, match="the savepoint has state of 'GlobalWindowAggregate'"):
        pipeline.start(2, savepoint, query=stateless)
    elsewhere, pipeline.source = pipeline.source, pipeline.target
    with pytest.raises(GatewayError, match=f"'topic' was '{elsewhere}' and is '{pipeline.target}'"):
        pipeline.start(2, savepoint)
    pipeline.source = elsewhere

    columns = WINDOW_COLUMNS + ", upper_k STRING"
    query = WINDOW_QUERY.replace("SUM(v)", "SUM(v), UPPER(k)")
    pipeline.produce(0.0, slice(4_000, 8_000)).join()
    job_id = pipeline.start(2, savepoint, columns, query, bounded=True)
    job = cluster.wait_for_job(job_id, "FINISHED", TIMEOUT_S)
    assert late_rows(job) == 0
    rows = pipeline.rows()
    found, expected = windows(rows), pipeline.expected()
    assert (found - expected, expected - found) == (Counter(), Counter())
    assert {row.get("upper_k", row["k"].upper()) == row["k"].upper() for row in rows} == {True}

    with pytest.raises(GatewayError, match="the output since then would be repeated"):
        pipeline.start(2, savepoint)
    unclaimed = {
        "execution.state-recovery.ignore-unclaimed-state": "true",
        "execution.state-recovery.allow-rewind": "true",
    }
    job_id = pipeline.start(1, savepoint, query=stateless, settings=unclaimed)
    cluster.wait_for_job(job_id, "RUNNING", TIMEOUT_S)
    request("PATCH", f"{cluster.url}/jobs/{job_id}?mode=cancel")


@pytest.mark.parametrize("rounds", [pytest.param(2, id="2"), pytest.param(25, id="25", marks=pytest.mark.chaos)])
@pytest.mark.timeout(900)
def test_a_stop_with_kill_9_in_its_middle_loses_and_repeats_nothing(cluster: Cluster, kafka: str, rounds: int) -> None:
    """Whatever dies while a job stops: in the end it is stopped with a savepoint that the next one goes on from, or it
    runs on and is stopped again."""
    pipeline = Pipeline(cluster, kafka, 4_000 * (rounds + 1))
    rng = random.Random(rounds)
    roles: tuple[Role, ...] = ("jobmanager", "slot", "jobmanager", "taskmanager")
    job_id = pipeline.start(2, bounded=True)
    for number in range(rounds):
        pipeline.checkpointed(job_id, 1)
        producer = pipeline.produce(1.0, slice(4_000 * number, 4_000 * (number + 1)))
        killer = threading.Timer(rng.uniform(0.0, 0.15), cluster.kill, (roles[number % 4],))
        killer.start()
        path = _stopped_by_rest(pipeline, job_id)
        killer.join()
        until("the server", lambda: _answers(f"{cluster.url}/readyz"))
        job_id = pipeline.start(2, path, bounded=True)
        producer.join()
    pipeline.produce(0.0, slice(4_000 * rounds, None)).join()
    cluster.wait_for_job(job_id, "FINISHED", TIMEOUT_S)
    found, expected = windows(pipeline.rows()), pipeline.expected()
    assert (found - expected, expected - found) == (Counter(), Counter())


def _stopped_by_rest(pipeline: Pipeline, job_id: str) -> str:
    """Ask again until the job is FINISHED; its latest savepoint."""
    url = f"{pipeline.cluster.url}/jobs/{job_id}"
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            if request("GET", f"{url}")["state"] == "FINISHED":
                return str(request("GET", f"{url}/checkpoints")["latest"]["savepoint"]["external_path"])
            body = {"targetDirectory": pipeline.directory, "drain": False}
            trigger = request("POST", f"{url}/stop", body)["request-id"]
            while request("GET", f"{url}/savepoints/{trigger}")["status"]["id"] == "IN_PROGRESS":
                time.sleep(POLL_S)
        except AWAY:
            time.sleep(POLL_S)  # The JobManager is away, or the job has just ended.
    raise TimeoutError(pipeline.cluster.tail())


def _answers(url: str) -> bool:
    try:
        request("GET", url)
    except AWAY:
        return False
    return True
