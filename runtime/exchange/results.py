"""Result pages as bytes: a length-prefixed header, then an Arrow IPC stream of the rows."""

from __future__ import annotations

import struct
from typing import cast

import msgspec
import pyarrow as pa

from runtime.api import ResultPage
from runtime.exchange.frames import FrameError

_LENGTH = struct.Struct(">I")
_ROW_KINDS = "row_kinds"


class _PageHeader(msgspec.Struct, frozen=True):
    sequence: int
    next_sequence: int
    ended: bool
    has_row_kinds: bool


def encode_page(page: ResultPage) -> bytes:
    has_kinds = page.row_kinds is not None
    head = msgspec.msgpack.encode(_PageHeader(page.sequence, page.next_sequence, page.ended, has_kinds))
    rows = page.rows
    if page.row_kinds is not None:
        names = [*rows.schema.names, _ROW_KINDS]
        rows = pa.RecordBatch.from_arrays([*rows.columns, page.row_kinds], names=names)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return _LENGTH.pack(len(head)) + head + sink.getvalue().to_pybytes()


def decode_page(body: bytes) -> ResultPage:
    """Raises FrameError."""
    try:
        (length,) = _LENGTH.unpack_from(body)
        head = msgspec.msgpack.decode(body[_LENGTH.size : _LENGTH.size + length], type=_PageHeader)
        with pa.ipc.open_stream(pa.py_buffer(body).slice(_LENGTH.size + length)) as reader:
            rows = reader.read_next_batch()
    except (struct.error, msgspec.MsgspecError, pa.ArrowInvalid, StopIteration) as error:
        raise FrameError(f"not a result page: {error}") from error
    kinds: pa.Int8Array | None = None
    if head.has_row_kinds:
        kinds = cast("pa.Int8Array", rows.column(rows.num_columns - 1))
        rows = rows.select(rows.schema.names[:-1])
    return ResultPage(head.sequence, head.next_sequence, rows, kinds, head.ended)
