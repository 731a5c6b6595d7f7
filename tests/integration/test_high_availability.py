"""Two JobManagers on a real PostgreSQL and a real Kafka: the leader is killed, paused, cut off from its database; the
output is exact, and a leader of yesterday changes nothing."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path

import pytest

from tests.support.high_availability import HighAvailabilityCluster
from tests.support.postgresql import PostgresServer
from tests.support.standalone import GatewayError, request
from tests.support.topics import Record, create_topic, open_transactions, produce, read_topic, unique_name

pytestmark = pytest.mark.kafka
LEASE_MS = 5_000
TAKEOVER_S = 15.0
"""What is promised for this lease."""
PERIOD_S = 0.1
ROUNDS = 15
NUMBERS_PER_PERIOD = 100


class Numbers:
    """A job that copies numbers from one topic to another, exactly once, while a thread writes more of them."""

    def __init__(self, cluster: HighAvailabilityCluster, kafka: str, index: int) -> None:
        self.source, self.topic = unique_name("numbers"), unique_name("seen")
        self._cluster = cluster
        self._kafka = kafka
        self._written = 0
        self._stopped = threading.Event()
        self._failure: Exception | None = None
        for topic in (self.source, self.topic):
            create_topic(kafka, topic, partitions=2)
        session = cluster.session(index)
        for name, topic, options in (
            ("numbers", self.source, "'scan.startup.mode' = 'earliest-offset'"),
            ("seen", self.topic, "'sink.delivery-guarantee' = 'exactly-once'"),
        ):
            session.execute(
                f"CREATE TABLE {name} (n BIGINT) WITH ('connector' = 'kafka', 'format' = 'json', 'topic' = '{topic}', "
                f"'properties.bootstrap.servers' = '{kafka}', {options})"
            )
        job_id = session.execute("INSERT INTO seen SELECT n FROM numbers").job_id
        assert job_id is not None
        self.job_id = job_id
        self.session = session
        self._writer = threading.Thread(target=self._write, name="numbers")

    def __enter__(self) -> Numbers:
        self._writer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._writer.join()

    def flows(self) -> bool:
        return bool(read_topic(self._kafka, self.topic))

    def end(self, index: int) -> None:
        """No more numbers; when all are copied, each of them once, the job is cancelled."""
        self.__exit__()
        assert self._failure is None
        self._cluster.until("all numbers are copied", lambda: len(self._copied()) >= self._written, 60)
        request("PATCH", f"{self._cluster.url(index)}/jobs/{self.job_id}?mode=cancel")
        self._cluster.wait_for_job(self.job_id, "CANCELED", index)
        assert sorted(self._copied()) == list(range(self._written))
        assert open_transactions(self._kafka, self.topic) == []

    def _copied(self) -> list[int]:
        return [json.loads(record.value or b"null")["n"] for record in read_topic(self._kafka, self.topic)]

    def _write(self) -> None:
        try:
            while not self._stopped.wait(PERIOD_S):
                numbers = range(self._written, self._written + NUMBERS_PER_PERIOD)
                produce(self._kafka, self.source, [Record(n % 2, None, b'{"n": %d}' % n) for n in numbers])
                self._written += NUMBERS_PER_PERIOD
        except Exception as error:
            self._failure = error


def test_a_standby_takes_over_twice_in_a_row(kafka: str, postgres: PostgresServer, tmp_path: Path) -> None:
    with HighAvailabilityCluster(tmp_path, postgres.url, LEASE_MS) as cluster:
        first = cluster.leader()
        second = 1 - first
        with Numbers(cluster, kafka, index=second) as numbers:
            cluster.until("first rows", numbers.flows, 60)
            generation = cluster.job(numbers.job_id, second)["generation"]
            killed_at = time.monotonic()
            cluster.kill(first)
            job = cluster.wait_for_tasks(numbers.job_id, second, TAKEOVER_S)
            took_s = time.monotonic() - killed_at
            print(f"tasks run again {took_s:.1f} s after the kill of the leader")
            assert took_s < TAKEOVER_S
            assert cluster.leader() == second
            assert job["generation"] > generation
            cluster.start(first)
            cluster.until("the new one is a standby", lambda: cluster.job(numbers.job_id, first), 30)
            cluster.kill(second)
            assert cluster.wait_for_tasks(numbers.job_id, first)["generation"] > job["generation"]
            assert cluster.leader() == first
            numbers.end(first)


def test_a_paused_leader_that_wakes_up_changes_nothing(kafka: str, postgres: PostgresServer, tmp_path: Path) -> None:
    with HighAvailabilityCluster(tmp_path, postgres.url, LEASE_MS) as cluster:
        first = cluster.leader()
        second = 1 - first
        token = cluster.token()
        with Numbers(cluster, kafka, index=first) as numbers:
            cluster.until("first rows", numbers.flows, 60)
            # With checkpoints every 300 ms it is in the middle of one more often than not.
            cluster.pause(first)
            cluster.wait_for_tasks(numbers.job_id, second)
            assert cluster.token() > token
            numbers.end(second)
        records, files = cluster.records(), cluster.files()
        cluster.resume(first)
        cluster.until("the old leader is a standby", lambda: cluster.job(numbers.job_id, first), 30)
        assert cluster.job_managers[first].poll() is None
        assert "beginning anew as a standby" in cluster.log(first)
        assert (cluster.records(), cluster.files()) == (records, files)
        assert cluster.leader() == second
        # The session and its statement live on, whoever is asked.
        for index in (first, second):
            assert (
                request("GET", f"{cluster.url(index)}/v1/sessions/{numbers.session.handle}")["properties"] is not None
            )


def test_the_database_goes_away(kafka: str, postgres: PostgresServer, tmp_path: Path) -> None:
    """For less than the lease: the leader waits and leads on. For longer: it steps down, and one of both leads when the
    database is back. Then it is told to end, and the other one need not wait for the lease to run out."""
    with HighAvailabilityCluster(tmp_path, postgres.url, LEASE_MS) as cluster:
        leader = cluster.leader()
        token = cluster.token()
        with Numbers(cluster, kafka, index=leader) as numbers:
            cluster.until("first rows", numbers.flows, 60)
            generation = cluster.job(numbers.job_id, leader)["generation"]
            postgres.stop()
            postgres.restart()
            completed = cluster.completed(numbers.job_id, leader)
            cluster.until("it goes on", lambda: cluster.completed(numbers.job_id, leader) > completed + 1, 30)
            assert cluster.token() == token
            assert cluster.job(numbers.job_id, leader)["generation"] == generation
            postgres.stop()
            try:
                cluster.until("it steps down", lambda: "beginning anew as a standby" in cluster.log(leader), 30)
                refusal = cluster.until("a refusal", lambda: _refusal(cluster, numbers.job_id, leader), 30)
                assert (refusal.status, str(refusal)) == (503, "no JobManager leads at the moment")
            finally:
                postgres.restart()
            cluster.wait_for_tasks(numbers.job_id, 0)
            assert cluster.token() > token
            leader, token = cluster.leader(), cluster.token()
            assert cluster.terminate(leader) == 0
            cluster.until("the other one leads", lambda: cluster.token() > token, 4)  # The lease is longer.
            assert cluster.leader() == 1 - leader
            numbers.end(1 - leader)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", [1, 2])
def test_leaders_come_and_go(kafka: str, postgres: PostgresServer, tmp_path: Path, seed: int) -> None:
    """Killed, paused, told to end, cut off from the database, at any moment and twice in a row."""
    pick = random.Random(seed)
    with (
        HighAvailabilityCluster(tmp_path, postgres.url, lease_ms=1_500) as cluster,
        Numbers(cluster, kafka, 0) as numbers,
    ):
        cluster.until("first rows", numbers.flows, 60)
        for _ in range(ROUNDS):
            victim = cluster.leader()
            match pick.choice(["kill", "pause", "terminate", "database"]):
                case "kill":
                    cluster.kill(victim)
                    cluster.start(victim)
                case "terminate":
                    cluster.terminate(victim)
                    cluster.start(victim)
                case "pause":
                    cluster.pause(victim)
                    time.sleep(pick.random() * 4)
                    cluster.resume(victim)
                case _:
                    postgres.stop()
                    time.sleep(pick.random() * 3)
                    postgres.restart()
            if pick.random() < 0.7:
                cluster.wait_for_tasks(numbers.job_id, pick.randrange(2), 120)
                time.sleep(pick.random())
        cluster.wait_for_tasks(numbers.job_id, 0, 120)
        numbers.end(1)


def _refusal(cluster: HighAvailabilityCluster, job_id: str, index: int) -> GatewayError | None:
    """What a JobManager answers that knows of no leader."""
    try:
        cluster.job(job_id, index)
    except GatewayError as error:
        return error
    return None
