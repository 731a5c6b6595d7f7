"""A standalone cluster as real processes, its HTTP API, and a way to kill any of them with -9.

with Cluster.start(tmp_path / "data", task_managers=2, slots=2) as cluster:
    session = cluster.session()
    session.run("SET 'parallelism.default' = '4'")
    job_id = session.insert("INSERT INTO out SELECT …")
    cluster.wait_for_job(job_id, "FINISHED", timeout_s=60)
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import httpx2

from tests.support.kafka import die_with_parent

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
POLL_S = 0.05

Role = Literal["jobmanager", "taskmanager", "slot"]


class StatementFailed(Exception):
    """The gateway answered a statement with an error; the text is what a client would show."""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def wait_until(what: str, condition: Callable[[], bool], timeout_s: float) -> None:
    """Poll until true; the message of the TimeoutError says what never came."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s} s")
        time.sleep(POLL_S)


class Cluster:
    """`headrace standalone` and everything below it."""

    def __init__(self, process: subprocess.Popen[str], http_port: int, log: Path) -> None:
        self.process = process
        self.http_port = http_port
        self.log = log
        self.url = f"http://127.0.0.1:{http_port}"
        self.http = httpx2.Client(base_url=self.url, timeout=30.0)

    @classmethod
    def start(
        cls,
        data_dir: Path,
        *,
        task_managers: int = 2,
        slots: int = 2,
        environment: dict[str, str] | None = None,
    ) -> Cluster:
        """Start and return when the launcher has said it is ready. Logs go to `<data_dir>/cluster.log`."""
        data_dir.mkdir(parents=True, exist_ok=True)
        log = data_dir / "cluster.log"
        port = free_port()
        command = [
            sys.executable,
            "-m",
            "server",
            "standalone",
            *("--http-port", str(port)),
            *("--data-dir", str(data_dir)),
            *("--taskmanagers", str(task_managers)),
            *("--slots", str(slots)),
        ]
        with log.open("w") as sink:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdout=sink,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
                preexec_fn=die_with_parent,
                env={**os.environ, **(environment or {})},
            )
        cluster = cls(process, port, log)
        try:
            wait_until("cluster ready", lambda: cluster._ready(task_managers * slots), START_TIMEOUT_S)
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def _ready(self, slots: int) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"the cluster ended with {self.process.returncode}:\n{self.tail()}")
        try:
            overview = self.http.get("/overview").json()
        except httpx2.HTTPError:
            return False
        return bool(overview.get("slots-total") == slots)

    def tail(self, lines: int = 60) -> str:
        """The end of the cluster's log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """SIGTERM, as a user would; SIGKILL to what is left after a while (and that is a failure of the test)."""
        self.http.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            for pid in (*self.pids("jobmanager"), *self.pids("taskmanager"), *self.pids("slot"), self.process.pid):
                _kill(pid)
            self.process.wait()
            raise RuntimeError(f"the cluster did not stop on SIGTERM:\n{self.tail()}") from None

    # ------------------------------------------------------------------------------------------- processes

    def pids(self, role: Role) -> list[int]:
        """Living processes of a role below the launcher."""
        marker = {"jobmanager": "jobmanager", "taskmanager": "taskmanager", "slot": "runtime.taskmanager.slot"}[role]
        found = []
        for pid in _descendants(self.process.pid):
            words = _command_line(pid)
            if marker in words[:6] and (role == "slot" or "runtime.taskmanager.slot" not in words):
                found.append(pid)
        return found

    def kill(self, role: Role, index: int = 0) -> int | None:
        """kill -9 the index-th (modulo) process of a role; its pid, or None when there is none just now."""
        pids = self.pids(role)
        if not pids:
            return None
        pid = pids[index % len(pids)]
        _kill(pid)
        return pid

    # ------------------------------------------------------------------------------------------------ HTTP

    def session(self, properties: dict[str, str] | None = None) -> Session:
        answer = self.http.post("/v4/sessions", json={"sessionName": "test", "properties": properties or {}})
        answer.raise_for_status()
        return Session(self, answer.json()["sessionHandle"])

    def job(self, job_id: str) -> dict[str, Any]:
        """GET /jobs/:id, retried while the server is away (it may just have been killed)."""
        return dict(self.get(f"/jobs/{job_id}"))

    def get(self, path: str, timeout_s: float = 30.0) -> Any:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                answer = self.http.get(path)
                if answer.status_code == 200:
                    return answer.json()
                failure = f"{answer.status_code} {answer.text}"
            except httpx2.HTTPError as error:
                failure = repr(error)
            if time.monotonic() > deadline:
                raise TimeoutError(f"GET {path}: {failure}\n{self.tail()}")
            time.sleep(POLL_S)

    def wait_for_job(self, job_id: str, state: str, timeout_s: float) -> dict[str, Any]:
        """Until the job is in `state`; fails at once when it ends in another one."""
        deadline = time.monotonic() + timeout_s
        while True:
            job = self.job(job_id)
            if job["state"] == state:
                return job
            if job["state"] in ("FAILED", "CANCELED", "FINISHED"):
                raise AssertionError(f"job is {job['state']}, not {state}: {job.get('failure')}\n{self.tail()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"job is {job['state']}, not {state}: {job}\n{self.tail()}")
            time.sleep(POLL_S)


class Session:
    """One SQL Gateway session."""

    def __init__(self, cluster: Cluster, handle: str) -> None:
        self._cluster = cluster
        self._path = f"/v4/sessions/{handle}"

    def run(self, sql: str, timeout_s: float = 60.0) -> list[list[Any]]:
        """Run one statement to its end and return all rows (fields as JSON). Raises StatementFailed."""
        return [row["fields"] for page in self.pages(sql, timeout_s) for row in page["results"]["data"]]

    def changes(self, sql: str, timeout_s: float = 60.0) -> list[tuple[str, list[Any]]]:
        """All rows with their kind (INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE)."""
        pages = self.pages(sql, timeout_s)
        return [(row["kind"], row["fields"]) for page in pages for row in page["results"]["data"]]

    def insert(self, sql: str) -> str:
        """Submit an INSERT or statement set; its job id."""
        pages = self.pages(sql, 60.0)
        return str(pages[0]["jobID"])

    def pages(self, sql: str, timeout_s: float) -> list[dict[str, Any]]:
        http = self._cluster.http
        answer = http.post(f"{self._path}/statements", json={"statement": sql})
        _check(answer)
        next_uri = f"{self._path}/operations/{answer.json()['operationHandle']}/result/0?rowFormat=JSON"
        found: list[dict[str, Any]] = []
        deadline = time.monotonic() + timeout_s
        while next_uri:
            answer = http.get(next_uri)
            _check(answer)
            page = answer.json()
            if page["resultType"] != "NOT_READY":
                found.append(page)
            next_uri = page.get("nextResultUri")
            if time.monotonic() > deadline:
                raise TimeoutError(f"no end of {sql!r} within {timeout_s} s\n{self._cluster.tail()}")
        return found


def _check(answer: httpx2.Response) -> None:
    if answer.status_code != 200:
        errors = answer.json().get("errors", [answer.text])
        raise StatementFailed(errors[-1])


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # It ended by itself in the meantime.


def _descendants(pid: int) -> list[int]:
    """All processes below `pid`, parents first."""
    found = []
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    for child in children:
        found += [int(child), *_descendants(int(child))]
    return found


def _command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []
