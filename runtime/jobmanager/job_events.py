"""What a JobCore is told and what it asks for. Plain data.

A *restart* of regions has a number; its events and commands carry it, so that what comes late for an earlier one is
told apart.
"""

from __future__ import annotations

import msgspec

from planner.ir.job_graph import JobGraph
from runtime.api import JobState
from runtime.ids import AttemptId, SlotId, TaskManagerId
from runtime.jobmanager.scheduler import GroupSlots, SlotInfo
from runtime.protocol.messages import Failure, TaskState

# ---------------------------------------------------------------------------------------------------------- events


class Started(msgspec.Struct, frozen=True):
    """First event. `ending` is set for a job that an earlier JobManager was cancelling or failing."""

    ending: JobState | None = None


class Ticked(msgspec.Struct, frozen=True):
    """`deadline_ms` has been reached."""


class GenerationPrepared(msgspec.Struct, frozen=True):
    """`stopped`: what it restores is the savepoint that ended the job."""

    generation: int
    stopped: bool = False


class PreparationFailed(msgspec.Struct, frozen=True):
    failure: Failure


class RegionPrepared(msgspec.Struct, frozen=True):
    """What a restart of regions restores is known. `stopped` as above."""

    number: int
    stopped: bool = False


class RegionPreparationFailed(msgspec.Struct, frozen=True):
    number: int
    failure: Failure


class SlotsGranted(msgspec.Struct, frozen=True):
    """The answer to the request of that number."""

    slots: GroupSlots
    number: int = 0


class SlotsShort(msgspec.Struct, frozen=True):
    missing: int
    number: int = 0


class SlotGone(msgspec.Struct, frozen=True):
    """`reason` is a sentence that names the slot or its TaskManager."""

    slot_id: SlotId
    reason: str


class TaskChanged(msgspec.Struct, frozen=True):
    attempt: AttemptId
    state: TaskState
    failure: Failure | None = None


class TaskRecovered(msgspec.Struct, frozen=True):
    """The task is initialized. `markers`: sink uid → owner → checkpoint id."""

    attempt: AttemptId
    markers: dict[str, dict[int, int]]


class GenerationFailed(msgspec.Struct, frozen=True):
    """Something that concerns the whole job went wrong (a checkpoint, split discovery)."""

    failure: Failure


class LimitSatisfied(msgspec.Struct, frozen=True):
    attempt: AttemptId


class GraphReplaced(msgspec.Struct, frozen=True):
    """The job goes on with another graph (another parallelism), durable already, from its latest checkpoint."""

    graph: JobGraph


class CancelRequested(msgspec.Struct, frozen=True):
    failure: Failure | None = None
    """Why, when it was not the user."""


class SinksFenced(msgspec.Struct, frozen=True):
    pass


class ResultDrained(msgspec.Struct, frozen=True):
    """The last page of a query has been fetched."""


class Suspended(msgspec.Struct, frozen=True):
    """The JobManager shuts down."""


JobEvent = (
    Started
    | Ticked
    | GenerationPrepared
    | PreparationFailed
    | RegionPrepared
    | RegionPreparationFailed
    | SlotsGranted
    | SlotsShort
    | SlotGone
    | TaskChanged
    | TaskRecovered
    | GenerationFailed
    | LimitSatisfied
    | GraphReplaced
    | CancelRequested
    | SinksFenced
    | ResultDrained
    | Suspended
)

# -------------------------------------------------------------------------------------------------------- commands


class RecordState(msgspec.Struct, frozen=True):
    """Make the new state durable before going on. `failure` is the reason, if there is one."""

    state: JobState
    failure: Failure | None = None


class RecordFailure(msgspec.Struct, frozen=True):
    """For the job's history. `attempt` None: not of a task. `concurrent`: it came while the job or the region was
    already failing for the last one that was not. `slot`: where the task ran."""

    failure: Failure
    attempt: AttemptId | None = None
    slot: SlotInfo | None = None
    concurrent: bool = False


class PrepareGeneration(msgspec.Struct, frozen=True):
    """Raise the generation durably, then do the blocking work; answer GenerationPrepared or PreparationFailed."""


class LoseTasks(msgspec.Struct, frozen=True):
    """These attempts are no part of the running job any more: checkpoints in flight cannot complete."""

    attempts: tuple[AttemptId, ...]


class PrepareRegion(msgspec.Struct, frozen=True):
    """Find out what is restored, once no checkpoint is being stored; answer RegionPrepared or
    RegionPreparationFailed."""

    number: int


class RequestSlots(msgspec.Struct, frozen=True):
    """All or none. `preferred`: group → per slot the TaskManager it would best be on (None = any)."""

    number: int
    group_sizes: dict[str, int]
    preferred: dict[str, tuple[TaskManagerId | None, ...]] = {}


class WithdrawRequest(msgspec.Struct, frozen=True):
    number: int


class DeployTasks(msgspec.Struct, frozen=True):
    """`number` 0 = all tasks of a generation, else those of a restart of regions."""

    attempts: tuple[AttemptId, ...]
    number: int = 0


class StartTasks(msgspec.Struct, frozen=True):
    """These tasks are initialized: check the markers, let checkpoints go on, let the sources read."""

    attempts: tuple[AttemptId, ...]
    markers: dict[str, dict[int, int]]
    number: int = 0


class EndSources(msgspec.Struct, frozen=True):
    """These source tasks end as if their input had."""

    attempts: tuple[AttemptId, ...]


class CancelTasks(msgspec.Struct, frozen=True):
    attempts: tuple[AttemptId, ...]


class EndSlots(msgspec.Struct, frozen=True):
    """The job is done with these slots."""

    slots: tuple[SlotInfo, ...]


class ReleaseSlots(msgspec.Struct, frozen=True):
    """End the generation: no more checkpoints, every slot process of the job ends."""


class ReportRestart(msgspec.Struct, frozen=True):
    """Every task of a restart runs again, `duration_ms` after the failure. `tasks` of the job's `of_tasks`."""

    duration_ms: int
    tasks: int
    of_tasks: int


class FenceSinks(msgspec.Struct, frozen=True):
    """Answer SinksFenced when every transactional id of the job is fenced."""


JobCommand = (
    RecordState
    | RecordFailure
    | PrepareGeneration
    | LoseTasks
    | PrepareRegion
    | RequestSlots
    | WithdrawRequest
    | DeployTasks
    | StartTasks
    | EndSources
    | CancelTasks
    | EndSlots
    | ReleaseSlots
    | ReportRestart
    | FenceSinks
)
