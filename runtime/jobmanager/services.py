"""What a job's shell is given by the JobManager."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, Protocol, TypeVar

import msgspec

from runtime.checkpoint.store import CheckpointStore
from runtime.ids import JobId
from runtime.jobmanager.job_events import RequestSlots
from runtime.jobmanager.scheduler import SlotInfo
from runtime.metadata.jobs import JobRecords
from runtime.protocol.messages import ToSlot

P = ParamSpec("P")
T = TypeVar("T")


class SlotProvider(Protocol):
    """The cluster's slots. Grants and losses come back as events of the job."""

    def request_slots(self, job_id: JobId, request: RequestSlots) -> None: ...

    def withdraw_request(self, job_id: JobId, number: int) -> None: ...

    def return_slots(self, job_id: JobId, slots: tuple[SlotInfo, ...]) -> None: ...

    def release_slots(self, job_id: JobId) -> None: ...

    def send(self, slot: SlotInfo, message: ToSlot) -> None: ...


class Services(msgspec.Struct, frozen=True):
    """`lost_leadership` is called when a write was refused because another JobManager leads."""

    records: JobRecords
    store: CheckpointStore
    slots: SlotProvider
    lost_leadership: Callable[[], None]


class HelperThread:
    """Runs blocking calls one after another, in the order given, off the event loop."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of the call, or what it raised."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: call(*args, **kwargs))

    def close(self) -> None:
        """Calls that have not begun are dropped; one that runs is not waited for."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class Background:
    """What runs beside an actor, until it ends or is cancelled."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
