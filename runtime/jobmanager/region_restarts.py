"""Restarts of regions within a generation. Pure.

    failure → wait (the delay; cancelled tasks end) → prepare → ask slots → deploy → every task initialized → go

All other regions run on meanwhile. What a restart replaces are all tasks of the regions, finished ones too: they are
restored as finished. A slot with tasks of other regions stays and gets the new attempts; one without ends, and its
successor is another. A failure of a region that is being restarted begins its restart again, under a new number.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from planner.ir.job_graph import JobGraph
from runtime.checkpoint.in_flight_plan import TaskKey
from runtime.checkpoint.numbering import add_markers
from runtime.ids import AttemptId, TaskManagerId
from runtime.jobmanager.execution_graph import ENDS, ExecutionGraph, SlotPlace, group_sizes
from runtime.jobmanager.job_events import (
    CancelTasks,
    DeployTasks,
    EndSlots,
    JobCommand,
    LoseTasks,
    PrepareRegion,
    ReportRestart,
    RequestSlots,
    StartTasks,
    WithdrawRequest,
)
from runtime.jobmanager.regions import regions_of
from runtime.jobmanager.scheduler import GroupSlots
from runtime.protocol.messages import TaskState

CANCELLATION_TIMEOUT_MS = 45_000
"""A TaskManager ends slots whose tasks do not end; this is for one that does not answer either."""

_NOT_DEPLOYED = frozenset({TaskState.CREATED, TaskState.SCHEDULED})
_RUNS = frozenset({TaskState.RUNNING, TaskState.FINISHED})


class Phase(StrEnum):
    WAITING = "waiting"
    PREPARING = "preparing"
    SCHEDULED = "scheduled"
    RECOVERING = "recovering"
    STARTED = "started"
    """It may go; only the time until the last task says RUNNING is still measured."""


class _Restart(msgspec.Struct):
    number: int
    keys: frozenset[TaskKey]
    down_since_ms: int
    restart_at_ms: int
    cancel_by_ms: int
    due_ms: int
    """First when its delay is over, then, if tasks still have to end, when they are waited for no longer."""
    phase: Phase = Phase.WAITING
    wanted: dict[str, list[int]] = {}
    """Slots asked for: group → indexes."""
    recovered: set[AttemptId] = set()
    markers: dict[str, dict[int, int]] = {}


class RegionRestarts:
    """Of one generation after the other: numbers and homes outlive them."""

    def __init__(self, graph: JobGraph, *, prefers_homes: bool) -> None:
        """`prefers_homes`: slots are asked for where the place was last."""
        self._regions = regions_of(graph)
        self._prefers_homes = prefers_homes
        self._homes: dict[SlotPlace, TaskManagerId] = {}
        self._restarts: dict[int, _Restart] = {}
        self._last_number = 0

    def begin_generation(self, graph: JobGraph) -> None:
        """Nothing is being restarted; numbers go on."""
        self.clear()
        self._regions = regions_of(graph)

    def clear(self) -> None:
        self._restarts.clear()

    def request_all(self, graph: JobGraph) -> RequestSlots:
        """Slots for every task of a generation."""
        self._last_number += 1
        return self._request(
            self._last_number, {group: list(range(size)) for group, size in group_sizes(graph).items()}
        )

    def _request(self, number: int, wanted: dict[str, list[int]]) -> RequestSlots:
        sizes = {group: len(indexes) for group, indexes in wanted.items()}
        if not self._prefers_homes:
            return RequestSlots(number, sizes)
        preferred = {group: tuple(self._homes.get((group, i)) for i in indexes) for group, indexes in wanted.items()}
        return RequestSlots(number, sizes, preferred)

    def remember_homes(self, execution: ExecutionGraph) -> None:
        """Slots have been assigned."""
        self._homes.update(execution.homes)

    @property
    def is_pending(self) -> bool:
        """Some tasks are not deployed."""
        return any(r.phase not in (Phase.RECOVERING, Phase.STARTED) for r in self._restarts.values())

    @property
    def down_since_ms(self) -> int | None:
        """Since when something has not been running, None when all is."""
        return min((restart.down_since_ms for restart in self._restarts.values()), default=None)

    @property
    def deadline_ms(self) -> int | None:
        return min((r.due_ms for r in self._restarts.values() if r.phase is Phase.WAITING), default=None)

    def keys(self, number: int) -> frozenset[TaskKey]:
        """Tasks of a restart that is under way; none if it is not."""
        restart = self._restarts.get(number)
        return restart.keys if restart is not None else frozenset()

    def affected(self, execution: ExecutionGraph, attempts: Iterable[AttemptId]) -> frozenset[TaskKey]:
        """What must restart when these fail: their regions, and what is being restarted and needs the same task or the
        same new slot."""
        keys = frozenset().union(*(self._regions[attempt.key] for attempt in attempts))
        waiting = [restart.keys for restart in self._active]
        while joined := [other for other in waiting if _belong_together(execution, keys, other)]:
            keys = keys.union(*joined)
            waiting = [other for other in waiting if other not in joined]
        return keys

    def lost_place(self, execution: ExecutionGraph, place: SlotPlace) -> bool:
        """A slot is gone that several restarts were to use again: they must become one."""
        here = set(execution.keys_at(place))
        return sum(not here.isdisjoint(restart.keys) for restart in self._active) > 1

    @property
    def _active(self) -> list[_Restart]:
        return [restart for restart in self._restarts.values() if restart.phase is not Phase.STARTED]

    def is_ending(self, attempt: AttemptId) -> bool:
        """It is to be replaced: that it fails is nothing new."""
        return any(
            attempt.key in restart.keys and restart.phase in (Phase.WAITING, Phase.PREPARING)
            for restart in self._restarts.values()
        )

    # ----------------------------------------------------------------------------------------------------- failure

    def begin(
        self, execution: ExecutionGraph, keys: frozenset[TaskKey], restart_at_ms: int, now_ms: int
    ) -> list[JobCommand]:
        """`keys` are `affected` ones."""
        commands: list[JobCommand] = [LoseTasks(execution.attempts_of(keys))]
        down_since_ms = now_ms
        for old in [restart for restart in self._restarts.values() if restart.keys & keys]:
            if old.phase is Phase.SCHEDULED:
                commands.append(WithdrawRequest(old.number))
            down_since_ms = min(down_since_ms, old.down_since_ms)
            del self._restarts[old.number]
        commands += self._vacate(execution, keys)
        cancel_by_ms = now_ms + CANCELLATION_TIMEOUT_MS
        self._last_number += 1
        number = self._last_number
        restart = _Restart(number, keys, down_since_ms, restart_at_ms, cancel_by_ms, due_ms=restart_at_ms)
        self._restarts[number] = restart
        return commands + self._advance(execution, restart, now_ms)

    def _vacate(self, execution: ExecutionGraph, keys: frozenset[TaskKey]) -> list[JobCommand]:
        ended, cancelled = [], []
        for place in sorted({execution.place(key) for key in keys}):
            slot = execution.slot_at(place)
            here = execution.keys_at(place)
            others = frozenset().union(*(restart.keys for restart in self._active))
            is_shared = not (execution.unfinished | others).isdisjoint(key for key in here if key not in keys)
            if slot is not None and not is_shared:
                ended.append(slot)
                execution.unassign(place)
            for attempt in execution.attempts_of(keys.intersection(here)):
                if slot is None or not is_shared or execution.state(attempt) in _NOT_DEPLOYED:
                    execution.move(attempt, TaskState.CANCELED)
                elif execution.move(attempt, TaskState.CANCELING):
                    cancelled.append(attempt)
        commands: list[JobCommand] = [EndSlots(tuple(ended))] if ended else []
        return [*commands, CancelTasks(tuple(cancelled))] if cancelled else commands

    def on_task_ended(self, execution: ExecutionGraph, attempt: AttemptId, now_ms: int) -> list[JobCommand]:
        for restart in self._restarts.values():
            if attempt.key in restart.keys:
                return self._advance(execution, restart, now_ms)
        return []

    def on_ticked(self, execution: ExecutionGraph, now_ms: int) -> list[JobCommand] | None:
        """None: tasks do not end."""
        commands: list[JobCommand] = []
        for restart in self._restarts.values():
            if restart.phase is not Phase.WAITING or now_ms < restart.due_ms:
                continue
            advanced = self._advance(execution, restart, now_ms)
            if not advanced and now_ms >= restart.cancel_by_ms:
                return None
            commands += advanced
        return commands

    def _advance(self, execution: ExecutionGraph, restart: _Restart, now_ms: int) -> list[JobCommand]:
        if restart.phase is not Phase.WAITING or now_ms < restart.restart_at_ms:
            return []
        if not all(execution.state(attempt) in ENDS for attempt in execution.attempts_of(restart.keys)):
            restart.due_ms = restart.cancel_by_ms
            return []
        restart.phase = Phase.PREPARING
        return [PrepareRegion(restart.number)]

    # ------------------------------------------------------------------------------------------------------- start

    def on_prepared(self, execution: ExecutionGraph, number: int) -> list[JobCommand]:
        restart = self._in_phase(number, Phase.PREPARING)
        if restart is None:
            return []
        restart.phase = Phase.SCHEDULED
        for attempt in execution.replace(restart.keys):
            execution.move(attempt, TaskState.SCHEDULED)
        places = sorted({execution.place(key) for key in restart.keys})
        restart.wanted = {}
        for group, index in places:
            if execution.slot_at((group, index)) is None:
                restart.wanted.setdefault(group, []).append(index)
        if not restart.wanted:
            return self._deploy(execution, restart)
        return [self._request(number, restart.wanted)]

    def on_granted(self, execution: ExecutionGraph, number: int, slots: GroupSlots) -> list[JobCommand]:
        restart = self._in_phase(number, Phase.SCHEDULED)
        if restart is None:
            unused = tuple(slot for found in slots.values() for slot in found)
            return [EndSlots(unused)] if unused else []
        for group, indexes in restart.wanted.items():
            for index, slot in zip(indexes, slots[group], strict=True):
                execution.assign_slot((group, index), slot)
        self.remember_homes(execution)
        return self._deploy(execution, restart)

    def _deploy(self, execution: ExecutionGraph, restart: _Restart) -> list[JobCommand]:
        restart.phase = Phase.RECOVERING
        restart.recovered, restart.markers = set(), {}
        attempts = execution.attempts_of(restart.keys)
        for attempt in attempts:
            execution.move(attempt, TaskState.DEPLOYING)
        return [DeployTasks(attempts, restart.number)]

    def on_recovered(
        self, execution: ExecutionGraph, attempt: AttemptId, markers: dict[str, dict[int, int]]
    ) -> StartTasks | None:
        """With the last one of a restart."""
        restart = next((r for r in self._restarts.values() if attempt.key in r.keys), None)
        if restart is None or restart.phase is not Phase.RECOVERING or attempt in restart.recovered:
            return None
        restart.recovered.add(attempt)
        add_markers(restart.markers, markers)
        if len(restart.recovered) < len(restart.keys):
            return None
        restart.phase = Phase.STARTED
        return StartTasks(execution.attempts_of(restart.keys), restart.markers, restart.number)

    def on_running(self, execution: ExecutionGraph, now_ms: int) -> list[JobCommand]:
        """A task says RUNNING or FINISHED: restarts that are over by that."""
        over = [
            restart
            for restart in self._restarts.values()
            if restart.phase is Phase.STARTED
            and all(execution.state(attempt) in _RUNS for attempt in execution.attempts_of(restart.keys))
        ]
        for restart in over:
            del self._restarts[restart.number]
        of_tasks = len(execution.attempts)
        return [ReportRestart(now_ms - restart.down_since_ms, len(restart.keys), of_tasks) for restart in over]

    def _in_phase(self, number: int, phase: Phase) -> _Restart | None:
        restart = self._restarts.get(number)
        return restart if restart is not None and restart.phase is phase else None


def _belong_together(execution: ExecutionGraph, keys: frozenset[TaskKey], other: frozenset[TaskKey]) -> bool:
    """They have a task in common, or a place that has no slot: only one may ask for it."""
    shared = {execution.place(key) for key in keys} & {execution.place(key) for key in other}
    return bool(keys & other) or any(execution.slot_at(place) is None for place in shared)
