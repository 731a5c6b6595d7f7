"""Order of rows as numbers: ORDER BY columns become one integer per row.

Codes compare rows of one step with each other: stored ones and those of a batch, laid one after the other. Leads are
made of a row alone, so they can be kept and compared later, but rows that differ may share one. The order is Flink's:
NULL is the smallest value unless the key says otherwise, of floats NaN is the largest and -0.0 equals 0.0, strings and
binaries compare by bytes, booleans false before true.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from planner.ir.ranks import SortKey
from runtime.operators.accumulators_values import ordered_integers
from runtime.operators.grouping import canonical_floats

pc: Any = pyarrow.compute
Array = Any
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_MIN, _MAX = np.int64(-(2**63)), np.int64(2**63 - 1)
_SIGN = np.uint64(1 << 63)
_PACKED_MAX = 2**62
_SHORT_DECIMAL = 18
"""A decimal of so many digits is one 64-bit integer."""
NO_LEAD = int(_MAX)
"""Above every lead."""
_PREFIX_MASKS = np.array([(1 << (8 * n)) - 1 for n in range(9)], dtype=np.uint64)


class OrderKeys:
    """Without sort keys all rows are peers. Nested types have no order (TypeError from `codes`)."""

    def __init__(self, order: Sequence[SortKey], kinds: Sequence[pa.DataType]) -> None:
        """`kinds` are the types of the rows' columns; those of the order are found by index."""
        self.order = tuple(order)
        self.columns = tuple(key.index for key in self.order)
        self.lead_column = self.order[0].index if self.order else None
        """The column that leads are made of."""
        self.is_exact = len(self.order) < 2 and all(_is_one_word(kinds[key.index]) for key in self.order)
        """Whether rows that share a lead are peers (but see LEAD_ENDS)."""

    def codes(self, columns: Sequence[Array], row_count: int) -> Ints:
        """A number per row: smaller ones come first, peers share one. `columns` are all columns of the rows; only
        those of the order are looked at."""
        words = [word for key in self.order for word in _words(columns[key.index], key)]
        if not words or row_count == 0:
            return np.zeros(row_count, dtype=np.int64)
        if len(words) == 1:
            return words[0]
        packed = _packed(words)
        return _dense(words) if packed is None else packed

    def leads(self, column: Array | None, row_count: int) -> Ints:
        """A number per row, below NO_LEAD: a smaller one than that of another row means that the row comes first. With
        `is_exact` an equal one means that they are peers, but for LEAD_ENDS. `column`: the rows' `lead_column`."""
        if column is None:
            return np.zeros(row_count, dtype=np.int64)
        key = self.order[0]
        word = np.clip(_directed(_lead_word(column), key), _MIN + 1, _MAX - 2)
        if column.null_count:
            word[column.is_null().to_numpy(zero_copy_only=False)] = _MIN if key.nulls_first else _MAX - 1
        return word


LEAD_ENDS = (int(_MIN) + 1, int(_MAX) - 2)
"""Leads that stand for several values."""


def exact_ties(leads: Ints) -> Bools:
    """Of an exact order: the leads that stand for one value."""
    ties: Bools = (leads != LEAD_ENDS[0]) & (leads != LEAD_ENDS[1])
    return ties


def _is_one_word(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return bool(kind.precision <= _SHORT_DECIMAL)
    return pa.types.is_primitive(kind) or pa.types.is_boolean(kind)


def _directed(word: Ints, key: SortKey) -> Ints:
    return ~word if key.is_descending else word


def _words(column: Array, key: SortKey) -> list[Ints]:
    """The column as words, the first decides before the second; NULLs have their place by the key."""
    words = [_directed(word, key) for word in _plain_words(column)]
    if not column.null_count:
        return words
    nulls = column.is_null().to_numpy(zero_copy_only=False)
    if nulls.all():
        return [np.zeros(len(column), dtype=np.int64)]
    place = _MIN if key.nulls_first else _MAX
    if len(words) == 1:
        word = words[0]
        known = word[~nulls]
        if (known.min() > _MIN) if key.nulls_first else (known.max() < _MAX):
            return [np.where(nulls, place, word)]
    flags = np.where(nulls, np.int64(0 if key.nulls_first else 1), np.int64(1 if key.nulls_first else 0))
    return [flags, *(np.where(nulls, np.int64(0), word) for word in words)]


def _plain_words(column: Array) -> list[Ints]:
    """Words of the values, ascending; NULL gives any."""
    kind = column.type
    if pa.types.is_decimal(kind):
        return _decimal_words(column)
    if pa.types.is_floating(kind):
        return [ordered_integers(canonical_floats(column))]
    if _is_one_word(kind):
        return [ordered_integers(column)]
    if pa.types.is_nested(kind):
        raise TypeError(f"values of {kind} have no order")
    ranks: Ints = pc.rank(column, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    return [ranks]


def _decimal_words(column: Array) -> list[Ints]:
    if len(column) == 0:
        return [np.zeros(0, dtype=np.int64)]
    if column.type.byte_width != 16:
        column = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    flat = np.frombuffer(cast(Any, column.buffers()[1]), np.int64, 2 * len(column), 16 * column.offset)
    low, high = flat[0::2], flat[1::2]
    if column.type.precision <= _SHORT_DECIMAL:
        return [low.copy()]
    return [high.copy(), low ^ _MIN]


def _lead_word(column: Array) -> Ints:
    """A word of each value alone, ascending but not strictly."""
    if _is_one_word(column.type) or pa.types.is_decimal(column.type):
        return _plain_words(column)[0]
    return _first_bytes(column)


def _first_bytes(column: Array) -> Ints:
    """The first eight bytes of strings and binaries as one number."""
    count = len(column)
    if count == 0:
        return np.zeros(0, dtype=np.int64)
    large = column.cast(pa.large_binary())
    offsets = np.frombuffer(cast(Any, large.buffers()[1]), np.int64, count + 1, 8 * large.offset)
    first, size = int(offsets[0]), int(offsets[-1] - offsets[0])
    padded = np.zeros(size + 8, dtype=np.uint8)
    if size:
        padded[:size] = np.frombuffer(cast(Any, large.buffers()[2]), np.uint8, size, first)
    words: npt.NDArray[np.uint64] = np.ndarray((size + 1,), dtype="<u8", buffer=padded, strides=(1,))
    taken = words[offsets[:-1] - first] & _PREFIX_MASKS[np.minimum(np.diff(offsets), 8)]
    prefixes: Ints = (taken.byteswap() ^ _SIGN).view(np.int64)
    return prefixes


def _packed(words: list[Ints]) -> Ints | None:
    """All words in one number; None where they need more than one."""
    lows = [int(word.min()) for word in words]
    spans = [int(word.max()) - low + 1 for word, low in zip(words, lows, strict=True)]
    size = 1
    for span in spans:
        size *= span
        if size > _PACKED_MAX:
            return None
    packed = words[0] - lows[0]
    for word, low, span in zip(words[1:], lows[1:], spans[1:], strict=True):
        packed = packed * span + (word - low)
    return packed


def _dense(words: list[Ints]) -> Ints:
    """Numbers from 0 on in the order of the words."""
    order = np.lexsort(tuple(reversed(words)))
    changes = np.zeros(len(order), dtype=np.bool_)
    for word in words:
        ordered = word[order]
        changes[1:] |= ordered[1:] != ordered[:-1]
    codes = np.empty(len(order), dtype=np.int64)
    codes[order] = np.cumsum(changes)
    return codes
