"""The sink of the model job: rows go to a write-ahead file, committed epochs to the model broker. What it decides is
decided by the connector's own cores (`connectors.kafka.commits`, `connectors.kafka.protocol`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from connectors.api import Committable
from connectors.kafka import commits
from connectors.kafka.protocol import Marker, Redo, marker_for
from runtime.checkpoint.snapshot import OperatorRestore
from tests.simulation.broker import CLIENT_GIVES_UP_MS, Busy, Fenced
from tests.simulation.kernel import Steps
from tests.simulation.store import File
from tests.simulation.workload import Output

if TYPE_CHECKING:
    from tests.simulation.task import Task


class TaskFailed(Exception):
    """The attempt ends; the JobManager decides what follows."""


def transactional_id(namespace: str, owner: int) -> str:
    return f"{namespace}-{owner}"


class Client:
    """The transactions of one owner by one producer instance."""

    def __init__(self, task: Task, namespace: str, owner: int) -> None:
        self._task = task
        self._broker = task.world.broker
        self._namespace = namespace
        self.owner = owner
        self.id = transactional_id(namespace, owner)
        self.epoch = -1

    def fence(self) -> Steps:
        def initialize() -> None:
            self.epoch = self._broker.initialize(self.id)

        yield from self._request(initialize, "fence")

    def publish(self, epochs: Sequence[Redo]) -> Steps:
        """Rows of all epochs and the marker in one transaction; a long epoch in parts, each with its marker."""
        for epoch in epochs:
            committable, sent = epoch.committable, epoch.skip
            rows: list[Output] = self._task.read(committable.file)
            if len(rows) != committable.record_count:
                raise TaskFailed(f"{committable.file} is damaged")
            while sent < len(rows):
                stop = len(rows) if self._task.kernel.chance(0.8) else min(len(rows), sent + 2)
                part = rows[sent:stop]
                yield from self._request(partial(self._broker.produce, self.id, self.epoch, part), "produce")
                sent = stop
                if sent < len(rows):
                    yield from self._commit(Marker(committable.checkpoint_id, committable.incarnation, sent, len(rows)))
        yield from self._commit(marker_for(epochs, 0))

    def write_marker(self, marker: Marker) -> Steps:
        yield from self._commit(marker)

    def _commit(self, marker: Marker) -> Steps:
        yield from self._request(
            lambda: self._broker.mark(self.id, self.epoch, self._namespace, self.owner, marker), "write the marker"
        )
        yield from self._request(lambda: self._broker.end(self.id, self.epoch, "commit"), "commit")

    def _request(self, call: Callable[[], None], doing: str) -> Steps:
        """To the broker and back. The client library numbers what it sends, so a record sent again is not doubled;
        a lost answer is a retriable error or one that leaves the outcome open."""
        kernel = self._task.kernel
        deadline_ms = kernel.now_ms + CLIENT_GIVES_UP_MS
        arrived = False
        while True:
            yield kernel.delay() + kernel.below(self._task.world.broker_ms)
            retriable = True
            if not self._task.world.request_is_lost():
                try:
                    if not arrived or doing == "commit":
                        call()
                    arrived = True
                    yield None
                    if not self._task.world.request_is_lost():
                        return
                    retriable = kernel.chance(0.4)
                except Busy:
                    yield 3
                except Fenced:
                    raise TaskFailed(f"{doing}: {self.id} is fenced") from None
            if not self.may_repeat(retriable, kernel.now_ms > deadline_ms):
                kernel.log(self._task.process, f"{self._task.name}: {doing} with {self.id}: outcome unknown")
                yield from self.in_doubt(doing)
                return

    def may_repeat(self, retriable: bool, overdue: bool) -> bool:
        return commits.may_repeat(retriable=retriable, fatal=False, overdue=overdue)

    def in_doubt(self, doing: str) -> Steps:
        """The producer is dropped: whoever comes next reads the marker."""
        yield 0
        raise TaskFailed(f"{doing} with {self.id}: outcome unknown")


def read_markers(task: Task, namespace: str) -> Steps:
    """Returns owner → newest marker, waiting for open transactions of others."""
    broker = task.world.broker
    deadline_ms = task.kernel.now_ms + CLIENT_GIVES_UP_MS
    yield None
    scan = commits.MarkerScan(len(broker.marker_log(namespace)))
    while True:
        yield None
        found, position = broker.markers(namespace, scan.position)
        for offset, owner, marker in found:
            scan.add(offset, owner, marker)
        scan.reached(position)
        if scan.complete:
            return scan.markers
        if task.kernel.now_ms > deadline_ms:
            raise TaskFailed("a transaction of another owner stays open")
        yield 3


class SinkOperator:
    """One subtask."""

    def __init__(self, task: Task, uid: str, restore: OperatorRestore) -> None:
        self.uid = uid
        self._task = task
        self._restore = restore
        self._own = task.descriptor.subtask_index
        self.namespace = task.descriptor.namespaces[uid]
        self._client = Client(task, self.namespace, self._own)
        self._epochs = commits.PendingEpochs()
        self._rows: list[Output] = []
        self._file: File | None = None
        self._sequence = 0
        self.markers: dict[int, int] = {}

    def recover(self) -> Steps:
        descriptor = self._task.descriptor
        recovery = commits.SinkRecovery(
            self._own, self._restore.owners, descriptor.restored_checkpoint_id, descriptor.incarnation
        )
        clients = {owner: Client(self._task, self.namespace, owner) for owner in recovery.owners}
        markers = yield from self.fence_and_read(list(clients.values()))
        for step in recovery.resolve(markers):
            if isinstance(step, commits.Publish):
                yield from clients[step.owner].publish(step.epochs)
            else:
                yield from clients[step.owner].write_marker(step.marker)
        self._client = clients[self._own]
        self._epochs = commits.PendingEpochs(recovery.epochs)
        self.markers = recovery.found

    def fence_and_read(self, clients: list[Client]) -> Steps:
        for client in clients:
            yield from client.fence()
        return (yield from read_markers(self._task, self.namespace))

    def write(self, rows: list[Output]) -> None:
        if self._file is None:
            path = f"epochs/{self.namespace}-{self._own}-{self._task.attempt}-{self._sequence}"
            self._sequence += 1
            self._file = self._task.create(path)
        self._rows += rows

    def prepare_commit(self, checkpoint_id: int) -> tuple[Committable, ...]:
        """Seals the epoch; returns all that are pending."""
        if self._file is not None:
            rows, self._rows, file, self._file = self._rows, [], self._file, None
            self._task.world.files.seal(file, rows)
            name = self._task.relative(file.path)
            self._epochs.seal(
                Committable(
                    self._own,
                    checkpoint_id,
                    self._task.descriptor.incarnation,
                    name.encode(),
                    len(rows),
                    len(rows),
                    file=name,
                )
            )
        return self._epochs.pending

    def commit(self, checkpoint_id: int) -> Steps:
        due = self._epochs.due(checkpoint_id)
        if not due:
            return
        yield from self._client.publish(due)
        for epoch in self._epochs.committed(due):
            yield None
            self._task.world.files.delete(self._task.directory + epoch.file)

    @property
    def pending(self) -> tuple[Committable, ...]:
        return self._epochs.pending
