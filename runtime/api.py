"""The door of the runtime: what the server may know of jobs. Everything the gateway does to a job goes through
`JobClient`; catalog, sessions and job records share `MetadataStore`."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec
import pyarrow as pa

from planner.ir.job_graph import JobGraph
from runtime.ids import JobId
from runtime.protocol.messages import Failure, TaskMetrics, TaskState

__all__ = ["Failure", "JobId", "TaskMetrics", "TaskState"]


class JobState(StrEnum):
    """States of a job, with Flink's names."""

    INITIALIZING = "INITIALIZING"
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELED = "CANCELED"
    RESTARTING = "RESTARTING"
    FINISHED = "FINISHED"
    SUSPENDED = "SUSPENDED"

    @property
    def terminal(self) -> bool:
        """No further transition will happen in this JobManager or any later one."""
        return self in (JobState.FAILED, JobState.CANCELED, JobState.FINISHED)


class VertexStatus(msgspec.Struct, frozen=True):
    vertex_id: int
    name: str
    parallelism: int
    max_parallelism: int
    task_states: dict[str, int]
    """TaskState name → number of tasks in it."""
    metrics: tuple[TaskMetrics, ...] = ()


class CheckpointState(StrEnum):
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class SubtaskCheckpoint(msgspec.Struct, frozen=True):
    """One task's answer to a checkpoint. `byte_size`: written for it, `full_byte_size`: all that it names;
    `persisted_bytes`: elements in flight among them. `duration_ms` since the trigger."""

    vertex_id: int
    subtask_index: int
    acknowledged_at_ms: int
    duration_ms: int
    byte_size: int
    full_byte_size: int
    sync_ms: float = 0.0
    async_ms: float = 0.0
    alignment_ms: float = 0.0
    is_unaligned: bool = False
    persisted_bytes: int = 0
    is_finished: bool = False


class CheckpointRecord(msgspec.Struct, frozen=True):
    """A checkpoint or savepoint as the job's page shows it; times in epoch ms (0 = not yet), sizes as in
    SubtaskCheckpoint. `discarded`: newer ones have taken its place."""

    checkpoint_id: int
    state: CheckpointState
    triggered_at_ms: int
    subtask_count: int
    is_savepoint: bool = False
    stops: bool = False
    latest_ack_at_ms: int = 0
    ended_at_ms: int = 0
    duration_ms: int = 0
    byte_size: int = 0
    full_byte_size: int = 0
    path: str = ""
    failure: str = ""
    discarded: bool = False
    subtasks: tuple[SubtaskCheckpoint, ...] = ()


class CheckpointSummary(msgspec.Struct, frozen=True):
    """Counts since the job's first start; times in epoch ms, durations in ms. `latest_bytes`: written for the latest
    checkpoint, `latest_full_bytes`: all that it names. `history`: newest first, those in progress too."""

    triggered: int = 0
    completed: int = 0
    failed: int = 0
    in_progress: int = 0
    latest_completed_id: int = 0
    latest_completed_at_ms: int = 0
    latest_duration_ms: float = 0.0
    latest_bytes: int = 0
    latest_full_bytes: int = 0
    latest_path: str = ""
    restored_id: int = 0
    restored_at_ms: int = 0
    restored_path: str = ""
    restored_is_savepoint: bool = False
    restored_count: int = 0
    latest_savepoint_id: int = 0
    latest_savepoint_path: str = ""
    latest_savepoint_at_ms: int = 0
    latest_failed: CheckpointRecord | None = None
    history: tuple[CheckpointRecord, ...] = ()


class TaskFailure(msgspec.Struct, frozen=True):
    """A failure and where it came from: task with subtask and attempt, `host:port` of its slot, TaskManager (empty =
    it concerned no single task). `at_ms` epoch ms."""

    failure: Failure
    at_ms: int
    task: str = ""
    endpoint: str = ""
    task_manager_id: str = ""


class FailureEntry(msgspec.Struct, frozen=True):
    """`concurrent`: what failed while the restart that `root` brought was under way."""

    root: TaskFailure
    concurrent: tuple[TaskFailure, ...] = ()


class RecoverySummary(msgspec.Struct, frozen=True):
    """Restarts of the whole job; how long the latest restart (of the job or of regions) took until all its tasks ran,
    or has taken so far; how long tasks have been missing now (0 = none is); how long all have been running. Of a job
    that has ended the last two are -1. In ms."""

    full_restarts: int = 0
    restarting_time_ms: int = 0
    down_time_ms: int = 0
    up_time_ms: int = 0


class CheckpointConfig(msgspec.Struct, frozen=True):
    """How a job is checkpointed; as in its settings, but for what the job does not allow. `aligned_timeout_ms` None =
    barriers never overtake. `location`: where its checkpoints are."""

    interval_ms: int = 0
    timeout_ms: int = 0
    min_pause_ms: int = 0
    concurrent_max: int = 1
    tolerable_failures: int = 0
    retained_count: int = 1
    retention: str = ""
    aligned_timeout_ms: int | None = None
    state_backend: str = ""
    location: str = ""


class JobStatus(msgspec.Struct, frozen=True):
    """A job as the job page shows it. `start_ms`/`end_ms` epoch ms, `end_ms` -1 while it lives. `slots_missing` > 0:
    tasks wait in SCHEDULED for that many more slots. `failure` is the latest one (also of a job that restarted)."""

    job_id: JobId
    name: str
    state: JobState
    start_ms: int
    end_ms: int
    state_timestamps_ms: dict[str, int]
    vertices: tuple[VertexStatus, ...]
    checkpoints: CheckpointSummary
    restarts: int = 0
    slots_missing: int = 0
    failure: Failure | None = None
    generation: int = 0
    is_query: bool = False
    restore_notes: tuple[str, ...] = ()
    """What the user should know about the savepoint that the job was started from."""
    checkpoint_config: CheckpointConfig = CheckpointConfig()
    recovery: RecoverySummary = RecoverySummary()
    exceptions: tuple[FailureEntry, ...] = ()
    """Newest first, since this JobManager has the job."""
    exceptions_truncated: bool = False


class TaskManagerStatus(msgspec.Struct, frozen=True):
    task_manager_id: str
    host: str
    pid: int
    slots_total: int
    slots_free: int
    memory_bytes: int
    last_heartbeat_ms: int
    slot_pids: tuple[int, ...] = ()
    slot_rss_bytes: tuple[int, ...] = ()
    """Resident memory of each slot as last reported, in the order of `slot_pids`; 0 before its first report."""


class ClusterOverview(msgspec.Struct, frozen=True):
    task_managers: int
    slots_total: int
    slots_available: int
    jobs_by_state: dict[str, int]


class ResultPage(msgspec.Struct, frozen=True):
    """Rows of a SELECT from `sequence` on. `next_sequence` asks for what follows; asking again for the same sequence
    gives the same page. `ended`: no row will follow."""

    sequence: int
    next_sequence: int
    rows: pa.RecordBatch
    row_kinds: pa.Int8Array | None
    ended: bool


class SavepointRequest(msgspec.Struct, frozen=True):
    """`directory` empty = the job's own `execution.checkpointing.savepoint-dir`. `stop` ends the job with the
    savepoint, `drain` (with `stop`) fires first what is due and ends it for good. `trigger_id` empty = a new one;
    asking again under a known one changes nothing."""

    directory: str = ""
    stop: bool = False
    drain: bool = False
    trigger_id: str = ""


class SavepointState(StrEnum):
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class SavepointStatus(msgspec.Struct, frozen=True):
    """`location` is the savepoint's own directory. A failed stop may have one, too: the savepoint was complete, but the
    job did not end as it should."""

    trigger_id: str
    state: SavepointState
    location: str = ""
    failure: Failure | None = None


class SavepointEntry(msgspec.Struct, frozen=True):
    """A savepoint that was taken of a job and that nobody has asked to delete (it may have been moved). `location` is
    its own place; `stopped`: it ended the job."""

    location: str
    checkpoint_id: int
    taken_at_ms: int
    byte_size: int
    stopped: bool = False
    drained: bool = False


class UnknownJobError(Exception):
    """No job with that id."""


class UnknownSavepointError(Exception):
    """The job knows no savepoint operation with that id (it may have been of an earlier JobManager)."""


class SavepointRefusedError(Exception):
    """A savepoint cannot be asked for like this; the message says why."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class RescaleRefusedError(Exception):
    """The job cannot go on at that parallelism; nothing has changed. The message says why."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class SubmissionRefusedError(Exception):
    """The job cannot run: a setting or table option is wrong, or what it asks for is not supported. `expression` is
    the SQL text of the expression at fault, if it is one."""

    def __init__(self, message: str, hint: str = "", expression: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        self.expression = expression


class ResultLostError(Exception):
    """The result of a SELECT is gone: its job's process died or the server restarted; run the statement again."""


class JobFailedError(Exception):
    """The job ended in FAILED; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class JobClient(Protocol):
    """Submit and steer jobs. All methods are coroutines of the server's own event loop."""

    async def submit(self, graph: JobGraph) -> JobId:
        """Durable when it returns: the job runs without the client, also over a restart (a query fails then). Raises
        SubmissionRefusedError."""

    async def cancel(self, job_id: JobId) -> None:
        """Ends the job; a no-op when it is terminal. Raises UnknownJobError."""

    async def trigger_savepoint(self, job_id: JobId, request: SavepointRequest) -> str:
        """Begins a savepoint and returns the operation's id. Raises UnknownJobError, SavepointRefusedError."""

    async def savepoint(self, job_id: JobId, trigger_id: str, wait_ms: int = 0) -> SavepointStatus:
        """What has come of it; waits up to `wait_ms` for the end. Raises UnknownJobError, UnknownSavepointError."""

    async def savepoints(self, job_id: JobId) -> list[SavepointEntry]:
        """Of a job, oldest first. Raises UnknownJobError."""

    async def dispose_savepoint(self, location: str) -> None:
        """Delete a savepoint for good. Raises SavepointRefusedError: it is none, or a job still needs it."""

    async def graph(self, job_id: JobId) -> JobGraph:
        """What the job runs. Raises UnknownJobError (also when it has ended)."""

    async def rescale(self, job_id: JobId, graph: JobGraph) -> None:
        """Go on, under the same id and with the same state, as `graph`: the job at another parallelism. Durable when
        it returns; the tasks are being replaced. Raises UnknownJobError, RescaleRefusedError."""

    async def status(self, job_id: JobId) -> JobStatus:
        """Raises UnknownJobError."""

    async def jobs(self) -> list[JobStatus]:
        """Every job known, ended ones included, newest first."""

    async def wait(self, job_id: JobId, timeout_ms: int) -> JobStatus:
        """Returns when the job is terminal or the time is over."""

    async def fetch(self, job_id: JobId, sequence: int, rows_max: int, wait_ms: int) -> ResultPage:
        """Rows of a query from `sequence` (0 first); waits up to `wait_ms` when none is there. Raises
        JobFailedError, ResultLostError, UnknownJobError."""

    async def overview(self) -> ClusterOverview: ...

    async def task_managers(self) -> list[TaskManagerStatus]: ...


class StaleLeaderError(Exception):
    """Another JobManager has taken the lease, or the metadata store cannot be written; this one must stop."""


class LeaderView(Protocol):
    """Which of several JobManagers leads, as seen from one of them."""

    @property
    def leads(self) -> bool:
        """This one, and its lease is not over."""

    @property
    def leader_url(self) -> str:
        """Where the leader serves HTTP; empty while none is known."""


class MetadataStore(Protocol):
    """Small durable records: `(collection, key) → bytes`. Every write is on disk when the call returns and is
    refused (StaleLeaderError) when the caller's leader token is no longer the newest. Thread-safe."""

    def check_leader(self) -> None:
        """Raises StaleLeaderError when another JobManager leads. For what changes something outside of the store: a
        file that was listed *before* a check that passed was not made under a newer leader."""

    def get(self, collection: str, key: str) -> bytes | None: ...

    def put(self, collection: str, key: str, value: bytes) -> None: ...

    def compare_and_set(self, collection: str, key: str, expected: bytes | None, value: bytes) -> bool:
        """Write only if the current value is `expected` (None: absent). False: nothing changed."""

    def delete(self, collection: str, key: str) -> None: ...

    def items(self, collection: str) -> list[tuple[str, bytes]]:
        """All records of a collection in key order."""
