"""Parquet files, read and written by Arrow. Loaded by those only who have such a table."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from connectors.arrow import Array, concat_batches, rows_without_columns
from connectors.errors import ConnectorError, ErrorDomain
from connectors.filesystem.files import FileSplit
from planner.ir.types import Field, to_arrow

pq: Any = pyarrow.parquet
ROW_GROUP_BYTES = 32 << 20
"""Rows are held until they are this many bytes: small row groups are slow to read."""


def parquet_schema(columns: Sequence[Field]) -> pa.Schema:
    """The file's columns, by name."""
    return pa.schema([pa.field(c.name, to_arrow(c.type), nullable=c.type.nullable) for c in columns])


class ParquetRowFile:
    """A part file, complete only when finished."""

    def __init__(self, path: Path, schema: pa.Schema, compression: str) -> None:
        self._file = open(path, "xb")  # noqa: SIM115 - held until finish()
        self._schema = schema
        codec = "none" if compression.lower() == "uncompressed" else compression.lower()
        self._writer = pq.ParquetWriter(self._file, schema, compression=codec)
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0

    @property
    def byte_size(self) -> int:
        return int(self._file.tell()) + self._held_bytes

    def write(self, batch: pa.RecordBatch, row_kinds: pa.Int8Array | None) -> None:
        self._held.append(pa.RecordBatch.from_arrays(batch.columns, schema=self._schema))
        self._held_bytes += batch.nbytes
        if self._held_bytes >= ROW_GROUP_BYTES:
            self._write_held()

    def sync(self) -> int:
        raise AssertionError("a Parquet file is complete or nothing")

    def finish(self) -> int:
        self._write_held()
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        byte_size = int(self._file.tell())
        self._file.close()
        return byte_size

    def abandon(self) -> None:
        # The writer would close itself when it is collected, and then find no file.
        with contextlib.suppress(OSError):
            self._writer.close()
        self._file.close()

    def _write_held(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held, self._schema))
            self._held, self._held_bytes = [], 0


class ParquetReader:
    """The rows of one file from the `first_row`-th on."""

    def __init__(self, split: FileSplit, columns: Sequence[Field], first_row: int, rows_max: int) -> None:
        self._split = split
        self._columns = columns
        self._row = first_row
        self._rows_max = rows_max
        try:
            self._file = pq.ParquetFile(split.path, coerce_int96_timestamp_unit="ms")
        except (OSError, pa.ArrowInvalid) as problem:
            raise _unreadable(split, problem) from problem
        self._pieces = self._read()

    @property
    def row(self) -> int:
        """Number of rows read, those before `first_row` included."""
        return self._row

    @property
    def done(self) -> bool:
        return self._row >= int(self._file.metadata.num_rows)

    def read(self) -> pa.RecordBatch:
        """The next rows (none at the end), as columns c0, c1, …; a column the file does not have is NULL. Raises
        ConnectorError."""
        try:
            piece = next(self._pieces, None)
        except (OSError, pa.ArrowInvalid) as problem:
            raise _unreadable(self._split, problem) from problem
        if piece is None:
            empty = pa.schema([pa.field(f"c{i}", to_arrow(c.type)) for i, c in enumerate(self._columns)])
            return concat_batches([], empty)
        self._row += piece.num_rows
        if not self._columns:
            return rows_without_columns(piece.num_rows)
        arrays = [self._column(piece, column) for column in self._columns]
        return pa.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(len(arrays))])

    def close(self) -> None:
        self._file.close()

    def _read(self) -> Iterator[pa.RecordBatch]:
        """Pieces behind the rows that were read before, without reading row groups that lie before them."""
        skipped, groups = 0, list(range(self._file.num_row_groups))
        while groups and skipped + self._file.metadata.row_group(groups[0]).num_rows <= self._row:
            skipped += self._file.metadata.row_group(groups.pop(0)).num_rows
        names = set(self._file.schema_arrow.names)
        wanted = [c.name for c in self._columns if c.name in names]
        left = self._row - skipped
        for piece in self._file.iter_batches(self._rows_max, row_groups=groups, columns=wanted):
            if left >= piece.num_rows:
                left -= piece.num_rows
                continue
            yield piece.slice(left)
            left = 0

    def _column(self, piece: pa.RecordBatch, column: Field) -> Array:
        wanted = to_arrow(column.type)
        index = piece.schema.get_field_index(column.name)
        if index < 0:
            absent: Array = pa.nulls(piece.num_rows, wanted)  # type: ignore[call-overload]
            return absent
        values: Array = piece.column(index)
        if values.type == wanted:
            return values
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        try:
            if _family(values.type) != _family(wanted):
                raise pa.ArrowInvalid("other kind of value")
            # A finer fraction of a second is cut off, as where text is read.
            return values.cast(wanted, safe=not pa.types.is_timestamp(wanted))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
            raise ConnectorError(
                f"{self._split.path}: column '{column.name}' holds {values.type}, which is not "
                f"{column.type.summary()}: {problem}",
                domain=ErrorDomain.USER,
                retry=False,
            ) from problem


def _family(kind: Any) -> str:
    """Kinds of values that may be read as one another."""
    tests = pa.types
    if tests.is_integer(kind) or tests.is_floating(kind) or tests.is_decimal(kind):
        return "number"
    if tests.is_string(kind) or tests.is_large_string(kind) or tests.is_string_view(kind):
        return "text"
    if tests.is_binary(kind) or tests.is_large_binary(kind) or tests.is_fixed_size_binary(kind):
        return "bytes"
    if tests.is_list(kind) or tests.is_large_list(kind):
        return "list"
    if tests.is_time(kind):
        return "time"
    if tests.is_date(kind):
        return "date"
    return str(kind.id)


def _unreadable(split: FileSplit, problem: Exception) -> ConnectorError:
    is_external = isinstance(problem, OSError) and problem.errno is not None
    return ConnectorError(
        f"cannot read {split.path}: {problem}",
        domain=ErrorDomain.EXTERNAL if is_external else ErrorDomain.USER,
        retry=is_external,
    )
