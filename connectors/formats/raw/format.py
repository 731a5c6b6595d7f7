"""Flink's `raw` format: a table (or a key) of exactly one column, stored without any envelope.

Rules are those of Flink's "Raw Format" page: STRING as UTF-8, BYTES as they are, BOOLEAN one byte, numbers in fixed
width, big-endian unless `raw.endianness` says otherwise. Invalid UTF-8 becomes U+FFFD, as Java's decoder does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import pyarrow as pa

from connectors.api import Decoded, Messages, MetadataField
from connectors.errors import OptionError, RecordError
from connectors.formats.rows import RowFormat
from planner.ir.types import DataType, Field, TypeRoot, to_arrow

if TYPE_CHECKING:
    Array = pa.Array[Any]

_NUMPY_CODES = {
    TypeRoot.TINYINT: "i1",
    TypeRoot.SMALLINT: "i2",
    TypeRoot.INTEGER: "i4",
    TypeRoot.BIGINT: "i8",
    TypeRoot.FLOAT: "f4",
    TypeRoot.DOUBLE: "f8",
    TypeRoot.BOOLEAN: "u1",
}
_ENDIANNESS = {"big-endian": ">", "little-endian": "<"}


class RawFormat(RowFormat):
    """Found by `'format' = 'raw'`."""

    name = "raw"
    option_names = frozenset({"charset", "endianness"})
    reads_null: Literal[True] = True

    def validate(self, options: Mapping[str, str]) -> None:
        if options.get("charset", "UTF-8").upper().replace("-", "") != "UTF8":
            raise OptionError("'raw.charset' must be 'UTF-8'", option="raw.charset")
        _byte_order(options)

    def decoder(
        self,
        columns: tuple[Field, ...],
        options: Mapping[str, str],
        local_time_zone: str,
        metadata_columns: tuple[MetadataField, ...] = (),
    ) -> RawDecoder:
        return RawDecoder(_only(columns), _byte_order(options))

    def encoder(self, columns: tuple[Field, ...], options: Mapping[str, str], local_time_zone: str) -> RawEncoder:
        return RawEncoder(_only(columns), _byte_order(options))


def _byte_order(options: Mapping[str, str]) -> str:
    given = options.get("endianness", "big-endian")
    order = _ENDIANNESS.get(given.lower())
    if order is None:
        raise OptionError(
            f"'raw.endianness' cannot be '{given}'", option="raw.endianness", hint="Choices: big-endian, little-endian."
        )
    return order


def _only(columns: tuple[Field, ...]) -> DataType:
    if len(columns) != 1:
        raise OptionError(f"the raw format holds exactly one column, not {len(columns)}", option="format")
    t = columns[0].type
    if not (t.is_character or t.is_binary or t.root in _NUMPY_CODES):
        raise OptionError(f"the raw format cannot hold {t.summary()}", option="format")
    return t


class RawDecoder:
    def __init__(self, t: DataType, byte_order: str) -> None:
        self._type = t
        code = _NUMPY_CODES.get(t.root)
        self._fixed = None if code is None else np.dtype(byte_order + code)

    def decode(self, messages: Messages) -> Decoded:
        column = self._variable(messages) if self._fixed is None else self._numbers(messages, self._fixed)
        return Decoded(pa.RecordBatch.from_arrays([column], names=["c0"]))

    def _variable(self, messages: Messages) -> Array:
        data = np.frombuffer(messages.data, np.uint8)[: messages.offsets[-1]]
        packed = np.delete(data, messages.offsets[1:] - 1)  # the newline behind each message
        offsets = (messages.offsets - np.arange(messages.count + 1)).astype(np.int32)
        buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(packed.tobytes())]
        column: Array = pa.Array.from_buffers(pa.binary(), messages.count, buffers)
        if self._type.is_binary:
            return column
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            texts = [messages.value(i).decode(errors="replace") for i in range(messages.count)]
            return pa.array(texts, pa.string())

    def _numbers(self, messages: Messages, fixed: np.dtype[Any]) -> Array:
        lengths = np.diff(messages.offsets) - 1
        wrong = np.flatnonzero(lengths != fixed.itemsize)
        if len(wrong):
            first = int(wrong[0])
            raise RecordError(
                f"{messages.describe(first)}: {self._type.summary()} needs {fixed.itemsize} bytes, "
                f"the message has {lengths[first]}"
            )
        data = np.frombuffer(messages.data, np.uint8)
        places = messages.offsets[:-1, None] + np.arange(fixed.itemsize)
        values = data[places].view(fixed).reshape(messages.count)
        if self._type.root is TypeRoot.BOOLEAN:
            values = values != 0
        numbers: Array = pa.array(values.astype(values.dtype.newbyteorder("=")), to_arrow(self._type))
        return numbers


class RawEncoder:
    """A NULL column is a message without a value (or a record without a key)."""

    def __init__(self, t: DataType, byte_order: str) -> None:
        self._type = t
        code = _NUMPY_CODES.get(t.root)
        self._fixed = None if code is None else np.dtype(byte_order + code)

    def encode(self, batch: pa.RecordBatch, row_kinds: pa.Int8Array | None = None) -> pa.BinaryArray:
        column = batch.column(0)
        if self._fixed is None:
            return cast(pa.BinaryArray, column.cast(pa.binary()))
        filled = column.fill_null(False if self._type.root is TypeRoot.BOOLEAN else 0)
        data = filled.to_numpy(zero_copy_only=False).astype(self._fixed).tobytes()
        width, count = self._fixed.itemsize, len(column)
        offsets = (np.arange(count + 1) * width).astype(np.int32).tobytes()
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        encoded: Array = pa.Array.from_buffers(pa.binary(), count, buffers)
        if column.null_count:
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            encoded = pa.array([value if ok else None for value, ok in zip(encoded.to_pylist(), valid, strict=True)])
        return cast(pa.BinaryArray, encoded)


FORMAT = RawFormat()
