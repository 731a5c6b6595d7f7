"""The gateway as the shell sees it: a session, statements, pages of rows. Blocking, one request at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import orjson

from server.cli.errors import ConnectionLostError, SessionLostError, ShellError, StatementError

API = "/v4"
TIMEOUT_S = 30.0
NOT_READY_PAUSE_S = 0.05


@dataclass(frozen=True)
class Column:
    """`type` is the root's name on the wire, e.g. BIGINT."""

    name: str
    type: str


@dataclass(frozen=True)
class Row:
    """`kind` is INSERT, UPDATE_BEFORE, UPDATE_AFTER or DELETE."""

    kind: str
    fields: list[Any]


@dataclass(frozen=True)
class Page:
    """Rows of a result. `has_content` False: the statement answers only OK."""

    columns: list[Column]
    rows: list[Row]
    is_query: bool
    has_content: bool
    job_id: str | None
    insert_only: bool
    ended: bool
    warnings: list[str]


class GatewayClient:
    """One session at a gateway. `open` first; `close` ends the session and its queries."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._http = httpx2.Client(base_url=self.url, timeout=TIMEOUT_S)
        self._session = ""

    @property
    def session(self) -> str:
        return self._session

    def open(self, properties: dict[str, str]) -> None:
        """Opens a session; an earlier one is left to expire."""
        body = {"sessionName": "headrace sql", "properties": properties}
        self._session = str(self._request("POST", f"{API}/sessions", body)["sessionHandle"])

    def close(self) -> None:
        """Ends the session; says nothing when the server is gone."""
        try:
            self._request("DELETE", f"{API}/sessions/{self._session}")
        except ShellError:
            pass  # Nothing is left to end, or it will expire.
        self._http.close()

    def info(self) -> dict[str, Any]:
        return self._request("GET", f"{API}/info")

    def heartbeat(self) -> None:
        self._request("POST", f"{API}/sessions/{self._session}/heartbeat", {})

    def configure(self, statement: str) -> None:
        self._request("POST", f"{API}/sessions/{self._session}/configure-session", {"statement": statement})

    def complete(self, statement: str, position: int) -> list[str]:
        body = {"statement": statement, "position": position}
        answer = self._request("GET", f"{API}/sessions/{self._session}/complete-statement", body)
        return [str(c) for c in answer["candidates"]]

    def submit(self, statement: str) -> str:
        """The operation's handle."""
        body = {"statement": statement, "executionTimeout": 0}
        return str(self._request("POST", f"{API}/sessions/{self._session}/statements", body)["operationHandle"])

    def pages(self, operation: str, *, plain_text: bool, pause: Callable[[float], None]) -> Iterator[Page | None]:
        """Pages of the result as they come, the last one with `ended`. None: not ready yet, nothing lost.

        plain_text: fields are texts; else JSON values, numbers with a fraction kept digit by digit (orjson.Fragment).
        """
        wanted = "?rowFormat=PLAIN_TEXT" if plain_text else "?rowFormat=JSON"
        uri = f"{API}/sessions/{self._session}/operations/{operation}/result/0{wanted}"
        while True:
            answer = self._request("GET", uri if plain_text else f"{uri}&timeZone=UTC")
            if answer["resultType"] == "NOT_READY":
                pause(NOT_READY_PAUSE_S)
                yield None
                continue
            page = _page(answer)
            yield page
            if page.ended:
                return
            uri = str(answer["nextResultUri"])

    def end(self, operation: str, *, at_work: bool) -> None:
        """Forgets the operation and ends its query; cancels a statement that is still `at_work`. Never raises."""
        base = f"{API}/sessions/{self._session}/operations/{operation}"
        try:
            if at_work:
                self._request("POST", f"{base}/cancel")
        except ShellError:
            pass  # It has finished meanwhile: closing is what counts.
        try:
            self._request("DELETE", f"{base}/close")
        except ShellError:
            pass  # The server ends what nobody reads.

    def job(self, job_id: str) -> dict[str, Any] | None:
        """Details of a job; None where the server does not tell."""
        try:
            return self._request("GET", f"/jobs/{job_id}")
        except ShellError:
            return None

    def jobs(self) -> list[dict[str, Any]]:
        """Every job the server knows, newest first, as /jobs/overview shows them."""
        return list(self._request("GET", "/jobs/overview")["jobs"])

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        content = orjson.dumps(body) if body is not None else None
        headers = {"content-type": "application/json"} if content is not None else {}
        try:
            response = self._http.request(method, path, content=content, headers=headers)
        except httpx2.TransportError as error:
            raise _unreachable(self.url, error) from error
        try:
            answer = json.loads(response.content, parse_float=_exact, parse_int=_whole)
        except ValueError as error:
            text = f"{self.url} does not answer like a SQL gateway (status {response.status_code})"
            raise ConnectionLostError(text) from error
        if response.status_code >= 400:
            raise _refusal(answer)
        return dict(answer)


def slots_missing(job: dict[str, Any] | None) -> int:
    """Slots a job still waits for, by its details."""
    return int(job.get("slots-missing", 0)) if job is not None else 0


def _whole(text: str) -> int | orjson.Fragment:
    """orjson writes integers of 64 bits; a DECIMAL(38, 0) has more and stays as it came."""
    value = int(text)
    return value if -(2**63) <= value < 2**63 else orjson.Fragment(text)


def _exact(text: str) -> orjson.Fragment:
    """A number with a fraction stays the text it was: a DECIMAL has more digits than a float."""
    return orjson.Fragment(text)


def _page(answer: dict[str, Any]) -> Page:
    results = answer["results"]
    return Page(
        columns=[Column(c["name"], c["logicalType"]["type"]) for c in results["columns"]],
        rows=[Row(row.get("kind", "INSERT"), row["fields"]) for row in results["data"]],
        is_query=bool(answer["isQueryResult"]),
        has_content=answer["resultKind"] == "SUCCESS_WITH_CONTENT",
        job_id=answer.get("jobID"),
        insert_only=answer.get("changelogMode", "unknown") == "insert-only",
        ended=answer["resultType"] == "EOS",
        warnings=[str(w) for w in answer.get("warnings", [])],
    )


def _unreachable(url: str, error: httpx2.TransportError) -> ConnectionLostError:
    if isinstance(error, httpx2.ConnectError):
        return ConnectionLostError(
            f"cannot reach {url}: {error}",
            hint="Start a server with `headrace standalone`, or name another one with --url or HEADRACE_URL.",
        )
    return ConnectionLostError(f"the connection to {url} broke: {type(error).__name__} {error}".rstrip())


def _refusal(answer: dict[str, Any]) -> ShellError:
    if answer.get("code") == "UNKNOWN_SESSION":
        return SessionLostError(str(answer["message"]), str(answer.get("hint", "")))
    message = answer.get("message") or _last_cause(answer)
    return StatementError(
        str(message),
        str(answer.get("hint", "")),
        code=str(answer.get("sqlState", "")),
        line=int(answer.get("line", 0)),
        column=int(answer.get("column", 0)),
        excerpt=str(answer.get("excerpt", "")),
    )


def _last_cause(answer: dict[str, Any]) -> str:
    """What a gateway that sends only `errors` means: the text of the last cause."""
    errors = [str(e) for e in answer.get("errors", [])]
    text = errors[-1] if errors else "the server gave no reason"
    return text.rpartition("Caused by: ")[2].partition("\n\tat ")[0].strip()
