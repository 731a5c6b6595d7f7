"""A real TaskManager with a slot process among several JobManagers that the test plays: whom it obeys, and what becomes
of its tasks when a leader is lost, replaced, or comes back from yesterday."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from runtime.config import TaskManagerSettings
from runtime.ids import JobId, SlotId
from runtime.protocol.connection import ConnectionClosedError, MessageStream
from runtime.protocol.messages import (
    DeployTasks,
    Message,
    RegisterTaskManager,
    RegistrationAccepted,
    RegistrationRefused,
    ReleaseSlot,
    SlotLost,
    SlotReady,
)
from runtime.taskmanager.process import TaskManager

DEADLINE_S = 30.0
LOSS_TIMEOUT_MS = 600


class FakeJobManager:
    """Answers registrations as a leader of `token` would; None: as a standby. `obstinate`: also those that have a newer
    leader already."""

    def __init__(self, token: int | None) -> None:
        self.token = token
        self.obstinate = False
        self.asked: list[int] = []
        self.slots: list[SlotId] = []
        self.lost: list[tuple[SlotId, str]] = []
        self.registrations = 0
        self.stream: MessageStream | None = None
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """As its process's death."""
        assert self._server is not None
        self._server.close()
        if self.stream is not None:
            self.stream.close()

    def send(self, message: Message) -> None:
        assert self.stream is not None
        self.stream.send(message)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = MessageStream(reader, writer)
        try:
            message = await stream.receive()
            assert isinstance(message, RegisterTaskManager)
            self.asked.append(message.above_token)
            if self.token is None or (self.token <= message.above_token and not self.obstinate):
                stream.send(RegistrationRefused("not now"))
                await stream.drain()
                return
            self.registrations += 1
            self.stream = stream
            stream.send(RegistrationAccepted(self.token, 10_000, 50_000))
            while True:
                message = await stream.receive()
                if isinstance(message, SlotReady):
                    self.slots.append(message.offer.slot_id)
                elif isinstance(message, SlotLost):
                    self.lost.append((message.slot_id, message.reason))
        except ConnectionClosedError:
            pass
        finally:
            stream.close()
            if self.stream is stream:
                self.stream = None


async def until(what: str, condition: object) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.01)
    assert what


@asynccontextmanager
async def cluster(folder: Path, *job_managers: FakeJobManager) -> AsyncIterator[None]:
    for job_manager in job_managers:
        await job_manager.start()
    addresses = tuple(("127.0.0.1", job_manager.port) for job_manager in job_managers)
    settings = TaskManagerSettings(
        addresses, slot_count=1, work_directory=str(folder), job_manager_loss_timeout_ms=LOSS_TIMEOUT_MS
    )
    task_manager = TaskManager(settings)
    running = asyncio.create_task(task_manager.run())
    try:
        yield
    finally:
        task_manager.stop()
        await running
        for job_manager in job_managers:
            await job_manager.stop()


def deploy(slot_id: SlotId) -> DeployTasks:
    """Makes the slot a busy one."""
    return DeployTasks(slot_id, JobId("1" * 32), 1, ())


def test_the_higher_token_alone_is_obeyed(tmp_path: Path) -> None:
    async def scenario() -> None:
        old, new = FakeJobManager(3), FakeJobManager(None)
        async with cluster(tmp_path, old, new):
            await until("registered", lambda: old.slots)
            (slot,) = old.slots
            old.send(deploy(slot))
            await until("the standby was asked, too", lambda: len(new.asked) > 1)
            assert new.asked[-1] == 3
            new.token = 4
            await until("it has gone over", lambda: new.slots)
            assert new.slots[0] != slot, "the old leader's tasks have ended; the slot is a new one"
            assert old.stream is None
            # The old leader wakes up and does as if nothing had happened.
            old.obstinate = True
            asked = len(old.asked)
            await until("the old one was asked and has accepted", lambda: len(old.asked) > asked + 1)
            assert set(old.asked[asked:]) == {4}
            await until("what it says is not heard", lambda: old.stream is None)
            assert new.registrations == 1
            # Its answer may still lie in a buffer when the newer leader is found: nothing of it counts.
            new.send(deploy(new.slots[0]))
            new.send(ReleaseSlot(new.slots[0]))
            await until("the leader is heard", lambda: new.slots[0] in [lost for lost, _ in new.lost])
            await until("the slot's successor", lambda: len(new.slots) == 2)

    asyncio.run(scenario())


def test_tasks_run_on_without_a_leader_and_end_after_the_time_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        leader, standby = FakeJobManager(1), FakeJobManager(None)
        async with cluster(tmp_path, leader, standby):
            await until("registered", lambda: leader.slots)
            (slot,) = leader.slots
            leader.send(deploy(slot))
            # The same leader again, as after a short loss of the network: its jobs start anew, so the slot does.
            assert leader.stream is not None
            leader.stream.close()
            await until("registered again", lambda: leader.registrations == 2)
            await until("a new slot", lambda: len(leader.slots) == 2)
            busy = leader.slots[1]
            leader.send(deploy(busy))
            processes = list(tmp_path.glob("*/slot-0-*"))
            assert len(processes) == 1
            await leader.stop()
            await asyncio.sleep(LOSS_TIMEOUT_MS / 2000)
            assert list(tmp_path.glob("*/slot-0-*")) == processes, "tasks run on"
            await until("they end", lambda: not list(tmp_path.glob("*/slot-0-*")))
            standby.token = 2
            await until("the next leader gets a slot", lambda: standby.slots)
            assert standby.slots[0] != busy

    asyncio.run(scenario())
