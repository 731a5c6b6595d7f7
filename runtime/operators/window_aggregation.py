"""What a window aggregate computes: blocks of state from partials, one row per key from blocks, results from rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from planner.ir.operators import AggregateCall, GlobalWindowAggregate, is_mergeable
from planner.ir.types import ChangelogMode, to_arrow
from runtime.operators.accumulators import Accumulator
from runtime.operators.accumulators_signed import SignedAccumulator, reduce_signed
from runtime.operators.grouping import Reduction, reduce_groups
from runtime.operators.window_changes import ChangedValues, compensated_sums
from runtime.operators.window_values import ValuesKey, WindowValues, values_key
from runtime.state.protocol import KEY_GROUP_FIELD
from runtime.state.window_blocks import concat_blocks

pc: Any = pyarrow.compute
Array = Any


class WindowAggregation:
    """The calls of one aggregate. Mergeable ones are accumulators beside the key; the others read `values`. Over an
    input that takes rows back a signed row count goes before the accumulators: a key without rows has no result."""

    def __init__(self, node: GlobalWindowAggregate) -> None:
        self._calls = node.aggregates
        self._key_types: list[Any] = [to_arrow(t) for t in node.key_types]
        self._key_count = len(self._key_types)
        self.is_retracting = is_retracting = node.input_changelog is not ChangelogMode.INSERT_ONLY
        self.mergeable = tuple(call for call in node.aggregates if is_mergeable(call, retracting=is_retracting))
        signed = [SignedAccumulator(call) for call in self.mergeable] if is_retracting else []
        plain = [] if is_retracting else [Accumulator(call) for call in self.mergeable]
        self._accumulators: Sequence[SignedAccumulator | Accumulator] = [*signed, *plain]
        self._reductions = [r for accumulator in plain for r in accumulator.reductions]
        self._compensated = compensated_sums(signed, 1)
        others = [call for call in node.aggregates if not is_mergeable(call, retracting=is_retracting)]
        assert not (others and node.from_partials), f"{node.name}: {others[0].function} needs raw rows"
        keys = list(dict.fromkeys(self._values_key(call) for call in others))
        values = ChangedValues if is_retracting else WindowValues
        self.values = [
            values(key, node.keys, self._key_types, [call for call in others if self._values_key(call) == key])
            for key in keys
        ]
        self._values_of = {key: i for i, key in enumerate(keys)}
        states = [kind for accumulator in self._accumulators for kind in accumulator.state_types]
        counts = [pa.int64()] if is_retracting else []
        self._first_accumulator = 1 + self._key_count + len(counts)
        self.schema = _schema([*self._key_types, *counts, *states])
        """Blocks of partials: key group, keys[, row count], accumulators in their state types."""
        self.result_schema = _schema([*self._key_types, *(to_arrow(call.type) for call in node.aggregates)])

    @property
    def late_column(self) -> int:
        """Position, among the columns of partials, of how many rows each stands for."""
        return self._key_count + (2 if self.is_retracting else 1)

    def block(self, groups: npt.NDArray[np.int16], partials: Sequence[Array]) -> pa.RecordBatch:
        """Partials as a block of state."""
        columns: list[Array] = [pa.array(groups), *partials[: self._key_count]]
        if self.is_retracting:
            columns.append(partials[self._key_count + 1])
        position = self.late_column + 1
        for accumulator in self._accumulators:
            width = len(accumulator.state_types)
            columns += accumulator.to_state(partials[position : position + width])
            position += width
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def reduce(self, blocks: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Blocks of partials as one, a row per key."""
        rows = concat_blocks(blocks, self.schema)
        if self.is_retracting:
            return self._reduce_signed(rows)
        groups, keys = rows.column(0), rows.columns[1 : 1 + self._key_count]
        values = list(zip(rows.columns[1 + self._key_count :], self._reductions, strict=True))
        if keys:
            # The key group follows from the key: its minimum is its value.
            merged_keys, merged = reduce_groups(keys, [(groups, Reduction.MIN), *values])
            columns = [merged[0], *merged_keys, *merged[1:]]
        else:
            merged_keys, merged = reduce_groups([groups], values)
            columns = [*merged_keys, *merged]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _reduce_signed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if rows.num_rows <= 1:
            return rows
        # The key group follows from the key: as one more key it changes nothing, and stands for none.
        first = 1 + self._key_count
        keys, sums = reduce_signed(rows.columns[:first], rows.columns[first:], self._compensated)
        return pa.RecordBatch.from_arrays(keys + sums, schema=self.schema)

    def results(self, partials: pa.RecordBatch, values: Sequence[pa.RecordBatch | None]) -> pa.RecordBatch:
        """Key group, keys, aggregates of each row of merged partials. `values` are the merged rows of each of
        `self.values` (None: there are none)."""
        if self.is_retracting:
            partials = partials.filter(pc.greater(partials.column(self._first_accumulator - 1), 0))
        keys = partials.columns[1 : 1 + self._key_count]
        rows: list[pa.RecordBatch] = []
        groups: list[npt.NDArray[np.int64]] = []
        for own, merged in zip(self.values, values, strict=True):
            rows_of = own.present(concat_blocks(() if merged is None else (merged,), own.schema))
            groups_of = own.groups_of(rows_of, keys, partials.num_rows)
            if self.is_retracting:
                known = groups_of < partials.num_rows
                rows_of, groups_of = rows_of.filter(pa.array(known)), groups_of[known]
            rows.append(rows_of)
            groups.append(groups_of)
        columns: list[Array] = [partials.column(0), *keys]
        position = self._first_accumulator
        accumulators = iter(self._accumulators)
        for call in self._calls:
            if is_mergeable(call, retracting=self.is_retracting):
                accumulator = next(accumulators)
                width = len(accumulator.state_types)
                columns.append(accumulator.result(partials.columns[position : position + width]))
                position += width
            else:
                i = self._values_of[self._values_key(call)]
                columns.append(self.values[i].result(call, rows[i], groups[i], partials.num_rows))
        return pa.RecordBatch.from_arrays(columns, schema=self.result_schema)

    def _values_key(self, call: AggregateCall) -> ValuesKey:
        return values_key(call, retracting=self.is_retracting)


def _schema(kinds: Sequence[pa.DataType]) -> pa.Schema:
    return pa.schema([KEY_GROUP_FIELD, *(pa.field(f"c{i}", kind) for i, kind in enumerate(kinds))])
