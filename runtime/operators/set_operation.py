"""INTERSECT and EXCEPT [ALL]: how often each distinct row is there on both sides decides how often it is put out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from planner.ir.operators import SetOperation, SetOperationKind
from planner.ir.types import arrow_schema
from runtime.elements import Batch
from runtime.key_groups import hash_columns, key_group
from runtime.operators.group_aggregate_output import DELETE, INSERT
from runtime.operators.group_aggregate_scan import Ints
from runtime.operators.keyed import RetractingOperator
from runtime.operators.protocol import OUTPUT_ROWS_MAX, OperatorContext
from runtime.operators.running_counts import adds_of, count_steps, signs
from runtime.state.protocol import Slots

TABLE_NAME = "rows"


class SetOperationOperator(RetractingOperator):
    """The table is keyed by the whole row; its values are the counts of the left and the right side. Every change is
    put out, in order of arrival."""

    def __init__(self, node: SetOperation, context: OperatorContext) -> None:
        super().__init__(node.uid, context)
        self._node = node
        self._schema = arrow_schema(node.output.types)

    def open(self) -> None:
        """Restore owned key groups. Raises SegmentError, StateTooLargeError."""
        counts = [pa.field(name, pa.int64(), nullable=False) for name in ("left", "right")]
        self._table = self._backend.keyed_table(
            TABLE_NAME, self._schema, pa.schema(counts), ttl_ms=self._node.state_ttl_ms
        )

    def process(self, batch: Batch) -> Iterator[Batch]:
        raise AssertionError(f"{self.uid} has two inputs")

    def process_input(self, input_index: int, batch: Batch) -> Iterator[Batch]:
        """Raises StateTooLargeError."""
        if batch.row_count == 0:
            return
        table, rows = self._table, batch.data
        keys = list(rows.columns)
        slots, _ = table.slots(keys, key_group(hash_columns(keys), self._context.max_parallelism))
        counted = count_steps(slots, signs(adds_of(batch), np.arange(len(slots))), table.numbers(input_index))
        self._ignored += counted.refused
        table.touch(counted.slots)
        table.numbers(input_index)[counted.slots] = counted.final
        others = table.numbers(1 - input_index)
        table.remove(counted.slots[(counted.final == 0) & (others[counted.slots] == 0)])
        if not self._node.emits_at_end:
            beside = others[slots[counted.order]]
            moves = np.empty_like(slots)
            moves[counted.order] = self._shown(input_index, counted.after, beside) - self._shown(
                input_index, counted.before, beside
            )
            yield from self._changes(rows, moves)
        table.settle()

    def end(self, drain: bool) -> Iterator[Batch]:
        """In batch execution, every row as often as it is there."""
        if not (drain and self._node.emits_at_end):
            return
        for slots in self._table.all_slots():
            times = self._shown(0, self._table.numbers(0)[slots], self._table.numbers(1)[slots])
            every: Slots = np.repeat(slots, times)
            for first in range(0, len(every), OUTPUT_ROWS_MAX):
                columns = self._table.keys(every[first : first + OUTPUT_ROWS_MAX])
                yield Batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def _shown(self, input_index: int, counts: Ints, others: Ints) -> Ints:
        """How often rows are put out, of which one input has `counts` and the other one `others`."""
        left, right = (counts, others) if input_index == 0 else (others, counts)
        shown: Ints
        match self._node.kind:
            case SetOperationKind.INTERSECT:
                shown = ((left > 0) & (right > 0)).astype(np.int64)
            case SetOperationKind.INTERSECT_ALL:
                shown = np.minimum(left, right)
            case SetOperationKind.EXCEPT:
                shown = ((left > 0) & (right == 0)).astype(np.int64)
            case SetOperationKind.EXCEPT_ALL:
                shown = np.maximum(left - right, 0)
        return shown

    def _changes(self, rows: pa.RecordBatch, moves: Ints) -> Iterator[Batch]:
        """Rows of the batch that are put out once more (1) or once less (-1)."""
        moved = np.flatnonzero(moves)
        for first in range(0, len(moved), OUTPUT_ROWS_MAX):
            piece = moved[first : first + OUTPUT_ROWS_MAX]
            # Over inserts alone an intersection only grows: its rows have no kinds.
            kinds: Any = None
            if (moves[piece] < 0).any():
                kinds = pa.array(np.where(moves[piece] > 0, np.int8(INSERT), np.int8(DELETE)))
            index: Any = pa.array(piece)
            yield Batch(rows.take(index), kinds)
