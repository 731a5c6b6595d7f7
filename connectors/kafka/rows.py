"""Records to rows: value columns, key columns and metadata columns of the records of one poll."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors import registry
from connectors.api import (
    Decoded,
    Decoder,
    Int64Array,
    Messages,
    MetadataField,
    NullReadingFormat,
    PositionalFormat,
    ReaderContext,
)
from connectors.arrow import rows_without_columns
from connectors.errors import RecordError
from connectors.kafka.metadata import metadata_array
from connectors.kafka.options import FORMAT_METADATA, FormatOptions, SourceOptions
from connectors.kafka.records import Records, Texts
from planner.ir.types import ChangelogMode, Field, to_arrow

UPDATE_AFTER_KIND, DELETE_KIND = 2, 3
ABSENT, SKIPPED = -1, -2


class Run(NamedTuple):
    """The records of one poll that become rows, sorted by slot (stable): row i of the arrays is record `order[i]`. A
    value may be absent in an upsert table only."""

    records: Records
    order: Int64Array
    offsets: Int64Array
    slots: npt.NDArray[np.int64]


class _Values(NamedTuple):
    """Rows of a run's values (None: no column is asked for), each row's message (None: row i is message i), kinds."""

    batch: pa.RecordBatch | None
    kept: Int64Array | None
    kinds: npt.NDArray[np.int8] | None


class DecodedRows(NamedTuple):
    """As _Values, with all columns."""

    batch: pa.RecordBatch
    kept: Int64Array | None
    kinds: npt.NDArray[np.int8] | None


class RowDecoder:
    """Decodes messages into the reader's columns: value columns, key columns, metadata columns."""

    def __init__(self, options: SourceOptions, columns: tuple[Field, ...], context: ReaderContext) -> None:
        self._options = options
        self._context = context
        scan = context.scan_columns
        # A column that is in both is read from the value; in an upsert table from the key, which a deletion has, too.
        in_value = set(options.value.columns)
        if options.upsert and options.key is not None:
            in_value -= set(options.key.columns)
        value_columns = [i for i in scan if i in in_value]
        key_columns = [i for i in scan if i not in in_value]
        of_format = [f for f in context.metadata_columns if f.key.startswith(FORMAT_METADATA)]
        # With no value column asked for, one is decoded all the same: a malformed record must not pass unseen.
        probed = value_columns or list(options.value.columns[:1])
        self._value: Decoder | None = None
        if probed or of_format or self._changes_by_format:
            self._value = _decoder(options.value, columns, probed, "", context, _without_prefix(of_format))
        self._key: Decoder | None = None
        if options.key is not None and key_columns:
            self._key = _decoder(options.key, columns, key_columns, options.key_prefix, context)
        self._place_of = {index: (True, n) for n, index in enumerate(value_columns)}
        self._place_of |= {index: (False, n) for n, index in enumerate(key_columns)}
        self._format_metadata = {field.name: len(probed) + n for n, field in enumerate(of_format)}
        self.reads_null = options.upsert or isinstance(registry.format(options.value.name), NullReadingFormat)
        """Whether a record without value is a row: in an upsert table a deletion, else as the format has it."""
        types = [to_arrow(columns[i].type) for i in scan]
        types += [to_arrow(field.type) for field in context.metadata_columns]
        self._schema = pa.schema([pa.field(f"c{i}", t) for i, t in enumerate(types)])

    @property
    def _changes_by_format(self) -> bool:
        return self._options.changelog is ChangelogMode.RETRACT

    def empty(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in self._schema], schema=self._schema)

    def rows(self, run: Run) -> DecodedRows:
        if self._options.upsert:
            value, kept, kinds = self._upserts(run)
        elif self.reads_null:
            (value, kept), kinds = self._with_absent(run), None
        else:
            value, kept, kinds = self._values(run, None)
        key: pa.RecordBatch | None = None
        if self._key is not None:
            key, key_rows = self._keys(run)
            if kept is not None:
                key_rows = key_rows[kept]
            if (key_rows == SKIPPED).any():
                good = np.flatnonzero(key_rows != SKIPPED)
                kept = good if kept is None else kept[good]
                key_rows = key_rows[good]
                value = None if value is None else value.take(good)
                kinds = None if kinds is None else kinds[good]
            key = _taken(key, key_rows)
        count = len(run.order) if kept is None else len(kept)
        arrays = self._columns(value, key) + self._metadata(run, kept, value)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema) if arrays else rows_without_columns(count)
        return DecodedRows(batch, kept, kinds)

    def _columns(self, value: pa.RecordBatch | None, key: pa.RecordBatch | None) -> list[pa.Array[Any]]:
        arrays: list[pa.Array[Any]] = []
        for index in self._context.scan_columns:
            of_value, column = self._place_of[index]
            batch = value if of_value else key
            assert batch is not None
            arrays.append(batch.column(column))
        return arrays

    def _metadata(self, run: Run, kept: Int64Array | None, value: pa.RecordBatch | None) -> list[pa.Array[Any]]:
        order = run.order if kept is None else run.order[kept]
        arrays = []
        for field in self._context.metadata_columns:
            column = self._format_metadata.get(field.name)
            if column is None:
                arrays.append(metadata_array(field, run.records, order, self._context.local_time_zone))
            else:
                assert value is not None
                arrays.append(value.column(column))
        return arrays

    def _values(self, run: Run, chosen: Int64Array | None) -> _Values:
        """Rows of the records' values, or of those of the chosen ones; `kept` counts in all records."""
        if self._value is None:
            return _Values(None, chosen, None)
        order = run.order if chosen is None else run.order[chosen]
        decoded = self._value.decode(_lines(run.records, run.records.values, order, ""))
        kept = decoded.kept
        if chosen is not None:
            kept = chosen if kept is None else chosen[kept]
        return _Values(decoded.batch, kept, None if decoded.row_kinds is None else decoded.row_kinds.to_numpy())

    def _upserts(self, run: Run) -> _Values:
        """A value is an upsert, a tombstone a deletion that has its key columns only."""
        deletes = run.records.values.absent[run.order]
        value, kept = self._with_absent(run)
        return _Values(value, kept, _upsert_kinds(deletes, kept))

    def _with_absent(self, run: Run) -> tuple[pa.RecordBatch | None, Int64Array | None]:
        """Rows of the records' values, of NULLs where a record has none, and which records they are."""
        absent = run.records.values.absent[run.order]
        if not absent.any():
            value, kept, _ = self._values(run, None)
            return value, kept
        value, kept, _ = self._values(run, np.flatnonzero(~absent))
        if value is None:
            return None, None
        assert kept is not None
        row_of = np.full(len(absent), ABSENT, np.int64)
        row_of[kept] = np.arange(len(kept))
        every = np.flatnonzero(absent | (row_of != ABSENT))
        return _taken(value, row_of[every]), every

    def _keys(self, run: Run) -> tuple[pa.RecordBatch, Int64Array]:
        """Rows of the keys, and per message which of them is its own: ABSENT without a key, SKIPPED when it could
        not be decoded and the format ignores that."""
        assert self._key is not None
        keys = run.records.keys()
        absent = keys.absent[run.order]
        present = np.flatnonzero(~absent)
        if self._options.upsert and len(present) < len(absent):
            first = run.order[int(absent.argmax())]
            raise RecordError(
                f"{_place(run.records, first)}: the record has no key",
                hint="The key of an upsert-kafka table says which row a record updates or deletes. Read a topic "
                "without keys with 'connector' = 'kafka'.",
            )
        decoded = self._key.decode(_lines(run.records, keys, run.order[present], " (key)"))
        row_of = np.full(len(absent), ABSENT, np.int64)
        row_of[present] = SKIPPED
        row_of[present if decoded.kept is None else present[decoded.kept]] = np.arange(decoded.batch.num_rows)
        return decoded.batch, row_of


def _taken(batch: pa.RecordBatch, rows: Int64Array) -> pa.RecordBatch:
    """The rows in this order; NULLs for a negative one."""
    if len(rows) == batch.num_rows and bool((rows == np.arange(len(rows))).all()):
        return batch
    return batch.take(pa.array(rows, pa.int64(), mask=rows < 0))


def _upsert_kinds(deletes: npt.NDArray[np.bool_], kept: Int64Array | None) -> npt.NDArray[np.int8]:
    return np.where(deletes if kept is None else deletes[kept], DELETE_KIND, UPDATE_AFTER_KIND).astype(np.int8)


def _without_prefix(fields: list[MetadataField]) -> tuple[MetadataField, ...]:
    return tuple(MetadataField(f.name, f.key.removeprefix(FORMAT_METADATA), f.type) for f in fields)


def _decoder(
    form: FormatOptions,
    columns: tuple[Field, ...],
    indexes: Iterable[int],
    prefix: str,
    context: ReaderContext,
    metadata: tuple[MetadataField, ...] = (),
) -> Decoder:
    chosen = registry.format(form.name)
    if isinstance(chosen, PositionalFormat):
        wanted = tuple(form.columns.index(i) for i in indexes)
        every = tuple(columns[i] for i in form.columns)
        return _NamedDecoder(chosen.selecting_decoder(every, wanted, form.options, context.local_time_zone), form)
    fields = tuple(
        Field(columns[i].name.removeprefix(prefix), columns[i].type, columns[i].description) for i in indexes
    )
    return _NamedDecoder(chosen.decoder(fields, form.options, context.local_time_zone, metadata), form)


class _NamedDecoder:
    """A decoder whose hints name the format's options as this table has them (`key.json.…`)."""

    def __init__(self, decoder: Decoder, form: FormatOptions) -> None:
        self._decoder = decoder
        self._form = form

    def decode(self, messages: Messages) -> Decoded:
        try:
            return self._decoder.decode(messages)
        except RecordError as error:
            hint = error.hint.replace(f"'{self._form.name}.", f"'{self._form.option_prefix}")
            raise RecordError(error.message, hint=hint) from error


def _lines(records: Records, texts: Texts, chosen: Int64Array, suffix: str) -> Messages:
    """The chosen keys or values for a decoder."""
    data, offsets = texts.lines(chosen)
    return Messages(data, offsets, lambda index: _place(records, chosen[index]) + suffix)


def _place(records: Records, index: int) -> str:
    return f"topic {records.topic(index)}, partition {records.partitions[index]}, offset {records.offsets[index]}"
