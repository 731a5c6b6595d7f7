"""The TaskManager: registers at the JobManager, keeps one warm process per slot, and passes messages between them.

It knows the addresses of all JobManagers and obeys the one with the highest leader token. Registration is a clean
slate: slots that were busy end then, because a leader starts its jobs anew. Without a JobManager tasks run on,
uncommitted, for `job_manager_loss_timeout_ms`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import uuid
from collections.abc import Coroutine

from runtime.clock import monotonic_ms, wall_clock_ms
from runtime.config import TaskManagerSettings
from runtime.ids import SlotId, TaskManagerId
from runtime.protocol.connection import ConnectionClosedError, MessageStream
from runtime.protocol.messages import (
    PROTOCOL_VERSION,
    CancelTasks,
    DeployTasks,
    Heartbeat,
    Message,
    RegisterTaskManager,
    RegistrationAccepted,
    RegistrationRefused,
    ReleaseSlot,
    SlotLost,
    SlotReady,
    ToSlot,
)
from runtime.taskmanager.local_state import LocalState
from runtime.taskmanager.slot_memory import divide
from runtime.taskmanager.slot_process import EXIT_GRACE_S, SlotProcess
from runtime.taskmanager.work_directory import WorkDirectory

_log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0
CONNECT_RETRY_S = 0.3
LOOK_AROUND_S = 1.0
"""How often the other addresses are asked while there is a leader."""
REGISTRATION_TIMEOUT_S = 10.0
SLOT_RETRY_S_MAX = 10.0
PINGS_PER_TIMEOUT = 6
FIRST_LOAD_DELAY_MS = 2_000
"""The first process of a slot leaves the machine to the JobManager and its gateway for so long, unless it gets work."""


class TaskManager:
    """`run` until `stop` is called."""

    def __init__(self, settings: TaskManagerSettings) -> None:
        self._settings = settings
        self.id = TaskManagerId(f"{settings.host}-{os.getpid()}-{uuid.uuid4().hex[:8]}")
        self._managed_bytes = divide(settings.process_bytes, settings.slot_count).managed_bytes
        self._slots: dict[SlotId, SlotProcess] = {}
        self._job_manager: MessageStream | None = None
        self._leader_token = 0
        """The newest leader's that was ever obeyed: messages of older ones do not count."""
        self._heard_at_ms = monotonic_ms()
        self._lost_at_ms = monotonic_ms()
        self._stopping = asyncio.Event()
        self._registered = asyncio.Event()
        self._tasks: set[asyncio.Task[object]] = set()

    def stop(self) -> None:
        """Ask `run` to end."""
        self._stopping.set()

    async def run(self) -> None:
        """Serve until `stop`; every slot process has ended when this returns."""
        with contextlib.closing(WorkDirectory(self._settings.work_directory)) as directory:
            # It may be gigabytes: nobody waits for it.
            self._spawn(asyncio.to_thread(directory.remove_abandoned))
            for index in range(self._settings.slot_count):
                self._spawn(self._keep_slot(index, directory))
            for host, port in self._settings.job_manager_addresses:
                self._spawn(self._seek_leader(host, port))
            self._spawn(self._watch_loss())
            self._spawn(self._ping_slots(LocalState(directory.path)))
            await self._stopping.wait()
            if self._job_manager is not None:
                self._job_manager.close()
            for slot in self._slots.values():
                slot.kill("its TaskManager ends")
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, coroutine: Coroutine[None, None, object]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ----------------------------------------------------------------------------------------------------------- slots

    async def _keep_slot(self, index: int, directory: WorkDirectory) -> None:
        """One slot process after another, for ever."""
        failures = 0
        incarnation = 0
        while True:
            # Whoever leads has to start first; and without a leader there is nothing to be done in a slot.
            await self._registered.wait()
            incarnation += 1
            slot_id = SlotId(f"{self.id}/{index}/{incarnation}")
            try:
                slot = await SlotProcess.start(
                    slot_id,
                    self._settings.host,
                    self._managed_bytes,
                    directory.path / f"slot-{index}-{incarnation}",
                    FIRST_LOAD_DELAY_MS if incarnation == 1 else 0,
                    directory.lock_fd,
                )
            except OSError as error:
                failures += 1
                _log.error("%s", error)
                await asyncio.sleep(min(0.5 * 2**failures, SLOT_RETRY_S_MAX))
                continue
            self._slots[slot_id] = slot
            assert slot.offer is not None
            self._send(SlotReady(slot.offer))
            try:
                while True:
                    self._send(await slot.receive())
            except ConnectionClosedError:
                pass  # The process has ended or is about to.
            finally:
                await self._bury(slot)
            # One that was ended before it had loaded is no sign that slots cannot start.
            failures = 0 if slot.started or slot.was_killed else failures + 1
            if failures:
                _log.error("slot %s did not start: %s", slot_id, slot.exit_reason)
                await asyncio.sleep(min(0.5 * 2**failures, SLOT_RETRY_S_MAX))

    async def _bury(self, slot: SlotProcess) -> None:
        await slot.end(EXIT_GRACE_S)
        self._slots.pop(slot.slot_id, None)
        _log.info("slot %s ended: %s", slot.slot_id, slot.exit_reason)
        self._send(SlotLost(slot.slot_id, slot.exit_reason))

    async def _ping_slots(self, local_state: LocalState) -> None:
        timeout_ms = self._settings.slot_timeout_ms
        while True:
            await asyncio.sleep(timeout_ms / 1000 / PINGS_PER_TIMEOUT)
            for slot in list(self._slots.values()):
                slot.ping(timeout_ms)
            jobs = {slot.job_id for slot in self._slots.values() if slot.job_id is not None}
            if over := local_state.note(jobs, monotonic_ms()):
                await asyncio.to_thread(local_state.remove, over)

    async def _end_uncancelled(self, slot: SlotProcess, cancelled: CancelTasks) -> None:
        """Cancelled tasks end; one that hangs in a native call ends with its process."""
        timeout_ms = self._settings.cancellation_timeout_ms
        await asyncio.sleep(timeout_ms / 1000)
        if slot.slot_id in self._slots and not slot.ending and not slot.has_ended(cancelled.attempts):
            slot.kill(f"its tasks did not end within {timeout_ms} ms")

    def _end_busy_slots(self, reason: str) -> None:
        for slot in self._slots.values():
            if slot.busy and not slot.ending:
                slot.kill(reason)

    # ------------------------------------------------------------------------------------------------------ JobManager

    async def _seek_leader(self, host: str, port: int) -> None:
        """Ask one address again and again whether it leads; serve it while it does. Also with a leader: one that was
        cut off or paused does not tell that another one leads by now."""
        while True:
            stream = await self._connect(host, port)
            if stream is not None:
                try:
                    await self._register(stream, host, port)
                except ConnectionClosedError as error:
                    _log.debug("JobManager %s:%d: %s", host, port, error)
                finally:
                    stream.close()
            await asyncio.sleep(CONNECT_RETRY_S if self._job_manager is None else LOOK_AROUND_S)

    async def _watch_loss(self) -> None:
        timeout_ms = self._settings.job_manager_loss_timeout_ms
        while True:
            if self._job_manager is None and monotonic_ms() - self._lost_at_ms > timeout_ms:
                self._end_busy_slots("no JobManager was found in time")
            await asyncio.sleep(CONNECT_RETRY_S)

    async def _connect(self, host: str, port: int) -> MessageStream | None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                return MessageStream(*await asyncio.open_connection(host, port))
        except (OSError, TimeoutError):
            return None

    async def _register(self, stream: MessageStream, host: str, port: int) -> None:
        """Offer this TaskManager; when it is accepted, serve the leader until it is gone or a newer one was found.
        Raises ConnectionClosedError."""
        stream.send(self._registration())
        try:
            async with asyncio.timeout(REGISTRATION_TIMEOUT_S):
                answer = await stream.receive()
        except TimeoutError as error:
            raise ConnectionClosedError("no answer to the registration") from error
        if isinstance(answer, RegistrationRefused):
            if answer.mismatch:
                _log.warning("JobManager %s:%d refuses: %s", host, port, answer.reason)
            return
        if not isinstance(answer, RegistrationAccepted):
            raise ConnectionClosedError(f"registration answered with {type(answer).__name__}")
        if answer.leader_token <= self._above_token:
            return  # Another address has answered in the meantime with a newer leader.
        if self._job_manager is not None:
            self._job_manager.close()
        self._leader_token = answer.leader_token
        try:
            await self._serve(stream, answer)
        except ConnectionClosedError as error:
            _log.warning("JobManager %s:%d is gone: %s", host, port, error)
        finally:
            if self._job_manager is stream:
                self._job_manager = None
                self._registered.clear()
                self._lost_at_ms = monotonic_ms()

    @property
    def _above_token(self) -> int:
        """A leader's token must be higher than this. After the loss of a leader it may be the same one's again."""
        return self._leader_token if self._job_manager is not None else self._leader_token - 1

    async def _serve(self, stream: MessageStream, answer: RegistrationAccepted) -> None:
        """Raises ConnectionClosedError at its end."""
        _log.info("registered with leader %d", answer.leader_token)
        self._end_busy_slots("a leader has taken over")
        self._job_manager = stream
        self._registered.set()
        self._heard_at_ms = monotonic_ms()
        for slot in self._slots.values():
            if slot.offer is not None and not slot.busy and not slot.ending:
                self._send(SlotReady(slot.offer))
        heartbeats = asyncio.get_running_loop().create_task(self._heartbeats(stream, answer))
        try:
            while True:
                message = await stream.receive()
                if self._job_manager is not stream:
                    raise ConnectionClosedError("a newer leader was found")
                self._heard_at_ms = monotonic_ms()
                self._dispatch(message)
        finally:
            heartbeats.cancel()

    def _registration(self) -> RegisterTaskManager:
        """Slots are offered one by one afterwards."""
        return RegisterTaskManager(
            self.id,
            PROTOCOL_VERSION,
            self._settings.host,
            os.getpid(),
            self._settings.slot_count,
            (),
            self._settings.process_bytes,
            self._above_token,
        )

    def _dispatch(self, message: Message) -> None:
        match message:
            case Heartbeat():
                pass
            case ReleaseSlot(slot_id=slot_id):
                slot = self._slots.get(slot_id)
                if slot is not None:
                    slot.kill("its job is done with it")
            case _ if isinstance(message, ToSlot):
                slot = self._slots.get(message.slot_id)
                if slot is not None:
                    if isinstance(message, DeployTasks):
                        slot.busy, slot.job_id = True, message.job_id
                    slot.send(message)
                    if isinstance(message, CancelTasks):
                        self._spawn(self._end_uncancelled(slot, message))
            case _:
                _log.warning("unexpected %s from the JobManager", type(message).__name__)

    async def _heartbeats(self, stream: MessageStream, accepted: RegistrationAccepted) -> None:
        while True:
            await asyncio.sleep(accepted.heartbeat_interval_ms / 1000)
            if monotonic_ms() - self._heard_at_ms > accepted.heartbeat_timeout_ms:
                stream.close()
                return
            stream.send(Heartbeat(wall_clock_ms()))

    def _send(self, message: Message) -> None:
        """To the JobManager; without one it is dropped, because the next leader starts from what is committed."""
        if self._job_manager is not None:
            self._job_manager.send(message)
