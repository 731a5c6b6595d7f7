"""Messages to rows: the fast road for whole runs, the exact road for the messages it refuses.

The fast road hands the newline-joined messages to one native call. That call alone proves nothing: two objects in
one message give two rows, halves in two messages give one, an empty message none, so rows could shift against
offsets unnoticed. The proof: rows are objects separated by white space only, so a message that holds a second
row start holds `}`, white space, `{`. When no message does (`_has_second_row`) each message starts at most one
row; when there are as many rows as messages each starts exactly one, which then is the first thing in it, and
so ends before the next message begins.

The native reader is also lenient: it overlooks missing and doubled commas, and the digits of numbers in fields that are
not read. A strict check goes before it, so a message is judged by itself and never by its neighbours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from arro3.io import read_json

from connectors.api import Decoded, Messages
from connectors.arrow import Array, concat_batches, rows_without_columns
from connectors.errors import RecordError
from connectors.formats.json.narrow import NarrowReader
from connectors.formats.json.options import JsonOptions
from connectors.formats.json.record import FieldError, MalformedError, RecordConverter, parse_object, shown, text_of
from connectors.formats.json.wire import Refused, finish, has_missing_candidate, wire_type
from planner.ir.types import Field, arrow_schema

ROWS_PER_PIECE = 2048  # The reader's tape of so many rows stays in the second-level cache.
ROWS_ON_EXACT_ROAD = 32
SPLIT_WAYS = 8

_STRING_MISMATCH = re.compile(r"whilst decoding field '([^']*)': expected string got")
_STRICT = msgspec.json.Decoder(msgspec.Raw)
_HIGH_SURROGATE = re.compile(rb"\\u[dD](?:8[4-9a-fA-F]|[9abAB])")
_OPEN, _CLOSE = ord("{"), ord("}")
_WHITE_SPACE = np.zeros(256, np.bool_)
_WHITE_SPACE[[0x20, 0x09, 0x0A, 0x0D]] = True


@dataclass
class _Rows:
    """Batches decoded so far, and which message each row came from."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    kept: list[npt.NDArray[np.int64]] = field(default_factory=list)
    skipped: int = 0


class JsonDecoder:
    """Decodes the given columns, and no others, of JSON objects. Used by one thread."""

    def __init__(self, columns: tuple[Field, ...], options: JsonOptions) -> None:
        self._columns = columns
        self._options = options
        self._schema = arrow_schema(tuple(column.type for column in columns))
        self._records = RecordConverter(columns, options)
        self._string_columns = {c.name for c in columns if c.type.is_character}
        # STRING columns that were seen with numbers, objects or booleans in them: read as raw JSON from then on.
        self._raw_columns: frozenset[str] = frozenset()
        self._narrow = NarrowReader(columns) if NarrowReader.suits(columns) else None
        self._prepare()

    def _prepare(self) -> None:
        """What the native calls are asked for, given the columns on the raw road."""
        native = [column for column in self._columns if column.name not in self._raw_columns]
        self._wire_schema = pa.schema([pa.field(column.name, wire_type(column.type)) for column in native])
        raw = sorted(self._raw_columns)
        members = [(f"raw{i}", msgspec.Raw, msgspec.Raw(b"null")) for i in range(len(raw))]
        renamed = {f"raw{i}": name for i, name in enumerate(raw)}
        record = msgspec.defstruct("Record", members, rename=renamed)
        self._raw_decoder = msgspec.json.Decoder(record) if raw else None
        self._raw_attributes = {name: attribute for attribute, name in renamed.items()}

    def decode(self, messages: Messages) -> Decoded:
        """Rows of the messages, in order. Raises RecordError for the first one that cannot be decoded."""
        rows = _Rows()
        if messages.count:
            self._decode_range(messages, 0, messages.count, rows)
        kept = np.concatenate([np.zeros(0, np.int64), *rows.kept]) if rows.skipped else None
        return Decoded(concat_batches(rows.batches, self._schema), kept, rows.skipped)

    def _decode_range(self, messages: Messages, low: int, high: int, rows: _Rows) -> None:
        try:
            batch = self._fast(messages, low, high)
        except Refused:
            if high - low <= ROWS_ON_EXACT_ROAD:
                self._exact(messages, low, high, rows)
                return
            step = max(ROWS_ON_EXACT_ROAD, -(-(high - low) // SPLIT_WAYS))
            for start in range(low, high, step):
                self._decode_range(messages, start, min(start + step, high), rows)
            return
        rows.batches.append(batch)
        rows.kept.append(np.arange(low, high, dtype=np.int64))

    # ------------------------------------------------------------------------------------------ fast road

    def _fast(self, messages: Messages, low: int, high: int) -> pa.RecordBatch:
        offsets = messages.offsets
        text = messages.data[int(offsets[low]) : int(offsets[high])]
        wire = self._narrow.read(text, high - low) if self._narrow is not None else None
        if wire is None:
            wire = self._read_wire(messages, text, low, high)
        if _has_second_row(text, offsets[low:high] - offsets[low]):
            raise Refused("not one row per message")
        arrays: list[Array] = []
        for column, array in zip(self._columns, wire, strict=True):
            if column.name in self._raw_columns:
                arrays.append(array)
                continue
            finished = finish(array, column.type, self._options.iso_timestamps)
            if self._options.fail_on_missing_field and has_missing_candidate(finished, column.type):
                raise Refused("a field may be missing")
            arrays.append(finished)
        if not arrays:
            return rows_without_columns(high - low)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _read_wire(self, messages: Messages, text: memoryview, low: int, high: int) -> list[Array]:
        """Columns of the wire types by the columnar reader, behind a strict check."""
        _refuse_misread(text)
        _refuse_malformed(text, high - low)
        table = self._read(messages, text, low, high)
        if table.num_rows != high - low:
            raise Refused("not one row per message")
        native = iter(table.columns)
        arrays: list[Array] = []
        for column in self._columns:
            if column.name in self._raw_columns:
                arrays.append(self._raw_texts(messages, low, high, column.name))
            else:
                chunks = next(native)
                arrays.append(chunks.chunk(0) if chunks.num_chunks == 1 else pa.concat_arrays(cast(Any, chunks.chunks)))
        return arrays

    def _read(self, messages: Messages, text: memoryview, low: int, high: int) -> pa.Table:
        try:
            source = cast(Any, pa.BufferReader(pa.py_buffer(text)))
            return pa.table(read_json(source, self._wire_schema, batch_size=ROWS_PER_PIECE))
        except Exception as problem:  # The reader raises bare Exception for everything.
            mismatch = _STRING_MISMATCH.search(str(problem))
            name = mismatch[1] if mismatch else None
            if name not in self._string_columns or name in self._raw_columns:
                raise Refused(str(problem)) from problem
        self._raw_columns |= {name}
        self._prepare()
        return self._read(messages, text, low, high)

    def _raw_texts(self, messages: Messages, low: int, high: int, name: str) -> Array:
        """A STRING column from raw JSON values: the text of a string, the JSON text of anything else."""
        decoder, attribute = self._raw_decoder, self._raw_attributes[name]
        assert decoder is not None
        try:
            found = [getattr(decoder.decode(messages.value(i)), attribute) for i in range(low, high)]
            return pa.array([text_of_raw(bytes(raw)) for raw in found], pa.string())
        except (msgspec.MsgspecError, MalformedError, RecursionError) as problem:
            raise Refused(str(problem)) from problem

    # ----------------------------------------------------------------------------------------- exact road

    def _exact(self, messages: Messages, low: int, high: int, rows: _Rows) -> None:
        found: list[list[Any]] = []
        kept: list[int] = []
        for index in range(low, high):
            message = messages.value(index)
            try:
                found.append(self._records.convert(message))
                kept.append(index)
            except MalformedError as problem:
                if not self._options.ignore_parse_errors:
                    raise undecodable(messages, index, str(problem), self._options) from problem
                rows.skipped += 1
            except FieldError as problem:
                reason = f"field '{_path(problem.path)}': {problem.reason}"
                raise undecodable(messages, index, reason, self._options) from problem
        if not found:
            return
        arrays = [pa.array(values, t) for values, t in zip(zip(*found, strict=True), self._schema.types, strict=True)]
        rows.batches.append(
            pa.RecordBatch.from_arrays(arrays, schema=self._schema) if arrays else rows_without_columns(len(found))
        )
        rows.kept.append(np.array(kept, np.int64))


def undecodable(messages: Messages, index: int, reason: str, options: JsonOptions) -> RecordError:
    where, text = messages.describe(index), shown(messages.value(index))
    return RecordError(
        f"cannot decode JSON at {where}: {reason}; the record begins: {text}",
        hint=f"'{options.prefix}ignore-parse-errors' = 'true' makes a bad field NULL, and skips and counts an "
        "unreadable record.",
    )


def _path(names: tuple[str, ...]) -> str:
    path = ""
    for name in names:
        path += name if not path or name.startswith("[") else "." + name
    return path


def text_of_raw(raw: bytes) -> str | None:
    """A valid JSON value read into a STRING column. Raises MsgspecError, MalformedError, RecursionError."""
    match raw[:1]:
        case b'"':
            return msgspec.json.decode(raw, type=str)
        case b"{":
            return text_of(parse_object(raw))
        case b"[":
            return text_of(parse_object(b'{"a":' + raw + b"}")["a"])
        case b"n":
            return None
        case _:
            return raw.decode()


def _refuse_misread(text: memoryview) -> None:
    """A zero byte, written or escaped, that reaches an error message of the reader aborts the process. Of an escaped
    pair of surrogates beyond the first supplementary plane it makes another character."""
    data = text.obj if isinstance(text.obj, bytes) and len(text.obj) == text.nbytes else bytes(text)
    if b"\0" in data:
        raise Refused("a zero byte")
    if b"\\" in data and (b"\\u0000" in data or _HIGH_SURROGATE.search(data)):
        raise Refused("an escape that is misread")


def _refuse_malformed(text: memoryview, count: int) -> None:
    """The reader overlooks missing and doubled commas and bad digits in fields it skips, and its stack overflows at
    some 100,000 levels. What is accepted must not depend on a message's neighbours (a replay cuts other batches), so
    every message passes this strict check, at a third of the reader's own cost."""
    try:
        values = _STRICT.decode_lines(text)
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise Refused(str(problem)) from problem
    if len(values) != count:
        raise Refused("not one value per message")


def _has_second_row(text: memoryview, starts: npt.NDArray[np.int64]) -> bool:
    """Whether some message holds `}`, white space, `{`: the only place where a second row can start in it."""
    data = np.frombuffer(text, np.uint8)
    opens = data == _OPEN
    if np.count_nonzero(opens) == len(starts) and bool(opens[starts].all()):
        return False  # One brace per message, and that is the first byte.
    opens[starts] = False
    places = np.flatnonzero(opens)
    firsts = starts[np.searchsorted(starts, places, side="right") - 1]
    before = places - 1
    while True:
        walking = (before >= firsts) & _WHITE_SPACE[data[before]]
        if not bool(walking.any()):
            break
        before -= walking
    return bool(((before >= firsts) & (data[before] == _CLOSE)).any())
