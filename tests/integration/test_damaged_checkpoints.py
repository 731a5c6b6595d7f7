"""Files of a committed checkpoint that are not what was written: the job goes back to the one before where no output
can repeat, and otherwise ends with the file's name and the way to go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from planner.ir.job_graph import EdgeKind, JobGraph
from planner.ir.operators import ChangelogMode, GroupAggregate
from planner.ir.types import BIGINT
from runtime.api import JobState, JobStatus
from runtime.checkpoint.manifest import CheckpointManifest, CheckpointPointer
from runtime.checkpoint.store import CheckpointStore
from runtime.config import JobManagerSettings
from runtime.ids import JobId
from runtime.jobmanager.process import STORE_FILE, JobManager
from runtime.metadata.jobs import JobRecords
from runtime.metadata.store import SqliteMetadataStore
from tests.support import graphs
from tests.support.runtime_cluster import RuntimeCluster

SETTINGS = {
    "execution.checkpointing.interval": "200 ms",
    "execution.checkpointing.num-retained": "3",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "20",
    "restart-strategy.fixed-delay.delay": "50 ms",
}


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 120))


def distinct_numbers() -> JobGraph:
    """SELECT DISTINCT over numbers without end, into nothing."""
    keyed = GroupAggregate("agg", "agg", (0,), (BIGINT,), (), ChangelogMode.INSERT_ONLY, graphs.NUMBERS)
    return graphs.graph(
        graphs.vertex(0, graphs.generator(rows=None, rows_per_second=1_000)),
        graphs.vertex(1, keyed, graphs.sink()),
        edges=(graphs.edge(0, 1, EdgeKind.HASH),),
        settings=SETTINGS,
        bounded=False,
    )


def into_files(directory: Path, settings: dict[str, str]) -> JobGraph:
    """Parquet: every checkpoint completes a file, and its commit makes it visible."""
    sink = graphs.sink(connector="filesystem", path=str(directory), format="parquet")
    return graphs.graph(
        graphs.vertex(0, graphs.generator(rows=None, rows_per_second=1_000), sink),
        settings={**SETTINGS, **settings},
        bounded=False,
    )


class Latest:
    """The latest checkpoint of a job whose JobManager is down."""

    def __init__(self, data: Path, job_id: JobId) -> None:
        pointer = JobRecords(SqliteMetadataStore(data / STORE_FILE)).pointer(job_id)
        assert pointer is not None
        self.pointer: CheckpointPointer = pointer
        self.store = CheckpointStore(str(data / "checkpoints"))
        self.place = data / "checkpoints" / job_id
        self.manifest: CheckpointManifest = self.store.read(job_id, pointer)

    @property
    def own_segment(self) -> str:
        """A state file that no earlier checkpoint names."""
        return next(s.path for s in self.manifest.segments if s.checkpoint_id == self.pointer.checkpoint_id)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


async def damaged_while_down(cluster: RuntimeCluster, job_id: JobId, damage: Callable[[Latest], None]) -> Latest:
    """After some checkpoints the JobManager goes, the latest one is damaged, the JobManager comes back."""
    await cluster.until(job_id, "checkpoints", lambda s: s.checkpoints.completed >= 4)
    port = cluster.job_manager.rpc_port
    await cluster.job_manager.stop()
    latest = Latest(cluster.data, job_id)
    damage(latest)
    cluster.job_manager = await JobManager.start(JobManagerSettings(str(cluster.data), rpc_port=port))
    return latest


def beyond(number: int) -> Callable[[JobStatus], bool]:
    return lambda status: status.checkpoints.latest_completed_id > number


@pytest.mark.parametrize("found_by", ["manifest", "job manager", "task"])
def test_a_job_without_exactly_once_sinks_goes_back_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found_by: str
) -> None:
    if found_by == "task":
        monkeypatch.setattr("runtime.jobmanager.restore_choice.VERIFIED_BYTES_MAX", 0)

    async def story() -> None:
        async with RuntimeCluster(tmp_path) as cluster:
            job_id = await cluster.job_manager.submit(distinct_numbers())
            latest = await damaged_while_down(
                cluster,
                job_id,
                lambda found: flip(found.place / (found.pointer.path if found_by == "manifest" else found.own_segment)),
            )
            number = latest.pointer.checkpoint_id
            status = await cluster.until(job_id, "a later checkpoint", beyond(number))
            assert 0 < status.checkpoints.restored_id < number
            assert status.state is JobState.RUNNING
            assert (status.restarts > 0) == (found_by == "task")
            await cluster.job_manager.cancel(job_id)
            await cluster.job_manager.wait(job_id, 20_000)

    run(story())


def test_where_sinks_have_committed_more_the_job_ends_and_says_how_to_go_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with RuntimeCluster(tmp_path / "data") as cluster:
            job_id = await cluster.job_manager.submit(into_files(tmp_path / "out", {}))
            latest = await damaged_while_down(cluster, job_id, lambda found: flip(found.place / found.pointer.path))
            status = await cluster.job_manager.wait(job_id, 30_000)
            number = latest.pointer.checkpoint_id
            assert status.state is JobState.FAILED
            assert status.failure is not None
            assert f"checkpoint {number} is damaged: {latest.place}/{latest.pointer.path}" in status.failure.message
            assert "would repeat output" in status.failure.message
            assert "'execution.state-recovery.accept-duplicates' = 'true'" in status.failure.hint
            # What it can go on from stays.
            assert (latest.place / "g1" / f"chk-{number - 1}" / "manifest").exists()

    run(story())


def test_it_goes_on_where_the_user_has_accepted_repeated_output(tmp_path: Path) -> None:
    async def story() -> None:
        async with RuntimeCluster(tmp_path / "data") as cluster:
            accepted = {"execution.state-recovery.accept-duplicates": "true"}
            job_id = await cluster.job_manager.submit(into_files(tmp_path / "out", accepted))
            latest = await damaged_while_down(cluster, job_id, lambda found: flip(found.place / found.pointer.path))
            status = await cluster.until(job_id, "a later checkpoint", beyond(latest.pointer.checkpoint_id))
            assert status.checkpoints.restored_id < latest.pointer.checkpoint_id
            await cluster.job_manager.cancel(job_id)
            await cluster.job_manager.wait(job_id, 20_000)

    run(story())


@pytest.mark.parametrize(("retention", "stays"), [("", False), ("RETAIN_ON_CANCELLATION", True)])
def test_what_stays_of_a_cancelled_job(tmp_path: Path, retention: str, stays: bool) -> None:
    async def story() -> None:
        async with RuntimeCluster(tmp_path / "data", slots=1) as cluster:
            said = {"execution.checkpointing.externalized-checkpoint-retention": retention} if retention else {}
            job_id = await cluster.job_manager.submit(into_files(tmp_path / "out", said))
            await cluster.until(job_id, "checkpoints", lambda s: s.checkpoints.completed >= 1)
            await cluster.job_manager.cancel(job_id)
            status = await cluster.job_manager.wait(job_id, 20_000)
            assert status.state is JobState.CANCELED
            assert Path(status.checkpoints.latest_path, "manifest").exists() == stays

    run(story())


def test_several_in_flight_leave_nothing_behind(tmp_path: Path) -> None:
    """Sinks that do not commit allow it. Files are those that the retained checkpoints name, and some in the making."""

    async def story() -> None:
        async with RuntimeCluster(tmp_path) as cluster:
            crowded = {
                "execution.checkpointing.interval": "10 ms",
                "execution.checkpointing.max-concurrent-checkpoints": "3",
                "execution.checkpointing.tolerable-failed-checkpoints": "1000",
            }
            graph = distinct_numbers()
            job_id = await cluster.job_manager.submit(
                msgspec.structs.replace(graph, settings={**graph.settings, **crowded})
            )
            status = await cluster.until(job_id, "checkpoints", lambda s: s.checkpoints.completed >= 30)
            assert status.checkpoint_config.concurrent_max == 3
            await cluster.kill_slot()
            number = status.checkpoints.latest_completed_id
            await cluster.until(job_id, "checkpoints after a failure", beyond(number + 30))
            await cluster.job_manager.stop()
            latest = Latest(tmp_path, job_id)
            retained = [latest.manifest, *(latest.store.read(job_id, each) for each in latest.pointer.earlier[-2:])]
            named = set().union(*(manifest.paths for manifest in retained))
            found = {stored.path for stored in latest.store.files(job_id).list("state")}
            assert named <= found | {f for manifest in retained for f in manifest.epoch_files}
            assert len(found - named) < 20
            cluster.job_manager = await JobManager.start(JobManagerSettings(str(tmp_path)))

    run(story())
