"""Runs an election against a lease store: asks on a thread of its own, keeps the time, tells who leads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import assert_never

from runtime.clock import monotonic_ms
from runtime.metadata import election as core
from runtime.metadata.lease import Lease, LeaseStore, StoreUnavailableError

_log = logging.getLogger(__name__)
RELEASE_TIMEOUT_S = 2.0


class Leadership:
    """One candidacy: standby, perhaps leader, over. `run` until it returns; everything else belongs to the same event
    loop, but for `lease`, which any thread may ask."""

    def __init__(self, store: LeaseStore, contact: core.Contact, duration_ms: int) -> None:
        self.lease = Lease()
        self._store = store
        self._contact = contact
        self._duration_ms = duration_ms
        self._core = core.LeaderElection(contact, duration_ms)
        self._events: asyncio.Queue[core.ElectionEvent] = asyncio.Queue()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="election")
        self._elected: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._leader: core.Contact | None = None
        self._is_store_missed = False
        self._fatal: BaseException | None = None

    @property
    def leader(self) -> core.Contact | None:
        """Who leads, as far as is known here; ourselves while we do."""
        return self._leader

    async def elected(self) -> int:
        """Our leader token, once we lead."""
        return await asyncio.shield(self._elected)

    def step_down(self, reason: str) -> None:
        """What leads cannot go on."""
        self._events.put_nowait(core.LeaseGone(reason))

    async def resign(self) -> None:
        """Everything that leads has stopped: a standby may lead at once."""
        self._events.put_nowait(core.Resigned())
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT_S):
                await self._over.wait()
        except TimeoutError:
            _log.warning("the lease could not be given back in time; it will run out")

    async def run(self) -> str:
        """Returns why this JobManager does not lead any more (empty: it has resigned). Raises what the store raises
        when asking again is of no use."""
        try:
            return await self._run()
        finally:
            self.lease.give_up()
            self._over.set()
            self._executor.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> str:
        self._events.put_nowait(core.Ticked())
        while True:
            event = await self._next_event()
            if self._fatal is not None:
                raise self._fatal
            for command in self._core.handle(event, monotonic_ms()):
                match command:
                    case core.LookAtLease() | core.TakeLease() | core.RenewLease():
                        self._ask(command)
                    case core.HoldUntil(deadline_ms=deadline_ms):
                        self.lease.hold_until(deadline_ms)
                    case core.Lead(token=token):
                        _log.info("this JobManager leads (token %d)", token)
                        self._elected.set_result(token)
                    case core.ShowLeader(leader=leader):
                        self._show(leader)
                    case core.ReleaseLease(token=token):
                        await self._release(token)
                    case core.StepDown(reason=reason):
                        self.lease.give_up()
                        return reason
                    case _ as unknown:
                        assert_never(unknown)
            if self._core.role is core.Role.ENDED:
                return ""

    async def _next_event(self) -> core.ElectionEvent:
        deadline_ms = self._core.deadline_ms
        if deadline_ms is None:
            return await self._events.get()
        try:
            async with asyncio.timeout(max(0, deadline_ms - monotonic_ms()) / 1000):
                return await self._events.get()
        except TimeoutError:
            return core.Ticked()

    def _ask(self, command: core.LookAtLease | core.TakeLease | core.RenewLease) -> None:
        future = asyncio.get_running_loop().run_in_executor(self._executor, self._answer, command)
        future.add_done_callback(self._answered)

    def _answered(self, future: asyncio.Future[core.ElectionEvent]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            event = future.result()
        elif isinstance(error, StoreUnavailableError):
            event = core.StoreFailed(str(error))
        else:
            self._fatal = error
            event = core.StoreFailed(str(error))
        self._note_store(event)
        self._events.put_nowait(event)

    def _answer(self, command: core.LookAtLease | core.TakeLease | core.RenewLease) -> core.ElectionEvent:
        """On the election's thread. The time is read before anything is sent: the store counts from later."""
        sent_at_ms = monotonic_ms()
        match command:
            case core.LookAtLease():
                return core.LeaseSeen(self._store.look())
            case core.RenewLease(token=token):
                return core.LeaseRenewed(sent_at_ms) if self._store.renew(token) else core.LeaseGone()
            case core.TakeLease(watched=watched):
                taken = self._store.take(watched, self._contact, self._duration_ms)
                return core.LeaseTaken(taken, sent_at_ms) if taken is not None else core.LeaseSeen(self._store.look())
            case _ as unknown:
                assert_never(unknown)

    async def _release(self, token: int) -> None:
        release: Callable[[int], None] = self._store.release
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, release, token)
        except StoreUnavailableError as error:
            _log.warning("the lease could not be given back, it will run out: %s", error)

    def _show(self, leader: core.Contact | None) -> None:
        self._leader = leader
        if leader is None:
            _log.info("no JobManager leads")
        elif leader != self._contact:
            _log.info("standby: the JobManager at %s leads", leader.rest_url)

    def _note_store(self, event: core.ElectionEvent) -> None:
        """One line when the store goes away and one when it is back."""
        if isinstance(event, core.StoreFailed):
            if not self._is_store_missed:
                _log.warning("the metadata store does not answer: %s", event.reason)
            self._is_store_missed = True
        elif self._is_store_missed:
            _log.info("the metadata store answers again")
            self._is_store_missed = False
