"""The first rows of each partition as they arrive: LIMIT over inserts, ROW_NUMBER without an order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from planner.ir.ranks import Rank, RankFunction
from planner.ir.types import ChangelogMode, arrow_schema
from runtime.elements import Batch
from runtime.operators.keyed import KeyedOperator
from runtime.operators.protocol import OUTPUT_ROWS_MAX, OperatorContext
from runtime.operators.rank_rows import ByKey, PartitionKeys

Array = Any

TABLE_NAME = "counts"


def is_by_arrival(node: Rank) -> bool:
    """Whether a row's rank is known when it comes, and stays."""
    inserts_only = node.input_changelog is ChangelogMode.INSERT_ONLY
    return inserts_only and not node.order and node.function is RankFunction.ROW_NUMBER


class RankByArrivalOperator(KeyedOperator):
    """The state is how many rows each partition has had, counted up to `last`. Rows are put out at once, also in batch
    execution: nothing takes them back."""

    def __init__(self, node: Rank, context: OperatorContext) -> None:
        super().__init__(node.uid, context)
        self._node = node
        self._schema = arrow_schema(node.output.types)
        row_schema = pa.schema(list(self._schema)[: len(self._schema) - node.puts_out_rank])
        self._keys = PartitionKeys(row_schema, node.keys, context.max_parallelism)

    def open(self) -> None:
        """Restore owned key groups. Raises SegmentError, StateTooLargeError."""
        keys = pa.schema([field.with_name(f"k{i}") for i, field in enumerate(self._keys.schema)])
        count = pa.schema([pa.field("count", pa.int64(), nullable=False)])
        self._table = self._backend.keyed_table(TABLE_NAME, keys, count, ttl_ms=self._node.state_ttl_ms)

    def process(self, batch: Batch) -> Iterator[Batch]:
        """Raises StateTooLargeError."""
        rows, last = batch.data, self._node.last
        if not rows.num_rows:
            return
        keys = self._keys.of(rows)
        slots, _ = self._table.slots(keys, self._keys.key_groups(keys))
        by_key = ByKey(slots)
        counts = self._table.numbers(0)
        before = counts[by_key.slots]
        grows = np.flatnonzero(before < last)
        if len(grows):
            grown = by_key.slots[grows]
            self._table.touch(grown)
            # Not `before + lengths`, which could go beyond 64 bits.
            counts[grown] = before[grows] + np.minimum(by_key.lengths[grows], last - before[grows])
        self._table.settle()
        within = np.arange(rows.num_rows) - by_key.starts[by_key.keys]
        earlier = np.empty(rows.num_rows, dtype=np.int64)
        earlier[by_key.order] = before[by_key.keys] + np.minimum(within, last - before[by_key.keys])
        chosen = np.flatnonzero((earlier < last) & (earlier >= self._node.first - 1))
        for first in range(0, len(chosen), OUTPUT_ROWS_MAX):
            piece = chosen[first : first + OUTPUT_ROWS_MAX]
            columns: list[Array] = list(rows.take(piece).columns)
            if self._node.puts_out_rank:
                columns.append(pa.array(earlier[piece] + 1))
            yield Batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
