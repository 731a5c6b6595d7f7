"""What users have asked of a job's savepoints, and what has come of it. Lives as long as the job's master."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

from runtime.api import (
    JobState,
    SavepointRefusedError,
    SavepointRequest,
    SavepointState,
    SavepointStatus,
    UnknownSavepointError,
)
from runtime.checkpoint import savepoint as savepoints
from runtime.checkpoint.coordination import SavepointWanted
from runtime.checkpoint.refusal import RestoreRefusedError
from runtime.checkpoint.savepoint import is_same_place
from runtime.checkpoint.store import CheckpointStore
from runtime.metadata.jobs import JobRecords
from runtime.protocol.messages import Failure

OPERATIONS_KEPT = 100


class _Operation:
    def __init__(self, wanted: SavepointWanted) -> None:
        self.wanted = wanted
        self.location = ""
        self.status = SavepointStatus(wanted.trigger_id, SavepointState.IN_PROGRESS)
        self.ended = asyncio.Event()

    def end(self, state: SavepointState, failure: Failure | None = None) -> None:
        if not self.ended.is_set():
            self.status = SavepointStatus(self.wanted.trigger_id, state, self.location, failure)
            self.ended.set()


class SavepointOperations:
    """A stop is complete when the job is FINISHED; once its savepoint is the job's pointer no failure of a generation
    undoes it."""

    def __init__(self) -> None:
        self._post: Callable[[SavepointWanted], None] | None = None
        self._operations: dict[str, _Operation] = {}

    def generation_started(self, post: Callable[[SavepointWanted], None]) -> None:
        """`post` hands a wish to the coordinator."""
        self._post = post

    def trigger(self, request: SavepointRequest) -> str:
        """Returns the operation's id at once."""
        trigger_id = request.trigger_id or uuid.uuid4().hex
        if trigger_id in self._operations:
            return trigger_id
        wanted = SavepointWanted(trigger_id, request.directory, request.stop, request.drain)
        operation = _Operation(wanted)
        self._operations[trigger_id] = operation
        for old in list(self._operations)[:-OPERATIONS_KEPT]:
            if self._operations[old].ended.is_set():
                del self._operations[old]
        if self._post is None:
            self.failed(trigger_id, _not_running())
        else:
            self._post(wanted)
        return trigger_id

    async def status(self, trigger_id: str, wait_ms: int) -> SavepointStatus:
        """Waits up to `wait_ms` for the end. Raises UnknownSavepointError."""
        operation = self._operations.get(trigger_id)
        if operation is None:
            raise UnknownSavepointError(trigger_id)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await operation.ended.wait()
        except TimeoutError:
            pass  # The caller looks at the status.
        return operation.status

    def pointed_to(self, trigger_id: str, location: str) -> None:
        """The savepoint is complete on disk and, if it stops the job, the job's pointer."""
        if trigger_id in self._operations:
            self._operations[trigger_id].location = location

    def taken(self, trigger_id: str) -> None:
        """One that does not stop the job is complete."""
        if trigger_id in self._operations:
            self._operations[trigger_id].end(SavepointState.COMPLETED)

    def failed(self, trigger_id: str, failure: Failure) -> None:
        if trigger_id in self._operations:
            self._operations[trigger_id].end(SavepointState.FAILED, failure)

    def generation_ended(self) -> None:
        """What its coordinator had not finished is lost, but for a stop that the pointer holds."""
        self._post = None
        for operation in self._operations.values():
            if not (operation.wanted.stop and operation.location):
                operation.end(SavepointState.FAILED, _interrupted())

    def job_ended(self, state: JobState, failure: Failure | None) -> None:
        for operation in self._operations.values():
            if state is JobState.FINISHED and operation.location:
                operation.end(SavepointState.COMPLETED)
            else:
                operation.end(SavepointState.FAILED, failure or Failure(f"the job is {state}", "user", False))


def dispose_savepoint(records: JobRecords, store: CheckpointStore, location: str) -> None:
    """Delete it and forget it. Blocking. Raises SavepointRefusedError."""
    try:
        savepoint = savepoints.read(location)
    except RestoreRefusedError as error:
        raise SavepointRefusedError(str(error), "SHOW SAVEPOINTS FOR JOB '<id>' lists those of a job.") from error
    if not savepoint.manifest.is_savepoint:
        raise SavepointRefusedError(
            f"{savepoint.directory} is a checkpoint of job {savepoint.manifest.job_id}, not a savepoint",
            "Checkpoints are removed by their job.",
        )
    for record in records.all():
        if record.state.terminal:
            continue
        pointer = records.pointer(record.job_id)
        starts = record.origin is not None and pointer is None and is_same_place(record.origin.path, location)
        if starts or (pointer is not None and is_same_place(pointer.stopped_with, location)):
            what = "starts from it" if starts else "is being stopped with it"
            raise SavepointRefusedError(f"job {record.job_id} {what}", "Wait until the job is RUNNING or has ended.")
    try:
        savepoints.delete(store.open(savepoint.directory), savepoint.manifest)
    except OSError as error:
        raise SavepointRefusedError(f"{savepoint.directory} could not be deleted: {error}") from error
    records.forget_savepoint(savepoint.directory)


def _not_running() -> Failure:
    return Failure(
        "no savepoint can be taken: the tasks of the job are not running",
        "user",
        False,
        hint="Wait until the job is RUNNING; SHOW JOBS tells.",
    )


def _interrupted() -> Failure:
    return Failure(
        "the savepoint was not completed: the job's tasks ended or failed before",
        "external",
        True,
        hint="Look at the job's state and failure, then ask again.",
    )
