"""Savepoints of jobs on real processes, without Kafka: they are whole, can be moved, and a job goes on from them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest

from planner.ir.job_graph import EdgeKind, JobGraph
from runtime.api import (
    JobState,
    SavepointRefusedError,
    SavepointRequest,
    SavepointState,
    SubmissionRefusedError,
    UnknownSavepointError,
)
from runtime.checkpoint import savepoint as savepoints
from runtime.ids import JobId
from runtime.job_settings import ALLOW_REWIND, RECOVERY_PATH, SAVEPOINT_DIRECTORY
from tests.support import graphs
from tests.support.runtime_cluster import RuntimeCluster, finished

FAST = {
    "execution.checkpointing.interval": "200 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "20",
    "restart-strategy.fixed-delay.delay": "50 ms",
}
WAIT_MS = 30_000


def run(story: Coroutine[Any, Any, None]) -> None:
    async def within_two_minutes() -> None:
        async with asyncio.timeout(120):
            await story

    asyncio.run(within_two_minutes())


def numbers(parallelism: int = 1, settings: Mapping[str, str] | None = None) -> JobGraph:
    return graphs.graph(
        graphs.vertex(0, graphs.generator(rows=None, rows_per_second=2_000), parallelism=parallelism),
        graphs.vertex(1, graphs.sink(), parallelism=parallelism),
        edges=(graphs.edge(0, 1, EdgeKind.HASH),),
        settings={**FAST, **(settings or {})},
        bounded=False,
    )


async def stopped(cluster: RuntimeCluster, job_id: JobId, directory: Path, drain: bool = False) -> str:
    request = SavepointRequest(str(directory), stop=True, drain=drain)
    trigger = await cluster.job_manager.trigger_savepoint(job_id, request)
    status = await cluster.job_manager.savepoint(job_id, trigger, WAIT_MS)
    assert status.state is SavepointState.COMPLETED, status
    await finished(cluster, job_id)
    return status.location


async def running(cluster: RuntimeCluster, graph: JobGraph) -> JobId:
    """Submitted, and one checkpoint is complete."""
    job_id = await cluster.job_manager.submit(graph)
    await cluster.until(job_id, "a checkpoint", lambda s: s.checkpoints.completed > 0)
    return job_id


def test_a_stopped_job_goes_on_where_it_was_from_a_moved_savepoint_at_another_parallelism(tmp_path: Path) -> None:
    async def story() -> None:
        async with RuntimeCluster(tmp_path, slots=3) as cluster:
            job_id = await running(cluster, numbers())
            location = await stopped(cluster, job_id, tmp_path / "savepoints")
            assert not (tmp_path / "checkpoints" / job_id).exists()
            assert Path(location, savepoints.COMMITTED).exists()
            moved = shutil.move(location, tmp_path / "elsewhere")
            before = sorted(path.name for path in Path(moved).rglob("*"))
            job_id = await running(cluster, numbers(3, {RECOVERY_PATH: f"file://{moved}"}))
            status = await cluster.job_manager.status(job_id)
            first = savepoints.read(str(moved)).manifest.checkpoint_id
            assert status.checkpoints.restored_id == first
            assert status.checkpoints.latest_completed_id > first
            location = await stopped(cluster, job_id, tmp_path / "savepoints")
            assert savepoints.read(location).manifest.checkpoint_id > first
            with pytest.raises(SubmissionRefusedError, match="went on from there and completed checkpoint"):
                await cluster.job_manager.submit(numbers(1, {RECOVERY_PATH: str(moved)}))
            assert sorted(path.name for path in Path(moved).rglob("*")) == before

    run(story())


def test_a_savepoint_without_stop_leaves_the_job_running_and_going_back_to_it_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with RuntimeCluster(tmp_path, slots=1) as cluster:
            job_id = await running(cluster, numbers(1, {SAVEPOINT_DIRECTORY: str(tmp_path / "savepoints")}))
            trigger = await cluster.job_manager.trigger_savepoint(job_id, SavepointRequest())
            status = await cluster.job_manager.savepoint(job_id, trigger, WAIT_MS)
            assert status.state is SavepointState.COMPLETED
            job = await cluster.until(
                job_id, "a later one", lambda s: s.checkpoints.latest_completed_id > s.checkpoints.latest_savepoint_id
            )
            assert job.state is JobState.RUNNING
            assert job.checkpoints.latest_savepoint_path == status.location
            await cluster.job_manager.cancel(job_id)
            assert (await cluster.job_manager.wait(job_id, WAIT_MS)).state is JobState.CANCELED
            with pytest.raises(SubmissionRefusedError, match="output since then would be repeated"):
                await cluster.job_manager.submit(numbers(1, {RECOVERY_PATH: status.location}))
            job_id = await running(cluster, numbers(1, {RECOVERY_PATH: status.location, ALLOW_REWIND: "true"}))
            with pytest.raises(UnknownSavepointError):
                await cluster.job_manager.savepoint(job_id, "0" * 32)
            await cluster.job_manager.cancel(job_id)

    run(story())


def test_a_savepoint_that_cannot_be_written_leaves_the_job_running(tmp_path: Path) -> None:
    async def story() -> None:
        async with RuntimeCluster(tmp_path, slots=1) as cluster:
            job_id = await running(cluster, numbers())
            with pytest.raises(SavepointRefusedError, match="no directory"):
                await cluster.job_manager.trigger_savepoint(job_id, SavepointRequest(stop=True))
            with pytest.raises(SavepointRefusedError, match="not an absolute path"):
                await cluster.job_manager.trigger_savepoint(job_id, SavepointRequest("savepoints"))
            (tmp_path / "file").write_bytes(b"")
            request = SavepointRequest(str(tmp_path / "file"), stop=True)
            trigger = await cluster.job_manager.trigger_savepoint(job_id, request)
            status = await cluster.job_manager.savepoint(job_id, trigger, WAIT_MS)
            assert status.state is SavepointState.FAILED
            assert status.failure is not None
            assert "NotADirectoryError" in status.failure.message
            completed = (await cluster.job_manager.status(job_id)).checkpoints.completed
            await cluster.until(job_id, "going on", lambda s: s.checkpoints.completed > completed)
            job = await cluster.job_manager.status(job_id)
            assert (job.state, job.restarts) == (JobState.RUNNING, 0)
            await stopped(cluster, job_id, tmp_path / "savepoints", drain=True)

    run(story())


def test_a_stop_is_finished_by_the_next_job_manager(tmp_path: Path) -> None:
    """The pointer says that the job is stopped; a crash right after its move changes nothing about that."""

    async def story() -> None:
        async with RuntimeCluster(tmp_path, slots=1) as cluster:
            job_id = await running(cluster, numbers())
            request = SavepointRequest(str(tmp_path / "savepoints"), stop=True)
            await cluster.job_manager.trigger_savepoint(job_id, request)
            await cluster.until(job_id, "the savepoint", lambda s: bool(s.checkpoints.latest_savepoint_path))
            await cluster.restart_job_manager()
            status = await finished(cluster, job_id)
            location = status.checkpoints.latest_savepoint_path
            assert Path(location, savepoints.COMMITTED).exists()

    run(story())


def test_a_crash_right_after_the_end_of_a_stopped_job_keeps_its_savepoint_known(tmp_path: Path) -> None:
    async def story() -> None:
        async with RuntimeCluster(tmp_path, slots=1) as cluster:
            job_id = await running(cluster, numbers())
            location = await stopped(cluster, job_id, tmp_path / "savepoints")
            # As if the JobManager had died between the record of the end and the last status.
            cluster.job_manager.metadata.delete("job-history", job_id)
            Path(location, savepoints.COMMITTED).unlink()
            (tmp_path / "checkpoints" / job_id).mkdir()
            await cluster.restart_job_manager()
            status = await cluster.job_manager.status(job_id)
            assert (status.state, status.checkpoints.latest_savepoint_path) == (JobState.FINISHED, location)
            assert Path(location, savepoints.COMMITTED).exists()
            assert not (tmp_path / "checkpoints" / job_id).exists()

    run(story())
