"""The cluster's slots and who waits for them. Pure.

A job asks per slot-sharing group for as many slots as the group's largest parallelism and gets all or none: requests
are served in order of arrival, a smaller one may pass one that does not fit yet. A job's slots are spread over the
TaskManagers with most free slots. A slot serves one job once: what is released leaves the pool, its successor is new.
"""

from __future__ import annotations

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
    job_id: JobId
    group_sizes: dict[str, int]


class SlotsReleased(msgspec.Struct, frozen=True):
    """The job wants no slots (any more), also when it still waits."""

    job_id: JobId


SchedulerEvent = SlotAdded | SlotRemoved | SlotsRequested | SlotsReleased


class GrantSlots(msgspec.Struct, frozen=True):
    job_id: JobId
    slots: GroupSlots


class ReportMissing(msgspec.Struct, frozen=True):
    """The job waits for that many more slots."""

    job_id: JobId
    missing: int


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
        self._waiting: dict[JobId, dict[str, int]] = {}

    @property
    def slots_total(self) -> int:
        return len(self._free) + len(self._used)

    @property
    def slots_free(self) -> int:
        return len(self._free)

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
            case SlotsRequested(job_id=job_id, group_sizes=sizes):
                self._waiting[job_id] = sizes
                return self._serve()
            case SlotsReleased(job_id=job_id):
                self._waiting.pop(job_id, None)
                ended = [slot for owner, slot in self._used.values() if owner == job_id]
                for slot in ended:
                    del self._used[slot.slot_id]
                return [EndSlot(slot) for slot in ended]
            case _ as unknown:
                assert_never(unknown)

    def validate(self) -> None:
        """Invariants; tests call it after each event."""
        assert not set(self._free) & set(self._used)

    def _serve(self) -> list[SchedulerCommand]:
        commands: list[SchedulerCommand] = []
        for job_id, sizes in list(self._waiting.items()):
            missing = sum(sizes.values()) - len(self._free)
            if missing > 0:
                commands.append(ReportMissing(job_id, missing))
                continue
            del self._waiting[job_id]
            granted = {group: tuple(self._take(job_id) for _ in range(size)) for group, size in sorted(sizes.items())}
            commands.append(GrantSlots(job_id, granted))
        return commands

    def _take(self, job_id: JobId) -> SlotInfo:
        """A slot of the TaskManager with most free ones; by name among equals, so that the choice is repeatable."""
        free_counts: dict[TaskManagerId, int] = {}
        for slot in self._free.values():
            free_counts[slot.task_manager_id] = free_counts.get(slot.task_manager_id, 0) + 1
        best = min(self._free.values(), key=lambda s: (-free_counts[s.task_manager_id], s.task_manager_id, s.slot_id))
        del self._free[best.slot_id]
        self._used[best.slot_id] = (job_id, best)
        return best
