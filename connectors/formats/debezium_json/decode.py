"""Change events to rows with kinds: the envelope is decoded as a JSON row of ROWs, then the rows are woven together.

c and r (snapshot) are +I of `after`; u is -U of `before` and +U of `after`; d is -D of `before`. Per message there is
no Python: the JSON roads give the columns of all `before` and all `after` rows, and one gather per column puts them in
order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.api import Decoded, Int64Array, Messages, MetadataField
from connectors.arrow import Array, declared, pc, rows_without_columns
from connectors.errors import RecordError
from connectors.formats.json.decode import JsonDecoder, text_of_raw, undecodable
from connectors.formats.json.options import JsonOptions
from connectors.formats.json.record import MalformedError, parse_object, text_of
from planner.ir.types import (
    BIGINT,
    STRING,
    DataType,
    Field,
    TypeRoot,
    arrow_schema,
    map_of,
    row,
    timestamp_ltz,
)

METADATA: Mapping[str, DataType] = {
    "schema": STRING,
    "ingestion-timestamp": timestamp_ltz(3),
    "source.timestamp": timestamp_ltz(3),
    "source.database": STRING,
    "source.schema": STRING,
    "source.table": STRING,
    "source.properties": map_of(STRING, STRING),
}
_OF_SOURCE: Mapping[str, tuple[str, DataType]] = {
    "source.timestamp": ("ts_ms", BIGINT),
    "source.database": ("db", STRING),
    "source.schema": ("schema", STRING),
    "source.table": ("table", STRING),
}

# Where an op stands here decides what becomes of it: the first two are +I, then u, then d.
_OPS: Array = pa.array(["c", "r", "u", "d"], pa.string())
_UPDATE, _DELETE, _UNKNOWN = 2, 3, 4
INSERT_KIND, UPDATE_BEFORE_KIND, UPDATE_AFTER_KIND, DELETE_KIND = range(4)


class DebeziumDecoder:
    """Decodes the given columns of `before` and `after`, then the metadata columns. Used by one thread."""

    def __init__(
        self,
        columns: tuple[Field, ...],
        options: JsonOptions,
        schema_include: bool,
        metadata_columns: tuple[MetadataField, ...],
        local_time_zone: str,
    ) -> None:
        self._columns = columns
        self._options = options
        self._schema_include = schema_include
        self._metadata = metadata_columns
        self._local_time_zone = local_time_zone
        keys = {column.key for column in metadata_columns}
        self._source_fields = [_OF_SOURCE[key] for key in _OF_SOURCE if key in keys]
        self._whole_source = "source.properties" in keys
        self._json = JsonDecoder(self._envelope(keys), options)
        self._schema = arrow_schema((*(c.type for c in columns), *(m.type for m in metadata_columns)))

    def _envelope(self, metadata_keys: set[str]) -> tuple[Field, ...]:
        # A ROW needs a field: rows of no columns are told from missing ones by one that no event has.
        image = row(*((c.name, c.type) for c in self._columns)) if self._columns else row(("\x01", STRING))
        fields = [("before", image), ("after", image), ("op", STRING)]
        if "ingestion-timestamp" in metadata_keys:
            fields.append(("ts_ms", BIGINT))
        if self._whole_source:
            fields.append(("source", STRING))  # as JSON text
        elif self._source_fields:
            fields.append(("source", row(*self._source_fields)))
        envelope = tuple(Field(name, t) for name, t in fields)
        if not self._schema_include:
            return envelope
        schema = (Field("schema", STRING),) if "schema" in metadata_keys else ()
        return (Field("payload", DataType(TypeRoot.ROW, fields=envelope)), *schema)

    def decode(self, messages: Messages) -> Decoded:
        """Rows and their kinds, in order. Messages of no bytes are tombstones, as null ones are: passed over. Raises
        RecordError for an event that is no change or lacks an image."""
        is_empty = np.diff(messages.offsets) == 1
        if is_empty.any():
            events = np.flatnonzero(~is_empty)
            decoded = self.decode(_selected(messages, events))
            assert decoded.kept is not None, "an event knows its message"
            return msgspec.structs.replace(decoded, kept=events[decoded.kept])
        found = self._json.decode(messages)
        members = self._members(found.batch)
        count = found.batch.num_rows
        events = np.arange(count, dtype=np.int64) if found.kept is None else found.kept
        codes = pc.index_in(members["op"], _OPS).fill_null(_UNKNOWN).to_numpy()
        wrong = _wrong(codes, _valid(members["before"]), _valid(members["after"]))
        skipped = found.skipped
        if wrong.any():
            if not self._options.ignore_parse_errors:
                first = int(np.flatnonzero(wrong)[0])
                raise self._refused(messages, int(events[first]), members["op"][first].as_py(), int(codes[first]))
            skipped += int(np.count_nonzero(wrong))
        places, origins, kinds = _weave(codes, ~wrong, count)
        arrays = self._rows(members, places) + self._metadata_arrays(members, origins)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema) if arrays else rows_without_columns(len(places))
        row_kinds: Any = pa.array(kinds)
        return Decoded(batch, events[origins], skipped, row_kinds)

    def _members(self, batch: pa.RecordBatch) -> dict[str, Array]:
        """The envelope's columns by name; `schema` too when it is asked for."""
        if not self._schema_include:
            names = [column.name for column in self._envelope({column.key for column in self._metadata})]
            return dict(zip(names, batch.columns, strict=True))
        payload: Array = batch.column(0)
        members = dict(zip([f.name for f in payload.type], payload.flatten(), strict=True))
        if batch.num_columns > 1:
            members["schema"] = batch.column(1)
        return members

    def _rows(self, members: dict[str, Array], places: Int64Array) -> list[Array]:
        """`places`: i = the image before event i, count + i = the image after it."""
        if not self._columns:
            return []
        before, after = members["before"].flatten(), members["after"].flatten()
        count = len(members["op"])
        if len(places) == count and bool((places == np.arange(count, 2 * count)).all()):
            return list(after)  # Inserts only, as in a snapshot.
        taken = pa.array(places)
        return [pa.concat_arrays([old, new]).take(taken) for old, new in zip(before, after, strict=True)]

    def _metadata_arrays(self, members: dict[str, Array], origins: Int64Array) -> list[Array]:
        taken = pa.array(origins)
        return [
            declared(self._metadata_values(column.key, members), column.type, self._local_time_zone).take(taken)
            for column in self._metadata
        ]

    def _metadata_values(self, key: str, members: dict[str, Array]) -> Array:
        if key == "schema":
            return members.get("schema", pa.nulls(len(members["op"]), pa.string()))
        if key == "ingestion-timestamp":
            return members["ts_ms"].cast(pa.timestamp("ms", "UTC"))
        if key == "source.properties":
            return self._properties(members["source"])
        name, t = _OF_SOURCE[key]
        if self._whole_source:
            values = _of_properties(self._properties(members["source"]), name)
        else:
            values = members["source"].flatten()[[field for field, _ in self._source_fields].index(name)]
        return values.cast(pa.int64()).cast(pa.timestamp("ms", "UTC")) if t is BIGINT else values

    def _properties(self, source: Array) -> Array:
        """Each event's `source` as a map of texts: whoever asks for all of it pays for every event."""
        entries = [None if text is None else _entries(text) for text in source.to_pylist()]
        return pa.array(entries, pa.map_(pa.string(), pa.string()))

    def _refused(self, messages: Messages, index: int, op: str | None, code: int) -> RecordError:
        if code == _UNKNOWN:
            said = "the field 'op' is missing" if op is None else f"unknown 'op' \"{op}\""
            return undecodable(messages, index, f"{said} (known: c, r, u, d)", self._options)
        wanted = "before" if code >= _UPDATE and self._lacks_before(messages, index) else "after"
        error = undecodable(messages, index, f"the field '{wanted}' of an event with op '{op}' is null", self._options)
        if wanted == "after":
            return error
        return RecordError(
            error.message,
            hint="The database does not send the old row. Postgres: ALTER TABLE … REPLICA IDENTITY FULL. "
            f"'{self._options.prefix}ignore-parse-errors' = 'true' skips and counts such events.",
        )

    def _lacks_before(self, messages: Messages, index: int) -> bool:
        event = parse_object(messages.value(index))
        return (event["payload"] if self._schema_include else event).get("before") is None


def _valid(images: Array) -> npt.NDArray[np.bool_]:
    valid: npt.NDArray[np.bool_] = images.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _selected(messages: Messages, indexes: Int64Array) -> Messages:
    """Some of the messages, in a buffer of their own."""
    values = [messages.value(int(index)) for index in indexes]
    ends = np.cumsum([0, *(len(value) + 1 for value in values)], dtype=np.int64)
    data = b"".join(value + b"\n" for value in values)
    return Messages(memoryview(data), ends, lambda index: messages.describe(int(indexes[index])))


def _wrong(
    codes: npt.NDArray[np.int32], before: npt.NDArray[np.bool_], after: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Events of an unknown kind or without an image that their kind needs."""
    wrong: npt.NDArray[np.bool_] = (codes == _UNKNOWN) | ((codes >= _UPDATE) & ~before) | ((codes <= _UPDATE) & ~after)
    return wrong


def _weave(
    codes: npt.NDArray[np.int32], wanted: npt.NDArray[np.bool_], count: int
) -> tuple[Int64Array, Int64Array, npt.NDArray[np.int8]]:
    """Per row: its place in [all before, all after], its event, its kind."""
    amounts = np.where(codes == _UPDATE, 2, 1) * wanted
    origins = np.repeat(np.arange(count, dtype=np.int64), amounts)
    code = codes[origins]
    second = np.zeros(len(origins), np.bool_)  # the +U of an update
    second[1:] = (origins[1:] == origins[:-1]) & (code[1:] == _UPDATE)
    kinds = np.full(len(origins), INSERT_KIND, np.int8)
    kinds[code == _DELETE] = DELETE_KIND
    kinds[code == _UPDATE] = UPDATE_BEFORE_KIND
    kinds[second] = UPDATE_AFTER_KIND
    of_after = (kinds == INSERT_KIND) | second
    return origins + of_after * np.int64(count), origins, kinds


_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _entries(text: str) -> list[tuple[str, str | None]]:
    try:
        return [(name, text_of_raw(bytes(raw))) for name, raw in _MEMBERS.decode(text).items()]
    except (msgspec.MsgspecError, MalformedError, RecursionError):
        # What only the lenient reader takes, e.g. half of a pair of surrogates.
        return [(k, None if v is None else text_of(v)) for k, v in parse_object(text.encode()).items()]


def _of_properties(properties: Array, name: str) -> Array:
    return pc.map_lookup(properties, pa.scalar(name, pa.string()), "first")
