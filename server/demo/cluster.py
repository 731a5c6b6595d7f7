"""A standalone cluster as a child process, on free ports, with its data in a temporary folder."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx2

from server.cli.client import GatewayClient, Page, Row
from server.cli.errors import ShellError

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.1
LOG_LINES_SHOWN = 30


class ClusterError(RuntimeError):
    """The cluster did not start, or a job did not do what it should."""


class LocalCluster:
    """`headrace standalone` with the given TaskManagers and slots. Use it as a context manager."""

    def __init__(
        self, *, taskmanagers: int, slots: int, settings: dict[str, str] | None = None, memory_bytes: int | None = None
    ) -> None:
        """`settings`: defaults for every job, under Flink's names. `memory_bytes`: of each TaskManager."""
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        self._log_path = folder / "cluster.log"
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "server", "standalone", "--http-port", str(port), "--data-dir", str(folder)]
        command += ["--taskmanagers", str(taskmanagers), "--slots", str(slots)]
        if memory_bytes is not None:
            command += ["--memory", str(memory_bytes)]
        for name, value in (settings or {}).items():
            command += ["-D", f"{name}={value}"]
        # The cluster ends when the other end of this pipe is closed, however this process ends.
        lifeline, self._lifeline = os.pipe()
        command += ["--lifeline-fd", str(lifeline)]
        with open(self._log_path, "wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[lifeline],
            )
        os.close(lifeline)
        try:
            self._wait_until_ready(taskmanagers * slots)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The launcher: every other process of the cluster is below it."""
        return self._process.pid

    def log(self) -> str:
        """What its processes have written: logs, and the lines of `print` sinks."""
        return self._log_path.read_text(errors="replace")

    def log_tail(self) -> str:
        return "\n".join(self.log().splitlines()[-LOG_LINES_SHOWN:])

    def stop(self) -> None:
        """End the cluster as a service manager would, and remove its data."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        os.close(self._lifeline)
        self._folder.cleanup()

    def get(self, path: str) -> dict[str, Any]:
        """An answer of the REST API."""
        response = httpx2.get(f"{self.url}{path}", timeout=10.0)
        response.raise_for_status()
        answer: dict[str, Any] = response.json()
        return answer

    def last_failure(self, job_id: str) -> str:
        """What last went wrong in a job."""
        with contextlib.suppress(httpx2.HTTPError, KeyError, IndexError):
            return str(self.get(f"/jobs/{job_id}/exceptions")["exceptionHistory"]["entries"][0]["stacktrace"])
        return "no failure is known"

    def _wait_until_ready(self, slots: int) -> None:
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline_s:
            if self._process.poll() is not None:
                break
            with contextlib.suppress(httpx2.HTTPError, KeyError, ValueError):
                if int(self.get("/overview")["slots-available"]) >= slots:
                    return
            time.sleep(POLL_S)
        raise ClusterError(f"the cluster did not become ready; its log ends with\n{self.log_tail()}")


class Session:
    """A session at the gateway for scripts: run statements, read rows."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._client = GatewayClient(cluster.url)
        self._client.open({})

    def close(self) -> None:
        self._client.close()

    def run(self, statement: str) -> list[Row]:
        """Run a statement to its end; all rows of its result."""
        return [row for page in self.pages(statement) if page is not None for row in page.rows]

    def insert(self, statement: str) -> str:
        """Start an INSERT; the job's id."""
        for page in self.pages(statement):
            if page is not None and page.job_id is not None:
                return page.job_id
        raise ClusterError(f"no job was started by {statement}")

    def pages(self, statement: str) -> Iterator[Page | None]:
        """Pages of a result as they come. Leaving the iteration early ends the query."""
        operation = self._client.submit(statement)
        ended = False
        try:
            for page in self._client.pages(operation, plain_text=False, pause=time.sleep):
                ended = page is not None and page.ended
                yield page
        finally:
            self._client.end(operation, at_work=not ended)

    def wait(self, job_id: str, timeout_s: float) -> None:
        """Wait until a job has finished. Raises ClusterError when it ends otherwise or not in time."""
        deadline_s = time.monotonic() + timeout_s
        state = ""
        while time.monotonic() < deadline_s:
            try:
                state = str((self._client.job(job_id) or {}).get("state", ""))
            except ShellError:
                state = ""  # The gateway is being restarted.
            if state == "FINISHED":
                return
            if state in ("FAILED", "CANCELED"):
                break
            time.sleep(POLL_S)
        raise ClusterError(f"job {job_id} is {state or 'unknown'}, not FINISHED: {self._cluster.last_failure(job_id)}")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
