"""TaskManagers and their slot processes: what passes between the JobManager and tasks, and who ends whom when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from runtime.ids import AttemptId, JobId, SlotId, TaskManagerId
from runtime.protocol import messages as m
from runtime.protocol.messages import DeployTasks
from tests.simulation.channels import Output
from tests.simulation.kernel import Kernel, Link, Process, Signal, Steps
from tests.simulation.task import Task

if TYPE_CHECKING:
    from tests.simulation.cluster import World

CONNECT_RETRY_MS = 8
LOSS_TIMEOUT_MS = 400


class Slot(Process):
    """A slot process: serves one job once."""

    def __init__(self, manager: TaskManager, slot_id: SlotId) -> None:
        super().__init__(manager.kernel, str(slot_id))
        self.world: World = manager.world
        self.slot_id = slot_id
        self.busy = False
        self._job_id: JobId | None = None
        self._generation = 0
        self.tasks: dict[AttemptId, Task] = {}
        self._started: set[AttemptId] = set()
        self._pipe = Link(manager, self, f"pipe of {slot_id}")
        self._pipe.receive = [manager.from_slot, self._handle]
        self._pipe.lost = [lambda link: manager.slot_ended(self), lambda link: self.kill()]

    def send(self, message: Any) -> None:
        """Towards the JobManager."""
        self._pipe.send(self, message)

    def pass_on(self, message: Any) -> None:
        """From the JobManager, called by the supervisor."""
        self._pipe.send(self.manager, message)

    @property
    def manager(self) -> TaskManager:
        manager = self._pipe.ends[0]
        assert isinstance(manager, TaskManager)
        return manager

    def on_death(self) -> None:
        self.world.files.lose_unsealed(self)
        self.world.slots.pop(self.slot_id, None)

    def _handle(self, message: Any) -> None:
        match message:
            case DeployTasks():
                self._deploy(message)
            case m.AssignSplits(attempt=attempt):
                task = self.tasks.get(attempt)
                if task is not None:
                    task.deliver(message)
            case m.StartTasks(attempts=attempts):
                for task in self._current(message, attempts):
                    self._started.add(task.attempt)
                    task.deliver(message)
            case m.TriggerCheckpoint(attempts=attempts):
                for task in self._current(message, attempts):
                    task.deliver(message)
            case m.CancelTasks(attempts=attempts):
                for task in self._current(message, attempts):
                    task.cancel()
            case m.CommitCheckpoint() | m.AbortCheckpoint() | m.EndSources():
                # A task that restarts is still restoring what is committed: what the others are told is not for it.
                named = message.attempts if isinstance(message, m.EndSources) else ()
                for task in self._current(message, named or tuple(self.tasks)):
                    if task.attempt in self._started:
                        task.deliver(message)

    def _current(self, message: Any, attempts: Sequence[AttemptId]) -> list[Task]:
        if message.job_id != self._job_id or message.generation != self._generation:
            return []
        return [self.tasks[attempt] for attempt in attempts if attempt in self.tasks]

    def _deploy(self, message: DeployTasks) -> None:
        if self._job_id not in (None, message.job_id) or message.generation < self._generation:
            return
        if message.generation > self._generation:
            for task in self.tasks.values():
                task.cancel()
        self.tasks = {attempt: task for attempt, task in self.tasks.items() if not task.over}
        self._started &= self.tasks.keys()
        self._job_id, self._generation = message.job_id, message.generation
        made = []
        for descriptor in message.tasks:
            self.send(m.TaskStateChanged(descriptor.attempt, m.TaskState.INITIALIZING))
            task = Task(self, descriptor)
            self.world.checks.deployed(task)
            self.tasks[descriptor.attempt] = task
            made.append(task)
        for task in made:
            self._connect(task)
        for task in made:
            task.start()

    def _connect(self, task: Task) -> None:
        """With those of its peers that are there already; the others will come."""
        for output in task.descriptor.outputs:
            for end in output.consumers:
                consumer = self.world.task(end.address.slot_id, end.attempt)
                if consumer is not None:
                    connect(task, consumer)
        for edge in task.descriptor.inputs:
            for end in edge.producers:
                producer = self.world.task(end.address.slot_id, end.attempt)
                if producer is not None:
                    connect(producer, task)


def connect(producer: Task, consumer: Task) -> None:
    index = consumer.attempt.subtask_index
    if index in producer.outputs.by_consumer:
        return
    producer.outputs.by_consumer[index] = Output(producer, consumer, producer.attempt.subtask_index)
    producer.signal.notify()


class TaskManager(Process):
    """The supervisor of slots."""

    def __init__(self, kernel: Kernel, world: World, number: int, slots: int) -> None:
        world.incarnations += 1
        super().__init__(kernel, f"tm{number}.{world.incarnations}")
        self.world: World = world
        self.number = number
        self.id = TaskManagerId(self.name)
        self.slots: dict[SlotId, Slot] = {}
        self._slot_count = slots
        self._incarnation = 0
        self._link: Link | None = None
        self._lost = Signal()
        self._lost_at_ms = kernel.now_ms
        self.start(self._keep_registered())

    def _keep_registered(self) -> Steps:
        while True:
            leader = self.world.leading()
            if leader is not None and leader.alive and not leader.paused:
                link = Link(self, leader, f"{self.name} to {leader.name}")
                link.lost[0] = self._connection_lost
                leader.accept(link, self)
                self._link = link
                yield None
                yield self._lost
            if self._link is None and self.kernel.now_ms - self._lost_at_ms > LOSS_TIMEOUT_MS:
                self._end_busy_slots()
            yield CONNECT_RETRY_MS

    def registered(self, link: Link) -> None:
        """The JobManager has accepted it as leader."""
        if link is not self._link:
            return
        self._end_busy_slots()
        for slot in self.slots.values():
            if slot.alive and not slot.busy:
                link.send(self, ("slot", slot.slot_id))
        self._fill()

    def _connection_lost(self, link: Link) -> None:
        if link is self._link:
            self._link = None
            self._lost_at_ms = self.kernel.now_ms
            self._lost.notify()

    def _end_busy_slots(self) -> None:
        for slot in list(self.slots.values()):
            if slot.busy:
                slot.kill()

    def _fill(self) -> None:
        while len(self.slots) < self._slot_count:
            self._incarnation += 1
            slot_id = SlotId(f"{self.name}/{self._incarnation}")
            slot = Slot(self, slot_id)
            self.children.append(slot)
            self.slots[slot_id] = self.world.slots[slot_id] = slot
            if self._link is not None:
                self._link.send(self, ("slot", slot_id))

    def slot_ended(self, slot: Slot) -> None:
        self.slots.pop(slot.slot_id, None)
        if slot in self.children:
            self.children.remove(slot)
        if self._link is not None:
            self._link.send(self, ("slot lost", slot.slot_id))
            self._fill()

    def from_slot(self, message: Any) -> None:
        if self._link is not None:
            self._link.send(self, message)

    def from_job_manager(self, message: Any) -> None:
        if isinstance(message, tuple):
            return
        slot = self.slots.get(message.slot_id)
        if slot is None:
            return
        if isinstance(message, m.ReleaseSlot):
            slot.kill()
            return
        slot.busy = slot.busy or isinstance(message, DeployTasks)
        slot.pass_on(message)
