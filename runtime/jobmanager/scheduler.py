"""The cluster's slots and who waits for them. Pure.

A job asks per slot-sharing group for as many slots as the group's largest parallelism (for fewer when only some of its
tasks restart) and gets all or none of a request: requests are served in order of arrival, a smaller one may pass one
that does not fit yet. A slot is taken from the TaskManager that it would best be on, if that has a free one, else from
the one with most. A slot serves one job once: what is released leaves the pool, its successor is new.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

import msgspec

from runtime.ids import JobId, SlotId, TaskManagerId


class SlotInfo(msgspec.Struct, frozen=True):
    """A warm slot. `data_port` is where its exchange listens on `host`."""

    slot_id: SlotId
    task_manager_id: TaskManagerId
    host: str
    data_port: int
    managed_bytes: int
    pid: int


GroupSlots = dict[str, tuple[SlotInfo, ...]]
"""Slot-sharing group → its slots; slot i holds subtask i of every vertex of the group."""


class SlotAdded(msgspec.Struct, frozen=True):
    slot: SlotInfo


class SlotRemoved(msgspec.Struct, frozen=True):
    slot_id: SlotId


class SlotsRequested(msgspec.Struct, frozen=True):
    """`number` tells the job's requests apart. `preferred`: group → per slot a TaskManager (None = any)."""

    job_id: JobId
    group_sizes: dict[str, int]
    number: int = 0
    preferred: dict[str, tuple[TaskManagerId | None, ...]] = {}


class RequestWithdrawn(msgspec.Struct, frozen=True):
    job_id: JobId
    number: int


class SlotsReturned(msgspec.Struct, frozen=True):
    """The job is done with these of its slots."""

    job_id: JobId
    slot_ids: tuple[SlotId, ...]


class SlotsReleased(msgspec.Struct, frozen=True):
    """The job wants no slots (any more), also when it still waits."""

    job_id: JobId


SchedulerEvent = SlotAdded | SlotRemoved | SlotsRequested | RequestWithdrawn | SlotsReturned | SlotsReleased


class GrantSlots(msgspec.Struct, frozen=True):
    job_id: JobId
    slots: GroupSlots
    number: int = 0


class ReportMissing(msgspec.Struct, frozen=True):
    """The request waits for that many more slots."""

    job_id: JobId
    missing: int
    number: int = 0


class EndSlot(msgspec.Struct, frozen=True):
    """Tell the slot's TaskManager that the job is done with it."""

    slot: SlotInfo


class ReportSlotLost(msgspec.Struct, frozen=True):
    """A slot that the job was using is gone."""

    job_id: JobId
    slot_id: SlotId


SchedulerCommand = GrantSlots | ReportMissing | EndSlot | ReportSlotLost


class Scheduler:
    """See the module."""

    def __init__(self) -> None:
        self._free: dict[SlotId, SlotInfo] = {}
        self._used: dict[SlotId, tuple[JobId, SlotInfo]] = {}
        self._waiting: dict[tuple[JobId, int], SlotsRequested] = {}

    @property
    def slots_total(self) -> int:
        return len(self._free) + len(self._used)

    @property
    def slots_free(self) -> int:
        return len(self._free)

    def held_by(self, job_id: JobId) -> int:
        """Slots that the job has."""
        return sum(owner == job_id for owner, _ in self._used.values())

    def knows(self, slot_id: SlotId) -> bool:
        return slot_id in self._free or slot_id in self._used

    def slots_of(self, task_manager_id: TaskManagerId) -> tuple[list[SlotInfo], int]:
        """All slots of a TaskManager, and how many of them are free."""
        free = [slot for slot in self._free.values() if slot.task_manager_id == task_manager_id]
        used = [slot for _, slot in self._used.values() if slot.task_manager_id == task_manager_id]
        return sorted(free + used, key=lambda slot: slot.slot_id), len(free)

    def handle(self, event: SchedulerEvent) -> list[SchedulerCommand]:
        match event:
            case SlotAdded(slot=slot):
                if slot.slot_id not in self._used:
                    self._free[slot.slot_id] = slot
                return self._serve()
            case SlotRemoved(slot_id=slot_id):
                self._free.pop(slot_id, None)
                used = self._used.pop(slot_id, None)
                return [ReportSlotLost(used[0], slot_id)] if used is not None else []
            case SlotsRequested(job_id=job_id, number=number):
                self._waiting[job_id, number] = event
                return self._serve()
            case RequestWithdrawn(job_id=job_id, number=number):
                self._waiting.pop((job_id, number), None)
                return []
            case SlotsReturned(job_id=job_id, slot_ids=slot_ids):
                return self._end(
                    slot for owner, slot in self._used.values() if owner == job_id and slot.slot_id in slot_ids
                )
            case SlotsReleased(job_id=job_id):
                self._waiting = {key: request for key, request in self._waiting.items() if key[0] != job_id}
                return self._end(slot for owner, slot in self._used.values() if owner == job_id)
            case _ as unknown:
                assert_never(unknown)

    def validate(self) -> None:
        """Invariants; tests call it after each event."""
        assert not set(self._free) & set(self._used)

    def _end(self, slots: Iterable[SlotInfo]) -> list[SchedulerCommand]:
        ended = list(slots)
        for slot in ended:
            del self._used[slot.slot_id]
        return [EndSlot(slot) for slot in ended]

    def _serve(self) -> list[SchedulerCommand]:
        commands: list[SchedulerCommand] = []
        for (job_id, number), request in list(self._waiting.items()):
            missing = sum(request.group_sizes.values()) - len(self._free)
            if missing > 0:
                commands.append(ReportMissing(job_id, missing, number))
                continue
            del self._waiting[job_id, number]
            commands.append(GrantSlots(job_id, self._grant(request), number))
        return commands

    def _grant(self, request: SlotsRequested) -> GroupSlots:
        """Wishes first: a slot without one must not take the place of one that has."""
        places = [(group, index) for group, size in sorted(request.group_sizes.items()) for index in range(size)]
        found: dict[tuple[str, int], SlotInfo] = {}
        for group, index in places:
            wishes = request.preferred.get(group, ())
            home = wishes[index] if index < len(wishes) else None
            free = sorted(slot.slot_id for slot in self._free.values() if slot.task_manager_id == home)
            if free:
                found[group, index] = self._take(request.job_id, self._free[free[0]])
        for place in places:
            if place not in found:
                found[place] = self._take(request.job_id, self._best())
        return {
            group: tuple(found[group, index] for index in range(size))
            for group, size in sorted(request.group_sizes.items())
        }

    def _best(self) -> SlotInfo:
        """A slot of the TaskManager with most free ones; by name among equals, so that the choice is repeatable."""
        free_counts: dict[TaskManagerId, int] = {}
        for slot in self._free.values():
            free_counts[slot.task_manager_id] = free_counts.get(slot.task_manager_id, 0) + 1
        return min(self._free.values(), key=lambda s: (-free_counts[s.task_manager_id], s.task_manager_id, s.slot_id))

    def _take(self, job_id: JobId, slot: SlotInfo) -> SlotInfo:
        del self._free[slot.slot_id]
        self._used[slot.slot_id] = (job_id, slot)
        return slot
