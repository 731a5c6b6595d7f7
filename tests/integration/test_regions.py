"""The death of a slot restarts the regions in it and no other, and every row is in Kafka once all the same."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer

from connectors.kafka.transactions import marker_topic, read_markers
from planner.ir.job_graph import EdgeKind, JobGraph, Vertex
from runtime.api import JobStatus
from runtime.exchange.channel import TaskCancelled
from runtime.ids import AttemptId, JobId
from tests.support import graphs
from tests.support.runtime_cluster import RuntimeCluster, finished
from tests.support.topics import create_topic, open_transactions, read_topic, unique_name

ROWS = 6_000
ROWS_PER_SECOND = 500
KILLS = 2
SETTINGS = {
    "execution.checkpointing.interval": "300 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100",
    "restart-strategy.fixed-delay.delay": "50 ms",
}

pytestmark = pytest.mark.kafka


def statement(kafka: str, topic: str, first: int, parallelism: int) -> tuple[Vertex, Vertex]:
    options = {
        "topic": topic,
        "properties.bootstrap.servers": kafka,
        "format": "json",
        "sink.delivery-guarantee": "exactly-once",
    }
    source = graphs.generator(f"source-{first}", rows=ROWS, rows_per_second=ROWS_PER_SECOND)
    table = msgspec.structs.replace(
        source.table, options={**source.table.options, "scan.parallelism": str(parallelism)}
    )
    source = msgspec.structs.replace(source, table=table)
    return (
        graphs.vertex(first, source, parallelism=parallelism),
        graphs.vertex(first + 1, graphs.sink(f"sink-{first}", "kafka", **options), parallelism=parallelism),
    )


async def kill_slot_of(cluster: RuntimeCluster, job_id: JobId, vertex: int, index: int) -> None:
    """-9 to the slot process of a task that runs."""
    await cluster.until(job_id, "all tasks running", _all_run)
    execution = cluster.job_manager._masters[job_id]._core.execution
    assert execution is not None
    os.kill(execution.slot(execution.attempt(vertex, index)).pid, signal.SIGKILL)


def _all_run(status: JobStatus) -> bool:
    states = [state for vertex in status.vertices for state in vertex.task_states]
    return set(states) <= {"RUNNING", "FINISHED"} and status.recovery.down_time_ms == 0


async def run(tmp_path: Path, graph: JobGraph, victims: list[tuple[int, int]], slots: int) -> dict[str, int]:
    """Kills the slots of these tasks one after the other; the number of the last attempt of each task."""
    async with RuntimeCluster(tmp_path, task_managers=2, slots=slots) as cluster:
        job_id = await cluster.job_manager.submit(graph)
        for number, (vertex, index) in enumerate(victims):
            before = (await cluster.job_manager.status(job_id)).checkpoints.completed
            await cluster.until(job_id, "a checkpoint", lambda s, b=before: s.checkpoints.completed > b)  # type: ignore[misc]
            await kill_slot_of(cluster, job_id, vertex, index)
            await cluster.until(job_id, "a restart", lambda s, n=number: s.restarts > n)  # type: ignore[misc]
        status = await finished(cluster, job_id)
        assert (status.generation, status.restarts) == (1, len(victims))
        assert status.recovery.full_restarts == 0
        assert 0 < status.recovery.restarting_time_ms < 20_000
        check_exceptions(status, len(victims))
        attempts: list[AttemptId] = [metrics.attempt for v in status.vertices for metrics in v.metrics]
        return {f"{a.vertex_id}.{a.subtask_index}": a.number for a in attempts}


def check_exceptions(status: JobStatus, count: int) -> None:
    roots = [entry.root for entry in status.exceptions]
    assert len(roots) == count
    assert all("SIGKILL" in root.failure.message or "lost" in root.failure.message for root in roots)
    assert all("execution #" in root.task and root.task_manager_id and root.endpoint for root in roots)
    assert [root.at_ms for root in roots] == sorted((root.at_ms for root in roots), reverse=True)


def check_output(kafka: str, topic: str, copies: int = 1) -> None:
    found = Counter(json.loads(record.value or b"null")["n"] for record in read_topic(kafka, topic))
    assert {n: count for n, count in found.items() if count != copies} == {}
    assert len(found) == ROWS
    assert open_transactions(kafka, topic) == []


def test_two_statements_in_shared_slots(kafka: str, tmp_path: Path) -> None:
    """A is in slots 0 and 1, B in slot 0 only. Slot 1 dies: A restarts, also in slot 0, where B runs on."""
    topics = [unique_name("region-a"), unique_name("region-b")]
    for topic in topics:
        create_topic(kafka, topic)
    a, b = statement(kafka, topics[0], 0, 2), statement(kafka, topics[1], 2, 1)
    graph = graphs.graph(
        *a, *b, edges=(graphs.edge(0, 1, EdgeKind.HASH), graphs.edge(2, 3, EdgeKind.FORWARD)), settings=SETTINGS
    )
    numbers = asyncio.run(run(tmp_path, graph, [(1, 1)] * KILLS, slots=1))
    assert numbers == {"0.0": KILLS, "0.1": KILLS, "1.0": KILLS, "1.1": KILLS, "2.0": 0, "3.0": 0}
    for topic in topics:
        check_output(kafka, topic)


def test_forward_pipelines_restart_one_by_one(kafka: str, tmp_path: Path) -> None:
    topic = unique_name("region-forward")
    create_topic(kafka, topic)
    source, sink = statement(kafka, topic, 0, 3)
    graph = graphs.graph(source, sink, edges=(graphs.edge(0, 1, EdgeKind.FORWARD),), settings=SETTINGS)
    numbers = asyncio.run(run(tmp_path, graph, [(0, 0), (1, 2)], slots=2))
    assert numbers == {"0.0": 1, "1.0": 1, "0.1": 0, "1.1": 0, "0.2": 1, "1.2": 1}
    check_output(kafka, topic)


def test_a_sink_that_waits_for_anothers_transaction_hears_of_its_end(kafka: str) -> None:
    """The other owner's task may itself be waiting to be started again."""
    namespace = unique_name("waiting")
    create_topic(kafka, marker_topic(namespace))
    other = Producer({"bootstrap.servers": kafka, "transactional.id": f"{namespace}-1"})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(marker_topic(namespace), b"{}", b"1", 0)
    other.flush(30)
    asked = iter(range(3))

    def check() -> None:
        if next(asked, None) is None:
            raise TaskCancelled

    with pytest.raises(TaskCancelled):
        read_markers({"bootstrap.servers": kafka}, namespace, 60, check)
    other.abort_transaction(30)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(3))
def test_slots_die_at_any_moment(kafka: str, tmp_path: Path, seed: int) -> None:
    """Also while other regions restart, tasks are cancelled, checkpoints are stored, sinks commit."""
    pick = random.Random(seed)
    topics = [unique_name(f"region-{name}") for name in "abc"]
    for topic in topics:
        create_topic(kafka, topic)
    a, b, c = (statement(kafka, topic, 2 * i, 2 - i // 2) for i, topic in enumerate(topics))
    edges = ((0, 1, EdgeKind.HASH), (2, 3, EdgeKind.FORWARD), (4, 5, EdgeKind.FORWARD))
    settings = {**SETTINGS, "restart-strategy.fixed-delay.attempts": "1000"}
    graph = graphs.graph(*a, *b, *c, edges=tuple(graphs.edge(*edge) for edge in edges), settings=settings)

    async def story() -> JobStatus:
        async with RuntimeCluster(tmp_path, task_managers=2, slots=2) as cluster:
            job_id = await cluster.job_manager.submit(graph)
            reached = 0
            for _ in range(15):
                status = await cluster.until(
                    job_id,
                    "progress",
                    lambda s, r=reached: s.state.terminal or s.checkpoints.latest_completed_id > r,  # type: ignore[misc]
                )
                if status.state.terminal:
                    break
                reached = status.checkpoints.latest_completed_id
                for _ in range(pick.randint(1, 2)):
                    await asyncio.sleep(pick.random() * 0.8)
                    pids = [pid for tm in await cluster.job_manager.task_managers() for pid in tm.slot_pids]
                    with contextlib.suppress(ProcessLookupError, IndexError):
                        os.kill(pick.choice(pids), signal.SIGKILL)
            return await finished(cluster, job_id, timeout_s=180)

    status = asyncio.run(story())
    assert status.restarts > status.recovery.full_restarts
    for topic in topics:
        check_output(kafka, topic)
