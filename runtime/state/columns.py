"""Columns of keyed state: values by slot, written and read by whole batches as Arrow arrays.

A column owns its memory: writing copies. Fixed-width values live in one numpy array; strings and bytes as 16-byte
views (Arrow's string view: length, then the bytes themselves when there are at most twelve, else a prefix and a place)
over an arena of append-only chunks; nested values as encoded bytes in such a column.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

import msgspec
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
    equal_values,
    from_arrow,
    numpy_layout,
    to_arrow,
)
from runtime.state.encoding import decode, encode
from runtime.state.growing import grown
from runtime.state.protocol import Slots

INLINE_BYTES = 12
CHUNK_BYTES_MIN = 4 << 10
CHUNK_BYTES = 4 << 20
"""Sizes of arena chunks: the more there is the bigger; a batch that has more makes a bigger one."""
GARBAGE_BYTES_MIN = 1 << 20
"""Less garbage than this is not worth a compaction."""
COMPACTED_ROWS = 65_536
"""Rows of which the long values are copied at once when an arena is written anew."""
_NULL_VIEW = -1


class Column(Protocol):
    """One column, indexed by slot."""

    @property
    def kind(self) -> pa.DataType: ...

    @property
    def byte_size(self) -> int: ...

    @property
    def arena_bytes(self) -> tuple[int, int]:
        """Bytes of the arena, and how many of them are values."""

    def grow(self, capacity: int) -> None:
        """Make room for slots below `capacity`."""

    def reset(self, slots: Slots) -> None:
        """New rows: NULL, or 0 where not nullable."""

    def release(self, slots: Slots) -> None:
        """Rows that are gone: what they held may be given back."""

    def write(self, slots: Slots, values: Array) -> None:
        """Of a slot that occurs several times the last value stands."""

    def fill(self, slots: Slots, values: Array) -> None:
        """Values of rows that are new."""

    def read(self, slots: Slots) -> Array:
        """An Arrow array of its own memory."""

    def prepare(self, keys: Array) -> Keys:
        """A batch's key column in the form that `same` compares with."""

    def same(self, slots: Slots, keys: Keys, rows: Slots) -> Mask:
        """Whether the stored keys equal those of the rows beside them."""

    def compact(self, slot_count: int, *, urgent: bool = False) -> None:
        """Give back memory of values that are gone when it is more than half, or `urgent`. `slot_count`: slots in
        use."""


class Keys(Protocol):
    """A batch's key column."""

    def same(self, left: Slots, right: Slots) -> Mask:
        """Whether pairs of rows have equal keys."""


def make_column(kind: pa.DataType, nullable: bool) -> Column:
    """Raises TypeError for a type that state cannot hold."""
    if pa.types.is_nested(kind):
        return NestedColumn(kind)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return BytesColumn(kind, nullable)
    return FixedColumn(kind, nullable)


def is_primitive(kind: pa.DataType) -> bool:
    """Whether a column of this type is a plain numpy array of numbers."""
    return bool(pa.types.is_primitive(kind))


# --------------------------------------------------------------------------------------------------------- fixed width


class FixedKeys(msgspec.Struct, frozen=True):
    """Canonical values (0 where NULL) and which are NULL."""

    values: Any
    nulls: Any | None

    def same(self, left: Slots, right: Slots) -> Mask:
        equal = equal_values(self.values[left], self.values[right])
        if self.nulls is not None:
            equal &= self.nulls[left] == self.nulls[right]
        return equal


class FixedColumn:
    """Numbers, booleans, dates and times, decimals (two 64-bit words). `values` is the live array."""

    def __init__(self, kind: pa.DataType, nullable: bool) -> None:
        self.kind = kind
        self._dtype, self._words = numpy_layout(kind)
        self.values: NumpyArray = np.empty(self._shape(0), dtype=self._dtype)
        self._valid: Mask | None = np.empty(0, dtype=np.bool_) if nullable else None

    @property
    def byte_size(self) -> int:
        return self.values.nbytes + (0 if self._valid is None else self._valid.nbytes)

    @property
    def arena_bytes(self) -> tuple[int, int]:
        return 0, 0

    def grow(self, capacity: int) -> None:
        self.values = grown(self.values, capacity)
        if self._valid is not None:
            self._valid = grown(self._valid, capacity)

    def reset(self, slots: Slots) -> None:
        self.values[slots] = 0
        if self._valid is not None:
            self._valid[slots] = False

    def release(self, slots: Slots) -> None:
        pass

    def write(self, slots: Slots, values: Array) -> None:
        numbers, nulls = self._from_arrow(values)
        self.values[slots] = numbers
        if self._valid is not None:
            self._valid[slots] = True if nulls is None else ~nulls

    def fill(self, slots: Slots, values: Array) -> None:
        self.write(slots, values)

    def read(self, slots: Slots) -> Array:
        values = self.values[slots]
        nulls = None if self._valid is None else ~self._valid[slots]
        if nulls is not None and not nulls.any():
            nulls = None
        return to_arrow(self.kind, values, nulls)

    def prepare(self, keys: Array) -> FixedKeys:
        values, nulls = self._from_arrow(keys)
        return FixedKeys(canonical_values(values), nulls)

    def same(self, slots: Slots, keys: Any, rows: Slots) -> Mask:
        equal = equal_values(canonical_values(self.values[slots]), keys.values[rows])
        if self._valid is not None:
            nulls = False if keys.nulls is None else keys.nulls[rows]
            equal &= self._valid[slots] != nulls
        return equal

    def compact(self, slot_count: int, *, urgent: bool = False) -> None:
        pass

    def _shape(self, count: int) -> tuple[int, ...]:
        return (count,) if self._words == 1 else (count, self._words)

    def _from_arrow(self, array: Array) -> tuple[NumpyArray, Mask | None]:
        if array.type != self.kind:
            array = array.cast(self.kind)
        return from_arrow(array, self._dtype, self._words)


# ------------------------------------------------------------------------------------------------------ variable width


class BytesKeys(msgspec.Struct, frozen=True):
    """Views of the rows (NULL has a length of -1) and the array they view."""

    views: Any
    array: Any

    def same(self, left: Slots, right: Slots) -> Mask:
        return _same_views(
            self.views[left],
            self.views[right],
            lambda rows: (self.array.take(pa.array(left[rows])), self.array.take(pa.array(right[rows]))),
        )


class BytesColumn:
    """STRING and BYTES. `_live_bytes` counts what is referred to in the arena; the rest of it is garbage."""

    def __init__(self, kind: pa.DataType, nullable: bool) -> None:
        self.kind = kind
        self._nullable = nullable
        self._view_kind = pa.string_view() if pa.types.is_string(kind) else pa.binary_view()
        self._views = np.empty((0, 2), dtype=np.int64)
        self._chunks: list[NumpyArray] = []
        self._buffers: list[pa.Buffer] = []
        self._fill = 0
        self._used_bytes = 0
        self._live_bytes = 0

    @property
    def byte_size(self) -> int:
        return self._views.nbytes + self.arena_bytes[0]

    @property
    def arena_bytes(self) -> tuple[int, int]:
        return sum(chunk.nbytes for chunk in self._chunks), self._live_bytes

    def grow(self, capacity: int) -> None:
        self._views = grown(self._views, capacity)

    def reset(self, slots: Slots) -> None:
        """For rows that are new: what they held is not counted as garbage."""
        self._views[slots] = 0
        if self._nullable:
            self._views[slots, 0] = _NULL_VIEW

    def release(self, slots: Slots) -> None:
        self._live_bytes -= int(_long_lengths(self._views[slots]).sum())
        self._views[slots] = 0

    def write(self, slots: Slots, values: Array) -> None:
        if values.type != self.kind:
            values = values.cast(self.kind)
        views = views_of(values)
        if len(slots) > 1 and not (slots[1:] > slots[:-1]).all():
            # A slot counts once, with its last value, or its bytes would be counted as live twice.
            kept = last_of_each(slots)
            if len(kept) < len(slots):
                slots, views, values = slots[kept], views[kept], values.take(pa.array(kept))
        self._live_bytes -= int(_long_lengths(self._views[slots]).sum())
        self._append(views, values)
        self._views[slots] = views

    def fill(self, slots: Slots, values: Array) -> None:
        if values.type != self.kind:
            values = values.cast(self.kind)
        views = views_of(values)
        self._append(views, values)
        self._views[slots] = views

    def read(self, slots: Slots) -> Array:
        return self._materialise(self._views[slots])

    def prepare(self, keys: Array) -> BytesKeys:
        if keys.type != self.kind:
            keys = keys.cast(self.kind)
        return BytesKeys(views_of(keys), keys)

    def same(self, slots: Slots, keys: Any, rows: Slots) -> Mask:
        stored = self._views[slots]
        return _same_views(
            stored,
            keys.views[rows],
            lambda some: (self._materialise(stored[some]), _taken(keys.array, rows[some])),
        )

    def compact(self, slot_count: int, *, urgent: bool = False) -> None:
        garbage = self._used_bytes - self._live_bytes
        if garbage <= (0 if urgent else max(self._live_bytes, GARBAGE_BYTES_MIN)):
            return
        old = BytesColumn(self.kind, self._nullable)
        old._views, old._buffers = self._views, self._buffers
        self._chunks, self._buffers = [], []
        self._fill = self._used_bytes = self._live_bytes = 0
        lengths = self._views[:slot_count, 0].astype(np.int32)
        for first in range(0, slot_count, COMPACTED_ROWS):
            rows = first + np.flatnonzero(lengths[first : first + COMPACTED_ROWS] > INLINE_BYTES)
            if len(rows):
                values = old._materialise(self._views[rows])
                views = views_of(values)
                self._append(views, values)
                self._views[rows] = views

    def _append(self, views: NumpyArray, values: Array) -> None:
        """Copy the long values into the arena and make their views point there."""
        long = np.flatnonzero(views[:, 0].astype(np.int32) > INLINE_BYTES)
        if not len(long):
            return
        packed = values if len(long) == len(values) and not values.offset else values.take(pa.array(long))
        offsets = np.frombuffer(cast(Any, packed.buffers()[1]), np.int32, len(packed) + 1, packed.offset * 4)
        size = int(offsets[-1]) - int(offsets[0])
        if not self._chunks or self._fill + size > len(self._chunks[-1]):
            wanted = min(CHUNK_BYTES, max(CHUNK_BYTES_MIN, self._used_bytes))
            self._chunks.append(np.empty(max(wanted, size), dtype=np.uint8))
            self._buffers.append(buffer_of(self._chunks[-1]))
            self._fill = 0
        data = np.frombuffer(cast(Any, packed.buffers()[2]), np.uint8, size, int(offsets[0]))
        self._chunks[-1][self._fill : self._fill + size] = data
        places = offsets[:-1].astype(np.int64) - int(offsets[0]) + self._fill
        views[long, 1] = places << 32 | (len(self._chunks) - 1)
        self._fill += size
        self._used_bytes += size
        self._live_bytes += size

    def _materialise(self, views: NumpyArray) -> Array:
        """The values of views into this column's arena."""
        nulls = views[:, 0] == _NULL_VIEW
        validity = None
        if nulls.any():
            views[nulls] = 0
            validity = buffer_of(np.packbits(~nulls, bitorder="little"))
        array = pa.Array.from_buffers(self._view_kind, len(views), [validity, buffer_of(views), *self._buffers])
        return array.cast(self.kind)


def views_of(array: Array) -> NumpyArray:
    """A string or binary array as views into its own data buffer, one (int64, int64) per row."""
    count = len(array)
    if count == 0:
        return np.empty((0, 2), dtype=np.int64)
    text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    viewed = array.cast(pa.string_view() if text else pa.binary_view())
    views = np.frombuffer(viewed.buffers()[1], np.int64, 2 * count, viewed.offset * 16).reshape(count, 2).copy()
    if array.null_count:
        views[array.is_null().to_numpy(zero_copy_only=False)] = (_NULL_VIEW, 0)
    # The second word of a short value holds bytes 4..11; the high half of the place of a long one is its offset.
    return views


def _long_lengths(views: NumpyArray) -> npt.NDArray[np.int64]:
    """Bytes in the arena that views refer to."""
    lengths = views[:, 0].astype(np.int32).astype(np.int64)
    lengths[lengths <= INLINE_BYTES] = 0
    return lengths


def _same_views(left: NumpyArray, right: NumpyArray, values: Any) -> Mask:
    """Whether values are equal by their views; `values` fetches both sides of some rows, for those too long."""
    equal: Mask = left[:, 0] == right[:, 0]
    short = left[:, 0].astype(np.int32) <= INLINE_BYTES
    equal &= ~short | (left[:, 1] == right[:, 1])
    long = np.flatnonzero(equal & ~short)
    if len(long):
        equal[long] = pc.equal(*values(long)).to_numpy(zero_copy_only=False)
    return equal


def _taken(array: Array, rows: Slots) -> Array:
    """The values in `rows`; nothing is copied when those are all, in order."""
    count = len(array)
    if len(rows) == count and rows[0] == 0 and np.array_equal(rows, np.arange(count)):
        return array
    return array.take(pa.array(rows))


def last_of_each(slots: Slots) -> npt.NDArray[np.intp]:
    """Index of the last occurrence of each distinct slot, ascending."""
    _, from_end = np.unique(slots[::-1], return_index=True)
    return np.sort(len(slots) - 1 - from_end)


# ---------------------------------------------------------------------------------------------------------- nested


class NestedKeys(msgspec.Struct, frozen=True):
    """Rows as canonical bytes."""

    canonical: BytesKeys

    def same(self, left: Slots, right: Slots) -> Mask:
        return self.canonical.same(left, right)


class NestedColumn:
    """ROW, ARRAY, MAP and MULTISET, encoded."""

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self._bytes = BytesColumn(pa.binary(), nullable=True)

    @property
    def byte_size(self) -> int:
        return self._bytes.byte_size

    @property
    def arena_bytes(self) -> tuple[int, int]:
        return self._bytes.arena_bytes

    def grow(self, capacity: int) -> None:
        self._bytes.grow(capacity)

    def reset(self, slots: Slots) -> None:
        self._bytes.reset(slots)

    def release(self, slots: Slots) -> None:
        self._bytes.release(slots)

    def write(self, slots: Slots, values: Array) -> None:
        self._bytes.write(slots, encode(values))

    def fill(self, slots: Slots, values: Array) -> None:
        self._bytes.fill(slots, encode(values))

    def read(self, slots: Slots) -> Array:
        return decode(self.kind, self._bytes.read(slots))

    def prepare(self, keys: Array) -> NestedKeys:
        return NestedKeys(self._bytes.prepare(encode(keys, canonical=True)))

    def same(self, slots: Slots, keys: Any, rows: Slots) -> Mask:
        # Stored is the key as it was first seen; only its canonical form says whether it is equal.
        stored = self._bytes.prepare(encode(self.read(slots), canonical=True))
        return _same_views(
            stored.views,
            keys.canonical.views[rows],
            lambda some: (stored.array.take(pa.array(some)), keys.canonical.array.take(pa.array(rows[some]))),
        )

    def compact(self, slot_count: int, *, urgent: bool = False) -> None:
        self._bytes.compact(slot_count, urgent=urgent)
