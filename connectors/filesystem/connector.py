"""The `filesystem` connector as a bounded source: one message per line, in any format that decodes messages."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from connectors import registry
from connectors.api import (
    Decoded,
    Format,
    Messages,
    MetadataField,
    ReaderContext,
    SinkConnector,
    SourceReader,
    Split,
    SplitBatch,
    SplitEnumerator,
    SplitState,
    TableDefinition,
)
from connectors.arrow import Array
from connectors.errors import DirectionError, OptionError
from connectors.filesystem.files import FileSplit, LineReader, Position, find_files, local_path
from connectors.options import SOURCE_OPTIONS, Options
from planner.ir.types import BIGINT, STRING, ChangelogMode, DataType, timestamp_ltz, to_arrow

SKIPPED = "numRecordsSkipped"
METADATA: Mapping[str, DataType] = {
    "file.path": STRING.with_nullable(False),
    "file.name": STRING.with_nullable(False),
    "file.size": BIGINT.with_nullable(False),
    "file.modification-time": timestamp_ltz(3).with_nullable(False),
}


class FilesystemConnector:
    name = "filesystem"

    def source(self, table: TableDefinition) -> FilesystemSource:
        return FilesystemSource(table)

    def sink(self, table: TableDefinition) -> SinkConnector:
        raise DirectionError("the filesystem connector reads files, it does not write them", option="connector")


class FilesystemSource:
    """The lines of the files at a path, as they are when the job starts."""

    bounded = True
    metadata_types = METADATA

    def __init__(self, table: TableDefinition) -> None:
        options = Options(table)
        self._table = table
        self._path = local_path(options.required("path"))
        self._format: Format = registry.format(options.required("format"))
        prefix = self._format.name + "."
        own = {f"{prefix}{name}" for name in self._format.option_names}
        if "source.monitor-interval" in table.options:
            raise OptionError(
                "a directory is read once: watching it for new files is not supported", option="source.monitor-interval"
            )
        options.refuse_unknown(SOURCE_OPTIONS | {"path", "format"} | own)
        self._format_options = {
            name.removeprefix(prefix): value for name, value in table.options.items() if name in own
        }
        self._format.validate(self._format_options)

    @property
    def changelog(self) -> ChangelogMode:
        return self._format.changelog(self._format_options)

    def enumerator(self) -> SplitEnumerator:
        return FileEnumerator(self._path)

    def reader(self, context: ReaderContext) -> SourceReader:
        columns = tuple(self._table.columns[i] for i in context.scan_columns)
        decoder = self._format.decoder(columns, self._format_options, context.local_time_zone)
        return FileReader(self._table.identifier, decoder.decode, context)


class FileEnumerator:
    """One split per file. Its id is the path and the size, so that a file that grew is not taken for a new one."""

    discovery_interval_ms = 0

    def __init__(self, path: str) -> None:
        self._path = path

    def discover(self, known: frozenset[str]) -> list[Split]:
        if known:
            return []
        return [Split(file.path, msgspec.json.encode(file)) for file in find_files(self._path)]

    def close(self) -> None:
        """Nothing is held."""


class _Progress:
    """A file and how far it was read."""

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


class FileReader:
    """Reads its files one after the other, each in order."""

    def __init__(self, table: str, decode: Any, context: ReaderContext) -> None:
        self._table = table
        self._decode = decode
        self._context = context
        self._files: list[_Progress] = []
        self._open: LineReader | None = None

    def add_splits(self, splits: list[SplitState]) -> None:
        self._files.extend(_Progress(state) for state in splits)

    def poll(self, timeout_ms: int) -> list[SplitBatch]:
        progress = next((file for file in self._files if not file.done), None)
        if progress is None:
            time.sleep(timeout_ms / 1000)
            return []
        if self._open is None:
            self._open = LineReader(progress.file, progress.position)
        first_line = self._open.position.line
        data, offsets = self._open.read_lines(self._context.rows_max, self._context.bytes_max)
        decoded: Decoded = self._decode(Messages(data, offsets, self._describe(progress, first_line)))
        progress.position = self._open.position
        progress.skipped += decoded.skipped
        if self._open.done:
            self._open.close()
            self._open = None
            progress.done = True
        batch = self._with_metadata(decoded.batch, progress.file)
        return [SplitBatch(progress.split.id, batch, progress.done, decoded.row_kinds)]

    def _describe(self, progress: _Progress, first_line: int) -> Any:
        return lambda index: f"table {self._table}, file {progress.file.path}, line {first_line + index}"

    def _with_metadata(self, batch: pa.RecordBatch, file: FileSplit) -> pa.RecordBatch:
        fields = self._context.metadata_columns
        if not fields:
            return batch
        arrays = [*batch.columns, *(_metadata(field, file, batch.num_rows) for field in fields)]
        return pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(len(arrays))])

    def snapshot(self) -> list[SplitState]:
        return [progress.state() for progress in self._files]

    def notify_checkpoint_complete(self, checkpoint_id: int, states: list[SplitState]) -> None:
        """Nobody outside keeps positions."""

    def gauges(self) -> Mapping[str, float]:
        return {"pendingBytes": float(sum(p.file.size - p.position.offset for p in self._files if not p.done))}

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


def _metadata(field: MetadataField, file: FileSplit, count: int) -> Array:
    """A metadata column: the same value for every row of a file."""
    values: dict[str, tuple[Any, DataType]] = {
        "file.path": (file.path, STRING),
        "file.name": (Path(file.path).name, STRING),
        "file.size": (file.size, BIGINT),
        "file.modification-time": (file.modified_ms, timestamp_ltz(3)),
    }
    value, t = values[field.key]
    one: Array = pa.array([value], to_arrow(t)).cast(to_arrow(field.type))
    return one.take(pa.array(np.zeros(count, np.int64)))


CONNECTOR = FilesystemConnector()
