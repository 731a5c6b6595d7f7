"""Aggregates of a window that need the values themselves: DISTINCT, FIRST_VALUE, LAST_VALUE and LISTAGG.

Rows are kept as (key, value) columns per slice, no more of them than the function can need: distinct ones for
DISTINCT, one per key for FIRST_VALUE and LAST_VALUE. `seq` numbers rows in order of arrival where a function
depends on it. They are evaluated when a window fires, all its slices together.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from planner.ir.operators import AggregateCall, AggregateFunction
from planner.ir.types import to_arrow
from runtime.elements import Batch
from runtime.operators.accumulators import Accumulator, ones
from runtime.operators.grouping import Reduction, group_ids, reduce_groups
from runtime.state.protocol import KEY_GROUP_FIELD
from runtime.state.window_blocks import concat_blocks

pc: Any = pyarrow.compute
Array = Any
Rows = npt.NDArray[np.intp]


class Keeping(Enum):
    """Which rows of a key a function needs."""

    DISTINCT = "distinct"
    FIRST = "first"
    LAST = "last"
    ALL = "all"


class ValuesKey(msgspec.Struct, frozen=True):
    """Calls with an equal one read the same rows."""

    argument: int
    filter: int | None
    keeping: Keeping


def values_key(call: AggregateCall, *, retracting: bool = False) -> ValuesKey:
    """Of a call that is not mergeable. Over an input that takes rows back FIRST_VALUE and LAST_VALUE need all rows, and
    MIN and MAX the distinct ones."""
    assert call.argument is not None
    match call.function:
        case AggregateFunction.FIRST_VALUE | AggregateFunction.LAST_VALUE if retracting:
            keeping = Keeping.ALL
        case AggregateFunction.MIN | AggregateFunction.MAX:
            keeping = Keeping.DISTINCT
        case AggregateFunction.FIRST_VALUE:
            keeping = Keeping.FIRST
        case AggregateFunction.LAST_VALUE:
            keeping = Keeping.LAST
        case _:
            keeping = Keeping.DISTINCT if call.distinct else Keeping.ALL
    return ValuesKey(call.argument, call.filter, keeping)


class WindowValues:
    """The rows that the calls of one `ValuesKey` need, as blocks of (key group, keys, value[, seq])."""

    def __init__(
        self, key: ValuesKey, keys: Sequence[int], key_types: Sequence[pa.DataType], calls: Sequence[AggregateCall]
    ) -> None:
        assert calls
        assert calls[0].argument_type is not None
        self._key = key
        self._keys = tuple(keys)
        self.is_ordered = any(_depends_on_order(call) for call in calls)
        """Whether rows carry `seq`."""
        kinds = [*key_types, to_arrow(calls[0].argument_type), *([pa.int64()] if self.is_ordered else [])]
        self.schema = pa.schema([KEY_GROUP_FIELD, *(pa.field(f"c{i}", kind) for i, kind in enumerate(kinds))])

    def columns(self, batch: Batch, ends: Array, first_seq: int) -> list[Array]:
        """Columns to keep of a batch: keys, slice end (as in partials), value[, seq]; NULLs and what the filter does
        not let pass are left out."""
        rows = batch.data
        value: Array = rows.column(self._key.argument)
        chosen: Array = pa.array(np.flatnonzero(self._taken(rows)))
        columns: list[Array] = [rows.column(i).take(chosen) for i in self._keys]
        columns += [ends.take(chosen), value.take(chosen)]
        if self.is_ordered:
            columns.append(pa.array(chosen.to_numpy() + first_seq))
        if len(chosen) <= 1 or self._key.keeping is Keeping.ALL:
            return columns
        compared = len(self._keys) + (2 if self._key.keeping is Keeping.DISTINCT else 1)
        needed = pa.array(_needed(columns[:compared], self._key.keeping))
        return [column.take(needed) for column in columns]

    def _taken(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Rows with a value that pass the filter."""
        taken: npt.NDArray[np.bool_] = rows.column(self._key.argument).is_valid().to_numpy(zero_copy_only=False)
        if self._key.filter is not None:
            taken &= pc.fill_null(rows.column(self._key.filter), False).to_numpy(zero_copy_only=False)
        return taken

    def reduce(self, blocks: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Blocks as one, without the rows that no function needs any more; by order of arrival where it matters."""
        rows = self._in_order(concat_blocks(blocks, self.schema))
        if self._key.keeping is Keeping.ALL or rows.num_rows <= 1:
            return rows
        # The key group follows from the key; where there are no keys it stands for them.
        last = len(self._keys) + (1 if self._key.keeping is Keeping.DISTINCT else 0)
        compared = rows.columns[1 : 1 + last] or [rows.column(0)]
        return rows.take(_needed(compared, self._key.keeping))

    def _in_order(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """By order of arrival, where a function depends on it."""
        if not self.is_ordered:
            return rows
        seq = rows.column(rows.num_columns - 1).to_numpy()
        if len(seq) <= 1 or (np.diff(seq) >= 0).all():
            return rows
        return rows.take(np.argsort(seq, kind="stable"))

    def present(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Of reduced rows those that results are made of."""
        return rows

    def seq_after(self, rows: pa.RecordBatch) -> int:
        """A number above the `seq` of all rows; only when ordered."""
        if rows.num_rows == 0:
            return 0
        return int(rows.column(rows.num_columns - 1).to_numpy().max()) + 1

    def groups_of(self, rows: pa.RecordBatch, group_keys: Sequence[Array], group_count: int) -> npt.NDArray[np.int64]:
        """Index, among `group_count` distinct groups, of each row's key."""
        if not self._keys:
            return np.zeros(rows.num_rows, dtype=np.int64)
        own = rows.columns[1 : 1 + len(self._keys)]
        ids = group_ids([pa.concat_arrays([a, b]) for a, b in zip(group_keys, own, strict=True)])
        return ids[group_count:]

    def result(
        self, call: AggregateCall, rows: pa.RecordBatch, groups: npt.NDArray[np.int64], group_count: int
    ) -> Array:
        """The aggregate of each group, from reduced rows and the group of each."""
        value = rows.column(1 + len(self._keys))
        match call.function:
            case AggregateFunction.FIRST_VALUE | AggregateFunction.LAST_VALUE:
                is_last = call.function is AggregateFunction.LAST_VALUE
                found = value.take(_positions(groups, group_count, is_last=is_last))
                return found if found.type == to_arrow(call.type) else found.cast(to_arrow(call.type))
            case AggregateFunction.LISTAGG:
                return _joined(value, groups, group_count, call.separator, to_arrow(call.type))
            case _:
                return _accumulated(call, value, groups, group_count)


def _depends_on_order(call: AggregateCall) -> bool:
    return call.function in (AggregateFunction.FIRST_VALUE, AggregateFunction.LAST_VALUE, AggregateFunction.LISTAGG)


def _needed(keys: Sequence[Array], keeping: Keeping) -> Rows:
    """Rows, ascending, that are the first (or last) of their key."""
    numbers: Array = pa.array(np.arange(len(keys[0])))
    reduction = Reduction.MAX if keeping is Keeping.LAST else Reduction.MIN
    _, (found,) = reduce_groups(keys, [(numbers, reduction)])
    rows: Rows = np.sort(found.to_numpy())
    return rows


def _positions(groups: npt.NDArray[np.int64], group_count: int, *, is_last: bool) -> Array:
    """The last (or first) row of each group that has one, else NULL."""
    positions = np.full(group_count, -1, dtype=np.int64)
    rows = np.arange(len(groups))
    # Of several rows of a group the one that is written last stays.
    positions[groups if is_last else groups[::-1]] = rows if is_last else rows[::-1]
    return pa.array(positions, mask=positions < 0)


def _joined(value: Array, groups: npt.NDArray[np.int64], group_count: int, separator: str, kind: pa.DataType) -> Array:
    """The strings of each group in order, with the separator between them; NULL for a group of none."""
    order = np.argsort(groups, kind="stable")
    counts = np.bincount(groups, minlength=group_count)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    starts: Any = pa.array(offsets)
    lists: Any = pa.ListArray.from_arrays(starts, value.take(order).cast(pa.string()))
    joined = pc.binary_join(lists, pa.scalar(separator, pa.string()))
    joined = pc.if_else(pa.array(counts > 0), joined, pa.scalar(None, pa.string()))
    return joined if joined.type == kind else joined.cast(kind)


def _accumulated(call: AggregateCall, value: Array, groups: npt.NDArray[np.int64], group_count: int) -> Array:
    """A mergeable function over distinct values."""
    accumulator = Accumulator(msgspec.structs.replace(call, argument=0, filter=None, distinct=False))
    # A NULL per group does not count, and gives groups without values their result over nothing.
    values = pa.concat_arrays([value, pa.nulls(group_count, value.type)])
    rows = pa.RecordBatch.from_arrays([values], ["c0"])
    partials = accumulator.to_state(accumulator.from_rows(rows, ones(len(values))))
    ids = pa.array(np.concatenate((groups, np.arange(group_count))))
    (found,), reduced = reduce_groups([ids], list(zip(partials, accumulator.reductions, strict=True)))
    order = pa.array(np.argsort(found.to_numpy()))
    return accumulator.result([column.take(order) for column in reduced])
