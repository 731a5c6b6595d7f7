"""Two JobManagers on a real PostgreSQL and a real Kafka: the leader is killed, paused, cut off from its database; the
output is exact, and a leader of yesterday changes nothing."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.support.high_availability import HighAvailabilityCluster
from tests.support.postgresql import PostgresServer
from tests.support.standalone import GatewayError, request
from tests.support.topics import create_topic, open_transactions, read_topic, unique_name

pytestmark = pytest.mark.kafka
TAKEOVER_S = 15.0


class Numbers:
    """A job that writes each number once: a sequence, a keyed exchange with state, a Kafka topic."""

    def __init__(
        self, cluster: HighAvailabilityCluster, kafka: str, rows: int, rows_per_second: int, index: int
    ) -> None:
        self.topic = unique_name("leaders")
        self._kafka = kafka
        self._rows = rows
        create_topic(kafka, self.topic, partitions=2)
        session = cluster.session(index)
        session.execute(
            "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', "
            f"'fields.n.start' = '1', 'fields.n.end' = '{rows}', 'rows-per-second' = '{rows_per_second}')"
        )
        session.execute(
            "CREATE TABLE seen (n BIGINT) WITH ('connector' = 'kafka', 'format' = 'json', "
            f"'topic' = '{self.topic}', 'properties.bootstrap.servers' = '{kafka}', "
            "'sink.delivery-guarantee' = 'exactly-once')"
        )
        job_id = session.execute("INSERT INTO seen SELECT n FROM numbers").job_id
        assert job_id is not None
        self.job_id = job_id

    def is_exact(self) -> bool:
        """Every number once; FINISHED means that all of them are visible."""
        values = [json.loads(record.value or b"null")["n"] for record in read_topic(self._kafka, self.topic)]
        assert sorted(values) == list(range(1, self._rows + 1)), (len(values), len(set(values)), self._rows)
        assert open_transactions(self._kafka, self.topic) == []
        return True

    def progress(self, at_least: int) -> bool:
        return len(read_topic(self._kafka, self.topic)) >= at_least


def test_a_standby_takes_over_twice_in_a_row(kafka: str, postgres: PostgresServer, tmp_path: Path) -> None:
    with HighAvailabilityCluster(tmp_path, postgres.url, lease_ms=5_000) as cluster:
        first = cluster.leader()
        second = 1 - first
        numbers = Numbers(cluster, kafka, 30_000, 3_000, index=second)
        cluster.until("first rows", lambda: numbers.progress(1), 30)
        generation = cluster.job(numbers.job_id, second)["generation"]
        killed_at = time.monotonic()
        cluster.kill(first)
        job = cluster.until(
            "tasks run again",
            lambda: (job := cluster.wait_for_tasks(numbers.job_id, second)) and job["generation"] > generation and job,
            TAKEOVER_S,
        )
        took_s = time.monotonic() - killed_at
        print(f"tasks run again {took_s:.1f} s after the kill of the leader (lease 5 s)")
        assert took_s < TAKEOVER_S
        assert cluster.leader() == second
        cluster.start(first)
        cluster.until("the new one is a standby", lambda: cluster.job(numbers.job_id, first), 30)
        cluster.kill(second)
        job = cluster.wait_for_job(numbers.job_id, "FINISHED", first)
        assert cluster.leader() == first
        assert job["generation"] > generation + 1
        assert numbers.is_exact()


def test_a_paused_leader_that_wakes_up_changes_nothing(kafka: str, postgres: PostgresServer, tmp_path: Path) -> None:
    with HighAvailabilityCluster(tmp_path, postgres.url, lease_ms=2_000) as cluster:
        first = cluster.leader()
        second = 1 - first
        token = cluster.token()
        numbers = Numbers(cluster, kafka, 9_000, 3_000, index=first)
        session = cluster.session(first)
        cluster.until("first rows", lambda: numbers.progress(1), 30)
        # At intervals of 300 ms: in the middle of a checkpoint more often than not.
        cluster.pause(first)
        cluster.wait_for_job(numbers.job_id, "FINISHED", second)
        assert cluster.token() > token
        assert numbers.is_exact()
        records, files = cluster.records(), cluster.files()
        cluster.resume(first)
        cluster.until("the old leader is a standby", lambda: cluster.job(numbers.job_id, first), 30)
        assert cluster.job_managers[first].poll() is None
        assert "beginning anew as a standby" in cluster.log(first)
        assert (cluster.records(), cluster.files()) == (records, files)
        assert cluster.leader() == second
        # A session lives on, whoever is asked.
        shown = request("GET", f"{cluster.url(first)}/v1/sessions/{session.handle}")
        assert shown == request("GET", f"{cluster.url(second)}/v1/sessions/{session.handle}")


def test_the_database_goes_away(kafka: str, postgres: PostgresServer, tmp_path: Path) -> None:
    """For less than the lease: the leader waits and leads on. For longer: it steps down, and one of both leads when the
    database is back. Then it is told to end, and the other one need not wait for the lease to run out."""
    with HighAvailabilityCluster(tmp_path, postgres.url, lease_ms=2_500) as cluster:
        leader = cluster.leader()
        token = cluster.token()
        numbers = Numbers(cluster, kafka, 30_000, 3_000, index=leader)
        cluster.until("first rows", lambda: numbers.progress(1), 30)
        postgres.stop()
        postgres.restart()
        completed = cluster.completed(numbers.job_id, leader)
        cluster.until("it goes on", lambda: cluster.completed(numbers.job_id, leader) > completed + 1, 30)
        assert (cluster.token(), cluster.job(numbers.job_id, leader)["generation"]) == (token, 1)
        postgres.stop()
        try:
            cluster.until("it steps down", lambda: "beginning anew as a standby" in cluster.log(leader), 30)
            refusal = cluster.until("a refusal", lambda: _refusal(cluster, numbers.job_id, leader), 30)
            assert (refusal.status, str(refusal)) == (503, "no JobManager leads at the moment")
        finally:
            postgres.restart()
        cluster.wait_for_tasks(numbers.job_id, 0)
        assert cluster.token() > token
        leader = cluster.leader()
        ended_at = time.monotonic()
        assert cluster.terminate(leader) == 0
        cluster.until("the other one leads", lambda: cluster.leader() == 1 - leader, 2)
        print(f"the standby leads {time.monotonic() - ended_at:.1f} s after the SIGTERM")
        cluster.wait_for_job(numbers.job_id, "FINISHED", 1 - leader)
        assert numbers.is_exact()


def _refusal(cluster: HighAvailabilityCluster, job_id: str, index: int) -> GatewayError | None:
    """What a JobManager answers that knows of no leader."""
    try:
        cluster.job(job_id, index)
    except GatewayError as error:
        return error
    return None
