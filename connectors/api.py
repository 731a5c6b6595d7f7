"""The protocols between Headrace and the outside world. The runtime and the server know connectors only by these.

A connector answers for a table (identifier, columns, WITH options) as a source, a sink or both. Construction from a
`TableDefinition` validates options and must not connect to anything nor load a heavy client library; enumerators,
readers and writers do. Everything that must survive a crash (`SplitState`, `Committable`) is plain frozen data from
which a fresh process can go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Literal, Protocol, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from planner.ir.types import ChangelogMode, DataType, Field

Int64Array = npt.NDArray[np.int64]


class MetadataField(msgspec.Struct, frozen=True):
    """A metadata column of a table: column name, the connector's key (e.g. `offset`), declared type."""

    name: str
    key: str
    type: DataType


class TableDefinition(msgspec.Struct, frozen=True):
    """What a connector knows of a table. `columns` are the physical columns in order."""

    identifier: str
    options: dict[str, str]
    columns: tuple[Field, ...]
    primary_key: tuple[str, ...] = ()


# ---------------------------------------------------------------------------------------------------- sources


class Split(msgspec.Struct, frozen=True):
    """A part of a source that one reader reads in order (a Kafka partition, a file, one generator).

    `id` is unique and stable within the source; `data` is the connector's own description, start position and, when
    bounded, end position included, so that reading it again from the start gives the same rows."""

    id: str
    data: bytes


class SplitState(msgspec.Struct, frozen=True):
    """A split and how far it was read. `position` None = from the split's start; `counters` are exact counts that
    are part of state (e.g. `numRecordsSkipped`); `watermark_ms` is the running maximum of the split's event time
    and is kept by the source operator, not by the connector."""

    split: Split
    position: bytes | None = None
    done: bool = False
    counters: dict[str, int] = {}
    watermark_ms: int | None = None


class SplitBatch(msgspec.Struct, frozen=True):
    """Rows read from one split, in order. Columns: the reader's scan columns, then its metadata columns, named
    c0, c1, …. `row_kinds` (int8: 0 +I, 1 -U, 2 +U, 3 -D) from a table that is a changelog, else None. `done`: this
    split has ended (bounded end reached); its batch may be empty."""

    split_id: str
    batch: pa.RecordBatch
    done: bool = False
    row_kinds: pa.Int8Array | None = None


class SplitEnumerator(Protocol):
    """Finds the splits of a source. Runs in the JobManager on a helper thread."""

    @property
    def discovery_interval_ms(self) -> int:
        """How often to look for new splits; 0 = only once."""

    def discover(self, known: frozenset[str]) -> list[Split]:
        """Splits not in `known`. At the first call of a job `known` is empty: start positions follow the start-up
        mode; later new splits start at their beginning. Raises ConnectorError."""

    def close(self) -> None: ...


class ReaderContext(msgspec.Struct, frozen=True):
    """What a reader is asked for. `scan_columns` index the table's physical columns (only these are decoded)."""

    subtask_index: int
    parallelism: int
    scan_columns: tuple[int, ...]
    metadata_columns: tuple[MetadataField, ...]
    local_time_zone: str
    rows_max: int = 8192
    bytes_max: int = 2_000_000


class SourceReader(Protocol):
    """Reads the splits it was given; used by one thread."""

    def add_splits(self, splits: list[SplitState]) -> None:
        """Take over splits, from their recorded positions. `done` ones are ignored."""

    def poll(self, timeout_ms: int) -> list[SplitBatch]:
        """What is there now, at most about `rows_max` rows / `bytes_max` bytes in all; waits up to `timeout_ms` if
        nothing is. Raises RecordError for a record that cannot be decoded, ConnectorError otherwise."""

    def snapshot(self) -> list[SplitState]:
        """Every split ever added with the position after the last row returned by `poll` (done ones included)."""

    def notify_checkpoint_complete(self, checkpoint_id: int, states: list[SplitState]) -> None:
        """The checkpoint with these positions is committed: group offsets may be published."""

    def gauges(self) -> Mapping[str, float]:
        """E.g. `pendingRecords`, `currentFetchEventTimeLag`."""

    def close(self) -> None: ...


class SourceConnector(Protocol):
    """A table seen as a source."""

    @property
    def bounded(self) -> bool: ...

    @property
    def changelog(self) -> ChangelogMode:
        """What reading gives: appends, upserts by the primary key, or a full changelog."""

    @property
    def metadata_types(self) -> Mapping[str, DataType]:
        """Readable metadata keys and their types."""

    def enumerator(self) -> SplitEnumerator: ...

    def reader(self, context: ReaderContext) -> SourceReader: ...


# ------------------------------------------------------------------------------------------------------ files


class StoredFile(msgspec.Struct, frozen=True):
    """A file of the checkpoint storage. `checksum` is the hex SHA-256 of its bytes."""

    path: str
    byte_size: int
    checksum: str


EPOCH_FOLDER = "epochs"
"""Where sinks keep their write-ahead files, within a job's checkpoint files."""


class FileWriter(Protocol):
    """A file on its way into the storage. Nobody sees it before it is sealed; used by one thread at a time. Arrow's
    writers take it as a file to write to."""

    @property
    def closed(self) -> bool:
        """Sealed or discarded."""

    def write(self, data: bytes | memoryview) -> int:
        """Raises OSError."""

    def seal(self) -> StoredFile:
        """The file is whole and durable when it returns. Raises OSError, FileExistsError."""

    def discard(self) -> None:
        """Give it up; nothing of it stays. Does nothing to a sealed one."""


class CheckpointFiles(Protocol):
    """Where a job keeps the files of its checkpoints: a directory or a prefix of an object store. Paths are relative
    to it, with '/' between their parts. Files are written once and never changed. Thread-safe; every call may block."""

    def locate(self, path: str) -> str:
        """Where a file is, for people."""

    def create(self, path: str) -> FileWriter:
        """A name is never used twice. Raises OSError."""

    def open(self, path: str) -> pa.NativeFile:
        """To read anywhere in it. Raises FileNotFoundError, OSError."""

    def delete(self, path: str) -> None:
        """Nothing happens when it is not there. Raises OSError."""

    def list(self, prefix: str) -> list[StoredFile]:
        """Every sealed file below a folder, without checksums (empty text). Raises OSError."""


# ------------------------------------------------------------------------------------------------------ sinks


class Committable(msgspec.Struct, frozen=True):
    """One sealed epoch of one sink subtask: the pre-commit that travels in the checkpoint.

    `owner` is the subtask that wrote it (its transactional id commits it, also after a rescale); `incarnation` is
    the generation that triggered the checkpoint; `data` is the connector's own; `file` is the path of the write-ahead
    file among the job's checkpoint files (empty: there is none): it is kept and copied with the checkpoint."""

    owner: int
    checkpoint_id: int
    incarnation: str
    data: bytes
    record_count: int
    byte_size: int
    file: str = ""


class OwnerState(msgspec.Struct, frozen=True):
    """What recovery must resolve for one owner. `floor` is the highest checkpoint id whose commit was acknowledged
    (0 = none): a marker below it means the marker was lost, and the sink fails closed."""

    owner: int
    pending: tuple[Committable, ...] = ()
    floor: int = 0
    marker_expected: bool = False
    """The owner was recovered before the restored checkpoint, so it has written a marker (its first one at least):
    none at all means that it was lost."""
    repeats: bool = False
    """The user goes back and has accepted repeated output: the marker may be of a line of history that the restored
    checkpoint is no part of, so it does not prove that a pending epoch below it is visible."""


def goes_on() -> None:
    """The `check` of a task that nobody ends."""


class SinkContext(msgspec.Struct, frozen=True):
    """What a writer is given. `namespace` names transactional ids and the marker topic; `files` is where
    write-ahead files go, below EPOCH_FOLDER; `attempt` is unique per attempt and part of file names."""

    subtask_index: int
    parallelism: int
    namespace: str
    incarnation: str
    attempt: str
    files: CheckpointFiles
    restored_checkpoint_id: int
    metadata_columns: tuple[MetadataField, ...]
    local_time_zone: str
    check: Callable[[], None] = goes_on
    """Raises when the task is to end: `recover` calls it while it waits."""


class SinkWriter(Protocol):
    """Writes one subtask's rows. `write` and `prepare_commit` are called by the task thread; `recover` before the
    first write; `commit` by the subtask's commit thread, one at a time, concurrently with `write`."""

    def recover(self, owners: list[OwnerState]) -> dict[int, int]:
        """Fence and resolve each owner's pending epochs (own owner first); return the marker's checkpoint id per
        owner, those of owners that others resolve included. Sources have not started. Sinks that commit nothing return
        {}."""

    def write(self, batch: pa.RecordBatch, row_kinds: pa.Int8Array | None) -> None:
        """Columns are the physical columns, then the metadata columns. `row_kinds` is int8 (0 +I, 1 -U, 2 +U, 3 -D)
        or None when every row is an insert. Raises ConnectorError when the sink's hard limit is reached."""

    def prepare_commit(self, checkpoint_id: int) -> tuple[Committable, ...]:
        """At the barrier: exactly-once seals the epoch and returns every epoch whose commit has not been
        acknowledged, oldest first; at-least-once flushes (raising on any failed delivery) and returns ()."""

    def commit(self, checkpoint_id: int) -> None:
        """The manifest of `checkpoint_id` is durable: make all epochs up to it visible. Idempotent. Any doubt about
        the outcome raises ConnectorError(retry=True): the attempt ends and recovery decides by the marker."""

    def checkpoint_wanted(self) -> bool:
        """True when the epoch passed the soft limit and a checkpoint should be triggered early."""

    def gauges(self) -> Mapping[str, float]: ...

    def close(self) -> None:
        """Release clients without committing anything."""


@runtime_checkable
class FinishingWriter(Protocol):
    """What a writer has besides `SinkWriter` that keeps something open from one checkpoint to the next."""

    def finish(self) -> None:
        """No row will follow: the next `prepare_commit` leaves nothing open."""


class SinkConnector(Protocol):
    """A table seen as a sink."""

    @property
    def delivery_guarantee(self) -> str:
        """`none`, `at-least-once` or `exactly-once`."""

    @property
    def committing(self) -> bool:
        """True when commit is part of a checkpoint (exactly-once)."""

    @property
    def changelog(self) -> ChangelogMode:
        """The most that writing takes: appends only; upserts by the primary key (no -U arrives, a -D may be filled in
        its key columns only); or all four kinds with full rows."""

    @property
    def transactional_id_prefix(self) -> str | None:
        """The user's prefix, if given: it names the namespace at the first start."""

    @property
    def metadata_types(self) -> Mapping[str, DataType]:
        """Writable metadata keys and their types."""

    def prepare(self, namespace: str) -> None:
        """Before deployment, in the JobManager: check the target and create what the protocol needs."""

    def fence(self, namespace: str, owner_count: int) -> None:
        """In the JobManager, when a job is cancelled: end every open transaction of the namespace's ids."""

    def writer(self, context: SinkContext) -> SinkWriter: ...


# ---------------------------------------------------------------------------------------------------- look-ups


class CacheKind(StrEnum):
    """What is kept of a table that is looked up: nothing, the keys asked for, or all of it."""

    NONE = "NONE"
    PARTIAL = "PARTIAL"
    FULL = "FULL"


class PeriodicReload(msgspec.Struct, frozen=True):
    """A table that is cached whole is loaded anew so long after the end of the last load, or after its beginning."""

    interval_ms: int
    is_fixed_rate: bool = False


class TimedReload(msgspec.Struct, frozen=True):
    """… at this time of the day, every so many days; `zone` is empty for the session's."""

    time_ms: int
    zone: str = ""
    interval_days: int = 1


class LookupOptions(msgspec.Struct, frozen=True):
    """How a table is asked (its options `lookup.*`). Times in ms, 0 = never, or no limit. `retries_max`: further tries
    of a request that failed."""

    cache: CacheKind = CacheKind.NONE
    rows_max: int = 0
    expire_after_write_ms: int = 0
    expire_after_access_ms: int = 0
    keeps_missing_keys: bool = True
    reload: PeriodicReload | TimedReload | None = None
    retries_max: int = 3


class LookupContext(msgspec.Struct, frozen=True):
    """`keys` and `columns` index the table's physical columns: by what it is asked, and what is read."""

    keys: tuple[int, ...]
    columns: tuple[int, ...]
    local_time_zone: str


class Found(msgspec.Struct, frozen=True):
    """Rows of a table, and the key (its number in the request) that each belongs to, in any order. Columns as in
    `LookupContext.columns`, named c0, c1, …."""

    keys: Int64Array
    rows: pa.RecordBatch


class LookupReader(Protocol):
    """Asks an outside table. Used by one thread at a time, but for `close`. Raises ConnectorError; with `retry` the
    same call may succeed later, on a new connection."""

    def lookup(self, keys: pa.RecordBatch) -> Found:
        """The rows of each key. Keys are distinct and without NULL; columns as in `LookupContext.keys`."""

    def load(self) -> pa.RecordBatch:
        """All rows: the columns `LookupContext.columns`, then those of `LookupContext.keys`, named c0, c1, …."""

    def close(self) -> None:
        """From any thread: a call that runs meanwhile ends soon."""


class LookupConnector(Protocol):
    """A table seen as one whose rows can be asked for by key at any moment."""

    @property
    def options(self) -> LookupOptions: ...

    def reader(self, context: LookupContext) -> LookupReader:
        """Connects to nothing yet. With a FULL cache `load` is called, else `lookup`."""


# ----------------------------------------------------------------------------------------- connectors, formats


class Connector(Protocol):
    """One kind of outside system, found by the `connector` option."""

    @property
    def name(self) -> str: ...

    def source(self, table: TableDefinition) -> SourceConnector:
        """Validate the options for reading. Raises OptionError (unknown, missing, malformed, or not a source)."""

    def sink(self, table: TableDefinition) -> SinkConnector:
        """Validate the options for writing. Raises OptionError."""


@runtime_checkable
class AskableConnector(Protocol):
    """What a connector has besides `Connector` whose tables can be looked up."""

    def lookup(self, table: TableDefinition) -> LookupConnector:
        """Validate the options for look-ups. Raises OptionError."""


class Messages(msgspec.Struct, frozen=True):
    """A run of encoded messages in one buffer. Message i is `data[offsets[i] : offsets[i + 1] - 1]` and is followed
    by one newline byte, so `offsets` has n + 1 entries and the buffer is newline-joined. `describe(i)` names the
    message in errors, e.g. `topic orders, partition 3, offset 17`."""

    data: memoryview
    offsets: Int64Array
    describe: Callable[[int], str]

    @property
    def count(self) -> int:
        return len(self.offsets) - 1

    def value(self, index: int) -> bytes:
        """One message's bytes."""
        return bytes(self.data[self.offsets[index] : self.offsets[index + 1] - 1])


class Decoded(msgspec.Struct, frozen=True):
    """Rows of a run of messages. `kept` maps row to message index (None: row i is message i; not decreasing: one
    message of a changelog format may be two rows); `skipped` counts the messages left out because the format ignores
    parse errors. `row_kinds` as in SplitBatch."""

    batch: pa.RecordBatch
    kept: Int64Array | None = None
    skipped: int = 0
    row_kinds: pa.Int8Array | None = None


class Decoder(Protocol):
    """Bytes to rows for a fixed set of columns (c0, c1, …), metadata columns of the format last."""

    def decode(self, messages: Messages) -> Decoded:
        """Each message is proven to be exactly one row (of a changelog format: one event). Raises RecordError naming
        the message and field."""


class Encoder(Protocol):
    """Rows to bytes."""

    def encode(self, batch: pa.RecordBatch, row_kinds: pa.Int8Array | None = None) -> pa.BinaryArray:
        """One encoded value per row, never NULL. `row_kinds` is None for a format that takes appends only. Raises
        RecordError for a value the format cannot write."""


class Format(Protocol):
    """A way to write rows as bytes, found by the `format` option; `options` are those of its own prefix, e.g.
    `json.ignore-parse-errors` arrives as `ignore-parse-errors`."""

    @property
    def name(self) -> str: ...

    @property
    def option_names(self) -> frozenset[str]:
        """Option names without the format's prefix (a connector accepts `<format>.<name>`)."""

    def changelog(self, options: Mapping[str, str]) -> ChangelogMode:
        """INSERT_ONLY for a format whose messages are rows; RETRACT for one whose messages are changes."""

    def metadata_types(self, options: Mapping[str, str]) -> Mapping[str, DataType]:
        """Metadata that the format's messages carry, by key without the format's prefix (Flink: `value.<key>`)."""

    def decoder(
        self,
        columns: tuple[Field, ...],
        options: Mapping[str, str],
        local_time_zone: str,
        metadata_columns: tuple[MetadataField, ...] = (),
    ) -> Decoder: ...

    def encoder(self, columns: tuple[Field, ...], options: Mapping[str, str], local_time_zone: str) -> Encoder: ...

    def validate(self, options: Mapping[str, str]) -> None:
        """Raises OptionError naming the option."""


@runtime_checkable
class PositionalFormat(Protocol):
    """What a format has besides `Format` whose messages hold fields by position, without names."""

    def selecting_decoder(
        self, columns: tuple[Field, ...], wanted: tuple[int, ...], options: Mapping[str, str], local_time_zone: str
    ) -> Decoder:
        """Decodes messages of `columns` into those columns that `wanted` indexes, in its order."""


@runtime_checkable
class NullReadingFormat(Protocol):
    """What a format has besides `Format` that reads a message without value (a record whose value is NULL) as a row of
    NULLs; to all others it is no row."""

    reads_null: Literal[True]
