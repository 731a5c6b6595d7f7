"""What a JobManager finds in the metadata store when it begins to lead. Blocking."""

from __future__ import annotations

import msgspec

from runtime.api import CheckpointSummary, JobState, JobStatus
from runtime.checkpoint.manifest import CheckpointPointer
from runtime.checkpoint.store import CheckpointStore
from runtime.clock import wall_clock_ms
from runtime.ids import JobId
from runtime.jobmanager.preparation import drop_checkpoints, mark_stopped
from runtime.metadata.jobs import JobRecord, JobRecords
from runtime.protocol.messages import Failure


def load_jobs(
    records: JobRecords, store: CheckpointStore, ended_kept: int
) -> tuple[list[JobRecord], dict[JobId, JobStatus]]:
    """The jobs that have not ended, in the order of their submission, and how the newest `ended_kept` of the others
    did; those that ended before are forgotten."""
    found = sorted(records.all(), key=lambda record: record.submitted_at_ms)
    ended = [record for record in found if record.state.terminal]
    for record in ended[:-ended_kept]:
        drop_checkpoints(records, store, record, forgotten=True)
        records.delete(record.job_id)
    statuses = {
        record.job_id: records.history(record.job_id) or _finish_ended(records, store, record)
        for record in ended[-ended_kept:]
    }
    return [record for record in found if not record.state.terminal], statuses


def end_job(records: JobRecords, record: JobRecord, failure: Failure) -> JobStatus:
    """FAILED, durably, without anything having been started."""
    ended = msgspec.structs.replace(record, state=JobState.FAILED, end_ms=wall_clock_ms(), failure=failure)
    records.update(ended)
    return _bare_status(ended)


def _finish_ended(records: JobRecords, store: CheckpointStore, record: JobRecord) -> JobStatus:
    """The JobManager died between the record of a job's end and what follows it."""
    status = _bare_status(record, records.pointer(record.job_id))
    if record.state is JobState.FINISHED:
        mark_stopped(records, record.job_id)
    drop_checkpoints(records, store, record)
    records.set_history(status)
    return status


def _bare_status(record: JobRecord, pointer: CheckpointPointer | None = None) -> JobStatus:
    checkpoints = CheckpointSummary()
    if pointer is not None:
        checkpoints = CheckpointSummary(latest_completed_id=pointer.checkpoint_id)
        if pointer.stopped_with:
            checkpoints = CheckpointSummary(
                latest_completed_id=pointer.checkpoint_id,
                latest_savepoint_id=pointer.checkpoint_id,
                latest_savepoint_path=pointer.stopped_with,
                latest_savepoint_at_ms=record.end_ms,
            )
    return JobStatus(
        record.job_id,
        record.name,
        record.state,
        record.submitted_at_ms,
        record.end_ms,
        record.state_timestamps_ms,
        (),
        checkpoints,
        record.restarts,
        failure=record.failure,
        generation=record.generation,
        is_query=record.is_query,
    )
