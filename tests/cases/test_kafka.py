"""Cases on a real Kafka broker: bounded reads, new partitions, open queries, limits of a broker, restarts."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.support.standalone import GatewayError, Session, Standalone, request, standalone
from tests.support.topics import Record, add_partitions, create_topic, produce, read_topic, unique_name

pytestmark = pytest.mark.kafka

DEADLINE_S = 60.0
POLL_S = 0.1


def table(name: str, columns: str, kafka: str, topic: str, **options: str) -> str:
    settings = {
        "connector": "kafka",
        "topic": topic,
        "properties.bootstrap.servers": kafka,
        "format": "json",
        **{key.replace("__", "-").replace("_", "."): value for key, value in options.items()},
    }
    given = ", ".join(f"'{key}' = '{value}'" for key, value in settings.items())
    return f"CREATE TABLE {name} ({columns}) WITH ({given})"


FROM_START = {"scan_startup_mode": "earliest-offset"}
EVENTS = "id INT, kind STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts"


def messages(*values: dict[str, Any], partition: int = 0) -> list[Record]:
    return [Record(partition, None, json.dumps(value).encode()) for value in values]


def event(number: int, kind: str, time_of_day: str) -> dict[str, Any]:
    return {"id": number, "kind": kind, "ts": f"2025-06-01 {time_of_day}"}


def eventually(what: str, condition: Callable[[], bool], timeout_s: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s} s")
        time.sleep(POLL_S)


@pytest.fixture
def session(cluster: Standalone) -> Session:
    return cluster.session()


def test_a_bounded_read_of_a_topic_with_an_aborted_tail_ends(kafka: str, session: Session) -> None:
    """The end offset lies behind records nobody may see: waiting for one at that offset would take for ever."""
    topic = unique_name("tail")
    create_topic(kafka, topic)
    produce(kafka, topic, messages(*({"id": i} for i in range(60))), transactional_id=unique_name("writer"))
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": unique_name("writer")})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    for i in range(4):
        producer.produce(topic, json.dumps({"id": 1000 + i}).encode())
    producer.flush(DEADLINE_S)
    producer.abort_transaction(DEADLINE_S)
    bounded = {"scan_bounded_mode": "latest-offset", "properties_isolation_level": "read_committed"}
    session.execute(table("t", "id INT", kafka, topic, **FROM_START, **bounded))
    result = session.execute("SELECT id FROM t")
    assert sorted(result.rows) == [(i,) for i in range(60)]


def test_csv_in_a_topic(kafka: str, session: Session) -> None:
    """Fields by position, whichever columns a query reads; the key is a format of its own."""
    source, target = unique_name("csv"), unique_name("csv")
    for topic in (source, target):
        create_topic(kafka, topic)
    values = (b'1,"a,b",7', b"2,,8", b"3,NULL,9")
    produce(kafka, source, [Record(0, None, value) for value in values])
    bounded = {"format": "csv", "csv_null__literal": "NULL", "scan_bounded_mode": "latest-offset", **FROM_START}
    session.execute(table("t", "id INT, name STRING, n INT", kafka, source, **bounded))
    assert sorted(session.execute("SELECT n, name FROM t").rows) == [(7, "a,b"), (8, ""), (9, None)]
    assert sorted(session.execute("SELECT n FROM t WHERE name IS NULL").rows) == [(9,)]
    session.execute(table("u", "n INT, name STRING", kafka, target, format="csv", csv_null__literal="NULL"))
    job_id = session.execute("INSERT INTO u SELECT n, name FROM t").job_id
    assert job_id is not None
    eventually("records", lambda: len(read_topic(kafka, target)) == 3)
    assert [record.value for record in read_topic(kafka, target)] == [b'7,"a,b"', b"8,", b"9,NULL"]


def test_a_partition_added_while_running_is_read_from_its_beginning(kafka: str, session: Session) -> None:
    """Also when the query began at the latest offset: what was written before it was found counts as new."""
    topic = unique_name("growing")
    create_topic(kafka, topic)
    produce(kafka, topic, messages({"id": 1}))
    latest = {"scan_startup_mode": "latest-offset", "scan_topic__partition__discovery_interval": "1 s"}
    session.execute(table("t", "id INT", kafka, topic, **latest))
    query = session.start("SELECT id FROM t")

    def reads_new_rows() -> bool:
        produce(kafka, topic, messages({"id": 2}))
        try:
            query.read_until(1, timeout_s=1.0)
        except TimeoutError:
            return False
        return True

    eventually("the query reads what is written now", reads_new_rows)
    add_partitions(kafka, topic, 2)
    produce(kafka, topic, messages({"id": 3}, partition=1))
    eventually("the new partition's first row", lambda: _seen(query, (3,)))
    produce(kafka, topic, messages({"id": 4}, partition=1))
    eventually("the new partition's next row", lambda: _seen(query, (4,)))
    query.close()
    assert (1,) not in query.result.rows
    assert [row for row in query.result.rows if row != (2,)] == [(3,), (4,)]


def _seen(query: Any, row: tuple[int, ...]) -> bool:
    try:
        query.read_until(len(query.result.rows) + 1, timeout_s=1.0)
    except TimeoutError:
        pass  # Nothing new yet.
    return row in query.result.rows


@pytest.mark.parametrize("where", ["below", "in a view"])
def test_filtered_rows_move_the_watermark_of_an_open_query(where: str, kafka: str, session: Session) -> None:
    topic = unique_name("open")
    create_topic(kafka, topic)
    produce(kafka, topic, messages(event(1, "keep", "08:00:01"), event(2, "drop", "08:00:30")))
    session.execute(table("events", EVENTS, kafka, topic, **FROM_START))
    session.execute("CREATE VIEW kept AS SELECT id, ts FROM events WHERE kind = 'keep'")
    source, condition = ("events", "WHERE kind = 'keep'") if where == "below" else ("kept", "")
    query = session.start(
        f"""
        SELECT window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE {source}, DESCRIPTOR(ts), INTERVAL '10' SECOND))
        {condition} GROUP BY window_start, window_end
        """
    )
    query.read_until(1)
    query.close()
    assert not query.ended
    assert query.result.rows == [("2025-06-01T08:00:00", 1)]


def test_a_transaction_timeout_above_the_brokers_is_refused(kafka: str, session: Session) -> None:
    """The broker's maximum is 15 minutes: the error names both, and there is no restart loop."""
    topic = unique_name("slow")
    create_topic(kafka, topic)
    options = {"sink_delivery__guarantee": "exactly-once", "properties_transaction_timeout_ms": "3600000"}
    session.execute(table("s", "id INT", kafka, topic, **options))
    with pytest.raises(GatewayError, match=r"3600000") as caught:
        _insert_and_wait(session, "INSERT INTO s VALUES (1)")
    assert "transaction" in str(caught.value)


def _insert_and_wait(session: Session, statement: str) -> None:
    _wait_for_end(session.url, str(session.execute(statement).job_id))


def _wait_for_end(url: str, job_id: str) -> None:
    """Wait for the job's end; raises its failure as the gateway tells it."""
    found: dict[str, Any] = {}

    def ended() -> bool:
        found.update(request("GET", f"{url}/jobs/{job_id}"))
        return found["state"] in ("FINISHED", "FAILED", "CANCELED")

    eventually(f"job {job_id} ends", ended)
    if found["state"] != "FINISHED":
        failure = request("GET", f"{url}/jobs/{job_id}/exceptions")
        raise GatewayError(500, {"errors": [json.dumps(failure, default=str)]}, [])


def test_a_full_producer_queue_slows_down_and_loses_nothing(kafka: str, session: Session) -> None:
    topic = unique_name("full")
    create_topic(kafka, topic)
    rows = 50_000
    session.execute(
        "CREATE TABLE g (id BIGINT) WITH ('connector' = 'datagen', "
        f"'number-of-rows' = '{rows}', 'fields.id.kind' = 'sequence', "
        f"'fields.id.start' = '1', 'fields.id.end' = '{rows}')"
    )
    session.execute(table("o", "id BIGINT", kafka, topic, properties_queue_buffering_max_messages="1000"))
    _insert_and_wait(session, "INSERT INTO o SELECT id FROM g")
    found = sorted(json.loads(record.value or b"")["id"] for record in read_topic(kafka, topic))
    assert found == list(range(1, rows + 1))


def test_windows_of_keys_that_are_not_seen_again_fire_after_a_crash(kafka: str, tmp_path: Path) -> None:
    """State comes back whole: not only for keys that later rows happen to touch."""
    source, target = unique_name("source"), unique_name("target")
    create_topic(kafka, source)
    create_topic(kafka, target)
    produce(kafka, source, messages(*(event(i, kind, f"08:00:0{i}") for i, kind in enumerate("aab"))))
    with standalone(tmp_path / "data", taskmanagers=1, slots=2) as cluster:
        session = cluster.session(
            {"execution.checkpointing.interval": "300 ms", "restart-strategy.type": "fixed-delay"}
        )
        session.execute(table("events", EVENTS, kafka, source, **FROM_START))
        session.execute(
            table("counts", "kind STRING, n BIGINT", kafka, target, sink_delivery__guarantee="exactly-once")
        )
        job_id = session.execute(
            """
            INSERT INTO counts
            SELECT kind, COUNT(*) FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '10' SECOND))
            GROUP BY kind, window_start, window_end
            """
        ).job_id
        job = f"{cluster.url}/jobs/{job_id}"
        eventually("the rows are read", lambda: _records_read(job) >= 3)
        seen = _completed_checkpoints(job)
        eventually("a checkpoint behind the rows", lambda: _completed_checkpoints(job) >= seen + 2)
        for process in _descendants(cluster.process.pid, "taskmanager"):
            os.kill(process, signal.SIGKILL)
        eventually("the job restarts", lambda: int(request("GET", job)["restarts"]) >= 1)
        produce(kafka, source, messages(event(9, "c", "08:01:00")))
        eventually("both windows fire", lambda: len(read_topic(kafka, target)) >= 2)
        seen = _completed_checkpoints(job)
        eventually("another checkpoint", lambda: _completed_checkpoints(job) >= seen + 2)
        found = sorted((json.loads(record.value or b"") for record in read_topic(kafka, target)), key=str)
        assert found == [{"kind": "a", "n": 2}, {"kind": "b", "n": 1}]


def _records_read(job: str) -> int:
    return max(int(vertex["metrics"]["read-records"]) for vertex in request("GET", job)["vertices"])


def _completed_checkpoints(job: str) -> int:
    return int(request("GET", f"{job}/checkpoints")["counts"]["completed"])


def _descendants(parent: int, word: str) -> list[int]:
    """Processes below `parent` with `word` among their arguments."""
    found = []
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # It ended meanwhile.
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    queue = [parent]
    while queue:
        for child in children.get(queue.pop(), []):
            queue.append(child)
            arguments = (Path("/proc") / str(child) / "cmdline").read_bytes().split(b"\0")
            if word.encode() in arguments:
                found.append(child)
    return found
