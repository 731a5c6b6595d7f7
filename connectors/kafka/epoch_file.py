"""The write-ahead file: the records of one epoch of one sink subtask, exactly as they will be produced.

An Arrow IPC stream of record batches `partition, key, value, timestamp, headers`, in order of arrival; they are
produced batch by batch, each partition by partition. Topic and partition are fixed when the row is written, so
producing the file again gives the same records at the same places. The file is immutable once sealed and as durable
as the checkpoint that names it: bytes and directory entry are synced before the barrier is acknowledged.
"""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Iterator

import msgspec
import pyarrow as pa

from connectors.api import EPOCH_FOLDER, CheckpointFiles, Committable, FileWriter
from connectors.errors import DamagedFileError

PARTITION, KEY, VALUE, TIMESTAMP, HEADERS = range(5)
_PIECE_BYTES = 1 << 20


def record_schema(*, keys: bool, timestamps: bool, headers: bool) -> pa.Schema:
    """Columns a sink never fills are of type null: they take no space."""
    nothing = pa.null()
    return pa.schema([
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("key", pa.binary() if keys else nothing),
        pa.field("value", pa.binary()),
        pa.field("timestamp", pa.int64() if timestamps else nothing),
        pa.field("headers", pa.map_(pa.string(), pa.binary()) if headers else nothing),
    ])  # fmt: skip


class EpochReference(msgspec.Struct, frozen=True):
    """What a checkpoint stores of a sealed file (`Committable.data`). `file` is its path. `crc32` is what markers show
    of its content: the first 32 bits of `sha256`, or the CRC-32 in files of earlier versions, which have none."""

    topic: str
    file: str
    crc32: int
    sha256: str = ""

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


def reference(committable: Committable) -> EpochReference:
    return msgspec.json.decode(committable.data, type=EpochReference)


class EpochFileWriter:
    """Writes one file, made at its first record batch."""

    def __init__(self, files: CheckpointFiles, name: str, schema: pa.Schema) -> None:
        self._files = files
        self._path = f"{EPOCH_FOLDER}/{name}"
        self._schema = schema
        self._sink: _CountedFile | None = None
        self._stream: pa.ipc.RecordBatchStreamWriter | None = None
        self.record_count = 0

    @property
    def byte_size(self) -> int:
        return 0 if self._sink is None else self._sink.byte_size

    def write(self, records: pa.RecordBatch) -> None:
        """Raises OSError."""
        if self._stream is None:
            self._sink = _CountedFile(self._files.create(self._path))
            self._stream = pa.ipc.new_stream(self._sink, self._schema)
        self._stream.write_batch(records)
        self.record_count += records.num_rows

    def seal(self, topic: str) -> EpochReference | None:
        """Make the file durable; None when nothing was written (then there is no file). Raises OSError."""
        if self._stream is None or self._sink is None:
            return None
        self._stream.close()
        checksum = self._sink.file.seal().checksum
        return EpochReference(topic, self._path, int(checksum[:8], 16), checksum)

    def discard(self) -> None:
        """Drop an unsealed file: its rows belong to no checkpoint."""
        if self._sink is not None:
            self._sink.file.discard()
            self._stream = None


class _CountedFile(io.RawIOBase):
    """Says how many bytes were written."""

    def __init__(self, file: FileWriter) -> None:
        self.file = file
        self.byte_size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        self.byte_size += len(view)
        return self.file.write(view)


def read_epoch(committable: Committable, files: CheckpointFiles, *, verify: bool) -> Iterator[pa.RecordBatch]:
    """The record batches of a sealed epoch. `verify` checks the bytes first, as recovery must: another process may
    have written them on a disk that lied. Raises DamagedFileError, OSError."""
    path = reference(committable).file
    try:
        with files.open(path) as source:
            if verify:
                _verify(source, committable, files)
                source.seek(0)
            with pa.ipc.open_stream(source) as stream:
                yield from stream
    except FileNotFoundError:
        raise _lost(committable, files, "does not exist") from None
    except pa.ArrowInvalid as error:
        raise _lost(committable, files, f"is damaged: {error}") from None


def _verify(source: pa.NativeFile, committable: Committable, files: CheckpointFiles) -> None:
    stored, digest = reference(committable), hashlib.sha256()
    crc32 = size = 0
    while piece := source.read(_PIECE_BYTES):
        size += len(piece)
        if stored.sha256:
            digest.update(piece)
        else:
            crc32 = zlib.crc32(piece, crc32)
    if size != committable.byte_size:
        raise _lost(committable, files, f"is damaged: it has {size} bytes instead of {committable.byte_size}")
    if digest.hexdigest() != stored.sha256 if stored.sha256 else crc32 != stored.crc32:
        raise _lost(committable, files, "is damaged: its checksum is wrong")


def _lost(committable: Committable, files: CheckpointFiles, what: str) -> DamagedFileError:
    path = reference(committable).file
    return DamagedFileError(
        f"write-ahead file {files.locate(path)} of checkpoint {committable.checkpoint_id} {what}",
        path,
        hint="Its records were part of a completed checkpoint and cannot be made again from it. Restore the file, "
        "or start the job from an older savepoint.",
    )
