"""Between TaskManagers and jobs: the shell of the scheduler, and the way of every message to and from a slot."""

from __future__ import annotations

from collections.abc import Mapping

from runtime.api import JobState, TaskManagerStatus
from runtime.ids import JobId, SlotId, TaskManagerId
from runtime.jobmanager import job_events as events
from runtime.jobmanager import scheduler as slots
from runtime.jobmanager.endpoint import RegisteredTaskManager, TaskManagerEndpoint
from runtime.jobmanager.job_master import JobMaster
from runtime.protocol.messages import (
    CheckpointAcknowledged,
    CheckpointCommitted,
    CheckpointDeclined,
    CheckpointRequested,
    InputsEnded,
    LimitReached,
    Message,
    ReleaseSlot,
    SlotReport,
    TaskInitialized,
    TaskStateChanged,
    ToSlot,
)

_OfTask = (
    TaskStateChanged
    | TaskInitialized
    | CheckpointAcknowledged
    | CheckpointDeclined
    | CheckpointCommitted
    | InputsEnded
    | LimitReached
    | CheckpointRequested
)

_WANTS_SLOTS = frozenset({JobState.INITIALIZING, JobState.CREATED, JobState.RUNNING, JobState.RESTARTING})


class SlotPool:
    """Listens to the endpoint and provides slots to jobs. `masters` is the JobManager's own table of jobs."""

    def __init__(self, masters: Mapping[JobId, JobMaster]) -> None:
        self._masters = masters
        self._scheduler = slots.Scheduler()
        self._slot_rss: dict[SlotId, int] = {}
        self._endpoint: TaskManagerEndpoint | None = None

    def connect(self, endpoint: TaskManagerEndpoint) -> None:
        """Where messages to slots go. Called once, before any job starts."""
        self._endpoint = endpoint

    @property
    def slots_total(self) -> int:
        return self._scheduler.slots_total

    @property
    def slots_free(self) -> int:
        return self._scheduler.slots_free

    def slots_free_for(self, job_id: JobId) -> int:
        """What is free and not about to be asked for by another job, one between two of its generations for example."""
        claimed = sum(
            max(0, master.graph.slot_count - self._scheduler.held_by(other))
            for other, master in self._masters.items()
            if other != job_id and master.status().state in _WANTS_SLOTS
        )
        return max(0, self.slots_free - claimed)

    def status(self, task_manager: RegisteredTaskManager) -> TaskManagerStatus:
        all_slots, free = self._scheduler.slots_of(task_manager.id)
        return TaskManagerStatus(
            task_manager.id,
            task_manager.host,
            task_manager.pid,
            len(all_slots),
            free,
            task_manager.memory_bytes,
            task_manager.heard_at_wall_ms,
            tuple(slot.pid for slot in all_slots),
            tuple(self._slot_rss.get(slot.slot_id, 0) for slot in all_slots),
        )

    # --------------------------------------------------------------------------------------- listener of the endpoint

    def slot_added(self, slot: slots.SlotInfo) -> None:
        self._schedule(slots.SlotAdded(slot))

    def slot_removed(self, slot_id: SlotId, reason: str) -> None:
        self._slot_rss.pop(slot_id, None)
        self._schedule(slots.SlotRemoved(slot_id), reason)

    def slots_of(self, task_manager_id: TaskManagerId) -> list[slots.SlotInfo]:
        return self._scheduler.slots_of(task_manager_id)[0]

    def message_received(self, message: Message) -> None:
        if isinstance(message, SlotReport):
            if self._scheduler.knows(message.slot_id):
                self._slot_rss[message.slot_id] = message.rss_bytes
            for metrics in message.tasks:
                master = self._masters.get(metrics.attempt.job_id)
                if master is not None:
                    master.report(metrics)
        elif isinstance(message, _OfTask):
            master = self._masters.get(message.attempt.job_id)
            if master is not None:
                master.receive(message)

    # ------------------------------------------------------------------------------------------ provider of the slots

    def request_slots(self, job_id: JobId, request: events.RequestSlots) -> None:
        self._schedule(slots.SlotsRequested(job_id, request.group_sizes, request.number, request.preferred))

    def withdraw_request(self, job_id: JobId, number: int) -> None:
        self._schedule(slots.RequestWithdrawn(job_id, number))

    def return_slots(self, job_id: JobId, ended: tuple[slots.SlotInfo, ...]) -> None:
        self._schedule(slots.SlotsReturned(job_id, tuple(slot.slot_id for slot in ended)))

    def release_slots(self, job_id: JobId) -> None:
        self._schedule(slots.SlotsReleased(job_id))

    def send(self, slot: slots.SlotInfo, message: ToSlot | ReleaseSlot) -> None:
        if self._endpoint is not None:
            self._endpoint.send(slot, message)

    def _schedule(self, event: slots.SchedulerEvent, reason: str = "") -> None:
        for command in self._scheduler.handle(event):
            match command:
                case slots.GrantSlots(job_id=job_id, slots=granted, number=number):
                    self._masters[job_id].post(events.SlotsGranted(granted, number))
                case slots.ReportMissing(job_id=job_id, missing=missing, number=number):
                    self._masters[job_id].post(events.SlotsShort(missing, number))
                case slots.ReportSlotLost(job_id=job_id, slot_id=slot_id):
                    self._masters[job_id].post(events.SlotGone(slot_id, reason))
                case slots.EndSlot(slot=slot):
                    self._slot_rss.pop(slot.slot_id, None)
                    self.send(slot, ReleaseSlot(slot.slot_id))
