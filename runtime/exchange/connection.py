"""One non-blocking socket that carries frames. Owned by the I/O thread; `enqueue` may be called from any thread."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable, Iterator

import pyarrow as pa

from runtime.exchange.frames import HEADER_BYTES, Header, parse_header

_BUFFERS_PER_SEND = 32
_FRAMES_PER_TURN = 16
"""Frames read from one connection before the others' turn."""


class ConnectionClosed(Exception):
    """The other side is gone."""


class FramedConnection:
    """`on_output` is called when there is something to send (it wakes the I/O thread)."""

    def __init__(self, sock: socket.socket, on_output: Callable[[FramedConnection], None]) -> None:
        self.sock = sock
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connecting = False
        self.closed = False
        self._on_output = on_output
        self._out: deque[memoryview] = deque()
        self._head = bytearray(HEADER_BYTES)
        self._head_view = memoryview(self._head)
        self._filled = 0
        self._header: Header | None = None
        self._body: pa.Buffer | None = None
        self._body_view = memoryview(b"")

    def enqueue(self, *parts: bytes | pa.Buffer) -> None:
        """Send these parts, one after the other, behind what is waiting. The parts of a frame go in one call, and
        only one thread sends on a channel, so frames of a channel keep their order."""
        # One extend: parts of two frames must not mix, and a deque's extend is atomic.
        self._out.extend([memoryview(part).cast("B") for part in parts])
        self._on_output(self)

    def finish_connecting(self) -> None:
        """The socket has become writable for the first time, or cannot connect: then raises ConnectionClosed."""
        if self.connecting:
            code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise ConnectionClosed(f"cannot connect: {os.strerror(code)}")
            self.connecting = False

    @property
    def has_output(self) -> bool:
        return bool(self._out)

    def send(self) -> None:
        """Write what the socket takes. Raises ConnectionClosed."""
        while self._out:
            views = [self._out[i] for i in range(min(len(self._out), _BUFFERS_PER_SEND))]
            try:
                sent = self.sock.sendmsg(views)
            except BlockingIOError:
                return
            except OSError as error:
                raise ConnectionClosed(str(error)) from error
            self._drop(sent)

    def _drop(self, sent: int) -> None:
        while sent:
            view = self._out[0]
            if sent < len(view):
                self._out[0] = view[sent:]
                return
            sent -= len(view)
            self._out.popleft()

    def receive(self) -> Iterator[tuple[Header, pa.Buffer]]:
        """Whole frames that have arrived. Raises ConnectionClosed, FrameError."""
        for _ in range(_FRAMES_PER_TURN):
            if self._header is None:
                if not self._fill(self._head_view):
                    return
                self._header, self._filled = parse_header(self._head), 0
                # Arrow reads the body in place: its buffers must be aligned, which bytes are not.
                self._body = pa.allocate_buffer(self._header.length)
                self._body_view = memoryview(self._body).cast("B") if self._header.length else memoryview(b"")
            if not self._fill(self._body_view):
                return
            head, body = self._header, self._body
            assert body is not None
            self._header, self._body, self._filled = None, None, 0
            yield head, body

    def _fill(self, view: memoryview) -> bool:
        """Read until `view` is full; False when the socket has no more for now."""
        while self._filled < len(view):
            try:
                count = self.sock.recv_into(view[self._filled :])
            except BlockingIOError:
                return False
            except OSError as error:
                raise ConnectionClosed(str(error)) from error
            if count == 0:
                raise ConnectionClosed("closed by the other side")
            self._filled += count
        return True

    def close(self) -> None:
        self.closed = True
        self._out.clear()
        self.sock.close()
