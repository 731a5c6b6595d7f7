"""Exactly once under kill -9 of every kind of process: numbers into a Kafka topic, each of them once."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from planner.ir import codec
from planner.ir.job_graph import EdgeKind, JobGraph
from runtime.api import JobState, JobStatus
from tests.support import graphs
from tests.support.job_manager_process import read_status
from tests.support.runtime_cluster import ROOT, RuntimeCluster, TaskManagerProcess, finished
from tests.support.topics import create_topic, open_transactions, read_topic, unique_name

ROWS = 30_000
ROWS_PER_SECOND = 3_000
KILLS = 6
TIMEOUT_S = 150.0

pytestmark = pytest.mark.kafka


def pipeline(bootstrap_servers: str, topic: str) -> JobGraph:
    options = {
        "topic": topic,
        "properties.bootstrap.servers": bootstrap_servers,
        "format": "json",
        "sink.delivery-guarantee": "exactly-once",
        "sink.transactional-id-prefix": topic,
    }
    return graphs.graph(
        graphs.vertex(0, graphs.generator(rows=ROWS, rows_per_second=ROWS_PER_SECOND)),
        graphs.vertex(1, graphs.sink(connector="kafka", **options), parallelism=2),
        edges=(graphs.edge(0, 1, EdgeKind.HASH),),
        settings={
            "execution.checkpointing.interval": "500 ms",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1000",
            "restart-strategy.fixed-delay.delay": "100 ms",
        },
    )


class Cluster:
    """One JobManager and two TaskManagers of one slot; what is killed is started again."""

    def __init__(self, data: Path, graph: JobGraph) -> None:
        self.data = data
        self.log = data / "log.txt"
        self.graph = data / "graph"
        self.graph.write_bytes(codec.encode(graph))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.job_manager = self.start_job_manager()
        self.task_managers = [self.start_task_manager() for _ in range(2)]

    def start_job_manager(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.support.job_manager_process"]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*command, str(self.data), str(self.port), str(self.graph)], cwd=ROOT, stdout=log, stderr=log
            )

    def start_task_manager(self) -> TaskManagerProcess:
        return TaskManagerProcess(self.port, 1, self.log)

    def kill(self, kind: str, pick: random.Random) -> None:
        if kind == "job manager":
            self.job_manager.kill()
            self.job_manager.wait()
            self.job_manager = self.start_job_manager()
        elif kind == "task manager":
            index = pick.randrange(2)
            self.task_managers[index].kill()
            self.task_managers[index] = self.start_task_manager()
        else:
            slots = [pid for tm in self.task_managers for pid in _children(tm.process.pid)]
            if slots:
                os.kill(pick.choice(slots), signal.SIGKILL)

    def stop(self) -> None:
        self.job_manager.kill()
        self.job_manager.wait()
        for task_manager in self.task_managers:
            task_manager.stop()

    def wait(self, what: str, reached: int) -> JobStatus:
        """Until the job has ended or its latest checkpoint is at least `reached`."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            status = read_status(self.data)
            if status is not None and (status.state.terminal or status.checkpoints.latest_completed_id >= reached):
                return status
            time.sleep(0.02)
        raise TimeoutError(f"{what}: {read_status(self.data)}; see {self.log}")


@contextmanager
def cluster_of(data: Path, graph: JobGraph) -> Iterator[Cluster]:
    cluster = Cluster(data, graph)
    try:
        yield cluster
    finally:
        cluster.stop()


def test_every_number_arrives_once_whatever_is_killed(kafka: str, tmp_path: Path) -> None:
    topic = unique_name("kills")
    create_topic(kafka, topic, partitions=2)
    pick = random.Random(20_261)
    kinds = ["slot", "task manager", "job manager"]
    with cluster_of(tmp_path, pipeline(kafka, topic)) as cluster:
        cluster.wait("first checkpoint", 1)
        for number in range(KILLS):
            status = read_status(tmp_path)
            assert status is not None
            if status.state.terminal:
                break
            cluster.kill(kinds[number % len(kinds)], pick)
            # Sometimes between the pointer's move and the commits, sometimes at any moment.
            cluster.wait("progress after a kill", status.checkpoints.latest_completed_id + 1)
            if number % 2:
                time.sleep(pick.random())
        status = cluster.wait("the end", 10**9)
        assert status.state is JobState.FINISHED, (status.failure, cluster.log)
        assert status.generation > KILLS // 2
    found = Counter(json.loads(record.value or b"null")["n"] for record in read_topic(kafka, topic))
    assert {n: count for n, count in found.items() if count != 1} == {}
    assert sorted(found) == list(range(ROWS))
    assert open_transactions(kafka, topic) == []


def small(bootstrap_servers: str, topic: str, bounded: bool = True) -> JobGraph:
    graph = pipeline(bootstrap_servers, topic)
    source = graphs.generator(rows=100 if bounded else None, rows_per_second=1_000)
    vertices = (graphs.vertex(0, source), msgspec.structs.replace(graph.vertices[1], parallelism=1))
    return msgspec.structs.replace(graph, vertices=vertices, bounded=bounded)


def test_a_namespace_serves_one_live_job_and_then_the_next(kafka: str, tmp_path: Path) -> None:
    """The markers that the first job left are above the second one's checkpoint ids; that is no doubled output."""
    topic = unique_name("prefix")
    create_topic(kafka, topic)

    async def story() -> None:
        async with RuntimeCluster(tmp_path, slots=2) as cluster:
            jobs = cluster.job_manager
            first = await jobs.submit(small(kafka, topic, bounded=False))
            await cluster.until(first, "a checkpoint", lambda s: s.checkpoints.completed >= 2)
            second = await jobs.submit(small(kafka, topic))
            status = await jobs.wait(second, 30_000)
            assert status.state is JobState.FAILED
            assert status.failure is not None
            assert first in status.failure.message
            await jobs.cancel(first)
            assert (await jobs.wait(first, 30_000)).state is JobState.CANCELED
            assert open_transactions(kafka, topic) == []
            before = len(read_topic(kafka, topic))
            await finished(cluster, await jobs.submit(small(kafka, topic)))
            assert len(read_topic(kafka, topic)) == before + 100

    asyncio.run(asyncio.wait_for(story(), 120))


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
