"""The control plane's server side over real sockets: registration, refusals, silence, and coming back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from runtime.clock import monotonic_ms
from runtime.config import JobManagerSettings
from runtime.ids import AttemptId, JobId, SlotId, TaskManagerId
from runtime.jobmanager.endpoint import StandbyEndpoint, TaskManagerEndpoint, bind_rpc
from runtime.jobmanager.process import JobManager
from runtime.jobmanager.scheduler import SlotInfo
from runtime.metadata.lease import Lease
from runtime.protocol.connection import ConnectionClosedError, MessageStream
from runtime.protocol.messages import (
    PROTOCOL_VERSION,
    Heartbeat,
    LimitReached,
    Message,
    RegisterTaskManager,
    RegistrationAccepted,
    RegistrationRefused,
    ReleaseSlot,
    SlotLost,
    SlotOffer,
    SlotReady,
)
from tests.support import graphs

OFFER = SlotOffer(SlotId("tm/0/1"), 5000, 1, 7)
REGISTRATION = RegisterTaskManager(TaskManagerId("tm"), PROTOCOL_VERSION, "host", 1, 1, (OFFER,), 10)


SLOT_LOST = "a slot of TaskManager tm is lost (tm/0/1): killed"


class Listener:
    """Keeps the slots and what it heard."""

    def __init__(self) -> None:
        self.slots: dict[SlotId, SlotInfo] = {}
        self.heard: list[str] = []
        self.news = asyncio.Event()

    def slot_added(self, slot: SlotInfo) -> None:
        self.slots[slot.slot_id] = slot
        self._note(f"added {slot.slot_id}")

    def slot_removed(self, slot_id: SlotId, reason: str) -> None:
        self.slots.pop(slot_id, None)
        self._note(f"removed {slot_id}: {reason}")

    def slots_of(self, task_manager_id: TaskManagerId) -> list[SlotInfo]:
        return [slot for slot in self.slots.values() if slot.task_manager_id == task_manager_id]

    def message_received(self, message: Message) -> None:
        self._note(type(message).__name__)

    def _note(self, text: str) -> None:
        self.heard.append(text)
        self.news.set()

    async def expect(self, *heard: str) -> None:
        while self.heard != list(heard):
            assert len(self.heard) <= len(heard), self.heard
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), 10)


async def connect(port: int) -> MessageStream:
    return MessageStream(*await asyncio.open_connection("127.0.0.1", port))


def run(
    story: Callable[[TaskManagerEndpoint, Listener], Awaitable[None]],
    interval_ms: int = 10_000,
    timeout_ms: int = 50_000,
) -> None:
    async def main() -> None:
        listener = Listener()
        endpoint = TaskManagerEndpoint(listener, 9, interval_ms, timeout_ms)
        await endpoint.start(bind_rpc("127.0.0.1", 0))
        try:
            await asyncio.wait_for(story(endpoint, listener), 30)
        finally:
            await endpoint.stop()

    asyncio.run(main())


def test_registration_offers_and_messages() -> None:
    async def story(endpoint: TaskManagerEndpoint, listener: Listener) -> None:
        stream = await connect(endpoint.port)
        stream.send(REGISTRATION)
        assert await stream.receive() == RegistrationAccepted(9, 10_000, 50_000)
        stream.send(SlotReady(SlotOffer(SlotId("tm/1/1"), 5001, 1)))
        stream.send(SlotLost(SlotId("tm/0/1"), "killed"))
        stream.send(LimitReached(an_attempt()))
        await listener.expect("added tm/0/1", "added tm/1/1", f"removed tm/0/1: {SLOT_LOST}", "LimitReached")
        slot = listener.slots[SlotId("tm/1/1")]
        assert (slot.host, slot.data_port) == ("host", 5001)
        endpoint.send(slot, ReleaseSlot(slot.slot_id))
        assert await stream.receive() == ReleaseSlot(slot.slot_id)
        stream.close()
        await listener.expect(*listener.heard[:4], "removed tm/1/1: TaskManager tm is lost: the connection was closed")
        assert endpoint.task_managers == []
        endpoint.send(slot, ReleaseSlot(slot.slot_id))

    run(story)


def test_who_knows_a_leader_as_new_as_this_one_is_sent_away() -> None:
    async def story(endpoint: TaskManagerEndpoint, listener: Listener) -> None:
        for above_token, accepted in ((8, True), (9, False), (10, False)):
            stream = await connect(endpoint.port)
            stream.send(msgspec.structs.replace(REGISTRATION, above_token=above_token, slots=()))
            assert isinstance(await stream.receive(), RegistrationAccepted) is accepted, above_token
            stream.close()

    run(story)


def test_a_leader_whose_lease_is_over_accepts_nobody() -> None:
    async def main() -> None:
        lease = Lease()
        endpoint = TaskManagerEndpoint(Listener(), 9, 10_000, 50_000, may_lead=lambda: lease.is_held)
        await endpoint.start(bind_rpc("127.0.0.1", 0))
        for held_ms, answer in ((60_000, RegistrationAccepted), (0, RegistrationRefused)):
            lease.hold_until(monotonic_ms() + held_ms)
            stream = await connect(endpoint.port)
            stream.send(msgspec.structs.replace(REGISTRATION, slots=()))
            assert isinstance(await stream.receive(), answer)
            stream.close()
        await endpoint.stop()

    asyncio.run(main())


def test_a_standby_answers_and_its_socket_goes_on_to_the_leader() -> None:
    async def main() -> None:
        socket = bind_rpc("127.0.0.1", 0)
        port = socket.getsockname()[1]
        standby = StandbyEndpoint(socket)
        await standby.start()
        asking = await connect(port)
        asking.send(REGISTRATION)
        assert await asking.receive() == RegistrationRefused("this JobManager is a standby")
        asking.close()
        await standby.stop()
        waiting = await connect(port)  # Nobody accepts just now; the socket listens.
        waiting.send(msgspec.structs.replace(REGISTRATION, slots=()))
        endpoint = TaskManagerEndpoint(Listener(), 9, 10_000, 50_000)
        await endpoint.start(socket)
        assert isinstance(await waiting.receive(), RegistrationAccepted)
        waiting.close()
        await endpoint.stop()

    asyncio.run(main())


def test_another_protocol_version_is_refused() -> None:
    async def story(endpoint: TaskManagerEndpoint, listener: Listener) -> None:
        for first in (msgspec.structs.replace(REGISTRATION, version=99), Heartbeat(0)):
            stream = await connect(endpoint.port)
            stream.send(first)
            assert isinstance(await stream.receive(), RegistrationRefused)
            with pytest.raises(ConnectionClosedError):
                await stream.receive()
            stream.close()
        assert listener.heard == []

    run(story)


def test_foreign_bytes_close_the_connection() -> None:
    async def story(endpoint: TaskManagerEndpoint, listener: Listener) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
        assert listener.heard == []

    run(story)


def test_silence_is_a_loss() -> None:
    async def story(endpoint: TaskManagerEndpoint, listener: Listener) -> None:
        stream = await connect(endpoint.port)
        stream.send(REGISTRATION)
        await listener.expect("added tm/0/1", "removed tm/0/1: TaskManager tm is lost: no heartbeat within 100 ms")
        stream.close()

    run(story, interval_ms=20, timeout_ms=100)


def test_heartbeats_keep_the_registration() -> None:
    async def story(endpoint: TaskManagerEndpoint, listener: Listener) -> None:
        stream = await connect(endpoint.port)
        stream.send(REGISTRATION)
        await stream.receive()
        # More answers than the time-out has intervals.
        for _ in range(60):
            assert isinstance(await stream.receive(), Heartbeat)
            stream.send(Heartbeat(0))
        assert [task_manager.id for task_manager in endpoint.task_managers] == ["tm"]
        stream.close()

    run(story, interval_ms=20, timeout_ms=1_000)


def test_a_second_registration_replaces_the_first() -> None:
    async def story(endpoint: TaskManagerEndpoint, listener: Listener) -> None:
        old, new = await connect(endpoint.port), await connect(endpoint.port)
        old.send(REGISTRATION)
        await old.receive()
        new.send(msgspec.structs.replace(REGISTRATION, slots=()))
        await new.receive()
        await listener.expect(
            "added tm/0/1", "removed tm/0/1: TaskManager tm is lost: the TaskManager registered again"
        )
        with pytest.raises(ConnectionClosedError):
            await old.receive()
        assert len(endpoint.task_managers) == 1
        old.close()
        new.close()

    run(story)


def test_a_job_manager_that_lost_its_lease_notices_at_its_next_write(tmp_path: Path) -> None:
    async def story() -> None:
        old = await JobManager.start(JobManagerSettings(str(tmp_path), rpc_port=0))
        job_id = await old.submit(graphs.graph(graphs.vertex(0, graphs.generator(), graphs.sink())))
        while (await old.status(job_id)).slots_missing == 0:
            await asyncio.sleep(0.01)
        new = await JobManager.start(JobManagerSettings(str(tmp_path), rpc_port=0))
        assert [status.job_id for status in await new.jobs()] == [job_id]
        await old.cancel(job_id)
        await asyncio.wait_for(old.lost_leadership(), 10)
        assert not (await new.status(job_id)).state.terminal
        await new.stop()
        await old.stop()

    asyncio.run(story())


def an_attempt() -> AttemptId:
    return AttemptId(JobId("f" * 32), 1, 0, 0, 0)
