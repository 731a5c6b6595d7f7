"""Frames on a data connection. Pure: bytes in, bytes out.

A frame is a 17-byte header (kind, channel, attempt, credit, length; big-endian) and a body of `length` bytes. On a
connection between two slots each side numbers the channels of its own producers; credit travels back under the same
number. `attempt` is the producer's attempt number: a frame of another attempt than the channel was opened for is
dropped. Batches are Arrow IPC record batches without schema; the schema came once, with the channel.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TypeVar, cast

import msgspec
import pyarrow as pa

from planner.ir.operators import ChangelogMode, Schema
from planner.ir.types import arrow_schema
from runtime.elements import Batch, Control
from runtime.exchange.partitioner import inserts
from runtime.ids import AttemptId, JobId, SlotId

DATA_PROTOCOL_VERSION = 1
FRAME_BYTES_MAX = 1 << 30
_HEADER = struct.Struct(">BIIII")
HEADER_BYTES = _HEADER.size


class FrameError(Exception):
    """Bytes that are not a frame of this protocol: the connection is closed."""


class FrameKind(IntEnum):
    OPEN = 1
    """First frame of a connection between two slots: OpenConnection."""
    CHANNEL = 2
    """Producer → consumer: OpenChannel; answered by CAPACITY or REFUSED."""
    CAPACITY = 3
    """Consumer → producer: `credit` bytes may be under way."""
    CREDIT = 4
    """Consumer → producer: `credit` bytes were taken from the queue."""
    REFUSED = 5
    """Consumer → producer: this channel will not be served; the body is the reason."""
    BATCH = 6
    """Arrow IPC; `credit` is what it counts against the window."""
    CONTROL = 7
    """A Control element in msgpack."""
    FETCH = 8
    """First frame of a reader of results: FetchRequest; answered by PAGE or LOST."""
    PAGE = 9
    LOST = 10
    """The result is not here (any more); the body is the reason."""


class Header(msgspec.Struct, frozen=True):
    kind: FrameKind
    channel: int
    attempt: int
    credit: int
    length: int


class OpenConnection(msgspec.Struct, frozen=True):
    """Who speaks: refused unless the job is the receiver's and the generation is not older."""

    version: int
    job_id: JobId
    generation: int
    from_slot: SlotId
    to_slot: SlotId


class OpenChannel(msgspec.Struct, frozen=True):
    """One channel: edge, both attempts, and the Arrow schema of its batches (IPC bytes)."""

    edge_id: int
    producer: AttemptId
    consumer: AttemptId
    schema: bytes


class FetchRequest(msgspec.Struct, frozen=True):
    attempt: AttemptId
    sequence: int
    rows_max: int
    wait_ms: int


T = TypeVar("T")
_control_decoder: msgspec.msgpack.Decoder[Control] = msgspec.msgpack.Decoder(Control)


def header(kind: FrameKind, *, channel: int = 0, attempt: int = 0, credit: int = 0, length: int = 0) -> bytes:
    """The 17 bytes before a body."""
    return _HEADER.pack(kind, channel, attempt, credit, length)


def frame(kind: FrameKind, body: bytes, *, channel: int = 0, attempt: int = 0) -> bytes:
    """A whole small frame."""
    return header(kind, channel=channel, attempt=attempt, length=len(body)) + body


def parse_header(data: bytes | bytearray | memoryview) -> Header:
    """Raises FrameError."""
    kind, channel, attempt, credit, length = _HEADER.unpack(data)
    if kind not in FrameKind._value2member_map_ or length > FRAME_BYTES_MAX:
        raise FrameError(f"not a frame: kind {kind}, {length} bytes")
    return Header(FrameKind(kind), channel, attempt, credit, length)


def encode(message: OpenConnection | OpenChannel | FetchRequest) -> bytes:
    return msgspec.msgpack.encode(message)


def decode(body: bytes | memoryview, kind: type[T]) -> T:
    """Raises FrameError."""
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise FrameError(f"not a {kind.__name__}: {error}") from error


def encode_control(element: Control) -> bytes:
    return msgspec.msgpack.encode(element)


def decode_control(body: bytes | memoryview) -> Control:
    """Raises FrameError."""
    try:
        return _control_decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise FrameError(f"not a control element: {error}") from error


_ROW_KINDS = "row_kinds"


def channel_schema(schema: Schema, changelog: ChangelogMode) -> pa.Schema:
    """Arrow schema of a channel's batches: the edge's columns and, on changelog edges, the row kinds."""
    columns = arrow_schema(schema.types)
    if changelog is ChangelogMode.INSERT_ONLY:
        return columns
    return columns.append(pa.field(_ROW_KINDS, pa.int8()))


def _has_row_kinds(schema: pa.Schema) -> bool:
    return bool(schema.names) and schema.names[-1] == _ROW_KINDS


def conformed(batch: Batch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch's columns, and its row kinds on a changelog edge, under the channel's schema. Raises FrameError when
    they do not have the channel's types."""
    data = batch.data
    if _has_row_kinds(schema):
        kinds = inserts(batch) if batch.row_kinds is None else batch.row_kinds
        data = pa.RecordBatch.from_arrays([*data.columns, kinds], names=[*data.schema.names, _ROW_KINDS])
    elif batch.row_kinds is not None:
        raise FrameError("a batch with row kinds on a channel that carries inserts only")
    if not data.schema.equals(schema):
        if data.schema.types != schema.types:
            raise FrameError(f"a batch of {data.schema} on a channel of {schema}")
        # Names and the NOT NULL marks of columns are the channel's business, not the producer's.
        data = pa.RecordBatch.from_arrays(data.columns, schema=schema)
    return data


def as_batch(data: pa.RecordBatch) -> Batch:
    """The rows of a channel as a batch again."""
    if _has_row_kinds(data.schema):
        kinds = cast("pa.Int8Array", data.column(data.num_columns - 1))
        return Batch(data.select(data.schema.names[:-1]), kinds)
    return Batch(data)


def encode_batch(batch: Batch, schema: pa.Schema) -> pa.Buffer:
    """One contiguous IPC message. Raises FrameError when the columns do not have the channel's types."""
    return conformed(batch, schema).serialize()


def decode_batch(body: pa.Buffer, schema: pa.Schema) -> Batch:
    """The batch over the received bytes, without a copy. Raises FrameError."""
    try:
        return as_batch(pa.ipc.read_record_batch(body, schema))
    except (pa.ArrowInvalid, OSError) as error:
        raise FrameError(f"not a record batch: {error}") from error
