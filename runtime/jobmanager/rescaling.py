"""A running job goes on at another parallelism, under its own id.

A checkpoint is taken, the new graph becomes durable (one record: whoever starts the job from then on starts that one,
from the job's latest checkpoint), then the tasks are ended and the next generation begins. Until the record is written
nothing has been touched; what cannot be done is refused before. A crash leaves the old graph or the new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from planner.ir.job_graph import JobGraph
from runtime.api import JobState, JobStatus, RescaleRefusedError
from runtime.checkpoint.recovery import plan_restore
from runtime.checkpoint.refusal import RestoreRefusedError
from runtime.checkpoint.store import CheckpointStore, DamagedCheckpointError
from runtime.clock import monotonic_ms
from runtime.jobmanager.checkpointing import Checkpointing
from runtime.jobmanager.services import HelperThread, Services
from runtime.metadata.jobs import JobRecord, JobRecords

SLOT_WAIT_MS = 3_000
_POLL_S = 0.05
_UNCHANGED = "The job runs on as it was."


class RescaledJob(Protocol):
    """A job's master, as far as it is needed here."""

    @property
    def record(self) -> JobRecord: ...

    @property
    def graph(self) -> JobGraph: ...

    @property
    def checkpointing(self) -> Checkpointing | None:
        """While the job's tasks run."""

    def status(self) -> JobStatus: ...

    def go_on_with(self, graph: JobGraph) -> None:
        """End the generation; the next one has this graph."""


def check_graph(old: JobGraph, new: JobGraph) -> None:
    """The new graph must do the same work on the same state. Raises RescaleRefusedError, naming what differs."""
    if old.is_query:
        raise RescaleRefusedError("a SELECT cannot be rescaled: it has one result", "Run it again.")
    before = {fingerprint.uid: fingerprint for fingerprint in old.fingerprints}
    after = {fingerprint.uid: fingerprint for fingerprint in new.fingerprints}
    for uid in sorted(before.keys() | after.keys()):
        if before.get(uid) != after.get(uid):
            raise _replanned(uid)
    limits = {operator.uid: v.max_parallelism for v in old.vertices for operator in v.operators}
    for vertex in new.vertices:
        for operator in vertex.operators:
            limit = limits.get(operator.uid, vertex.max_parallelism)
            if limit != vertex.max_parallelism:
                raise _replanned(operator.uid)
            if vertex.parallelism > limit:
                raise RescaleRefusedError(
                    f"parallelism {vertex.parallelism} of '{vertex.name}' is above its max parallelism of {limit}"
                )


async def check_slots(job: RescaledJob, new: JobGraph, slots_free: Callable[[], int]) -> None:
    """A job that runs must not end up waiting for slots. Slots that another job has just left are awaited. Raises
    RescaleRefusedError."""
    deadline_ms = monotonic_ms() + SLOT_WAIT_MS
    while True:
        held = job.graph.slot_count if job.status().state is JobState.RUNNING else 0
        available = slots_free() + held
        if new.slot_count <= max(available, job.graph.slot_count):
            return
        if monotonic_ms() > deadline_ms:
            raise RescaleRefusedError(
                f"the job would need {new.slot_count} slots, and {available} are there for it",
                "Start more TaskManagers first.",
            )
        await asyncio.sleep(_POLL_S)


async def rescale(job: RescaledJob, services: Services, durable: HelperThread, timeout_ms: int, new: JobGraph) -> None:
    """Returns when the new graph is durable and the tasks are being replaced. `timeout_ms`: of a checkpoint. Raises
    RescaleRefusedError: nothing has changed then."""
    check_graph(job.graph, new)
    if job.status().state is JobState.RUNNING and job.checkpointing is not None:
        await _take_checkpoint(job, timeout_ms)
    checkpointing = job.checkpointing
    if checkpointing is not None:
        # What is stored after this could be what the new graph cannot restore.
        checkpointing.hold()
    try:
        await durable.run(make_durable, services.records, services.store, job.record, new)
        if job.status().state.terminal:
            raise RescaleRefusedError("the job has ended")
        job.go_on_with(new)
    except (RestoreRefusedError, DamagedCheckpointError, OSError) as error:
        raise RescaleRefusedError(str(error), getattr(error, "hint", "") or _UNCHANGED) from error
    finally:
        if checkpointing is not None:
            checkpointing.release()


def make_durable(records: JobRecords, store: CheckpointStore, record: JobRecord, new: JobGraph) -> None:
    """The graph, once it is sure that it can restore the job's latest checkpoint. Blocking. Raises RestoreRefusedError,
    DamagedCheckpointError, OSError, RescaleRefusedError."""
    pointer = records.pointer(record.job_id)
    if pointer is not None and pointer.stopped_with:
        raise RescaleRefusedError("the job has been stopped with a savepoint")
    manifest = store.read(record.job_id, pointer) if pointer is not None else None
    plan_restore(new, manifest, record.owner_counts)
    records.replace_graph(record.job_id, new)


async def _take_checkpoint(job: RescaledJob, timeout_ms: int) -> None:
    """So that nothing is done twice but what has come since. Raises RescaleRefusedError when it fails."""
    generation, before = job.record.generation, job.status().checkpoints.latest_completed_id
    checkpointing = job.checkpointing
    assert checkpointing is not None
    checkpointing.ask()
    deadline_ms = monotonic_ms() + timeout_ms
    while True:
        status = job.status()
        failed = status.checkpoints.latest_failed
        if status.state.terminal:
            raise RescaleRefusedError(f"the job has ended ({status.state})")
        if status.state is not JobState.RUNNING or status.generation != generation:
            return  # It restarts from its latest checkpoint anyway.
        if status.checkpoints.latest_completed_id > before:
            return
        if failed is not None and failed.checkpoint_id > before:
            raise RescaleRefusedError(f"no checkpoint could be taken: {failed.failure}", _UNCHANGED)
        if monotonic_ms() > deadline_ms:
            raise RescaleRefusedError(f"no checkpoint was complete within {timeout_ms} ms", _UNCHANGED)
        await asyncio.sleep(_POLL_S)


def _replanned(uid: str) -> RescaleRefusedError:
    return RescaleRefusedError(
        f"this version plans the job differently: the state of operator '{uid}' would not fit",
        "Stop it WITH SAVEPOINT and start its statement from the savepoint.",
    )
