"""The I/O thread of a slot: sockets, timers and calls from other threads, in one loop."""

from __future__ import annotations

import heapq
import itertools
import logging
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from runtime.exchange.connection import ConnectionClosed, FramedConnection
from runtime.exchange.frames import FrameError, Header

log = logging.getLogger(__name__)


class ConnectionHandler(Protocol):
    """What is done with connections; called in the I/O thread."""

    def on_frame(self, connection: FramedConnection, head: Header, body: pa.Buffer) -> None:
        """Raises FrameError for what does not belong there: the connection is closed."""

    def on_lost(self, connection: FramedConnection, reason: str) -> None:
        """The connection is closed and will not come back."""

    def on_broken(self, error: Exception) -> None:
        """The thread cannot go on: no connection will say anything any more."""


class IoThread:
    """Listens from construction on. `call`, and `enqueue` of its connections, are for any thread; the rest is for
    the I/O thread itself."""

    def __init__(self, host: str, handler: ConnectionHandler, listener: socket.socket | None = None) -> None:
        """`listener`: a socket that listens already; else a free port of `host` is taken."""
        self._handler = handler
        self._listener = listener or socket.create_server((host, 0))
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        self._calls: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_numbers = itertools.count()
        self._with_output: set[FramedConnection] = set()
        self._thread = threading.Thread(target=self._run, name="exchange", daemon=True)
        self._closing = False

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends the thread and closes every socket. A second call does nothing."""
        if self._thread.is_alive():
            self.call(self._stop)
            self._thread.join()
        self._wake_sender.close()

    def call(self, function: Callable[[], None]) -> None:
        """Run `function` in the I/O thread. Calls keep their order."""
        self._calls.append(function)
        self._wake()

    def _wake(self) -> None:
        try:
            self._wake_sender.send(b"\0")
        except OSError:
            pass  # Enough wake-ups are under way, or the thread has ended.

    def _on_output(self, connection: FramedConnection) -> None:
        if connection not in self._with_output:
            self._with_output.add(connection)
            if threading.current_thread() is not self._thread:
                self._wake()

    # --------------------------------------------------------------------------------------------- I/O thread

    def after(self, delay_ms: float, function: Callable[[], None]) -> None:
        """Run `function` once, after the delay."""
        due_s = time.monotonic() + delay_ms / 1000.0
        heapq.heappush(self._timers, (due_s, next(self._timer_numbers), function))

    def connect(self, host: str, port: int) -> FramedConnection:
        """A connection being made; what is enqueued is sent when it stands, and its failure is a loss."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        connection = FramedConnection(socket.socket(family, socket.SOCK_STREAM), self._on_output)
        connection.connecting = True
        connection.sock.connect_ex((host, port))
        self._watch(connection)
        return connection

    def _watch(self, connection: FramedConnection) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.connecting else 0)
        self._selector.register(connection.sock, events, connection)

    def _run(self) -> None:
        try:
            self._loop()
        except Exception as error:  # A mistake of ours: without this thread the process is of no use.
            log.critical("the I/O thread ends", exc_info=error)
            self._handler.on_broken(error)
        finally:
            for key in list(self._selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]
            self._selector.close()

    def _loop(self) -> None:
        self._selector.register(self._wake_receiver, selectors.EVENT_READ, None)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        while not self._closing:
            timeout_s = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
            for key, events in self._selector.select(timeout_s):
                if key.fileobj is self._wake_receiver:
                    self._drain_wakes()
                elif key.fileobj is self._listener:
                    self._accept()
                else:
                    self._serve(key.data, events)
            while self._calls:
                self._calls.popleft()()
            while self._timers and self._timers[0][0] <= time.monotonic():
                heapq.heappop(self._timers)[2]()
            self._send_output()

    def _stop(self) -> None:
        self._closing = True

    def _drain_wakes(self) -> None:
        try:
            while self._wake_receiver.recv(4096):
                pass
        except BlockingIOError:
            pass

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return  # The caller has gone again.
        self._watch(FramedConnection(sock, self._on_output))

    def _serve(self, connection: FramedConnection, events: int) -> None:
        if connection.closed:
            return
        try:
            if events & selectors.EVENT_WRITE:
                self._writable(connection)
            if events & selectors.EVENT_READ:
                for head, body in connection.receive():
                    self._handler.on_frame(connection, head, body)
        except (ConnectionClosed, FrameError) as error:
            self._lose(connection, str(error))

    def _writable(self, connection: FramedConnection) -> None:
        connection.finish_connecting()
        connection.send()
        if not connection.has_output:
            self._selector.modify(connection.sock, selectors.EVENT_READ, connection)

    def _send_output(self) -> None:
        while self._with_output:
            connection = self._with_output.pop()
            if connection.closed or connection.connecting:
                continue
            try:
                connection.send()
            except ConnectionClosed as error:
                self._lose(connection, str(error))
                continue
            if connection.has_output:
                self._selector.modify(connection.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)

    def _lose(self, connection: FramedConnection, reason: str) -> None:
        self._selector.unregister(connection.sock)
        connection.close()
        self._handler.on_lost(connection, reason)
