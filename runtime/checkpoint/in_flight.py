"""Files of elements in flight: what an unaligned barrier overtook on one channel.

Layout: an Arrow IPC stream of the channel's batches. Watermarks and statuses between them are empty batches that carry
the element as metadata. Blocking: call it from a helper thread, or while a task starts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pyarrow as pa

from connectors.api import CheckpointFiles
from runtime.checkpoint.snapshot import InFlightHandle
from runtime.elements import Batch, Element, Watermark, WatermarkStatus
from runtime.exchange.frames import as_batch, conformed, decode_control, encode_control

FOLDER = "in-flight"
"""Where the files are, within a job's checkpoint files."""
_CONTROL = b"control"


class DamagedFileError(Exception):
    """A file is missing or not what was written. The message names it; `damaged_file` is its path among the job's."""

    domain = "external"
    retry = True

    def __init__(self, message: str, damaged_file: str) -> None:
        super().__init__(message)
        self.damaged_file = damaged_file


class ChannelRef(msgspec.Struct, frozen=True):
    """One channel: see InFlightHandle. `schema` is that of its batches, with the row kinds of a changelog edge."""

    edge_id: int
    producer_index: int
    consumer_index: int
    source_uid: str
    target_uid: str
    schema: pa.Schema
    input_index: int = 0


class InFlight(msgspec.Struct, frozen=True):
    """What is in flight on one channel: batches, watermarks and statuses in order."""

    channel: ChannelRef
    elements: list[Element]


def layout(schema: pa.Schema) -> str:
    """Digest of a channel's columns."""
    text = repr([(field.name, str(field.type)) for field in schema])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write(files: CheckpointFiles, name: str, in_flight: InFlight) -> InFlightHandle:
    """A file under a name that was never used. Raises OSError."""
    channel, row_count = in_flight.channel, 0
    schema = channel.schema
    nothing = pa.RecordBatch.from_pylist([], schema=schema)
    writer = files.create(f"{FOLDER}/{name}")
    try:
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(cast(Any, writer), schema, options=options) as stream:
            for element in in_flight.elements:
                if isinstance(element, Batch):
                    stream.write_batch(conformed(element, schema))
                    row_count += element.row_count
                else:
                    stream.write_batch(nothing, custom_metadata={_CONTROL: encode_control(element)})
        sealed = writer.seal()
    finally:
        writer.discard()
    return InFlightHandle(
        channel.edge_id,
        channel.producer_index,
        channel.consumer_index,
        sealed.path,
        row_count,
        sealed.byte_size,
        sealed.checksum,
        channel.source_uid,
        channel.target_uid,
        layout(schema),
        channel.input_index,
    )


def read(files: CheckpointFiles, handle: InFlightHandle) -> tuple[pa.Schema, list[Element]]:
    """The elements of a file, whose size and checksum are verified. Raises DamagedFileError."""
    place = files.locate(handle.path)
    try:
        with files.open(handle.path) as source:
            data = source.read()
        if (len(data), hashlib.sha256(data).hexdigest()) != (handle.byte_size, handle.checksum):
            problem = "is damaged: its size or SHA-256 is not that of the checkpoint"
            raise DamagedFileError(f"{place} {problem}", handle.path)
        with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
            return stream.schema, list(_elements(stream))
    except (OSError, pa.ArrowInvalid) as error:
        raise DamagedFileError(f"{place} cannot be read: {error}", handle.path) from error


def _elements(stream: pa.ipc.RecordBatchStreamReader) -> Iterator[Element]:
    while True:
        try:
            found = stream.read_next_batch_with_custom_metadata()
        except StopIteration:
            return
        metadata: Any = found.custom_metadata
        if metadata is None:
            yield as_batch(found.batch)
            continue
        control = decode_control(metadata[_CONTROL])
        assert isinstance(control, Watermark | WatermarkStatus)
        yield control
