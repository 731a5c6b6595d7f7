"""The `filesystem` connector as a source: one split per file, read in order, in files sorted by name.

The files of a path are read as they are when the job starts. With `source.monitor-interval` the path is watched: a file
that appears later is read, too. A file must appear whole, by a rename: what is appended later is not read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from connectors.api import (
    Decoded,
    Decoder,
    Messages,
    MetadataField,
    PositionalFormat,
    ReaderContext,
    SourceReader,
    Split,
    SplitBatch,
    SplitEnumerator,
    SplitState,
    TableDefinition,
)
from connectors.arrow import Array, declared
from connectors.filesystem.files import FileSplit, LineReader, Position, find_files
from connectors.filesystem.options import parse_options
from planner.ir.types import BIGINT, STRING, ChangelogMode, DataType, Field, timestamp_ltz, to_arrow

SKIPPED = "numRecordsSkipped"
METADATA: Mapping[str, DataType] = {
    "file.path": STRING.with_nullable(False),
    "file.name": STRING.with_nullable(False),
    "file.size": BIGINT.with_nullable(False),
    "file.modification-time": timestamp_ltz(3).with_nullable(False),
}


class FilesystemSource:
    """The files at a path."""

    metadata_types = METADATA

    def __init__(self, table: TableDefinition) -> None:
        self._table = table
        self._options = parse_options(table)

    @property
    def bounded(self) -> bool:
        return self._options.monitor_interval_ms == 0

    @property
    def changelog(self) -> ChangelogMode:
        chosen = self._options.format
        return ChangelogMode.INSERT_ONLY if chosen is None else chosen.changelog(self._options.format_options)

    def enumerator(self) -> SplitEnumerator:
        return FileEnumerator(self._options.path, self._options.monitor_interval_ms)

    def reader(self, context: ReaderContext) -> SourceReader:
        columns = tuple(self._table.columns[i] for i in context.scan_columns)
        options = self._options
        chosen = options.format
        if chosen is None:
            return FileReader(context, ParquetFiles(columns, context))
        if isinstance(chosen, PositionalFormat):
            decoder = chosen.selecting_decoder(
                self._table.columns, context.scan_columns, options.format_options, context.local_time_zone
            )
        else:
            decoder = chosen.decoder(columns, options.format_options, context.local_time_zone)
        quote = quote_of(options.format_name, options.format_options)
        return FileReader(context, LineFiles(self._table.identifier, decoder, context, quote))


class FileEnumerator:
    """One split per file; its id is the path."""

    def __init__(self, path: str, discovery_interval_ms: int) -> None:
        self._path = path
        self.discovery_interval_ms = discovery_interval_ms

    def discover(self, known: frozenset[str]) -> list[Split]:
        if known and not self.discovery_interval_ms:
            return []
        return [Split(file.path, msgspec.json.encode(file)) for file in find_files(self._path, known)]

    def close(self) -> None:
        """Nothing is held."""


class Progress:
    """A file and how far it was read: bytes and lines, or in Parquet files rows (as `line`)."""

    def __init__(self, state: SplitState) -> None:
        self.split = state.split
        self.file = msgspec.json.decode(state.split.data, type=FileSplit)
        self.position = Position()
        if state.position is not None:
            self.position = msgspec.json.decode(state.position, type=Position)
        self.done = state.done
        self.skipped = state.counters.get(SKIPPED, 0)

    def state(self) -> SplitState:
        return SplitState(self.split, msgspec.json.encode(self.position), self.done, {SKIPPED: self.skipped})


class Files(Protocol):
    """Reads files of one kind, one at a time."""

    def read(self, progress: Progress) -> Decoded:
        """The next rows of the file, from its position on; moves the position, and sets `done` at the end."""

    def close(self) -> None: ...


class LineFiles:
    """Files of lines (records, where quotes may hold line ends) in a format of messages."""

    def __init__(self, table: str, decoder: Decoder, context: ReaderContext, quote: int | None) -> None:
        self._table = table
        self._decoder = decoder
        self._context = context
        self._quote = quote
        self._open: LineReader | None = None

    def read(self, progress: Progress) -> Decoded:
        if self._open is None:
            self._open = LineReader(progress.file, progress.position, self._quote)
        first_line = self._open.position.line
        data, offsets = self._open.read_lines(self._context.rows_max, self._context.bytes_max)
        decoded = self._decoder.decode(Messages(data, offsets, self._describe(progress, first_line)))
        progress.position = self._open.position
        progress.skipped += decoded.skipped
        progress.done = self._open.done
        if progress.done:
            self.close()
        return decoded

    def _describe(self, progress: Progress, first_line: int) -> Any:
        return lambda index: f"table {self._table}, file {progress.file.path}, line {first_line + index}"

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


class ParquetFiles:
    def __init__(self, columns: Sequence[Field], context: ReaderContext) -> None:
        self._columns = columns
        self._context = context
        self._open: Any = None

    def read(self, progress: Progress) -> Decoded:
        if self._open is None:
            # Half a second of CPU to load: only for those who read Parquet.
            from connectors.filesystem.parquet import ParquetReader

            rows_before = progress.position.line - 1
            self._open = ParquetReader(progress.file, self._columns, rows_before, self._context.rows_max)
        rows = self._open.read()
        progress.done = self._open.done
        offset = progress.file.size if progress.done else 0
        progress.position = Position(offset, self._open.row + 1)
        if progress.done:
            self.close()
        return Decoded(rows)

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


class FileReader:
    """Reads its files one after the other, each in order."""

    def __init__(self, context: ReaderContext, files: Files) -> None:
        self._context = context
        self._files = files
        self._all: list[Progress] = []

    def add_splits(self, splits: list[SplitState]) -> None:
        self._all.extend(Progress(state) for state in splits)

    def poll(self, timeout_ms: int) -> list[SplitBatch]:
        progress = next((file for file in self._all if not file.done), None)
        if progress is None:
            time.sleep(timeout_ms / 1000)
            return []
        decoded = self._files.read(progress)
        batch = self._with_metadata(decoded.batch, progress.file)
        return [SplitBatch(progress.split.id, batch, progress.done, decoded.row_kinds)]

    def _with_metadata(self, batch: pa.RecordBatch, file: FileSplit) -> pa.RecordBatch:
        fields = self._context.metadata_columns
        if not fields:
            return batch
        zone = self._context.local_time_zone
        arrays = [*batch.columns, *(_metadata(field, file, batch.num_rows, zone) for field in fields)]
        return pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(len(arrays))])

    def snapshot(self) -> list[SplitState]:
        return [progress.state() for progress in self._all]

    def notify_checkpoint_complete(self, checkpoint_id: int, states: list[SplitState]) -> None:
        """Nobody outside keeps positions."""

    def gauges(self) -> Mapping[str, float]:
        return {"pendingBytes": float(sum(p.file.size - p.position.offset for p in self._all if not p.done))}

    def close(self) -> None:
        self._files.close()


def quote_of(format_name: str, options: Mapping[str, str]) -> int | None:
    """The byte between which a line end does not end a record; None where every line is a record."""
    if format_name != "csv" or options.get("disable-quote-character", "").strip().lower() == "true":
        return None
    return ord(options.get("quote-character", '"'))


def _metadata(field: MetadataField, file: FileSplit, count: int, zone: str) -> Array:
    """A metadata column: the same value for every row of a file."""
    values: dict[str, tuple[Any, DataType]] = {
        "file.path": (file.path, STRING),
        "file.name": (Path(file.path).name, STRING),
        "file.size": (file.size, BIGINT),
        "file.modification-time": (file.modified_ms, timestamp_ltz(3)),
    }
    value, t = values[field.key]
    one = declared(pa.array([value], to_arrow(t)), field.type, zone)
    return one.take(pa.array(np.zeros(count, np.int64)))
