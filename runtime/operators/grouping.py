"""Grouping by value: rows with equal keys become one, their value columns are reduced.

Arrow's hash aggregation does the work (it compares keys, never hashes alone) after columns were put in a form in which
its equality is SQL's: -0.0 as 0.0 and every NaN as one, nested keys by a code per distinct value. Extremes of floats go
through an order-preserving integer, so that NaN is the largest value; sums of decimals through limbs.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from runtime.operators import decimal_sums

pc: Any = pyarrow.compute
Array = Any

# Kinds are asked for every column of every batch.
_is_decimal, _is_floating = functools.cache(pa.types.is_decimal), functools.cache(pa.types.is_floating)
_NESTED = (pa.types.is_list, pa.types.is_large_list, pa.types.is_struct, pa.types.is_map)


class Reduction(StrEnum):
    """How the values of a group become one. NULLs are skipped; a group of NULLs gives NULL. Integer sums wrap."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"


class SumOverflowError(Exception):
    """A sum of decimals does not fit in its column. Nothing was reduced."""


def reduce_groups(keys: Sequence[Array], values: Sequence[tuple[Array, Reduction]]) -> tuple[list[Array], list[Array]]:
    """One row per distinct key, in any order (Arrow's groups are not strictly in order of arrival): key columns and
    reduced value columns, with the types of the inputs. Equal (column, reduction) pairs are computed once. `keys` has
    at least one column. Raises SumOverflowError."""
    table = _Table()
    plain_keys = [plain_key(column) for column in keys]
    key_names = [table.add(column) for column in plain_keys]
    nested = [i for i, column in enumerate(keys) if plain_keys[i] is not column and _is_nested(column.type)]
    first_row = table.add_reduction(pa.array(np.arange(len(keys[0]))), Reduction.MIN) if nested else ""
    plans = [_plan(table, column, reduction) for column, reduction in values]
    grouped = table.group(key_names)
    out_keys = [grouped[name] for name in key_names]
    for i in nested:
        out_keys[i] = keys[i].take(grouped[first_row])
    return out_keys, [_finish(grouped, plan, column.type, r) for plan, (column, r) in zip(plans, values, strict=True)]


def group_ids(keys: Sequence[Array]) -> npt.NDArray[np.int64]:
    """A number per row, equal for rows with equal keys; 0, 1, … in the order in which keys first occur. `keys` has at
    least one column."""
    ids = _codes(plain_key(keys[0]))
    for column in keys[1:]:
        codes = _codes(plain_key(column))
        pairs = ids * (int(codes.max(initial=0)) + 1) + codes
        ids = _codes(pa.array(pairs))
    return ids


def _codes(column: Array) -> npt.NDArray[np.int64]:
    codes: npt.NDArray[np.int64] = column.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
    return codes


class _Table:
    """The Arrow table under construction and the aggregations asked of it."""

    def __init__(self) -> None:
        self._columns: list[Array] = []
        self._aggregations: list[tuple[str, str]] = []
        self._names: dict[tuple[int, Reduction], list[str]] = {}
        self._sources: list[Array] = []

    def add(self, column: Array) -> str:
        self._columns.append(column)
        return f"c{len(self._columns) - 1}"

    def add_reduction(self, column: Array, reduction: Reduction) -> str:
        name = self.add(column)
        self._aggregations.append((name, str(reduction)))
        return f"{name}_{reduction}"

    def add_once(self, column: Array, prepared: Sequence[Array] | None, reduction: Reduction) -> list[str] | None:
        """Names of the results of `column` when it was already asked for; with `prepared`, asks for it."""
        key = (id(column), reduction)
        if prepared is not None:
            # The source stays referenced: its id is the key.
            self._sources.append(column)
            self._names[key] = [self.add_reduction(part, reduction) for part in prepared]
        return self._names.get(key)

    def group(self, key_names: list[str]) -> dict[str, Array]:
        names = [f"c{i}" for i in range(len(self._columns))]
        table: Any = pa.Table.from_arrays(self._columns, names=names)
        grouped = table.group_by(key_names, use_threads=False).aggregate(self._aggregations)
        return {name: _one_chunk(grouped[name]) for name in grouped.column_names}


def _one_chunk(column: Any) -> Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _plan(table: _Table, column: Array, reduction: Reduction) -> list[str]:
    """Ask the table for what `column` needs; names of the results."""
    known = table.add_once(column, None, reduction)
    if known is not None:
        return known
    kind = column.type
    if reduction is Reduction.SUM and _is_decimal(kind):
        prepared = decimal_sums.limbs(column)
    elif reduction is not Reduction.SUM and _is_floating(kind):
        prepared = [_ordered_integers(column)]
    else:
        prepared = [column]
    names = table.add_once(column, prepared, reduction)
    assert names is not None
    return names


def _finish(grouped: dict[str, Array], names: list[str], kind: Any, reduction: Reduction) -> Array:
    """The reduced column in the type of its input."""
    results = [grouped[name] for name in names]
    if reduction is Reduction.SUM and _is_decimal(kind):
        total, overflow = decimal_sums.from_limb_sums(results, kind)
        if overflow.any():
            raise SumOverflowError
        return total
    if reduction is not Reduction.SUM and _is_floating(kind):
        return _from_ordered_integers(results[0], kind)
    if results[0].type == kind:
        return results[0]
    # Integers were summed in 64 bits: they wrap to their own width, as Java's do.
    return results[0].cast(kind, safe=False)


@functools.cache
def _is_nested(kind: Any) -> bool:
    return any(test(kind) for test in _NESTED)


def plain_key(column: Array) -> Array:
    """A column on which Arrow's equality is the equality of keys."""
    kind = column.type
    if _is_floating(kind):
        return canonical_floats(column)
    if _is_nested(kind):
        codes: dict[Any, int] = {}
        return pa.array([codes.setdefault(_frozen(v), len(codes)) for v in column.to_pylist()], pa.int64())
    return column


def canonical_floats(column: Array) -> Array:
    """0.0 for -0.0 and one NaN for all; the column itself when it holds neither."""
    single = pa.types.is_float32(column.type)
    width: Any = np.uint32 if single else np.uint64
    # By bits: arithmetic on a signalling NaN would raise a floating-point flag.
    bits = column.fill_null(0).to_numpy(zero_copy_only=False).view(width)
    sign = width(1 << 31 if single else 1 << 63)
    infinity, nan = (0x7F800000, 0x7FC00000) if single else (0x7FF0000000000000, 0x7FF8000000000000)
    negative_zeros, nans = bits == sign, (bits & ~sign) > width(infinity)
    if not (negative_zeros.any() or nans.any()):
        return column
    bits = bits.copy()
    bits[negative_zeros] = 0
    bits[nans] = nan
    mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(bits.view(np.float32 if single else np.float64), mask=mask)


def _frozen(value: Any) -> Any:
    """A hashable stand-in for a nested value: equal exactly when the values are equal as keys."""
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return frozenset((_frozen(key), _frozen(item)) for key, item in value)  # A map: entries in any order.
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, dict):
        return tuple((name, _frozen(item)) for name, item in value.items())
    if isinstance(value, float):
        return "NaN" if value != value else (value + 0.0,)
    return value


def _ordered_integers(column: Array) -> Array:
    """Integers that order as the floats do, with -0.0 below 0.0 and NaN above all."""
    single = pa.types.is_float32(column.type)
    width: Any = np.int32 if single else np.int64
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    bits: npt.NDArray[Any] = values.view(width).copy()
    bits[np.isnan(values)] = 0x7FC00000 if single else 0x7FF8000000000000
    bits ^= (bits >> width(31 if single else 63)) & np.iinfo(width).max
    mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(bits, mask=mask)


def _from_ordered_integers(column: Array, kind: Any) -> Array:
    single = pa.types.is_float32(kind)
    width: Any = np.int32 if single else np.int64
    bits = column.fill_null(0).to_numpy(zero_copy_only=False).copy()
    bits ^= (bits >> width(31 if single else 63)) & np.iinfo(width).max
    mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(bits.view(np.float32 if single else np.float64), mask=mask)
