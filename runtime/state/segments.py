"""Segments: the one snapshot format of keyed state.

A segment is an Arrow IPC file whose rows are sorted by key group (first column). Batches end at borders of key groups;
the file's metadata lists, per key group, its batch and row range, and Arrow's own footer the byte range of each batch.
So a reader fetches only batches that hold key groups it owns. A segment's name is never used twice; its handle carries
the SHA-256 of the whole file.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.api import CheckpointFiles
from runtime.checkpoint.snapshot import SegmentHandle
from runtime.operators.protocol import KeyGroupRange
from runtime.state.errors import SegmentError
from runtime.state.read_once import SegmentFiles

FORMAT_VERSION = 1
STATE_FOLDER = "state"
"""Where segments go, within a job's checkpoint files."""
_METADATA_KEY = b"headrace.segment"
_ROWS_PER_BATCH = 16_384


class KeyGroupRows(msgspec.Struct, frozen=True, array_like=True):
    """Where the rows of a key group are: batch number, first row in it, number of rows."""

    key_group: int
    batch: int
    first_row: int
    row_count: int


class SegmentFooter(msgspec.Struct, frozen=True):
    """The metadata of a segment file."""

    version: int
    state: str
    key_groups: tuple[KeyGroupRows, ...]


class SegmentWriter:
    """Writes the segments of one operator of one attempt: the attempt and a running number make names unique."""

    def __init__(self, files: CheckpointFiles, uid: str, attempt: str) -> None:
        self._files = files
        self._prefix = f"{attempt}-{hashlib.sha256(uid.encode()).hexdigest()[:8]}"
        # Names are taken by the task's thread and by the one that writes: `next` is atomic.
        self._sequence = itertools.count(1)

    def write(
        self,
        state: str,
        rows: pa.RecordBatch,
        *,
        checkpoint_id: int,
        is_delta: bool = False,
        is_removal: bool = False,
    ) -> SegmentHandle:
        """Write `rows` (sorted by key group, at least one) as a segment of its own. Raises OSError."""
        readable = re.sub(r"[^A-Za-z0-9_]+", "_", state)
        name = f"{self._prefix}-{readable}-c{checkpoint_id}-{next(self._sequence)}.arrow"
        groups = rows.column(0).to_numpy()
        batches, index = _cut(groups)
        footer = msgspec.json.encode(SegmentFooter(FORMAT_VERSION, state, index))
        schema = rows.schema.with_metadata({_METADATA_KEY: footer})
        file = self._files.create(f"{STATE_FOLDER}/{name}")
        try:
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            with pa.ipc.new_file(cast(Any, file), schema, options=options) as writer:
                for first, count in batches:
                    writer.write_batch(rows.slice(first, count).replace_schema_metadata(schema.metadata))
            sealed = file.seal()
        finally:
            file.discard()
        return SegmentHandle(
            path=sealed.path,
            state=state,
            key_group_first=int(groups[0]),
            key_group_last=int(groups[-1]),
            row_count=rows.num_rows,
            byte_size=sealed.byte_size,
            checksum=sealed.checksum,
            checkpoint_id=checkpoint_id,
            is_delta=is_delta,
            is_removal=is_removal,
        )


def read_owned(files: SegmentFiles, handle: SegmentHandle, owned: KeyGroupRange) -> Iterator[pa.RecordBatch]:
    """The rows that the handle names of the key groups in `owned`, in stored order. The file is read once, whole: its
    checksum is that of all its bytes. Raises SegmentError, OSError."""
    owned = KeyGroupRange(max(owned.first, handle.key_group_first), min(owned.last, handle.key_group_last))
    if owned.first > owned.last:
        return
    path = files.locate(handle.path)
    try:
        with files.open(handle.path) as source:
            data = source.read_buffer(handle.byte_size + 1)
        if data.size != handle.byte_size or hashlib.sha256(data).hexdigest() != handle.checksum:
            message = f"state file {path} is damaged: its size or SHA-256 is not that of the checkpoint"
            raise SegmentError(message, handle.path)
        with pa.ipc.open_file(data) as reader:
            footer = _footer(reader.schema, path)
            for batch, first, count in _owned_ranges(footer, owned):
                rows = reader.get_batch(batch).replace_schema_metadata(None)
                # A copy: what is kept must not hold the foreign rows of the batch.
                yield rows if count == rows.num_rows else rows.take(np.arange(first, first + count))
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise SegmentError(f"state file {path} cannot be read: {error}", handle.path) from error


def _footer(schema: pa.Schema, path: str) -> SegmentFooter:
    metadata: dict[bytes, bytes] = schema.metadata or {}
    try:
        footer = msgspec.json.decode(metadata.get(_METADATA_KEY, b""), type=SegmentFooter)
    except msgspec.MsgspecError as error:
        raise SegmentError(f"{path} is not a state file: {error}") from error
    if footer.version != FORMAT_VERSION:
        raise SegmentError(f"state file {path} has format {footer.version}; this version reads {FORMAT_VERSION}")
    return footer


def _cut(groups: npt.NDArray[Any]) -> tuple[list[tuple[int, int]], tuple[KeyGroupRows, ...]]:
    """Batches (first row, row count) that end at borders of key groups, and the index of key groups in them."""
    starts = np.flatnonzero(np.concatenate(([True], groups[1:] != groups[:-1])))
    ends = np.append(starts[1:], len(groups))
    batches: list[tuple[int, int]] = []
    index: list[KeyGroupRows] = []
    batch_first = 0
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if start > batch_first and end - batch_first > _ROWS_PER_BATCH:
            batches.append((batch_first, start - batch_first))
            batch_first = start
        index.append(KeyGroupRows(int(groups[start]), len(batches), start - batch_first, end - start))
    batches.append((batch_first, len(groups) - batch_first))
    return batches, tuple(index)


def _owned_ranges(footer: SegmentFooter, owned: KeyGroupRange) -> Iterator[tuple[int, int, int]]:
    """Per batch with owned key groups: batch number, first row and number of rows (owned groups are neighbours)."""
    ranges: dict[int, tuple[int, int]] = {}
    for entry in footer.key_groups:
        if owned.first <= entry.key_group <= owned.last:
            first, count = ranges.get(entry.batch, (entry.first_row, 0))
            ranges[entry.batch] = (first, count + entry.row_count)
    for batch, (first, count) in ranges.items():
        yield batch, first, count
