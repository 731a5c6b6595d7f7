"""The ExecutionGraph: every task of one generation of a job, its attempt, slot and state. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from planner.ir.job_graph import JobGraph
from runtime.checkpoint.in_flight_plan import TaskKey
from runtime.ids import AttemptId, JobId, SlotId, TaskManagerId
from runtime.jobmanager.scheduler import GroupSlots, SlotInfo
from runtime.protocol.messages import TaskState

SlotPlace = tuple[str, int]
"""Slot-sharing group and index: where subtask `index` of each vertex of the group runs."""

ENDS = frozenset({TaskState.FINISHED, TaskState.CANCELED, TaskState.FAILED})
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
    """The newest attempt of every task of one generation. What belongs to an older one is not known any more."""

    def __init__(self, graph: JobGraph, job_id: JobId, generation: int) -> None:
        self.graph = graph
        self.job_id = job_id
        self.generation = generation
        self._groups = {vertex.id: vertex.slot_sharing_group for vertex in graph.vertices}
        self._newest: dict[TaskKey, AttemptId] = {
            (vertex.id, index): AttemptId(job_id, generation, vertex.id, index, generation - 1)
            for vertex in graph.vertices
            for index in range(vertex.parallelism)
        }
        self._states = dict.fromkeys(self._newest.values(), TaskState.CREATED)
        self._slots: dict[SlotPlace, SlotInfo] = {}

    @property
    def attempts(self) -> tuple[AttemptId, ...]:
        return tuple(self._newest.values())

    def attempt(self, vertex_id: int, subtask_index: int) -> AttemptId:
        return self._newest[vertex_id, subtask_index]

    def attempts_of(self, keys: Iterable[TaskKey]) -> tuple[AttemptId, ...]:
        return tuple(self._newest[key] for key in sorted(keys))

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

    def cancel_all(self) -> tuple[AttemptId, ...]:
        """Every task is CANCELED or, if it is in a slot, CANCELING: those are given back."""
        for attempt, state in list(self._states.items()):
            is_deployed = state not in (TaskState.CREATED, TaskState.SCHEDULED)
            self.move(attempt, TaskState.CANCELING if is_deployed else TaskState.CANCELED)
        return tuple(attempt for attempt, state in self._states.items() if state is TaskState.CANCELING)

    def replace(self, keys: Iterable[TaskKey]) -> tuple[AttemptId, ...]:
        """New attempts of these tasks, CREATED, in the slots of the old ones."""
        for key in keys:
            old = self._newest[key]
            del self._states[old]
            new = msgspec.structs.replace(old, number=old.number + 1)
            self._newest[key] = new
            self._states[new] = TaskState.CREATED
        return self.attempts_of(keys)

    # ------------------------------------------------------------------------------------------------------- slots

    def place(self, key: TaskKey) -> SlotPlace:
        return self._groups[key[0]], key[1]

    def assign(self, slots: GroupSlots) -> None:
        """Slot i of a group gets subtask i of each of its vertices."""
        for group, found in slots.items():
            for index, slot in enumerate(found):
                self.assign_slot((group, index), slot)

    def assign_slot(self, place: SlotPlace, slot: SlotInfo) -> None:
        self._slots[place] = slot

    def unassign(self, place: SlotPlace) -> None:
        self._slots.pop(place, None)

    def slot(self, attempt: AttemptId) -> SlotInfo:
        return self._slots[self.place(attempt.key)]

    def slot_at(self, place: SlotPlace) -> SlotInfo | None:
        return self._slots.get(place)

    def keys_at(self, place: SlotPlace) -> tuple[TaskKey, ...]:
        """Every task whose place this is, whatever its state."""
        return tuple(key for key in self._newest if self.place(key) == place)

    @property
    def homes(self) -> dict[SlotPlace, TaskManagerId]:
        """The TaskManagers of the slots in use."""
        return {place: slot.task_manager_id for place, slot in self._slots.items()}

    @property
    def slots(self) -> tuple[SlotInfo, ...]:
        """Every slot in use, once, in order of id."""
        return tuple(sorted(set(self._slots.values()), key=lambda slot: slot.slot_id))

    def places_in(self, slot_id: SlotId) -> tuple[SlotPlace, ...]:
        return tuple(place for place, slot in self._slots.items() if slot.slot_id == slot_id)

    def attempts_in(self, slot_id: SlotId) -> tuple[AttemptId, ...]:
        places = self.places_in(slot_id)
        return tuple(attempt for key, attempt in self._newest.items() if self.place(key) in places)

    # ------------------------------------------------------------------------------------------------------ states

    def all_in(self, *states: TaskState) -> bool:
        return all(state in states for state in self._states.values())

    @property
    def all_ended(self) -> bool:
        return self.all_in(*ENDS)

    @property
    def unfinished(self) -> frozenset[TaskKey]:
        return frozenset(k for k, attempt in self._newest.items() if self._states[attempt] is not TaskState.FINISHED)

    def counts(self, vertex_id: int) -> dict[str, int]:
        """TaskState name → tasks of the vertex in it."""
        return dict(Counter(state.value for attempt, state in self._states.items() if attempt.vertex_id == vertex_id))


def group_sizes(graph: JobGraph) -> dict[str, int]:
    """Slots needed by each slot-sharing group: its largest parallelism."""
    sizes: dict[str, int] = {}
    for vertex in graph.vertices:
        sizes[vertex.slot_sharing_group] = max(sizes.get(vertex.slot_sharing_group, 0), vertex.parallelism)
    return sizes
