"""A JobManager in this process and real TaskManagers with real slots: the runtime without its HTTP front.

async with RuntimeCluster(tmp_path, task_managers=2, slots=2) as cluster:
    job_id = await cluster.job_manager.submit(graph)
    status = await cluster.job_manager.wait(job_id, 60_000)
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from runtime.api import JobState, JobStatus
from runtime.clock import monotonic_ms
from runtime.config import JobManagerSettings
from runtime.ids import JobId
from runtime.jobmanager.process import JobManager
from runtime.lifeline import Lifeline

ROOT = Path(__file__).resolve().parents[2]
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
POLL_S = 0.02


async def eventually(what: str, condition: Callable[[], bool], timeout_s: float = READY_TIMEOUT_S) -> None:
    """Poll until true. Raises TimeoutError saying what never came."""
    deadline_ms = monotonic_ms() + round(timeout_s * 1000)
    while not condition():
        if monotonic_ms() > deadline_ms:
            raise TimeoutError(f"{what}: not within {timeout_s} s")
        await asyncio.sleep(POLL_S)


class TaskManagerProcess:
    """A supervisor as its own process, tied to this one by a lifeline. `printed`: where its standard output goes (None:
    into the log)."""

    def __init__(self, rpc_port: int, slots: int, log: Path, *flags: str, printed: int | None = None) -> None:
        self._lifeline = Lifeline()
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "runtime.taskmanager", "--job-manager", f"127.0.0.1:{rpc_port}"),
                    *("--slots", str(slots), *flags, "--lifeline-fd", str(self._lifeline.read_fd)),
                ],
                cwd=ROOT,
                pass_fds=(self._lifeline.read_fd,),
                stdout=output if printed is None else printed,
                stderr=output,
                start_new_session=True,
            )
        self._lifeline.close_read()

    def kill(self) -> None:
        """-9, and reap."""
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            finally:
                self.kill()
        self._lifeline.close()


class RuntimeCluster:
    """`flags` go to every TaskManager. `data` survives `restart_job_manager`; TaskManagers find the new one at the
    same port."""

    def __init__(self, data: Path, task_managers: int = 1, slots: int = 2, flags: tuple[str, ...] = ()) -> None:
        self.data = data
        self.log = data / "taskmanagers.log"
        self._slots = slots
        self._count = task_managers
        self._flags = flags
        self._settings = JobManagerSettings(str(data), rpc_port=0)
        self.job_manager: JobManager
        self.task_managers: list[TaskManagerProcess] = []

    async def __aenter__(self) -> RuntimeCluster:
        self.data.mkdir(parents=True, exist_ok=True)
        self.job_manager = await JobManager.start(self._settings)
        try:
            for _ in range(self._count):
                self.add_task_manager()
            await self.slots_registered(self._count * self._slots)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.job_manager.stop()
        for task_manager in self.task_managers:
            await asyncio.to_thread(task_manager.stop)

    def add_task_manager(self) -> TaskManagerProcess:
        task_manager = TaskManagerProcess(self.job_manager.rpc_port, self._slots, self.log, *self._flags)
        self.task_managers.append(task_manager)
        return task_manager

    async def slots_registered(self, count: int) -> None:
        deadline_ms = monotonic_ms() + round(READY_TIMEOUT_S * 1000)
        while (await self.job_manager.overview()).slots_total < count:
            if monotonic_ms() > deadline_ms:
                raise TimeoutError(f"{count} slots did not register; see {self.log}")
            await asyncio.sleep(POLL_S)

    async def restart_job_manager(self) -> None:
        """The old one is fenced by the new one's lease, as after a crash, then its port is freed."""
        port = self.job_manager.rpc_port
        await self.job_manager.stop()
        settings = JobManagerSettings(self._settings.data_directory, rpc_port=port)
        self.job_manager = await JobManager.start(settings)

    async def kill_slot(self) -> int:
        """-9 to one slot process; returns its pid."""
        pids = [pid for tm in await self.job_manager.task_managers() for pid in tm.slot_pids]
        os.kill(pids[0], signal.SIGKILL)
        return pids[0]

    async def until(self, job_id: JobId, what: str, condition: Callable[[JobStatus], bool]) -> JobStatus:
        """Poll the job's status until it fulfils the condition."""
        deadline_ms = monotonic_ms() + round(READY_TIMEOUT_S * 1000)
        while True:
            status = await self.job_manager.status(job_id)
            if condition(status):
                return status
            if monotonic_ms() > deadline_ms or status.state.terminal:
                raise TimeoutError(f"{what}: job is {status.state}, {status.failure}; see {self.log}")
            await asyncio.sleep(POLL_S)

    async def rows(self, job_id: JobId) -> list[dict[str, object]]:
        """All rows of a query, to its end."""
        found: list[pa.RecordBatch] = []
        sequence = 0
        while True:
            page = await self.job_manager.fetch(job_id, sequence, 10_000, 1_000)
            found.append(page.rows)
            if page.ended:
                return [row for batch in found for row in batch.to_pylist()]
            sequence = page.next_sequence


async def finished(cluster: RuntimeCluster, job_id: JobId, timeout_s: float = READY_TIMEOUT_S) -> JobStatus:
    """The status of a job that must end in FINISHED."""
    status = await cluster.job_manager.wait(job_id, round(timeout_s * 1000))
    assert status.state is JobState.FINISHED, (status.state, status.failure)
    return status
