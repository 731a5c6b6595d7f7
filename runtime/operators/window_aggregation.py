"""What a window aggregate computes: blocks of state from partials, one row per key from blocks, results from rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from planner.ir.operators import GlobalWindowAggregate, is_mergeable
from planner.ir.types import to_arrow
from runtime.operators.accumulators import Accumulator
from runtime.operators.grouping import Reduction, reduce_groups
from runtime.operators.window_values import WindowValues, values_key
from runtime.state.protocol import KEY_GROUP_FIELD
from runtime.state.window_blocks import concat_blocks

Array = Any


class WindowAggregation:
    """The calls of one aggregate. Mergeable ones are accumulators beside the key; the others read `values`."""

    def __init__(self, node: GlobalWindowAggregate) -> None:
        self._calls = node.aggregates
        self._key_types: list[Any] = [to_arrow(t) for t in node.key_types]
        self._key_count = len(self._key_types)
        self.mergeable = tuple(call for call in node.aggregates if is_mergeable(call))
        self._accumulators = [Accumulator(call) for call in self.mergeable]
        others = [call for call in node.aggregates if not is_mergeable(call)]
        assert not (others and node.from_partials), f"{node.name}: {others[0].function} needs raw rows"
        keys = list(dict.fromkeys(values_key(call) for call in others))
        self.values = [
            WindowValues(key, node.keys, self._key_types, [call for call in others if values_key(call) == key])
            for key in keys
        ]
        self._values_of = {key: i for i, key in enumerate(keys)}
        states = [kind for accumulator in self._accumulators for kind in accumulator.state_types]
        self.schema = _schema([*self._key_types, *states])
        """Blocks of partials: key group, keys, accumulators in their state types."""
        self.result_schema = _schema([*self._key_types, *(to_arrow(call.type) for call in node.aggregates)])

    def block(
        self, groups: npt.NDArray[np.int16], keys: Sequence[Array], accumulator_columns: Sequence[Array]
    ) -> pa.RecordBatch:
        """Partials as a block of state."""
        columns: list[Array] = [pa.array(groups), *keys]
        position = 0
        for accumulator in self._accumulators:
            width = len(accumulator.state_types)
            columns += accumulator.to_state(accumulator_columns[position : position + width])
            position += width
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def reduce(self, blocks: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Blocks of partials as one, a row per key."""
        rows = concat_blocks(blocks, self.schema)
        groups, keys = rows.column(0), rows.columns[1 : 1 + self._key_count]
        reductions = [r for accumulator in self._accumulators for r in accumulator.reductions]
        values = list(zip(rows.columns[1 + self._key_count :], reductions, strict=True))
        if keys:
            # The key group follows from the key: its minimum is its value.
            merged_keys, merged = reduce_groups(keys, [(groups, Reduction.MIN), *values])
            columns = [merged[0], *merged_keys, *merged[1:]]
        else:
            merged_keys, merged = reduce_groups([groups], values)
            columns = [*merged_keys, *merged]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def results(self, partials: pa.RecordBatch, values: Sequence[pa.RecordBatch | None]) -> pa.RecordBatch:
        """Key group, keys, aggregates of each row of merged partials. `values` are the merged rows of each of
        `self.values` (None: there are none)."""
        keys = partials.columns[1 : 1 + self._key_count]
        found = zip(self.values, values, strict=True)
        rows = [concat_blocks(() if merged is None else (merged,), own.schema) for own, merged in found]
        groups = [own.groups_of(r, keys, partials.num_rows) for own, r in zip(self.values, rows, strict=True)]
        columns: list[Array] = [partials.column(0), *keys]
        position = 1 + self._key_count
        accumulators = iter(self._accumulators)
        for call in self._calls:
            if is_mergeable(call):
                accumulator = next(accumulators)
                width = len(accumulator.state_types)
                columns.append(accumulator.result(partials.columns[position : position + width]))
                position += width
            else:
                i = self._values_of[values_key(call)]
                columns.append(self.values[i].result(call, rows[i], groups[i], partials.num_rows))
        return pa.RecordBatch.from_arrays(columns, schema=self.result_schema)


def _schema(kinds: Sequence[pa.DataType]) -> pa.Schema:
    return pa.schema([KEY_GROUP_FIELD, *(pa.field(f"c{i}", kind) for i, kind in enumerate(kinds))])
