"""The ExecutionGraph: every task of one generation of a job, its attempt, slot and state. Pure."""

from __future__ import annotations

from collections import Counter

from planner.ir.job_graph import JobGraph
from runtime.ids import AttemptId, JobId, SlotId
from runtime.jobmanager.scheduler import GroupSlots, SlotInfo
from runtime.protocol.messages import TaskState

_ENDS = frozenset({TaskState.FINISHED, TaskState.CANCELED, TaskState.FAILED})
_ABORTS = frozenset({TaskState.CANCELING, TaskState.CANCELED, TaskState.FAILED})

TASK_TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    TaskState.CREATED: frozenset({TaskState.SCHEDULED}) | _ABORTS,
    TaskState.SCHEDULED: frozenset({TaskState.DEPLOYING}) | _ABORTS,
    TaskState.DEPLOYING: frozenset({TaskState.INITIALIZING}) | _ABORTS,
    TaskState.INITIALIZING: frozenset({TaskState.RUNNING, TaskState.FINISHED}) | _ABORTS,
    TaskState.RUNNING: frozenset({TaskState.FINISHED}) | _ABORTS,
    TaskState.CANCELING: frozenset({TaskState.FINISHED, TaskState.CANCELED, TaskState.FAILED}),
    TaskState.FINISHED: frozenset(),
    TaskState.CANCELED: frozenset(),
    TaskState.FAILED: frozenset(),
}
"""Legal moves; a report of anything else is stale and changes nothing. From INITIALIZING to FINISHED go the tasks of a
job that a savepoint has stopped."""


class ExecutionGraph:
    """Tasks by attempt. Attempt numbers rise with every generation, because every generation starts every task."""

    def __init__(self, graph: JobGraph, job_id: JobId, generation: int) -> None:
        self.graph = graph
        self.job_id = job_id
        self.generation = generation
        self._states: dict[AttemptId, TaskState] = {
            AttemptId(job_id, generation, vertex.id, index, generation - 1): TaskState.CREATED
            for vertex in graph.vertices
            for index in range(vertex.parallelism)
        }
        self._slots: dict[AttemptId, SlotInfo] = {}

    @property
    def attempts(self) -> tuple[AttemptId, ...]:
        return tuple(self._states)

    def attempt(self, vertex_id: int, subtask_index: int) -> AttemptId:
        return AttemptId(self.job_id, self.generation, vertex_id, subtask_index, self.generation - 1)

    def knows(self, attempt: AttemptId) -> bool:
        return attempt in self._states

    def state(self, attempt: AttemptId) -> TaskState:
        return self._states[attempt]

    def move(self, attempt: AttemptId, state: TaskState) -> bool:
        """False, and nothing changes, when the move is not legal (late or doubled report)."""
        if state not in TASK_TRANSITIONS[self._states[attempt]]:
            return False
        self._states[attempt] = state
        return True

    def move_all(self, state: TaskState) -> None:
        """Moves every task for which this is legal."""
        for attempt in self._states:
            self.move(attempt, state)

    def assign(self, slots: GroupSlots) -> None:
        """Slot i of a group gets subtask i of each of its vertices."""
        for vertex in self.graph.vertices:
            for index in range(vertex.parallelism):
                self._slots[self.attempt(vertex.id, index)] = slots[vertex.slot_sharing_group][index]

    def slot(self, attempt: AttemptId) -> SlotInfo:
        return self._slots[attempt]

    @property
    def slots(self) -> tuple[SlotInfo, ...]:
        """Every slot in use, once, in order of id."""
        return tuple(sorted(set(self._slots.values()), key=lambda slot: slot.slot_id))

    def attempts_in(self, slot_id: SlotId) -> tuple[AttemptId, ...]:
        return tuple(attempt for attempt, slot in self._slots.items() if slot.slot_id == slot_id)

    def all_in(self, *states: TaskState) -> bool:
        return all(state in states for state in self._states.values())

    @property
    def all_ended(self) -> bool:
        return self.all_in(*_ENDS)

    def counts(self, vertex_id: int) -> dict[str, int]:
        """TaskState name → tasks of the vertex in it."""
        return dict(Counter(state.value for attempt, state in self._states.items() if attempt.vertex_id == vertex_id))


def group_sizes(graph: JobGraph) -> dict[str, int]:
    """Slots needed by each slot-sharing group: its largest parallelism."""
    sizes: dict[str, int] = {}
    for vertex in graph.vertices:
        sizes[vertex.slot_sharing_group] = max(sizes.get(vertex.slot_sharing_group, 0), vertex.parallelism)
    return sizes
