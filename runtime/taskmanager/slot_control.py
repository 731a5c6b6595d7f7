"""The slot's end of the control channel to its supervisor: frames of `runtime.protocol` on an inherited socket."""

from __future__ import annotations

import socket
import threading

from runtime.protocol.codec import LENGTH_BYTES, decode_message, encode_frame, frame_length
from runtime.protocol.messages import Message


class ControlChannel:
    """`send` from any thread, `receive` from one."""

    def __init__(self, file_descriptor: int) -> None:
        self._socket = socket.socket(fileno=file_descriptor)
        self._socket.setblocking(True)
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        """Raises OSError when the supervisor is gone."""
        data = encode_frame(message)
        with self._lock:
            self._socket.sendall(data)

    def receive(self) -> Message | None:
        """Blocks; None when the supervisor has closed its end."""
        prefix = self._read(LENGTH_BYTES)
        if prefix is None:
            return None
        body = self._read(frame_length(prefix))
        return None if body is None else decode_message(body)

    def _read(self, count: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < count:
            part = self._socket.recv(min(count - len(parts), 1 << 20))
            if not part:
                return None
            parts += part
        return bytes(parts)
