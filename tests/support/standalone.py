"""A whole cluster as a user starts it (`headrace standalone`), and a session at its SQL gateway over plain HTTP."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tests.support.kafka import die_with_parent

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 20.0
STATEMENT_TIMEOUT_S = 90.0
POLL_S = 0.02


class GatewayError(Exception):
    """The gateway refused a statement, or its job failed. `rows` are those delivered before."""

    def __init__(self, status: int, body: Mapping[str, Any], rows: list[tuple[Any, ...]]) -> None:
        super().__init__("\n".join(str(text) for text in body.get("errors", [])) or str(body))
        self.status = status
        self.body = body
        self.rows = rows


AWAY = (GatewayError, OSError, HTTPException)
"""What a request meets whose JobManager is away or beginning anew."""


@dataclass
class Result:
    """What a statement answered: folded rows (kinds as signs), column names, the job if it started one."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    job_id: str | None = None
    kinds: list[str] = field(default_factory=list)


class Session:
    """A session at the gateway."""

    def __init__(self, url: str, properties: Mapping[str, str]) -> None:
        self.url = url
        body = {"properties": dict(properties)}
        self.handle = str(request("POST", f"{url}/v1/sessions", body)["sessionHandle"])

    def execute(self, statement: str) -> Result:
        """Run one statement to the end of its result. Raises GatewayError, TimeoutError."""
        query = self.start(statement)
        query.read_to_end()
        query.close()
        return query.result

    def start(self, statement: str) -> Query:
        """Submit one statement and read nothing yet. Raises GatewayError."""
        base = f"/v1/sessions/{self.handle}"
        operation = request("POST", f"{self.url}{base}/statements", {"statement": statement})["operationHandle"]
        return Query(self.url, f"{base}/operations/{operation}", statement)

    def close(self) -> None:
        request("DELETE", f"{self.url}/v1/sessions/{self.handle}")


class Query:
    """A statement at work: its result grows in `result` as it is read."""

    def __init__(self, url: str, path: str, statement: str) -> None:
        self._url = url
        self._path = path
        self._next = f"{path}/result/0"
        self._statement = statement
        self.ended = False
        self.result = Result([], [])

    def read_to_end(self) -> None:
        """Raises GatewayError (with the rows so far), TimeoutError."""
        self._read(lambda: False, STATEMENT_TIMEOUT_S)

    def read_until(self, row_count: int, timeout_s: float = STATEMENT_TIMEOUT_S) -> None:
        """Read until so many rows are there, or the end. Raises GatewayError, TimeoutError."""
        self._read(lambda: len(self.result.rows) >= row_count, timeout_s)

    def close(self) -> None:
        """Close the operation: a query still at work ends."""
        request("DELETE", f"{self._url}{self._path}/close")

    def _read(self, enough: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not self.ended and not enough():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self.result.rows)} rows after {timeout_s} s: {self._statement}")
            try:
                page = request("GET", self._url + self._next)
            except GatewayError as error:
                raise GatewayError(error.status, error.body, self.result.rows) from error
            if page["resultType"] == "NOT_READY":
                time.sleep(POLL_S)
                continue
            self._take(page)
            self.ended = page["resultType"] == "EOS"
            self._next = page.get("nextResultUri", "")

    def _take(self, page: Mapping[str, Any]) -> None:
        result = self.result
        result.columns = [column["name"] for column in page["results"]["columns"]]
        result.job_id = page.get("jobID", result.job_id)
        for row in page["results"]["data"]:
            fields, kind = tuple(row["fields"]), row["kind"]
            result.kinds.append(kind)
            if kind in ("INSERT", "UPDATE_AFTER"):
                result.rows.append(fields)
            else:
                result.rows.remove(fields)


def request(method: str, url: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """One HTTP exchange of JSON; fractions stay exact. Raises GatewayError for a status of 400 and more."""
    data = None if body is None else json.dumps(body).encode()
    made = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(made, timeout=STATEMENT_TIMEOUT_S) as response:
            answer: dict[str, Any] = json.loads(response.read() or b"{}", parse_float=Decimal)
            return answer
    except urllib.error.HTTPError as error:
        with error:
            content = error.read()
        try:
            answer = json.loads(content)
        except ValueError:
            answer = {"errors": [content.decode(errors="replace")]}
        raise GatewayError(error.code, answer, []) from error


class Standalone:
    """A running cluster. `data` keeps its state; `flags` and `environment` are added to what its processes get."""

    def __init__(
        self,
        data: Path,
        taskmanagers: int = 2,
        slots: int = 2,
        flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.data = data
        self.log = data / "standalone.log"
        data.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "server", "standalone", "--http-port", str(self.port), "--data-dir", str(data)]
        # A port of its own: another cluster on this machine may take the default one between look and bind.
        command += ["--rpc-port", str(free_port())]
        command += ["--taskmanagers", str(taskmanagers), "--slots", str(slots), *flags]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, **(environment or {})}, stdout=log, stderr=log,
                start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def session(self, properties: Mapping[str, str] | None = None) -> Session:
        return Session(self.url, properties or {})

    def stop(self) -> None:
        """End it as SIGTERM does; -9 for its process group when that does not help."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(STOP_TIMEOUT_S)

    def tail(self, lines: int = 60) -> str:
        """The end of the cluster's log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def job(self, job_id: str, timeout_s: float = 30.0) -> dict[str, Any]:
        """GET /jobs/:id, asked again while the server is away (it may just have been killed)."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return request("GET", f"{self.url}/jobs/{job_id}")
            except (GatewayError, OSError) as error:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"/jobs/{job_id}: {error!r}\n{self.tail()}") from error
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

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                request("GET", f"{self.url}/readyz")
                return
            except (GatewayError, OSError):
                time.sleep(POLL_S)
        raise RuntimeError(f"the cluster did not start:\n{self.log.read_text(errors='replace')[-4000:]}")


@contextmanager
def standalone(data: Path, taskmanagers: int = 2, slots: int = 2) -> Iterator[Standalone]:
    cluster = Standalone(data, taskmanagers, slots)
    try:
        yield cluster
    finally:
        cluster.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def late_rows(job: dict[str, Any]) -> int:
    """Sum of numLateRecordsDropped over the job's operators."""
    return int(
        sum(
            counters.get("numLateRecordsDropped", 0)
            for vertex in job["vertices"]
            for counters in vertex["operators"].values()
        )
    )
