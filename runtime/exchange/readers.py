"""Readers of a query's rows on the slot's data port. Everything but `register` runs in the I/O thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from runtime.api import ResultPage
from runtime.exchange.connection import FramedConnection
from runtime.exchange.frames import FetchRequest, FrameKind, frame
from runtime.exchange.results import encode_page
from runtime.ids import AttemptId


class ResultPages(Protocol):
    """Where rows wait for their reader; safe for any thread."""

    @property
    def closed(self) -> bool:
        """The task is gone: nothing more can be read."""

    def page(self, sequence: int, rows_max: int) -> ResultPage | None:
        """The page that begins with row `sequence`; None: nothing yet. Raises ValueError for rows that are gone."""

    def nothing(self, sequence: int) -> ResultPage:
        """An empty page that asks for `sequence` again."""

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` once, from any thread, at the next change."""


class _Wait:
    """One request that found nothing; answered once."""

    def __init__(self, connection: FramedConnection, request: FetchRequest) -> None:
        self.connection = connection
        self.request = request
        self.done = False


class ResultReaders:
    """`call` runs a function in the I/O thread, `after` does so after a delay in ms."""

    def __init__(
        self,
        call: Callable[[Callable[[], None]], None],
        after: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._call = call
        self._after = after
        self._pages: dict[AttemptId, ResultPages] = {}
        self._waits: dict[FramedConnection, _Wait] = {}

    def register(self, attempt: AttemptId, pages: ResultPages) -> None:
        """From any thread: the rows of this task can be read."""
        self._call(lambda: self._pages.update({attempt: pages}))

    def on_request(self, connection: FramedConnection, request: FetchRequest) -> None:
        wait = _Wait(connection, request)
        if not self._answer(wait):
            if request.wait_ms <= 0:
                self._give_up(wait)
                return
            self._waits[connection] = wait
            self._after(request.wait_ms, lambda: self._give_up(wait))
            self._listen(wait)

    def gone(self, connection: FramedConnection) -> None:
        """The reader has gone."""
        wait = self._waits.pop(connection, None)
        if wait is not None:
            wait.done = True

    def _listen(self, wait: _Wait) -> None:
        self._pages[wait.request.attempt].listen(lambda: self._call(lambda: self._again(wait)))
        # A change between the look and the listening would be missed.
        self._call(lambda: None if wait.done else self._retry(wait))

    def _retry(self, wait: _Wait) -> None:
        if self._answer(wait):
            self._waits.pop(wait.connection, None)

    def _again(self, wait: _Wait) -> None:
        if not wait.done and not self._answer(wait):
            self._listen(wait)

    def _answer(self, wait: _Wait) -> bool:
        """Send a page or the reason why there is none; False: nothing to say yet."""
        request = wait.request
        pages = self._pages.get(request.attempt)
        if pages is None or pages.closed:
            self._send(wait, FrameKind.LOST, b"the task that held the result has ended")
            return True
        try:
            page = pages.page(request.sequence, request.rows_max)
        except ValueError as error:
            self._send(wait, FrameKind.LOST, str(error).encode())
            return True
        if page is None:
            return False
        self._send(wait, FrameKind.PAGE, encode_page(page))
        return True

    def _give_up(self, wait: _Wait) -> None:
        pages = self._pages.get(wait.request.attempt)
        if not wait.done and pages is not None:
            self._send(wait, FrameKind.PAGE, encode_page(pages.nothing(wait.request.sequence)))

    def _send(self, wait: _Wait, kind: FrameKind, body: bytes) -> None:
        wait.done = True
        self._waits.pop(wait.connection, None)
        wait.connection.enqueue(frame(kind, body))
