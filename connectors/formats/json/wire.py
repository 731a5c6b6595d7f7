"""What the native JSON reader is asked for, and how that becomes the declared types.

The reader (arrow-rs behind arro3) coerces more than Flink does, so columns are asked for in a type that loses
nothing and are judged here, vectorised: timestamps as text in exactly the configured format, decimals with one
digit more than declared (the reader truncates; Flink rounds half up, which that one digit decides), TINYINT and
SMALLINT as doubles (Flink refuses 1.5 for them but cuts it to 1 for INT). A value that does not fit raises
`Refused`: the caller then looks at the messages one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from connectors.arrow import Array, list_offsets, pc, text_buffers
from planner.ir.types import INTEGER_BITS, DataType, TypeRoot, to_arrow

SQL_TEXT_LENGTH = len("yyyy-MM-dd HH:mm:ss")
ISO_TEXT_LENGTH_MIN = len("yyyy-MM-ddTHH:mm")


class Refused(Exception):
    """The fast road does not vouch for these messages."""


def wire_type(t: DataType) -> pa.DataType:
    """The Arrow type to ask the reader for."""
    match t.root:
        case TypeRoot.TINYINT | TypeRoot.SMALLINT:
            return pa.float64()
        case TypeRoot.DECIMAL:
            assert t.precision is not None
            digits, scale = t.precision + 1, (t.scale or 0) + 1
            return pa.decimal128(digits, scale) if digits <= 38 else pa.decimal256(digits, scale)
        case (
            TypeRoot.DATE
            | TypeRoot.TIME
            | TypeRoot.TIMESTAMP
            | TypeRoot.TIMESTAMP_LTZ
            | TypeRoot.BINARY
            | TypeRoot.VARBINARY
        ):
            return pa.string()
        case TypeRoot.ARRAY:
            assert t.element is not None
            return pa.list_(wire_type(t.element))
        case TypeRoot.MAP:
            assert t.element is not None
            return pa.map_(pa.string(), wire_type(t.element))
        case TypeRoot.MULTISET:
            return pa.map_(pa.string(), pa.int32())
        case TypeRoot.ROW:
            return pa.struct([pa.field(field.name, wire_type(field.type)) for field in t.fields])
        case _:
            return to_arrow(t)


def finish(array: Array, t: DataType, iso: bool) -> Array:
    """The declared type from the wire type. Raises Refused, also for a value Flink would turn into NULL."""
    target = to_arrow(t)
    try:
        return _finish(array, t, target, iso)
    except pa.ArrowInvalid as problem:
        raise Refused(str(problem)) from problem


def _finish(array: Array, t: DataType, target: pa.DataType, iso: bool) -> Array:
    match t.root:
        case TypeRoot.TINYINT | TypeRoot.SMALLINT:
            return _small_integers(array, t, target)
        case TypeRoot.DECIMAL:
            return pc.round(array, ndigits=t.scale or 0, round_mode="half_towards_infinity").cast(target)
        case TypeRoot.BINARY | TypeRoot.VARBINARY:
            return _from_base64(array)
        case TypeRoot.DATE:
            _check_lengths(array, 10, 10)
            return array.cast(target)
        case TypeRoot.TIME:
            return _times(array, target)
        case TypeRoot.TIMESTAMP:
            return _timestamps(array, target, iso)
        case TypeRoot.TIMESTAMP_LTZ:
            assert isinstance(target, pa.TimestampType)
            _check_byte(array, -1, ord("Z"))
            plain = pc.binary_slice(array.cast(pa.binary()), 0, -1).cast(pa.string())
            return _timestamps(plain, pa.timestamp(target.unit), iso).view(target)
        case TypeRoot.ARRAY:
            assert t.element is not None
            assert isinstance(array, pa.ListArray)
            values = finish(array.flatten(), t.element, iso)
            lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
            return pa.ListArray.from_arrays(list_offsets(lengths), values, type=target, mask=array.is_null())
        case TypeRoot.MAP | TypeRoot.MULTISET:
            assert isinstance(array, pa.MapArray)
            return _maps(array, t, target, iso)
        case TypeRoot.ROW:
            assert isinstance(array, pa.StructArray)
            members = [finish(m, f.type, iso) for m, f in zip(array.flatten(), t.fields, strict=True)]
            assert isinstance(target, pa.StructType)
            return pa.StructArray.from_arrays(members, fields=list(target), mask=array.is_null())
        case _:
            return array


def has_missing_candidate(array: Array, t: DataType) -> bool:
    """Whether a field of the column, or of a ROW in it, is NULL and so might have been missing."""
    if array.null_count:
        return True
    if isinstance(array, pa.StructArray):
        return any(has_missing_candidate(m, f.type) for m, f in zip(array.flatten(), t.fields, strict=True))
    if isinstance(array, pa.ListArray) and t.element is not None:
        return has_missing_candidate(array.flatten(), t.element)
    if isinstance(array, pa.MapArray) and t.root is TypeRoot.MAP and t.element is not None:
        return has_missing_candidate(array.items, t.element)
    return False


# ------------------------------------------------------------------------------------------------ scalars


def _small_integers(array: Array, t: DataType, target: pa.DataType) -> Array:
    limit = 1 << (INTEGER_BITS[t.root] - 1)
    values = array.fill_null(0).to_numpy(zero_copy_only=False)
    if not bool(((values == np.trunc(values)) & (values >= -limit) & (values < limit)).all()):
        raise Refused(f"not a {t.root.value}")
    return array.cast(target)


def _from_base64(array: Array) -> Array:
    import polars as pl  # Half a second of CPU to load: only for those who have BYTES.

    try:
        decoded = pl.Series(pl.from_arrow(array)).str.decode("base64", strict=True)
    except pl.exceptions.ComputeError as problem:
        raise Refused(str(problem)) from problem
    return decoded.to_arrow().cast(pa.binary())


def _times(array: Array, target: pa.DataType) -> Array:
    """Whole seconds: Flink's converter drops a fraction."""
    _check_lengths(array, len("HH:mm:ss"), len("HH:mm:ss.nnnnnnnnn"))
    _check_byte(array, 2, ord(":"))
    _check_byte(array, 5, ord(":"))
    dated = pc.binary_join_element_wise(pa.scalar("1970-01-01 "), array, "")
    ns = dated.cast(pa.timestamp("ns")).view(pa.int64())
    seconds = pc.divide(ns, pa.scalar(1_000_000_000, pa.int64()))
    return pc.multiply(seconds, pa.scalar(1000, pa.int64())).cast(pa.int32()).view(target)


def _timestamps(array: Array, target: pa.DataType, iso: bool) -> Array:
    """Text of exactly the configured standard. Arrow's own parser takes several formats, so the places that tell
    them apart are checked first; it refuses a zone, bad digits and impossible dates by itself."""
    _check_lengths(array, ISO_TEXT_LENGTH_MIN if iso else SQL_TEXT_LENGTH, SQL_TEXT_LENGTH + 10)
    _check_byte(array, 10, ord("T") if iso else ord(" "))
    try:
        return array.cast(target)
    except pa.ArrowInvalid:
        # More digits of a second than the column keeps: read all of them, keep those of the column (cut, not rounded).
        ns = array.cast(pa.timestamp("ns"))
        assert isinstance(target, pa.TimestampType)
        return pc.floor_temporal(ns, unit={"ms": "millisecond", "us": "microsecond"}[target.unit]).cast(target)


# ------------------------------------------------------------------------------------------- texts, nesting


def _check_lengths(array: Array, shortest: int, longest: int) -> None:
    offsets, _ = text_buffers(array.drop_null())
    lengths = np.diff(offsets)
    if len(lengths) and not (int(lengths.min()) >= shortest and int(lengths.max()) <= longest):
        raise Refused("not in the expected format")


def _check_byte(array: Array, place: int, expected: int) -> None:
    """The byte at `place` (from the end when negative) of every text; lengths were checked before, except for -1."""
    offsets, data = text_buffers(array.drop_null())
    if len(offsets) < 2:
        return
    if place < 0:
        if bool((np.diff(offsets) < -place).any()):
            raise Refused("not in the expected format")
        found = data[offsets[1:] + place]
    else:
        found = data[offsets[:-1] + place]
    if not bool((found == expected).all()):
        raise Refused("not in the expected format")


def _maps(array: pa.MapArray[Any, Any], t: DataType, target: pa.DataType, iso: bool) -> Array:
    starts = array.offsets.to_numpy()
    first, last = int(starts[0]), int(starts[-1])
    keys, items = array.keys[first:last], array.items[first:last]
    rows = np.repeat(np.arange(len(array), dtype=np.int64), np.diff(starts))
    codes = keys.dictionary_encode().indices.to_numpy()
    if len(np.unique(rows * (int(codes.max(initial=0)) + 1) + codes)) != len(rows):
        raise Refused("a key stands twice in an object")  # The last one wins: the exact road knows.
    if t.root is TypeRoot.MAP:
        assert t.element is not None
        items = finish(items, t.element, iso)
    from_arrays: Any = pa.MapArray.from_arrays
    return from_arrays(pa.array(starts - first), keys, items, type=target, mask=array.is_null())
