"""Values of aggregates as numbers that can be compared: by order, and by equality."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from planner.ir.types import INTEGER_BITS, DataType, TypeRoot
from runtime.operators.grouping import plain_key

pc: Any = pyarrow.compute
Array = Any
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_ONE_WORD = frozenset(
    {
        *INTEGER_BITS,
        TypeRoot.BOOLEAN,
        TypeRoot.FLOAT,
        TypeRoot.DOUBLE,
        TypeRoot.DATE,
        TypeRoot.TIME,
        TypeRoot.TIMESTAMP,
        TypeRoot.TIMESTAMP_LTZ,
        TypeRoot.INTERVAL_YEAR_MONTH,
        TypeRoot.INTERVAL_DAY_TIME,
    }
)
_LARGEST = np.int64(2**63 - 1)
_NAN_BITS = np.int64(0x7FF8000000000000)


def fits_one_word(kind: DataType) -> bool:
    """Whether values of the type have a stand-in among 64-bit integers (`ordered_integers`)."""
    return kind.root in _ONE_WORD


def ordered_integers(column: Array) -> Ints:
    """Integers that order as the values of a one-word column do; of floats NaN is the largest and -0.0 is below 0.0.
    NULL gives any integer."""
    kind = column.type
    if pa.types.is_floating(kind):
        values = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
        bits: Ints = values.view(np.int64).copy()
        bits[np.isnan(values)] = _NAN_BITS
        bits ^= (bits >> np.int64(63)) & _LARGEST
        return bits
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not pa.types.is_integer(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    if column.null_count:
        column = pc.fill_null(column, pa.scalar(0, column.type))
    return column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)  # type: ignore[no-any-return]


def from_ordered_integers(integers: Ints, nulls: Bools, kind: Any) -> Array:
    """The column of the Arrow type `kind` that `ordered_integers` took them from."""
    mask = nulls if nulls.any() else None
    if pa.types.is_floating(kind):
        bits = integers ^ ((integers >> np.int64(63)) & _LARGEST)
        with np.errstate(all="ignore"):
            values = bits.view(np.float64).astype(np.float32 if pa.types.is_float32(kind) else np.float64)
        return pa.array(values, mask=mask)
    if pa.types.is_boolean(kind):
        return pa.array(integers == 1, mask=mask)
    if kind == pa.int64():
        return pa.array(integers, mask=mask)
    if pa.types.is_integer(kind):
        return pa.array(integers.astype(kind.to_pandas_dtype()), mask=mask)
    if kind.bit_width == 32:
        return pa.array(integers.astype(np.int32), mask=mask).view(kind)
    return pa.array(integers, mask=mask).view(kind)


def rank_codes(column: Array, *, descending: bool = False) -> Ints:
    """Codes from 0 on that order as the values do (equal values share one), -1 for NULL."""
    if len(column) == 0:
        return np.zeros(0, dtype=np.int64)
    if pa.types.is_floating(column.type):
        mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
        column = pa.array(ordered_integers(column), mask=mask)
    order = "descending" if descending else "ascending"
    codes: Ints = pc.rank(column, sort_keys=order, tiebreaker="dense").to_numpy().astype(np.int64) - 1
    if column.null_count:
        codes[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return codes


def equality_codes(column: Array) -> Ints:
    """Codes from 0 on, equal where the values are equal as keys are; -1 for NULL."""
    codes = pc.dictionary_encode(plain_key(column)).indices
    if codes.null_count:
        codes = pc.fill_null(codes, pa.scalar(-1, codes.type))
    return codes.to_numpy(zero_copy_only=False).astype(np.int64)  # type: ignore[no-any-return]


class Values:
    """Several columns of one type, one after the other, to point into."""

    def __init__(self, *parts: Array) -> None:
        filled = [part for part in parts if len(part)]
        self.array: Array = filled[0] if len(filled) == 1 else pa.concat_arrays(filled or [parts[0]])

    def take(self, indexes: Ints) -> Array:
        """The values at `indexes`; NULL for -1."""
        return take_or_null(self.array, indexes)

    @staticmethod
    def of_codes(codes: Ints, wanted: Ints) -> Ints:
        """For each wanted code the index of a value that has it; -1 stays."""
        places = np.full(int(codes.max(initial=-1)) + 2, -1, dtype=np.int64)
        # From the end, so that the first value of a code stands.
        places[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
        places[-1] = -1
        found: Ints = places[wanted]
        return found


def take_or_null(array: Array, indexes: Ints) -> Array:
    """The values at `indexes`; NULL for -1."""
    missing = indexes < 0
    return array.take(pa.array(indexes, mask=missing) if missing.any() else pa.array(indexes))


def fits_numpy(kind: Any) -> bool:
    """Whether a column without NULLs is a numpy array as it stands."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
