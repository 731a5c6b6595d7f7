"""Messages over an asyncio byte stream (TCP or a socket pair), used by JobManager and TaskManager."""

from __future__ import annotations

import asyncio

from runtime.protocol.codec import LENGTH_BYTES, ProtocolError, decode_message, encode_frame, frame_length
from runtime.protocol.messages import Message


class ConnectionClosedError(Exception):
    """The other side is gone, or sent what is not a message."""


class MessageStream:
    """Sends never block: frames wait in the transport's buffer. One reader."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> Message:
        """The next message. Raises ConnectionClosedError."""
        try:
            prefix = await self._reader.readexactly(LENGTH_BYTES)
            return decode_message(await self._reader.readexactly(frame_length(prefix)))
        except (asyncio.IncompleteReadError, OSError) as error:
            raise ConnectionClosedError("the connection was closed") from error
        except ProtocolError as error:
            raise ConnectionClosedError(f"not a message: {error}") from error

    def send(self, message: Message) -> None:
        """Dropped when the connection is closed; the reader notices that."""
        if not self._writer.is_closing():
            self._writer.write(encode_frame(message))

    async def drain(self) -> None:
        """Wait until the buffer is small again; returns at once when the connection is closed."""
        try:
            await self._writer.drain()
        except OSError:
            pass  # The reader reports the loss.

    def close(self) -> None:
        self._writer.close()
