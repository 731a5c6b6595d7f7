"""Every message between JobManager, TaskManager supervisor and slot process. Tagged unions, msgpack frames.

Three parties, one vocabulary: the supervisor passes messages for tasks on to the slot named in them, and messages
from its slots up to the JobManager. Every message about a task carries its attempt: what is older than what the
receiver knows is *stale*, answered as such or dropped, and changes nothing. `PROTOCOL_VERSION` is checked at
registration.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from connectors.api import SplitState
from runtime.checkpoint.snapshot import SubtaskSnapshot
from runtime.ids import AttemptId, JobId, SlotId, TaskManagerId
from runtime.protocol.descriptors import TaskDescriptor

PROTOCOL_VERSION = 2


class _Message(msgspec.Struct, frozen=True, tag=True, tag_field="message"):
    """Base of all messages: tagged by class name."""


class TaskState(StrEnum):
    """States of a task attempt, with Flink's names."""

    CREATED = "CREATED"
    SCHEDULED = "SCHEDULED"
    DEPLOYING = "DEPLOYING"
    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    FAILED = "FAILED"


class Failure(msgspec.Struct, frozen=True):
    """An error as it travels. `domain` is user, external or internal; `retry` False = restarting cannot help.
    `detail` is for logs only, never shown to a user unless asked for. `damaged_file`: the file of the restored
    checkpoint that is not what was written (its path among the job's files)."""

    message: str
    domain: str
    retry: bool
    hint: str = ""
    detail: str = ""
    damaged_file: str = ""


# ------------------------------------------ registration and liveness (TaskManager ⇄ JobManager)


class SlotOffer(msgspec.Struct, frozen=True):
    """A warm slot process, ready for one job. `data_port` is where its exchange listens."""

    slot_id: SlotId
    data_port: int
    managed_bytes: int
    pid: int = 0


class RegisterTaskManager(_Message, frozen=True):
    """First message of a connection, TaskManager → JobManager. Only a leader with a higher token than `above_token`
    may accept: the TaskManager has one of that token, or looks for one that is at least as new as its last."""

    task_manager_id: TaskManagerId
    version: int
    host: str
    pid: int
    slot_count: int
    slots: tuple[SlotOffer, ...]
    memory_bytes: int
    above_token: int = -1


class RegistrationAccepted(_Message, frozen=True):
    """Everything that follows on this connection is said under this leader token."""

    leader_token: int
    heartbeat_interval_ms: int
    heartbeat_timeout_ms: int


class RegistrationRefused(_Message, frozen=True):
    """`mismatch`: the versions do not fit, somebody should know. Otherwise another JobManager leads."""

    reason: str
    mismatch: bool = False


class Heartbeat(_Message, frozen=True):
    """Both directions."""

    sent_at_ms: int


class SlotReady(_Message, frozen=True):
    """A new slot process has started (after registration, or as the successor of one that ended)."""

    offer: SlotOffer


class SlotLost(_Message, frozen=True):
    """A slot process ended. Its tasks are failed by this message."""

    slot_id: SlotId
    reason: str


class ReleaseSlot(_Message, frozen=True):
    """JobManager → TaskManager: the job is done with the slot; its process ends and a successor starts."""

    slot_id: SlotId


# --------------------------------------------------------------------------------------- tasks (JobManager → slot)


class DeployTasks(_Message, frozen=True):
    """All tasks of one job for one slot. Answered by TaskStateChanged per task."""

    slot_id: SlotId
    job_id: JobId
    generation: int
    tasks: tuple[TaskDescriptor, ...]


class StartTasks(_Message, frozen=True):
    """GO: every task of the job, or of the regions that restart, has reported INITIALIZED; sources may read. For those
    named."""

    slot_id: SlotId
    job_id: JobId
    generation: int
    attempts: tuple[AttemptId, ...]


class AssignSplits(_Message, frozen=True):
    """New splits for one source task. `operator_uid` names the source in the chain."""

    slot_id: SlotId
    attempt: AttemptId
    operator_uid: str
    splits: tuple[SplitState, ...]
    all_assigned: bool
    """True when no split will ever follow: a reader with none left ends."""


class TriggerCheckpoint(_Message, frozen=True):
    """Put a barrier into the listed tasks: sources, and tasks whose inputs have all ended. `stop` as in Barrier.
    `aligned_timeout_ms`: after how long barriers overtake what is in flight (0 = at once, None = never). `full`: every
    state is written whole. `committed_id`: the latest durable checkpoint, 0 = none."""

    slot_id: SlotId
    job_id: JobId
    generation: int
    checkpoint_id: int
    attempts: tuple[AttemptId, ...]
    stop: bool = False
    aligned_timeout_ms: int | None = None
    full: bool = False
    committed_id: int = 0


class CommitCheckpoint(_Message, frozen=True):
    """The manifest is durable and the pointer moved: sinks commit, sources may publish offsets. For every task in the
    slot that has been started."""

    slot_id: SlotId
    job_id: JobId
    generation: int
    checkpoint_id: int


class AbortCheckpoint(_Message, frozen=True):
    """For every task in the slot that has been started."""

    slot_id: SlotId
    job_id: JobId
    generation: int
    checkpoint_id: int


class EndSources(_Message, frozen=True):
    """Source tasks end as if their input had: a LIMIT is satisfied, or the job is drained. For those named, or, if none
    is, for all in the slot; only for tasks that have been started."""

    slot_id: SlotId
    job_id: JobId
    generation: int
    attempts: tuple[AttemptId, ...] = ()


class CancelTasks(_Message, frozen=True):
    """End these tasks; answered by TaskStateChanged CANCELED (or by SlotLost)."""

    slot_id: SlotId
    job_id: JobId
    generation: int
    attempts: tuple[AttemptId, ...]


# --------------------------------------------------------------------------------------- tasks (slot → JobManager)


class TaskStateChanged(_Message, frozen=True):
    """The slot's word on a task: INITIALIZING when deployed, RUNNING after StartTasks, then FINISHED, CANCELED or
    FAILED."""

    attempt: AttemptId
    state: TaskState
    failure: Failure | None = None


class TaskInitialized(_Message, frozen=True):
    """State is restored and sinks are recovered. `markers`: sink operator uid → owner → checkpoint id of its marker."""

    attempt: AttemptId
    markers: dict[str, dict[int, int]] = {}


class CheckpointAcknowledged(_Message, frozen=True):
    """`is_unaligned`: the barrier has overtaken elements here; `persisted_bytes` of them are in the snapshot."""

    attempt: AttemptId
    checkpoint_id: int
    snapshot: SubtaskSnapshot
    sync_ms: float = 0.0
    async_ms: float = 0.0
    alignment_ms: float = 0.0
    persisted_bytes: int = 0
    is_unaligned: bool = False


class CheckpointDeclined(_Message, frozen=True):
    attempt: AttemptId
    checkpoint_id: int
    failure: Failure


class CheckpointCommitted(_Message, frozen=True):
    """All sinks of the task have committed `checkpoint_id`. Sent by every task that has a sink, also one that
    commits nothing."""

    attempt: AttemptId
    checkpoint_id: int


class InputsEnded(_Message, frozen=True):
    """The task has seen the end of all its inputs (a source: of all its splits), has fired what was due and waits:
    it is FINISHED once a checkpoint taken after this is committed. Such tasks get barriers from the JobManager."""

    attempt: AttemptId


class LimitReached(_Message, frozen=True):
    attempt: AttemptId


class CheckpointRequested(_Message, frozen=True):
    """A sink passed its soft limit and wants a checkpoint now."""

    attempt: AttemptId


class TaskMetrics(msgspec.Struct, frozen=True):
    """Figures of one task since its start. Gauges by name; times in ms per second sum to 1,000 (busy +
    backpressured + idle). `operators`: operator uid → counter or gauge name → value."""

    attempt: AttemptId
    records_in: int
    records_out: int
    bytes_in: int
    bytes_out: int
    busy_ms_per_second: float
    backpressured_ms_per_second: float
    idle_ms_per_second: float
    cpu_ms_per_second: float
    watermark_ms: int | None
    operators: dict[str, dict[str, float]] = {}


class SlotReport(_Message, frozen=True):
    """Slot → supervisor → JobManager, every 2 s and at the end of a task."""

    slot_id: SlotId
    rss_bytes: int
    tasks: tuple[TaskMetrics, ...]


# --------------------------------------------------------------------------------------- supervisor ⇄ slot process


class SlotStarted(_Message, frozen=True):
    """First message of a slot process to its supervisor."""

    pid: int
    data_port: int


class Ping(_Message, frozen=True):
    number: int


class Pong(_Message, frozen=True):
    """Answered by the slot's control thread. `progress`: attempt → monotonic count of loop turns."""

    number: int
    progress: dict[str, int]


ToSlot = (
    DeployTasks
    | StartTasks
    | AssignSplits
    | TriggerCheckpoint
    | CommitCheckpoint
    | AbortCheckpoint
    | EndSources
    | CancelTasks
)
"""What the JobManager sends to a slot; the supervisor passes it on."""

FromSlot = (
    TaskStateChanged
    | TaskInitialized
    | CheckpointAcknowledged
    | CheckpointDeclined
    | CheckpointCommitted
    | InputsEnded
    | LimitReached
    | CheckpointRequested
    | SlotReport
)
"""What a slot sends to the JobManager; the supervisor passes it on."""

Message = (
    RegisterTaskManager
    | RegistrationAccepted
    | RegistrationRefused
    | Heartbeat
    | SlotReady
    | SlotLost
    | ReleaseSlot
    | ToSlot
    | FromSlot
    | SlotStarted
    | Ping
    | Pong
)
