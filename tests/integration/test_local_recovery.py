"""A restarted task reads its state from the copy on its TaskManager, or from the checkpoint storage if that is lost."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path

from planner.ir.job_graph import EdgeKind, JobGraph
from planner.ir.operators import ChangelogMode, GroupAggregate
from planner.ir.types import BIGINT
from runtime.api import JobStatus
from runtime.ids import JobId
from tests.support import graphs
from tests.support.runtime_cluster import RuntimeCluster

TIMEOUT_S = 120


def distinct_numbers() -> JobGraph:
    """SELECT DISTINCT over numbers without end."""
    keyed = GroupAggregate("agg", "agg", (0,), (BIGINT,), (), ChangelogMode.INSERT_ONLY, graphs.NUMBERS)
    return graphs.graph(
        graphs.vertex(0, graphs.generator(rows=None, rows_per_second=3_000)),
        graphs.vertex(1, keyed, graphs.sink()),
        edges=(graphs.edge(0, 1, EdgeKind.HASH),),
        settings={
            "execution.checkpointing.interval": "200 ms",
            "execution.state-recovery.from-local": "true",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "10",
            "restart-strategy.fixed-delay.delay": "1 s",
        },
        bounded=False,
    )


def figures(status: JobStatus, name: str) -> float:
    return sum(
        values.get(name, 0.0) for vertex in status.vertices for m in vertex.metrics for values in m.operators.values()
    )


async def kill_slot(cluster: RuntimeCluster, job_id: JobId) -> None:
    execution = cluster.job_manager._masters[job_id]._core.execution
    assert execution is not None
    os.kill(execution.slots[0].pid, signal.SIGKILL)


def test_state_comes_back_from_the_copy_or_from_the_storage(tmp_path: Path) -> None:
    async def story() -> None:
        work = tmp_path / "work"
        flags = ("--work-directory", str(work))
        async with RuntimeCluster(tmp_path / "data", task_managers=2, slots=1, flags=flags) as cluster:
            job_id = await cluster.job_manager.submit(distinct_numbers())
            await cluster.until(job_id, "checkpoints", lambda s: s.checkpoints.completed >= 3)
            home = cluster.job_manager._masters[job_id]._core.execution
            assert home is not None
            first = home.slots[0].task_manager_id
            await kill_slot(cluster, job_id)
            await cluster.until(job_id, "copies read", lambda s: figures(s, "numLocalStateReads") > 0)
            status = await cluster.until(job_id, "a checkpoint after it", _beyond_restored)
            assert figures(status, "numLocalStateFallbacks") == 0
            again = cluster.job_manager._masters[job_id]._core.execution
            assert again is not None
            assert again.slots[0].task_manager_id == first
            # Copies of old checkpoints are gone: no more files than a checkpoint names, and one in the making.
            assert len([f for f in work.rglob("*.arrow") if "local-state" in f.parts]) < 60
            await kill_slot(cluster, job_id)
            for copies in work.glob("*/local-state/*"):
                shutil.rmtree(copies)
            await cluster.until(job_id, "the storage read", lambda s: figures(s, "numLocalStateFallbacks") > 0)
            await cluster.until(job_id, "a checkpoint after it", _beyond_restored)
            await cluster.job_manager.cancel(job_id)
            await cluster.job_manager.wait(job_id, 20_000)

    async def within() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await story()

    asyncio.run(within())


def _beyond_restored(status: JobStatus) -> bool:
    return (
        status.recovery.down_time_ms == 0
        and 0 < status.checkpoints.restored_id < status.checkpoints.latest_completed_id
    )
