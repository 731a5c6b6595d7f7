"""A small client of the gateway for tests: requests, statements to their end, whole results."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx2

DEADLINE_S = 30.0


class StatementFailedError(AssertionError):
    """A fetch answered with an error; `body` is the whole answer."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(f"{status}: {body.get('message') or body}")
        self.status = status
        self.body = body


class Gateway:
    """One session (opened at first use) at a gateway."""

    def __init__(self, url: str, api: str = "/v4") -> None:
        self.http = httpx2.Client(base_url=url, timeout=DEADLINE_S)
        self.api = api
        self._session = ""

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    @property
    def session(self) -> str:
        if not self._session:
            self._session = self.open()
        return self._session

    def open(self, **properties: str) -> str:
        answer = self.http.post(f"{self.api}/sessions", json={"properties": properties})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["sessionHandle"])

    def submit(self, statement: str, **more: Any) -> str:
        answer = self.http.post(f"{self.api}/sessions/{self.session}/statements", json={"statement": statement, **more})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["operationHandle"])

    def operation_path(self, operation: str) -> str:
        return f"{self.api}/sessions/{self.session}/operations/{operation}"

    def page(self, operation: str, token: int | str, **parameters: Any) -> httpx2.Response:
        return self.http.get(f"{self.operation_path(operation)}/result/{token}", params=parameters)

    def pages(self, operation: str, **parameters: Any) -> Iterator[dict[str, Any]]:
        """Ready pages from token 0 to the end; raises StatementFailedError."""
        deadline_s = time.monotonic() + DEADLINE_S
        token = 0
        while True:
            assert time.monotonic() < deadline_s, "the result does not end"
            answer = self.page(operation, token, **parameters)
            body = answer.json()
            if answer.status_code != 200:
                raise StatementFailedError(answer.status_code, body)
            if body["resultType"] == "NOT_READY":
                continue
            yield body
            if body["resultType"] == "EOS":
                return
            token += 1

    def run(self, statement: str, **parameters: Any) -> list[list[Any]]:
        """Rows of a statement that ends."""
        operation = self.submit(statement)
        return [row["fields"] for page in self.pages(operation, **parameters) for row in page["results"]["data"]]

    def refusal(self, statement: str) -> dict[str, Any]:
        """The error body of a statement that must fail."""
        try:
            rows = self.run(statement)
        except StatementFailedError as error:
            return error.body
        raise AssertionError(f"not refused: {rows}")

    def first(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """The first ready page."""
        return next(iter(self.pages(operation, **parameters)))

    def status(self, operation: str) -> str:
        return str(self.http.get(f"{self.operation_path(operation)}/status").json()["status"])
