"""What the checkpoint coordinator is told, and what it answers with."""

from __future__ import annotations

import msgspec

from runtime.checkpoint.snapshot import SubtaskSnapshot
from runtime.ids import AttemptId
from runtime.protocol.messages import Failure


class TaskRole(msgspec.Struct, frozen=True):
    """What the coordinator knows of a task. `injects`: it has no input edge, barriers start there. `commits`: it has a
    sink and answers every commit."""

    attempt: AttemptId
    injects: bool
    commits: bool


SinkOwner = tuple[str, int]
"""Sink operator uid and owner number."""


# ---------------------------------------------------------------------------------------------------------- events


class Ticked(msgspec.Struct, frozen=True):
    """`deadline_ms` has been reached."""


class SubtaskTimings(msgspec.Struct, frozen=True):
    """How long a task's part of a checkpoint took, as the task measured it, and how it was taken."""

    sync_ms: float = 0.0
    async_ms: float = 0.0
    alignment_ms: float = 0.0
    is_unaligned: bool = False


class SubtaskAcked(msgspec.Struct, frozen=True):
    """`timings` are for the figures only."""

    attempt: AttemptId
    checkpoint_id: int
    snapshot: SubtaskSnapshot
    timings: SubtaskTimings = SubtaskTimings()


class SubtaskDeclined(msgspec.Struct, frozen=True):
    attempt: AttemptId
    checkpoint_id: int
    failure: Failure


class SubtaskCommitted(msgspec.Struct, frozen=True):
    attempt: AttemptId
    checkpoint_id: int


class SavepointWanted(msgspec.Struct, frozen=True):
    """A user asks for a savepoint below `directory`; `stop` ends the job with it, `drain` after all that is due."""

    trigger_id: str
    directory: str
    stop: bool = False
    drain: bool = False


class TaskInputsEnded(msgspec.Struct, frozen=True):
    attempt: AttemptId


class TaskFinished(msgspec.Struct, frozen=True):
    attempt: AttemptId


class CheckpointWanted(msgspec.Struct, frozen=True):
    """A sink passed its soft limit."""

    attempt: AttemptId


class CheckpointStored(msgspec.Struct, frozen=True):
    """The manifest is durable and the pointer has moved."""

    checkpoint_id: int


class StoreFailed(msgspec.Struct, frozen=True):
    """The pointer has certainly not moved."""

    checkpoint_id: int
    failure: Failure


class TasksLost(msgspec.Struct, frozen=True):
    """These attempts have ended or are being ended, and new ones will take their places: all tasks of a region."""

    attempts: tuple[AttemptId, ...]


class TasksReplaced(msgspec.Struct, frozen=True):
    """The new attempts have restored the latest committed checkpoint, their sinks have resolved what it holds, and
    they run. Each takes the place of the attempt of the same vertex and subtask."""

    roles: tuple[TaskRole, ...]


CoordinatorEvent = (
    Ticked
    | SubtaskAcked
    | SubtaskDeclined
    | SubtaskCommitted
    | TaskInputsEnded
    | TaskFinished
    | CheckpointWanted
    | SavepointWanted
    | CheckpointStored
    | StoreFailed
    | TasksLost
    | TasksReplaced
)


# -------------------------------------------------------------------------------------------------------- commands


class ReserveCheckpointId(msgspec.Struct, frozen=True):
    """Make `next checkpoint id = checkpoint_id + 1` durable before going on to the next command. `savepoint`: the
    wish it will fulfil."""

    checkpoint_id: int
    savepoint: SavepointWanted | None = None


class SendBarriers(msgspec.Struct, frozen=True):
    """`stop`: sources give nothing after the barrier until they hear of the checkpoint's commit or abort. `full`: every
    state is written whole. `aligned_timeout_ms`: how long a task waits for the barriers of its other inputs before they
    overtake what is in flight (0 = not at all, None = for ever: savepoints are aligned). `committed_id`: the latest
    checkpoint of this generation whose commit has been sent (0 = none yet)."""

    checkpoint_id: int
    attempts: tuple[AttemptId, ...]
    stop: bool = False
    full: bool = False
    aligned_timeout_ms: int | None = None
    committed_id: int = 0


class EndSources(msgspec.Struct, frozen=True):
    """Sources end as if their input had (drain)."""


class StoreCheckpoint(msgspec.Struct, frozen=True):
    """Verify the files, write the manifest, move the pointer; answer with CheckpointStored or StoreFailed. `floors`:
    per sink owner the highest epoch whose commit was acknowledged. With a `savepoint` everything is copied to it
    first, and the pointer moves only if it stops the job."""

    checkpoint_id: int
    snapshots: tuple[SubtaskSnapshot, ...]
    floors: dict[SinkOwner, int]
    triggered_at_ms: int
    savepoint: SavepointWanted | None = None


class SendCommit(msgspec.Struct, frozen=True):
    checkpoint_id: int


class SendAbort(msgspec.Struct, frozen=True):
    """The checkpoint is given up. `snapshots`: what had been written for it, which nobody needs."""

    checkpoint_id: int
    reason: str
    snapshots: tuple[SubtaskSnapshot, ...] = ()


class DiscardSnapshots(msgspec.Struct, frozen=True):
    """What was written for this checkpoint can go: it had been given up before the ack came, or a savepoint has its
    copy. Epochs of sinks are not meant, their writers remove them."""

    checkpoint_id: int
    snapshots: tuple[SubtaskSnapshot, ...]


class CheckpointCompleted(msgspec.Struct, frozen=True):
    """Every sink has committed: older checkpoints may be removed."""

    checkpoint_id: int
    duration_ms: int


class SavepointTaken(msgspec.Struct, frozen=True):
    """The savepoint is complete; one that stops the job: its sinks have committed, the tasks end by themselves."""

    wanted: SavepointWanted


class SavepointFailed(msgspec.Struct, frozen=True):
    trigger_id: str
    failure: Failure


class FailJob(msgspec.Struct, frozen=True):
    failure: Failure


class Ignored(msgspec.Struct, frozen=True):
    """The event was late, doubled or not of this generation: nothing changed."""

    reason: str


CoordinatorCommand = (
    ReserveCheckpointId
    | SendBarriers
    | EndSources
    | StoreCheckpoint
    | SendCommit
    | SendAbort
    | DiscardSnapshots
    | CheckpointCompleted
    | SavepointTaken
    | SavepointFailed
    | FailJob
    | Ignored
)
