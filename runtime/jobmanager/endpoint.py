"""Where TaskManagers connect: registration, heartbeats, and messages to and from slots."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Protocol

from runtime.clock import monotonic_ms, wall_clock_ms
from runtime.ids import SlotId, TaskManagerId
from runtime.jobmanager.scheduler import SlotInfo
from runtime.protocol.connection import ConnectionClosedError, MessageStream
from runtime.protocol.messages import (
    PROTOCOL_VERSION,
    Heartbeat,
    Message,
    RegisterTaskManager,
    RegistrationAccepted,
    RegistrationRefused,
    ReleaseSlot,
    SlotLost,
    SlotOffer,
    SlotReady,
    ToSlot,
)

_log = logging.getLogger(__name__)
REGISTRATION_TIMEOUT_S = 10.0


class RegisteredTaskManager:
    """One live registration. A TaskManager that connects again is a new one with the same id."""

    def __init__(self, registration: RegisterTaskManager, stream: MessageStream) -> None:
        self.id: TaskManagerId = registration.task_manager_id
        self.host = registration.host
        self.pid = registration.pid
        self.memory_bytes = registration.memory_bytes
        self.stream = stream
        self.heard_at_ms = monotonic_ms()
        self.heard_at_wall_ms = wall_clock_ms()

    def heard(self) -> None:
        self.heard_at_ms = monotonic_ms()
        self.heard_at_wall_ms = wall_clock_ms()

    def slot(self, offer: SlotOffer) -> SlotInfo:
        return SlotInfo(offer.slot_id, self.id, self.host, offer.data_port, offer.managed_bytes, offer.pid)


class EndpointListener(Protocol):
    """What the JobManager does with news of the TaskManagers. Called on the event loop."""

    def slot_added(self, slot: SlotInfo) -> None: ...

    def slot_removed(self, slot_id: SlotId, reason: str) -> None: ...

    def slots_of(self, task_manager_id: TaskManagerId) -> list[SlotInfo]: ...

    def message_received(self, message: Message) -> None: ...


class TaskManagerEndpoint:
    """Server side of the control plane. Loss of a connection or of heartbeats = the TaskManager is gone."""

    def __init__(
        self,
        listener: EndpointListener,
        leader_token: int,
        heartbeat_interval_ms: int,
        heartbeat_timeout_ms: int,
        may_lead: Callable[[], bool] = lambda: True,
    ) -> None:
        """`may_lead`: the lease is still ours."""
        self._listener = listener
        self._leader_token = leader_token
        self._may_lead = may_lead
        self._interval_ms = heartbeat_interval_ms
        self._timeout_ms = heartbeat_timeout_ms
        self._registered: dict[TaskManagerId, RegisteredTaskManager] = {}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def task_managers(self) -> list[RegisteredTaskManager]:
        return sorted(self._registered.values(), key=lambda tm: tm.id)

    async def start(self, listener: socket.socket) -> None:
        """Takes the socket over."""
        self._server = await asyncio.start_server(self._accept, sock=listener)
        self._spawn(self._heartbeats())

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for task_manager in self._registered.values():
            task_manager.stream.close()
        self._registered = {}

    def send(self, slot: SlotInfo, message: ToSlot | ReleaseSlot) -> None:
        """To the slot's TaskManager; dropped when it is gone (its loss is reported by other means)."""
        task_manager = self._registered.get(slot.task_manager_id)
        if task_manager is not None:
            task_manager.stream.send(message)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._spawn(self._serve(MessageStream(reader, writer)))

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, stream: MessageStream) -> None:
        task_manager: RegisteredTaskManager | None = None
        reason = "the connection was closed"
        try:
            task_manager = await self._register(stream)
            while task_manager is not None:
                message = await stream.receive()
                task_manager.heard()
                self._dispatch(task_manager, message)
        except ConnectionClosedError as error:
            reason = str(error)
        finally:
            stream.close()
            if task_manager is not None:
                self._forget(task_manager, reason)

    async def _register(self, stream: MessageStream) -> RegisteredTaskManager | None:
        try:
            async with asyncio.timeout(REGISTRATION_TIMEOUT_S):
                message = await stream.receive()
        except TimeoutError:
            return None
        if not isinstance(message, RegisterTaskManager) or message.version != PROTOCOL_VERSION:
            version = message.version if isinstance(message, RegisterTaskManager) else "unknown"
            reason = f"protocol version {version} is not {PROTOCOL_VERSION}"
            stream.send(RegistrationRefused(reason, mismatch=True))
            await stream.drain()
            return None
        if not self._may_lead() or self._leader_token <= message.above_token:
            stream.send(RegistrationRefused("another JobManager leads"))
            await stream.drain()
            return None
        old = self._registered.get(message.task_manager_id)
        if old is not None:
            old.stream.close()
            self._forget(old, "the TaskManager registered again")
        task_manager = RegisteredTaskManager(message, stream)
        self._registered[task_manager.id] = task_manager
        stream.send(RegistrationAccepted(self._leader_token, self._interval_ms, self._timeout_ms))
        _log.info("TaskManager %s registered with %d slots", task_manager.id, len(message.slots))
        for offer in message.slots:
            self._listener.slot_added(task_manager.slot(offer))
        return task_manager

    def _dispatch(self, task_manager: RegisteredTaskManager, message: Message) -> None:
        match message:
            case Heartbeat():
                pass
            case SlotReady(offer=offer):
                self._listener.slot_added(task_manager.slot(offer))
            case SlotLost(slot_id=slot_id, reason=reason):
                lost = f"a slot of TaskManager {task_manager.id} is lost ({slot_id}): {reason}"
                self._listener.slot_removed(slot_id, lost)
            case _:
                self._listener.message_received(message)

    def _forget(self, task_manager: RegisteredTaskManager, reason: str) -> None:
        if self._registered.get(task_manager.id) is not task_manager:
            return
        del self._registered[task_manager.id]
        _log.warning("TaskManager %s is gone: %s", task_manager.id, reason)
        for slot in self._listener.slots_of(task_manager.id):
            self._listener.slot_removed(slot.slot_id, f"TaskManager {task_manager.id} is lost: {reason}")

    async def _heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            now_ms = monotonic_ms()
            for task_manager in list(self._registered.values()):
                if now_ms - task_manager.heard_at_ms > self._timeout_ms:
                    task_manager.stream.close()
                    self._forget(task_manager, f"no heartbeat within {self._timeout_ms} ms")
                else:
                    task_manager.stream.send(Heartbeat(wall_clock_ms()))


class StandbyEndpoint:
    """Answers TaskManagers while another JobManager leads, so that they need not wait to find out."""

    def __init__(self, listener: socket.socket) -> None:
        """Accepts on a copy of the socket: the leader that follows takes over the socket itself."""
        self._listener = listener.dup()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._refuse, sock=self._listener)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    @staticmethod
    async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = MessageStream(reader, writer)
        try:
            async with asyncio.timeout(REGISTRATION_TIMEOUT_S):
                await stream.receive()
            stream.send(RegistrationRefused("this JobManager is a standby"))
            await stream.drain()
        except (ConnectionClosedError, TimeoutError):
            pass  # Whoever it was has gone.
        finally:
            stream.close()


def bind_rpc(host: str, port: int) -> socket.socket:
    """A socket that listens for TaskManagers. Raises OSError when the address is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)
