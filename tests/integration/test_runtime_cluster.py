"""The runtime as real processes, without SQL and HTTP: jobs run, checkpoint, survive kill -9, end and are cancelled."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from planner.ir.job_graph import EdgeKind, JobGraph
from runtime.api import (
    CheckpointSummary,
    JobFailedError,
    JobState,
    ResultLostError,
    SubmissionRefusedError,
    UnknownJobError,
)
from runtime.ids import JobId
from tests.support import graphs
from tests.support.runtime_cluster import RuntimeCluster, finished

FAST = {
    "execution.checkpointing.interval": "200 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "20",
    "restart-strategy.fixed-delay.delay": "50 ms",
}


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 120))


def endless(parallelism: int = 2, settings: dict[str, str] | None = None) -> JobGraph:
    """Numbers without end into nothing, over an exchange."""
    return graphs.graph(
        graphs.vertex(0, graphs.generator(rows=None, rows_per_second=2_000), parallelism=parallelism),
        graphs.vertex(1, graphs.sink(), parallelism=parallelism),
        edges=(graphs.edge(0, 1, EdgeKind.HASH),),
        settings=settings if settings is not None else FAST,
        bounded=False,
    )


def bounded(rows: int, rows_per_second: int = 1_000_000) -> JobGraph:
    return graphs.graph(
        graphs.vertex(0, graphs.generator(rows=rows, rows_per_second=rows_per_second)),
        graphs.vertex(1, graphs.sink(), parallelism=2),
        edges=(graphs.edge(0, 1),),
        settings=FAST,
    )


async def checkpointed(cluster: RuntimeCluster, job_id: JobId, count: int = 1) -> None:
    before = (await cluster.job_manager.status(job_id)).checkpoints.completed
    await cluster.until(job_id, "a checkpoint", lambda s: s.checkpoints.completed >= before + count)


def test_a_query_gives_its_rows_and_repeats_the_last_page(tmp_path: Path) -> None:
    async def story() -> None:
        async with RuntimeCluster(tmp_path, slots=1) as cluster:
            graph = graphs.graph(graphs.vertex(0, graphs.values(3, 1, 2), graphs.collect()), is_query=True)
            job_id = await cluster.job_manager.submit(graph)
            assert await cluster.rows(job_id) == [{"c0": 3}, {"c0": 1}, {"c0": 2}]
            status = await finished(cluster, job_id)
            assert status.is_query
            page = await cluster.job_manager.fetch(job_id, 3, 10, 0)
            assert page.ended
            with pytest.raises(ResultLostError):
                await cluster.job_manager.fetch(job_id, 1, 10, 0)
            # The slot was given back: its successor serves the next query.
            job_id = await cluster.job_manager.submit(graph)
            assert len(await cluster.rows(job_id)) == 3

    run(story())


def test_a_limit_ends_an_endless_query(tmp_path: Path) -> None:
    async def story() -> None:
        async with RuntimeCluster(tmp_path, slots=1) as cluster:
            source = graphs.generator(rows=None, rows_per_second=5_000)
            graph = graphs.graph(
                graphs.vertex(0, source),
                graphs.vertex(1, graphs.limit(7), graphs.collect()),
                edges=(graphs.edge(0, 1, EdgeKind.SINGLE),),
                bounded=False,
                is_query=True,
            )
            job_id = await cluster.job_manager.submit(graph)
            assert len(await cluster.rows(job_id)) == 7
            await finished(cluster, job_id)

    run(story())


def test_a_bounded_job_finishes_with_a_final_checkpoint_and_leaves_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with RuntimeCluster(tmp_path, task_managers=2, slots=1) as cluster:
            job_id = await cluster.job_manager.submit(bounded(50_000))
            status = await finished(cluster, job_id)
            assert status.checkpoints.completed >= 1
            assert sum(m.records_in for m in status.vertices[1].metrics) == 50_000
            assert not (tmp_path / "checkpoints" / job_id).exists()
            assert (await cluster.job_manager.overview()).jobs_by_state == {"FINISHED": 1}

    run(story())


@pytest.mark.parametrize("victim", ["slot", "task manager"])
def test_a_job_survives_the_death_of_a_worker(tmp_path: Path, victim: str) -> None:
    async def story() -> None:
        async with RuntimeCluster(tmp_path, task_managers=2, slots=1) as cluster:
            job_id = await cluster.job_manager.submit(endless())
            await checkpointed(cluster, job_id, 2)
            if victim == "slot":
                await cluster.kill_slot()
            else:
                cluster.task_managers[0].kill()
            status = await cluster.until(job_id, "a restart", lambda s: s.restarts > 0)
            assert status.failure is not None
            assert status.failure.retry
            if victim == "task manager":
                await cluster.until(job_id, "slots missing", lambda s: s.slots_missing == 1)
                cluster.add_task_manager()
            status = await cluster.until(job_id, "a later checkpoint", lambda s: _beyond_restored(s.checkpoints))
            assert status.generation == status.restarts + 1
            await cluster.job_manager.cancel(job_id)
            assert (await cluster.job_manager.wait(job_id, 20_000)).state is JobState.CANCELED

    run(story())


def test_jobs_go_on_after_a_restart_of_the_job_manager(tmp_path: Path) -> None:
    async def story() -> None:
        async with RuntimeCluster(tmp_path, task_managers=1, slots=4) as cluster:
            job_id = await cluster.job_manager.submit(endless())
            ended = await cluster.job_manager.submit(bounded(10))
            await finished(cluster, ended)
            query = await cluster.job_manager.submit(
                graphs.graph(
                    graphs.vertex(0, graphs.generator(rows=None), graphs.collect()), bounded=False, is_query=True
                )
            )
            await checkpointed(cluster, job_id, 2)
            await cluster.restart_job_manager()
            status = await cluster.until(job_id, "a later checkpoint", lambda s: _beyond_restored(s.checkpoints))
            assert (status.generation, status.restarts) == (2, 0)
            # Ids begin at 1: every one of them was counted, over both JobManagers, but for one that the end cut off.
            assert 0 <= status.checkpoints.latest_completed_id - status.checkpoints.completed <= 2
            old = await cluster.job_manager.status(ended)
            assert old.state is JobState.FINISHED
            assert sum(m.records_in for m in old.vertices[1].metrics) == 10
            assert (await cluster.job_manager.status(query)).state is JobState.FAILED
            with pytest.raises(ResultLostError):
                await cluster.job_manager.fetch(query, 0, 10, 0)
            await cluster.job_manager.cancel(job_id)
            assert (await cluster.job_manager.wait(job_id, 20_000)).state is JobState.CANCELED
            assert [s.job_id for s in await cluster.job_manager.jobs()] == [query, ended, job_id]

    run(story())


def test_slot_sharing_groups_use_slots_of_their_own(tmp_path: Path) -> None:
    async def story() -> None:
        async with RuntimeCluster(tmp_path, slots=3) as cluster:
            apart = msgspec.structs.replace(graphs.vertex(1, graphs.sink(), parallelism=2), slot_sharing_group="sinks")
            graph = graphs.graph(
                graphs.vertex(0, graphs.generator(rows=None, rows_per_second=2_000)),
                apart,
                edges=(graphs.edge(0, 1, EdgeKind.RESCALE),),
                settings=FAST,
                bounded=False,
            )
            job_id = await cluster.job_manager.submit(graph)
            await checkpointed(cluster, job_id)
            assert (await cluster.job_manager.overview()).slots_available == 0
            await cluster.job_manager.cancel(job_id)
            assert (await cluster.job_manager.wait(job_id, 20_000)).state is JobState.CANCELED

    run(story())


def test_too_few_slots_wait(tmp_path: Path) -> None:
    async def story() -> None:
        async with RuntimeCluster(tmp_path, slots=1) as cluster:
            job_id = await cluster.job_manager.submit(endless())
            status = await cluster.until(job_id, "a wait for slots", lambda s: s.slots_missing == 1)
            assert status.vertices[0].task_states == {"SCHEDULED": 2}
            cluster.add_task_manager()
            await cluster.until(job_id, "tasks running", lambda s: s.vertices[1].task_states == {"RUNNING": 2})

    run(story())


def test_a_slot_that_hangs_is_killed(tmp_path: Path) -> None:
    async def story() -> None:
        async with RuntimeCluster(tmp_path, slots=1, flags=("--slot-timeout-ms", "1500")) as cluster:
            (task_manager,) = await cluster.job_manager.task_managers()
            (pid,) = task_manager.slot_pids
            os.kill(pid, signal.SIGSTOP)
            while (await cluster.job_manager.task_managers())[0].slot_pids in ((pid,), ()):
                await asyncio.sleep(0.05)

    run(story())


def test_no_slot_outlives_a_killed_task_manager(tmp_path: Path) -> None:
    async def story() -> None:
        async with RuntimeCluster(tmp_path, slots=2) as cluster:
            (task_manager,) = await cluster.job_manager.task_managers()
            cluster.task_managers[0].kill()
            for pid in task_manager.slot_pids:
                while _alive(pid):
                    await asyncio.sleep(0.02)
            while (await cluster.job_manager.overview()).slots_total:
                await asyncio.sleep(0.02)

    run(story())


def test_without_a_job_manager_tasks_run_on_for_a_while_then_end(tmp_path: Path) -> None:
    async def story() -> None:
        async with RuntimeCluster(tmp_path, slots=1, flags=("--loss-timeout-ms", "2000")) as cluster:
            job_id = await cluster.job_manager.submit(endless(parallelism=1))
            await checkpointed(cluster, job_id)
            (pid,) = (await cluster.job_manager.task_managers())[0].slot_pids
            lost_at = time.monotonic()
            await cluster.job_manager._endpoint.stop()
            while _alive(pid):
                await asyncio.sleep(0.02)
            assert time.monotonic() - lost_at >= 2.0

    run(story())


def test_wrong_jobs_are_refused_at_submission(tmp_path: Path) -> None:
    async def story() -> None:
        async with RuntimeCluster(tmp_path, task_managers=0) as cluster:
            for settings in ({"execution.checkpointing.interval": "soon"}, {"state.backend.type": "forst"}):
                with pytest.raises(SubmissionRefusedError, match=next(iter(settings))):
                    await cluster.job_manager.submit(endless(settings=settings))
            wrong = graphs.graph(graphs.vertex(0, graphs.generator(), graphs.sink(connector="print", colour="red")))
            with pytest.raises(SubmissionRefusedError, match="colour"):
                await cluster.job_manager.submit(wrong)
            assert await cluster.job_manager.jobs() == []
            with pytest.raises(UnknownJobError):
                await cluster.job_manager.status(JobId("0" * 32))

    run(story())


def test_a_failing_query_reports_its_failure(tmp_path: Path) -> None:
    async def story() -> None:
        async with RuntimeCluster(tmp_path, slots=1) as cluster:
            graph = graphs.graph(
                graphs.vertex(0, graphs.generator(rows=None, rows_per_second=10), graphs.collect()),
                bounded=False,
                is_query=True,
            )
            job_id = await cluster.job_manager.submit(graph)
            await cluster.until(job_id, "running", lambda s: s.vertices[0].task_states == {"RUNNING": 1})
            await cluster.kill_slot()
            with pytest.raises(JobFailedError, match="SIGKILL"):
                await cluster.rows(job_id)

    run(story())


def _beyond_restored(summary: CheckpointSummary) -> bool:
    return 0 < summary.restored_id < summary.latest_completed_id


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
