"""Nested values, and whole rows, as bytes: a vectorised encoding of Arrow arrays.

A value is a presence byte (0 = NULL) and, if of a fixed width, its bytes; a string its length and bytes; a ROW its
fields; an ARRAY its number of elements, their sizes, then the elements; a MAP an ARRAY of ROWs of key and value.
Numbers are little-endian, lengths four bytes. In *canonical* form equal keys have equal bytes: -0.0 is 0.0, every NaN
is one, the entries of a MAP are sorted.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from runtime.state.arrays import (
    Array,
    Mask,
    NumpyArray,
    buffer_of,
    canonical_values,
    from_arrow,
    numpy_layout,
    to_arrow,
)

_NOTHING = pa.scalar(b"", pa.binary())
_LENGTH_BYTES = 4
Positions = npt.NDArray[np.int64]


def encode(array: Array, *, canonical: bool = False) -> Array:
    """A binary array; NULL stays NULL. Raises TypeError for a type that has no encoding."""
    encoded = _encode(array, canonical)
    if array.null_count:
        encoded = pc.if_else(array.is_valid(), encoded, pa.scalar(None, pa.binary()))
    return encoded


def decode(kind: pa.DataType, encoded: Array) -> Array:
    """The array of type `kind` that `encoded` was made of."""
    if encoded.null_count:
        valid = encoded.is_valid().to_numpy(zero_copy_only=False)
        places = pa.array(np.cumsum(valid) - 1, mask=~valid)
        return decode(kind, encoded.filter(encoded.is_valid())).take(places)
    offsets = _offsets(encoded)
    size = int(offsets[-1] - offsets[0])
    data = np.empty(0, dtype=np.uint8)
    if size:
        data = np.frombuffer(encoded.buffers()[2], np.uint8, size, int(offsets[0]))
    return _Decoder(data).read(kind, offsets[:-1] - offsets[0])[0]


def _encode(array: Array, canonical: bool) -> Array:
    """Without NULLs: they are presence bytes."""
    kind = array.type
    if pa.types.is_map(kind):
        return _encode_list(array.cast(_entries_kind(kind)), canonical, is_map=True)
    if pa.types.is_list(kind):
        return _encode_list(array, canonical, is_map=False)
    presence = array.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
    if pa.types.is_struct(kind):
        fields = [_encode(field, canonical) for field in array.flatten()]
        return pc.binary_join_element_wise(_fixed_bytes(presence[:, None]), *fields, _NOTHING)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        values = array.cast(pa.binary()).fill_null(b"")
        header = np.hstack([presence[:, None], _bytes_of(np.diff(_offsets(values)).astype(np.int32))])
        return pc.binary_join_element_wise(_fixed_bytes(header), values, _NOTHING)
    values, _ = from_arrow(array, *numpy_layout(kind))
    if canonical:
        values = canonical_values(values)
    return _fixed_bytes(np.hstack([presence[:, None], _bytes_of(values)]))


def _encode_list(array: Array, canonical: bool, *, is_map: bool) -> Array:
    presence = array.is_valid().to_numpy(zero_copy_only=False).view(np.uint8)
    counts = pc.list_value_length(array).fill_null(0).to_numpy().astype(np.int32)
    borders = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
    elements = _encode(array.flatten(), canonical)
    if canonical and is_map and len(elements):
        owners = np.repeat(np.arange(len(counts)), counts)
        table = pa.table({"owner": owners, "element": elements})
        elements = elements.take(pc.sort_indices(table, [("owner", "ascending"), ("element", "ascending")]))
    offsets = _offsets(elements)
    sizes = np.diff(offsets).astype(np.int32)
    header = _fixed_bytes(np.hstack([presence[:, None], _bytes_of(counts)]))
    return pc.binary_join_element_wise(
        header,
        _binary(borders * _LENGTH_BYTES, buffer_of(sizes)),
        _binary(offsets[borders], elements.buffers()[2]),
        _NOTHING,
    )


def _entries_kind(kind: Any) -> Any:
    """A MAP's entries as a list of structs."""
    return pa.list_(pa.struct([pa.field("key", kind.key_type, False), pa.field("value", kind.item_type)]))


def _bytes_of(values: NumpyArray) -> npt.NDArray[np.uint8]:
    """The bytes of each value, as rows of a matrix."""
    width = values.dtype.itemsize * (values.shape[1] if values.ndim == 2 else 1)
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), width)


def _fixed_bytes(rows: npt.NDArray[np.uint8]) -> Array:
    """Rows of a matrix of bytes as a binary array."""
    return _binary(np.arange(len(rows) + 1, dtype=np.int64) * rows.shape[1], buffer_of(np.ascontiguousarray(rows)))


def _binary(offsets: Positions, data: pa.Buffer | None) -> Array:
    if int(offsets[-1]) > np.iinfo(np.int32).max:
        raise OverflowError("more than 2 GiB of nested values in one batch")
    buffers = [None, buffer_of(offsets.astype(np.int32)), pa.py_buffer(b"") if data is None else data]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _offsets(array: Array) -> Positions:
    if not len(array):
        return np.zeros(1, dtype=np.int64)
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4).astype(np.int64)


class _Decoder:
    """Reads one value per row at ascending positions of `data`."""

    def __init__(self, data: npt.NDArray[np.uint8]) -> None:
        self._data = data

    def read(self, kind: pa.DataType, positions: Positions) -> tuple[Array, Positions]:
        """The values at `positions`, and the positions behind them."""
        valid: Mask = self._data[positions] != 0
        positions = positions + 1
        nulls = None if valid.all() else ~valid
        if pa.types.is_map(kind) or pa.types.is_list(kind):
            return self._read_list(kind, positions, nulls)
        if pa.types.is_struct(kind):
            return self._read_struct(kind, positions, nulls)
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            return self._read_bytes(kind, positions, nulls)
        dtype, words = numpy_layout(kind)
        values = self._gather(dtype, words, positions)
        return to_arrow(kind, values, nulls), positions + dtype.itemsize * words

    def _read_struct(self, kind: pa.DataType, positions: Positions, nulls: Mask | None) -> tuple[Array, Positions]:
        fields = list(cast(pa.StructType, kind))
        columns = []
        for field in fields:
            column, positions = self.read(field.type, positions)
            columns.append(column)
        mask = None if nulls is None else pa.array(nulls)
        if not fields:
            rows: list[Any] = [{}] * len(positions) if nulls is None else [None if null else {} for null in nulls]
            return pa.array(rows, kind), positions
        return pa.StructArray.from_arrays(columns, fields=fields, mask=mask), positions

    def _read_bytes(self, kind: pa.DataType, positions: Positions, nulls: Mask | None) -> tuple[Array, Positions]:
        starts = positions + _LENGTH_BYTES
        ends = starts + self._gather(np.dtype(np.int32), 1, positions)
        # Every second of the pieces between these borders is a value.
        borders = np.empty(2 * len(starts) + 1, dtype=np.int64)
        borders[0:-1:2], borders[1::2] = starts, ends
        borders[-1] = ends[-1] if len(ends) else 0
        pieces = _binary(borders, buffer_of(self._data))
        values = pieces.take(pa.array(np.arange(len(starts)) * 2, mask=nulls))
        return values.cast(kind), ends

    def _read_list(self, kind: Any, positions: Positions, nulls: Mask | None) -> tuple[Array, Positions]:
        is_map = pa.types.is_map(kind)
        element_kind = _entries_kind(kind).value_type if is_map else kind.value_type
        counts = self._gather(np.dtype(np.int32), 1, positions).astype(np.int64)
        positions = positions + _LENGTH_BYTES
        borders = np.concatenate(([0], np.cumsum(counts)))
        within = np.arange(int(borders[-1])) - np.repeat(borders[:-1], counts)
        sizes = self._gather(np.dtype(np.int32), 1, np.repeat(positions, counts) + within * _LENGTH_BYTES).astype(
            np.int64
        )
        positions = positions + counts * _LENGTH_BYTES
        ends = np.concatenate(([0], np.cumsum(sizes)))
        starts = np.repeat(positions - ends[borders[:-1]], counts) + ends[:-1]
        elements, _ = self.read(element_kind, starts)
        mask: Array = None if nulls is None else pa.array(nulls)
        offsets: Array = pa.array(borders.astype(np.int32))
        behind = positions + ends[borders[1:]] - ends[borders[:-1]]
        if is_map:
            keys, items = elements.flatten()
            return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask), behind
        return pa.ListArray.from_arrays(offsets, elements, type=kind, mask=mask), behind

    def _gather(self, dtype: np.dtype[Any], words: int, positions: Positions) -> NumpyArray:
        """Fixed-width values at positions that need not be aligned."""
        width = dtype.itemsize * words
        if not len(positions):
            return np.empty((0,) if words == 1 else (0, words), dtype=dtype)
        raw = self._data[positions[:, None] + np.arange(width)]
        values: NumpyArray = raw.view(dtype)
        return values[:, 0] if words == 1 else values
