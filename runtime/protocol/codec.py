"""Frames: a 4-byte big-endian length, then one msgpack message."""

from __future__ import annotations

import struct

import msgspec

from runtime.protocol.messages import Message

FRAME_BYTES_MAX = 256 * 1024 * 1024
_LENGTH = struct.Struct(">I")
LENGTH_BYTES = _LENGTH.size

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


class ProtocolError(Exception):
    """Bytes that are not a message of this protocol; the connection is closed."""


def encode_frame(message: Message) -> bytes:
    """Length prefix and body, ready to be written."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


def frame_length(prefix: bytes) -> int:
    """Body length from the 4-byte prefix. Raises ProtocolError above FRAME_BYTES_MAX."""
    (length,) = _LENGTH.unpack(prefix)
    if length > FRAME_BYTES_MAX:
        raise ProtocolError(f"frame of {length} bytes")
    return int(length)


def decode_message(body: bytes) -> Message:
    """Raises ProtocolError for anything that is not a Message."""
    try:
        return _decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise ProtocolError(str(error)) from error
