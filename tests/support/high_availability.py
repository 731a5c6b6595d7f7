"""Two JobManagers on one PostgreSQL and TaskManagers that know both, as a user starts them; each can be killed, paused,
resumed and started again.

with HighAvailabilityCluster(tmp_path, postgres.url, lease_ms=5_000) as cluster:
    job_id = cluster.session().execute("INSERT INTO out SELECT …").job_id
    cluster.kill(cluster.leader())
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import psycopg

from runtime.metadata.election import LeaseRecord
from runtime.metadata.lease import StoreUnavailableError
from runtime.metadata.postgresql import PostgresDatabase, PostgresLeaseStore
from tests.support.kafka import die_with_parent
from tests.support.standalone import ROOT, GatewayError, Session, free_port, request

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
POLL_S = 0.05
T = TypeVar("T")


class HighAvailabilityCluster:
    """JobManagers are named by index. `data` holds the checkpoints all share, and the logs."""

    def __init__(self, data: Path, url: str, lease_ms: int, slots: int = 2) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.checkpoints = data / "checkpoints"
        self.cluster_id = uuid.uuid4().hex
        self._data = data
        self._url = url
        self._lease_ms = lease_ms
        self._http_ports = [free_port(), free_port()]
        self._rpc_ports = [free_port(), free_port()]
        self.job_managers: dict[int, subprocess.Popen[bytes]] = {}
        self._lease_store = PostgresLeaseStore(PostgresDatabase(url, self.cluster_id, 5_000))
        self._slots = slots
        self._task_managers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> HighAvailabilityCluster:
        addresses = ",".join(f"127.0.0.1:{port}" for port in self._rpc_ports)
        try:
            self.start(0)
            self.start(1)
            flags = ["--job-managers", addresses, "--slots", str(self._slots), "--work-dir", str(self._data / "work")]
            self._task_managers.append(self._process("taskmanager", ["taskmanager", *flags]))
            # Whichever is asked, the slots are there.
            urls = [f"{self.url(index)}/overview" for index in (0, 1)]
            self.until(
                "the cluster is ready",
                lambda: all(request("GET", url)["slots-total"] == self._slots for url in urls),
                START_TIMEOUT_S,
            )
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in [*self.job_managers.values(), *self._task_managers]:
            if process.poll() is None:
                process.kill()
                process.wait(STOP_TIMEOUT_S)
        self._lease_store.close()

    # ------------------------------------------------------------------------------------------------------ processes

    def start(self, index: int) -> None:
        """A JobManager; it is a standby until it is elected."""
        self.job_managers[index] = self._process(
            f"jobmanager-{index}",
            [
                *("jobmanager", "--http-port", str(self._http_ports[index]), "--rpc-port", str(self._rpc_ports[index])),
                *("--data-dir", str(self._data / f"data-{index}"), "--checkpoint-dir", str(self.checkpoints)),
                *("--set", f"high-availability.cluster-id={self.cluster_id}"),
                *("--set", f"high-availability.lease-duration-ms={self._lease_ms}"),
                *("-D", "execution.checkpointing.interval=300ms"),
                *("-D", "restart-strategy.exponential-delay.initial-backoff=100ms"),
            ],
        )

    def kill(self, index: int) -> None:
        """-9."""
        self.job_managers[index].kill()
        self.job_managers[index].wait(STOP_TIMEOUT_S)

    def terminate(self, index: int) -> int:
        """SIGTERM; its exit code."""
        self.job_managers[index].terminate()
        return self.job_managers[index].wait(STOP_TIMEOUT_S)

    def pause(self, index: int) -> None:
        os.kill(self.job_managers[index].pid, signal.SIGSTOP)

    def resume(self, index: int) -> None:
        os.kill(self.job_managers[index].pid, signal.SIGCONT)

    def log(self, index: int) -> str:
        return (self._data / f"jobmanager-{index}.log").read_text(errors="replace")

    def tails(self) -> str:
        """The ends of all logs, for a failure's message."""
        logs = sorted(self._data.glob("*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-3_000:]}" for log in logs)

    # --------------------------------------------------------------------------------------------------- what they say

    def url(self, index: int) -> str:
        return f"http://127.0.0.1:{self._http_ports[index]}"

    def session(self, index: int) -> Session:
        """At the gateway, through this JobManager."""
        return Session(self.url(index), {})

    def leader(self) -> int:
        """Who holds the lease, as the database says."""
        holder = self._lease().holder
        assert holder is not None
        return [self.url(0), self.url(1)].index(holder.rest_url)

    def token(self) -> int:
        return self._lease().token

    def records(self) -> list[tuple[Any, ...]]:
        """Everything in the metadata store."""
        query = "SELECT collection, key, value FROM headrace_records WHERE cluster_id = %s ORDER BY 1, 2"
        with psycopg.connect(self._url) as connection:
            return connection.execute(query, [self.cluster_id]).fetchall()

    def files(self) -> dict[str, int]:
        """Every checkpoint file and its modification time."""
        found = (path for path in self.checkpoints.rglob("*") if path.is_file())
        return {str(path): path.stat().st_mtime_ns for path in found}

    def job(self, job_id: str, index: int) -> dict[str, Any]:
        return request("GET", f"{self.url(index)}/jobs/{job_id}")

    def completed(self, job_id: str, index: int) -> int:
        """Checkpoints of the job so far."""
        return int(request("GET", f"{self.url(index)}/jobs/{job_id}/checkpoints")["counts"]["completed"])

    def wait_for_job(self, job_id: str, state: str, index: int, timeout_s: float = START_TIMEOUT_S) -> dict[str, Any]:
        """Asks one JobManager until the job is in that state, whoever leads; it may not answer for a while."""
        return self.until(f"job is {state}", lambda: self._job_in(job_id, state, index), timeout_s)

    def wait_for_tasks(self, job_id: str, index: int, timeout_s: float = START_TIMEOUT_S) -> dict[str, Any]:
        """Until all tasks of the job run."""
        return self.until("all tasks run", lambda: self._running_job(job_id, index), timeout_s)

    def until(self, what: str, condition: Callable[[], T | None], timeout_s: float) -> T:
        """What the condition gives; the cluster may be away meanwhile."""
        deadline = time.monotonic() + timeout_s
        last = ""
        while time.monotonic() < deadline:
            try:
                found = condition()
                if found:
                    return found
            except (GatewayError, OSError) as error:
                last = repr(error)
            time.sleep(POLL_S)
        raise TimeoutError(f"{what}: not within {timeout_s} s {last}\n{self.tails()}")

    # --------------------------------------------------------------------------------------------------------- private

    def _lease(self) -> LeaseRecord:
        try:
            return self._lease_store.look()
        except StoreUnavailableError:
            return self._lease_store.look()  # The database was started again since the last time.

    def _job_in(self, job_id: str, state: str, index: int) -> dict[str, Any] | None:
        job = self.job(job_id, index)
        if job["state"] in ("FAILED", "CANCELED", "FINISHED") and job["state"] != state:
            raise AssertionError(f"job is {job['state']}, not {state}: {job}\n{self.tails()}")
        return job if job["state"] == state else None

    def _running_job(self, job_id: str, index: int) -> dict[str, Any] | None:
        job = self._job_in(job_id, "RUNNING", index)
        if job is None:
            return None
        running = all(vertex["tasks"]["RUNNING"] == vertex["parallelism"] for vertex in job["vertices"])
        return job if running else None

    def _process(self, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        with (self._data / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "server", *arguments],
                cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent,
                env={**os.environ, "HEADRACE_HIGH_AVAILABILITY_METADATA_URL": self._url} if "jobmanager" in name
                else None,
            )  # fmt: skip
