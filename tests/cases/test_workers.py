"""Cases of workers that come, go, stop and wake up while rows flow, and of state that must not stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cases.test_kafka import FROM_START, eventually, messages, table
from tests.support.cluster import Cluster
from tests.support.faults import stopped
from tests.support.standalone import Session, Standalone, request
from tests.support.topics import create_topic, open_transactions, produce, read_topic, unique_name

pytestmark = pytest.mark.kafka

IDS, ROWS, PARTITIONS = 10, 20_000, 4
NOTICED_MS = 2_000
FLAGS = ["--set", "jobmanager.heartbeat-interval-ms=400", "--set", f"jobmanager.heartbeat-timeout-ms={NOTICED_MS}"]
SETTINGS = {
    "execution.checkpointing.interval": "300 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "100 ms",
    "parallelism.default": "1",
}


@pytest.mark.timeout(300)
def test_counts_are_exact_while_workers_come_and_go(kafka: str, tmp_path: Path) -> None:
    """One subtask, then two, then the process of one dies, then four, then a TaskManager stops for longer than its
    heartbeat may and wakes up: every id has been counted as often as it was sent, and once."""
    source, target, prefix = unique_name("source"), unique_name("target"), unique_name("eos")
    create_topic(kafka, source, PARTITIONS)
    create_topic(kafka, target)
    with Cluster(tmp_path / "data", taskmanagers=2, slots=4, flags=FLAGS) as cluster:
        session = cluster.session(SETTINGS)
        job_id = _start_counts(session, kafka, source, target, prefix)

        def send(part: int) -> None:
            """A fifth of the rows."""
            numbers = range(ROWS * part // 5, ROWS * (part + 1) // 5)
            rows = {p: [{"id": n % IDS, "v": n} for n in numbers if n % PARTITIONS == p] for p in range(PARTITIONS)}
            produce(kafka, source, [m for p, values in rows.items() for m in messages(*values, partition=p)])

        faults: tuple[Callable[[], object], ...] = (
            lambda: session.execute(f"ALTER JOB '{job_id}' SET ('parallelism' = '2')"),
            lambda: cluster.kill("slot"),
            lambda: session.execute(f"ALTER JOB '{job_id}' SET ('parallelism' = '4')"),
            lambda: None,
        )
        for part, fault in enumerate(faults):
            send(part)
            fault()
            cluster.wait_for_job(job_id, "RUNNING", 90)
        with stopped(cluster.pids("taskmanager")[0]):
            send(4)
            eventually("it is missed", lambda: len(request("GET", f"{cluster.url}/taskmanagers")["taskmanagers"]) == 1)
        eventually("all rows are counted", lambda: sum(_counts(kafka, target).values()) >= ROWS)
        assert _counts(kafka, target) == dict.fromkeys(range(IDS), ROWS // IDS)
        request("PATCH", f"{cluster.url}/jobs/{job_id}?mode=cancel")
        cluster.wait_for_job(job_id, "CANCELED", 60)
    seen: dict[int, int] = {}
    for record in read_topic(kafka, target):
        row = json.loads(record.value or b"null")
        assert row["c"] > seen.get(row["id"], 0)  # No zombie's older value over a newer one, and none twice.
        seen[row["id"]] = row["c"]
    assert open_transactions(kafka, prefix) == []


def _start_counts(session: Session, kafka: str, source: str, target: str, prefix: str) -> str:
    session.execute(table("rows_in", "id INT, v INT", kafka, source, **FROM_START))
    session.execute(
        f"""CREATE TABLE counts (id INT, c BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH (
          'connector' = 'upsert-kafka', 'topic' = '{target}', 'properties.bootstrap.servers' = '{kafka}',
          'key.format' = 'json', 'value.format' = 'json', 'sink.delivery-guarantee' = 'exactly-once',
          'sink.transactional-id-prefix' = '{prefix}')"""
    )
    job_id = session.execute("INSERT INTO counts SELECT id, COUNT(*) FROM rows_in GROUP BY id").job_id
    assert job_id is not None
    return job_id


def _counts(kafka: str, topic: str) -> dict[int, int]:
    rows = [json.loads(record.value or b"null") for record in read_topic(kafka, topic)]
    return {row["id"]: row["c"] for row in rows}


def test_windows_of_keys_seen_once_leave_nothing_behind(cluster: Standalone) -> None:
    """300,000 keys of one row each in 300 windows: a checkpoint holds the open windows, not what has fired."""
    session = cluster.session({**SETTINGS, "execution.checkpointing.interval": "200 ms"})
    session.execute("""
        CREATE TABLE numbers (n BIGINT, ts AS TO_TIMESTAMP_LTZ(n, 3), WATERMARK FOR ts AS ts) WITH (
          'connector' = 'datagen', 'rows-per-second' = '60000', 'number-of-rows' = '300000',
          'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '299999')""")
    session.execute("CREATE TABLE nowhere (n BIGINT, c BIGINT) WITH ('connector' = 'blackhole')")
    job_id = session.execute("""
        INSERT INTO nowhere SELECT n, COUNT(*) FROM TUMBLE(TABLE numbers, DESCRIPTOR(ts), INTERVAL '1' SECOND)
        GROUP BY n, window_start, window_end""").job_id
    assert job_id is not None
    cluster.wait_for_job(job_id, "FINISHED", 90)
    history: list[dict[str, Any]] = request("GET", f"{cluster.url}/jobs/{job_id}/checkpoints")["history"]
    sizes = [entry["state_size"] for entry in reversed(history) if entry["status"] == "COMPLETED"]
    assert len(sizes) >= 5
    assert max(sizes) < 1_000_000, sizes
