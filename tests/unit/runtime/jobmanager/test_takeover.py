"""What a JobManager makes of the jobs that it finds in the metadata store, SQLite or PostgreSQL: each goes on, or is
brought to the end that it was on its way to, without the user."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.api import JobState, ResultLostError, StaleLeaderError
from runtime.config import JobManagerSettings
from runtime.ids import JobId
from runtime.jobmanager.endpoint import bind_rpc
from runtime.jobmanager.preparation import Outside
from runtime.jobmanager.process import JobManager
from runtime.metadata.jobs import JobRecord, JobRecords
from runtime.protocol.messages import Failure
from tests.support import graphs
from tests.support.metadata_stores import STORES, StorePlace, store_place

GRAPH = graphs.graph(graphs.vertex(0, graphs.generator(rows=None), graphs.sink()), bounded=False)
QUERY = graphs.graph(graphs.vertex(0, graphs.generator(rows=None), graphs.collect()), bounded=False, is_query=True)
CAUSE = Failure("the topic is gone", "external", True)


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StorePlace]:
    yield from store_place(request, tmp_path)


async def lead(place: StorePlace, folder: Path) -> JobManager:
    settings = JobManagerSettings(str(folder))
    return await JobManager(settings, place.open()).lead(bind_rpc("127.0.0.1", 0))


def leave(place: StorePlace, *states: JobState) -> list[JobId]:
    """Jobs as a JobManager that died has left them."""
    records = JobRecords(place.open())
    ids = []
    for number, state in enumerate(states):
        job_id = JobId(f"{number + 1:032x}")
        failure = CAUSE if state in (JobState.RESTARTING, JobState.FAILING) else None
        records.create(JobRecord(job_id, state.value, state, False, number, generation=3, failure=failure), GRAPH)
        ids.append(job_id)
    return ids


async def wait_for_slots(job_manager: JobManager, job_id: JobId) -> None:
    """It has been prepared and asks for slots (there are none)."""
    async with asyncio.timeout(20):
        while (await job_manager.status(job_id)).slots_missing == 0:
            await asyncio.sleep(0.01)


def test_jobs_that_lived_go_on(place: StorePlace, tmp_path: Path) -> None:
    """Whatever they were doing. One that waited for its restart does not wait any longer: what failed was an earlier
    JobManager's business, and a new one counts its failures from the start."""
    living = (JobState.INITIALIZING, JobState.CREATED, JobState.RUNNING, JobState.RESTARTING, JobState.SUSPENDED)

    async def story() -> None:
        ids = leave(place, *living)
        job_manager = await lead(place, tmp_path)
        for job_id in ids:
            await wait_for_slots(job_manager, job_id)
            status = await job_manager.status(job_id)
            assert (status.state, status.generation) == (JobState.CREATED, 4)
        await job_manager.stop()
        # SIGTERM ends the JobManager, not the jobs.
        job_manager = await lead(place, tmp_path)
        for job_id in ids:
            await wait_for_slots(job_manager, job_id)
            assert (await job_manager.status(job_id)).generation == 5
            await job_manager.cancel(job_id)
            assert (await job_manager.wait(job_id, 20_000)).state is JobState.CANCELED
        await job_manager.stop()
        job_manager = await lead(place, tmp_path)
        assert {status.state for status in await job_manager.jobs()} == {JobState.CANCELED}
        await job_manager.stop()

    asyncio.run(story())


def test_what_was_ending_ends(place: StorePlace, tmp_path: Path) -> None:
    async def story() -> None:
        cancelling, failing = leave(place, JobState.CANCELLING, JobState.FAILING)
        job_manager = await lead(place, tmp_path)
        status = await job_manager.wait(cancelling, 20_000)
        assert (status.state, status.generation) == (JobState.CANCELED, 3)
        status = await job_manager.wait(failing, 20_000)
        assert (status.state, status.failure) == (JobState.FAILED, CAUSE)
        await job_manager.stop()

    asyncio.run(story())


def test_a_querys_result_is_lost(place: StorePlace, tmp_path: Path) -> None:
    async def story() -> None:
        job_id = JobId("a" * 32)
        JobRecords(place.open()).create(JobRecord(job_id, "q", JobState.RUNNING, True, 1), QUERY)
        job_manager = await lead(place, tmp_path)
        assert (await job_manager.status(job_id)).state is JobState.FAILED
        with pytest.raises(ResultLostError, match="restarted"):
            await job_manager.fetch(job_id, 0, 10, 0)
        await job_manager.stop()

    asyncio.run(story())


def test_a_leader_of_yesterday_can_neither_change_a_job_nor_stop_its_successor(
    place: StorePlace, tmp_path: Path
) -> None:
    async def story() -> None:
        (job_id,) = leave(place, JobState.RUNNING)
        old = await lead(place, tmp_path)
        await wait_for_slots(old, job_id)
        new = await lead(place, tmp_path)
        await wait_for_slots(new, job_id)
        await old.cancel(job_id)
        async with asyncio.timeout(20):
            await old.lost_leadership()
        await old.stop()
        status = await new.status(job_id)
        assert (status.state, status.generation) == (JobState.CREATED, 5)
        await new.stop()
        latest = [record for record in JobRecords(place.open()).all() if record.job_id == job_id]
        assert [(record.state, record.generation) for record in latest] == [(JobState.SUSPENDED, 5)]

    asyncio.run(story())


def test_a_leader_of_yesterday_fences_no_writers(place: StorePlace) -> None:
    """It may have been paused at the end of a job that its successor has started again."""
    job_id = JobId("a" * 32)
    outside = Outside(GRAPH, job_id, JobRecords(place.open()))
    record = JobRecord(job_id, "j", JobState.RUNNING, False, 1)
    outside.fence(record)
    place.open()
    with pytest.raises(StaleLeaderError):
        outside.fence(record)
