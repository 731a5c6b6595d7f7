"""Key columns -> 64-bit hash -> key group -> subtask. Pure, vectorised, and fixed for ever.

State is stored by key group and exchanges route by it, so the hash may never change: it is equal across processes,
versions and platforms (recorded vectors in tests/data/key_hash_vectors.json). It is built from 8-byte little-endian
words and MurmurHash3's 64-bit finaliser (`fmix64`), computed in numpy straight over Arrow buffers.

Equal keys hash equally, by these rules: NULL is a value; integers of every width hash by value, so do FLOAT and
DOUBLE, with -0.0 as 0.0 and every NaN as one; booleans hash as 0 and 1; dates, times, timestamps and durations by
their stored integer; decimals by their unscaled value; strings and binaries by their bytes; lists by position, structs
by field, maps regardless of the order of their entries. A hash says nothing about inequality: compare keys as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

MAX_PARALLELISM_LIMIT = 32_767
"""Key groups are int16: an int16 sorts by radix, which makes partitioning a batch linear."""

Hashes = npt.NDArray[np.uint64]
KeyGroups = npt.NDArray[np.int16]

_MIX_1 = np.uint64(0xFF51AFD7ED558CCD)
_MIX_2 = np.uint64(0xC4CEB9FE1A85EC53)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_NULL_HASH = np.uint64(0x8B72E4F3A6D1C95F)
_SEED = np.uint64(0x2545F4914F6CDD1D)
_CHAIN = np.uint64(0x9FB21C651E98DF25)
_SIGN_BIT = np.uint64(1 << 63)
_INFINITY_BITS = np.uint64(0x7FF0000000000000)
_CANONICAL_NAN_BITS = np.uint64(0x7FF8000000000000)
_SHIFT_33 = np.uint64(33)
_SHIFT_32 = np.uint64(32)
_TAIL_MASKS = np.array([(1 << (8 * n)) - 1 for n in range(9)], dtype=np.uint64)
_LOOP_WORDS = 8
"""Strings up to this many words are hashed word by word over all rows; what is longer goes through one flat pass."""


def hash_columns(columns: Sequence[pa.Array[Any]], row_count: int | None = None) -> Hashes:
    """Hash of each row's key: the columns in order. `row_count` is needed only when there are no columns (then every
    row has the same hash). Any slice of a column hashes like the rows it shows."""
    if not columns:
        if row_count is None:
            raise ValueError("row_count is needed to hash zero key columns")
        return np.full(row_count, _SEED, dtype=np.uint64)
    combined: Hashes = np.empty(len(columns[0]), dtype=np.uint64)
    combined.fill(_SEED)
    for column in columns:
        combined *= _CHAIN
        combined += _hash_array(column)
        _mix(combined)
    return combined


def key_group(hashes: Hashes, max_parallelism: int) -> KeyGroups:
    """Key group (0 <= group < max_parallelism) of each hash: its upper half scaled to the range."""
    _check_max_parallelism(max_parallelism)
    return (((hashes >> _SHIFT_32) * np.uint64(max_parallelism)) >> _SHIFT_32).astype(np.int16)


def key_group_range(index: int, parallelism: int, max_parallelism: int) -> tuple[int, int]:
    """First and last key group (inclusive) that subtask `index` of `parallelism` owns. The ranges of all subtasks
    partition 0..max_parallelism-1."""
    _check_max_parallelism(max_parallelism)
    if not 0 < parallelism <= max_parallelism:
        raise ValueError(f"parallelism {parallelism} is not between 1 and max parallelism {max_parallelism}")
    if not 0 <= index < parallelism:
        raise ValueError(f"subtask {index} does not exist at parallelism {parallelism}")
    first = -(-index * max_parallelism // parallelism)
    last = -(-(index + 1) * max_parallelism // parallelism) - 1
    return first, last


def subtask_of(key_groups: npt.NDArray[np.integer], parallelism: int, max_parallelism: int) -> KeyGroups:
    """Subtask that owns each key group; the inverse of `key_group_range`."""
    _check_max_parallelism(max_parallelism)
    return (key_groups.astype(np.int32) * np.int32(parallelism) // np.int32(max_parallelism)).astype(np.int16)


def _check_max_parallelism(max_parallelism: int) -> None:
    if not 0 < max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise ValueError(f"max parallelism {max_parallelism} is not between 1 and {MAX_PARALLELISM_LIMIT}")


def _mix(words: Hashes) -> Hashes:
    """MurmurHash3 fmix64, in place."""
    words ^= words >> _SHIFT_33
    words *= _MIX_1
    words ^= words >> _SHIFT_33
    words *= _MIX_2
    words ^= words >> _SHIFT_33
    return words


def _hash_array(array: pa.Array[Any]) -> Hashes:
    """Hash of each value of one column; NULL has a hash of its own."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(array, pa.NullArray):
        return np.full(len(array), _NULL_HASH, dtype=np.uint64)
    if isinstance(array, pa.DictionaryArray):
        # Through the values, so that an encoded column hashes like the plain one.
        values = _hash_array(array.dictionary)
        hashes: Hashes = np.zeros(len(array), dtype=np.uint64)
        if len(values):
            hashes = values[array.indices.fill_null(0).to_numpy().astype(np.int64)]
    else:
        hashes = _hash_values(array)
    if array.null_count:
        hashes[pc.is_null(array).to_numpy(zero_copy_only=False)] = _NULL_HASH
    return hashes


def _hash_values(array: pa.Array[Any]) -> Hashes:
    """Hash of each value; rows that are NULL get any hash."""
    kind = array.type
    if kind in _PLAIN:
        return _mix(_integer_words(array))
    if pa.types.is_floating(kind):
        return _mix(_float_words(array))
    if pa.types.is_decimal(kind):
        return _hash_words(_fixed_words(array, kind.byte_width))
    if pa.types.is_boolean(kind):
        return _mix(array.cast(pa.uint8()).fill_null(0).to_numpy().astype(np.uint64))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return _hash_bytes(array.cast(pa.large_binary()))
    if _is_variable_bytes(kind):
        return _hash_bytes(array)
    if pa.types.is_fixed_size_binary(kind):
        return _hash_bytes(array.cast(pa.binary()))
    if pa.types.is_map(kind):
        return _hash_map(cast(Any, array))
    if pa.types.is_fixed_size_list(kind):
        return _hash_list(cast(Any, array.cast(pa.list_(kind.value_type))))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _hash_list(cast(Any, array))
    if pa.types.is_struct(kind):
        fields = cast(pa.StructArray, array)
        return hash_columns([fields.field(i) for i in range(kind.num_fields)], len(array))
    return _mix(_integer_words(array))


def _view(
    array: pa.Array[Any], buffer: int, dtype: type[np.number[Any]], count: int, byte_offset: int
) -> npt.NDArray[Any]:
    """`count` items of one of the array's buffers, without a copy."""
    return np.frombuffer(cast(Any, array.buffers()[buffer]), dtype, count, byte_offset)


def _is_variable_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    )


_PLAIN = frozenset({pa.int8(), pa.int16(), pa.int32(), pa.int64()})
"""Asked for first: most keys are integers, and this is asked for every column of every batch."""
_INTEGERS_BY_BYTES: dict[int, type[np.integer[Any]]] = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def _integer_words(array: pa.Array[Any]) -> Hashes:
    """Values of any integer-backed type (integers, dates, times, timestamps, durations), sign-extended to 64 bits."""
    kind = array.type
    if kind.num_buffers != 2 or kind.bit_width % 8 or kind.bit_width > 64:
        raise TypeError(f"no key hash for Arrow type {kind}")
    if pa.types.is_unsigned_integer(kind):
        array = array.cast(pa.int64(), safe=False)
        kind = array.type
    width = kind.bit_width // 8
    if len(array) == 0:
        return np.zeros(0, dtype=np.uint64)
    values = _view(array, 1, _INTEGERS_BY_BYTES[width], len(array), array.offset * width)
    return values.astype(np.int64).view(np.uint64)


def _float_words(array: pa.Array[Any]) -> Hashes:
    """Bits of the value as a double; 0.0 for -0.0, one pattern for every NaN."""
    # By bits: arithmetic on a signalling NaN would raise a floating-point flag.
    words: Hashes = array.cast(pa.float64()).fill_null(0.0).to_numpy().view(np.uint64).copy()
    words[words == _SIGN_BIT] = 0
    words[(words & ~_SIGN_BIT) > _INFINITY_BITS] = _CANONICAL_NAN_BITS
    return words


def _fixed_words(array: pa.Array[Any], byte_width: int) -> list[Hashes]:
    """The 8-byte words of values of a fixed width (decimals), low word first, sign-extended."""
    if len(array) == 0:
        return [np.zeros(0, dtype=np.uint64)]
    if byte_width < 8:
        dtype = _INTEGERS_BY_BYTES[byte_width]
        values = _view(array, 1, dtype, len(array), array.offset * byte_width)
        return [values.astype(np.int64).view(np.uint64)]
    count = byte_width // 8
    flat = _view(array, 1, np.uint64, len(array) * count, array.offset * byte_width)
    return [flat[i::count] for i in range(count)]


def _hash_words(words: list[Hashes]) -> Hashes:
    """One hash of several words of a number. A word that only extends the sign of the one below is left out, so the
    hash does not depend on the width of the number's storage."""
    hashes = _mix(words[0].copy())
    for low, high in pairwise(words):
        significant = high != (low.view(np.int64) >> 63).view(np.uint64)
        if significant.any():
            hashes[significant] = _mix((hashes * _CHAIN + high)[significant])
    return hashes


def _offsets(array: pa.Array[Any]) -> npt.NDArray[np.int64]:
    """The len + 1 offsets into the values of a string, binary, list or map column, as shown by the slice."""
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    large = large or pa.types.is_large_list(array.type)
    dtype: type[np.int64 | np.int32] = np.int64 if large else np.int32
    if len(array) == 0:
        return np.zeros(1, dtype=np.int64)
    return _view(array, 1, dtype, len(array) + 1, array.offset * np.dtype(dtype).itemsize).astype(np.int64)


def _hash_bytes(array: pa.Array[Any]) -> Hashes:
    """Hash of variable-width bytes: the sum of each 8-byte word mixed with its position, mixed with the length.

    A sum needs no order of evaluation: short values go word by word over all rows, long ones through one flat pass,
    with the same answer."""
    offsets = _offsets(array)
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    size = int(offsets[-1] - offsets[0])
    sums = np.zeros(len(array), dtype=np.uint64)
    if size:
        padded = np.zeros(size + 8, dtype=np.uint8)
        padded[:size] = _view(array, 2, np.uint8, size, int(offsets[0]))
        words: npt.NDArray[np.uint64] = np.ndarray((size + 1,), dtype="<u8", buffer=padded, strides=(1,))
        counts = (lengths + 7) >> 3
        most = int(counts.max())
        for position in range(min(most, _LOOP_WORDS)):
            _add_word(sums, words, starts, lengths, position)
        if most > _LOOP_WORDS:
            _add_long(sums, words, starts, lengths, counts)
    sums += lengths.astype(np.uint64) * _GOLDEN
    return _mix(sums)


def _position_key(positions: npt.NDArray[np.int64]) -> Hashes:
    """A mixed word per position, so that equal words at different places add up differently."""
    return _mix((positions + 1).astype(np.uint64) * _GOLDEN)


def _add_word(
    sums: Hashes, words: Hashes, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], position: int
) -> None:
    """Add word `position` of each value that has one."""
    remaining = lengths - 8 * position
    key = _position_key(np.array([position]))[0]
    rows: npt.NDArray[np.int64] | slice = slice(None)
    if remaining.min() <= 0:
        rows = np.flatnonzero(remaining > 0)
        remaining = remaining[rows]
    gathered = words[starts[rows] + 8 * position]
    gathered &= _TAIL_MASKS[np.minimum(remaining, 8)]
    gathered ^= key
    sums[rows] += _mix(gathered)


def _add_long(
    sums: Hashes,
    words: Hashes,
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
) -> None:
    """Add the words from `_LOOP_WORDS` on of all values that have so many, in one flat pass over those words."""
    rows = np.flatnonzero(counts > _LOOP_WORDS)
    left = counts[rows] - _LOOP_WORDS
    ends = np.cumsum(left)
    positions = np.arange(int(ends[-1])) - np.repeat(ends - left, left) + _LOOP_WORDS
    gathered = words[np.repeat(starts[rows], left) + 8 * positions]
    gathered &= _TAIL_MASKS[np.minimum(np.repeat(lengths[rows], left) - 8 * positions, 8)]
    gathered ^= _position_key(positions)
    sums[rows] += np.add.reduceat(_mix(gathered), ends - left)


def _hash_list(array: pa.ListArray[Any]) -> Hashes:
    """Hash of lists: each element's hash mixed with its position, summed, mixed with the length."""
    offsets = _offsets(array)
    lengths = np.diff(offsets)
    elements = _hash_array(array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0])))
    positions = np.arange(len(elements)) - np.repeat(offsets[:-1] - offsets[0], lengths)
    elements ^= _position_key(positions)
    return _sum_segments(_mix(elements), lengths)


def _hash_map(array: pa.MapArray[Any, Any]) -> Hashes:
    """Hash of maps: each entry's hash, summed without positions, mixed with the number of entries."""
    offsets = _offsets(array)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    entries = hash_columns([array.keys.slice(first, count), array.items.slice(first, count)], count)
    return _sum_segments(entries, np.diff(offsets))


def _sum_segments(hashes: Hashes, lengths: npt.NDArray[np.int64]) -> Hashes:
    """Per consecutive segment of `hashes`: their sum, mixed with the segment's length."""
    totals = np.zeros(len(hashes) + 1, dtype=np.uint64)
    np.cumsum(hashes, out=totals[1:])
    ends = np.cumsum(lengths)
    sums: Hashes = totals[ends] - totals[ends - lengths]
    sums += lengths.astype(np.uint64) * _GOLDEN
    return _mix(sums)
