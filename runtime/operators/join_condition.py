"""The part of a join condition that is not an equality of keys, asked of pairs of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from planner.ir.expressions import Expression, input_indexes, shift_inputs
from runtime.operators.calc import evaluation_context
from runtime.operators.expressions.calc import Calc, compile_calc
from runtime.operators.group_aggregate_scan import Bools, Ints
from runtime.operators.protocol import OperatorContext
from runtime.state.protocol import Slots

Array = Any

PAIRS_ASKED = 65_536
"""Pairs whose columns are in memory at once."""


class StoredRows(Protocol):
    """Rows of the side that is not the batch's."""

    def column(self, index: int, slots: Slots) -> Array:
        """Values of one column."""


class JoinCondition:
    """`left` and `right`: the columns that it reads, in this order."""

    def __init__(self, calc: Calc, left: list[int], right: list[int]) -> None:
        self._calc = calc
        self._columns = (left, right)

    def passed(
        self, input_index: int, batch: pa.RecordBatch, rows: Ints, stored: StoredRows, slots: Slots
    ) -> Bools | None:
        """Whether pairs of rows of a batch of one input with stored ones of the other are to be joined; None: all are.
        Raises ExpressionError."""

        def own(index: int, piece: slice) -> Array:
            numbers: Any = pa.array(rows[piece])
            return batch.column(index).take(numbers)

        def other(index: int, piece: slice) -> Array:
            return stored.column(index, slots[piece])

        return self.passed_pairs(input_index, own, other, len(rows))

    def passed_pairs(
        self,
        input_index: int,
        own: Callable[[int, slice], Array],
        other: Callable[[int, slice], Array],
        count: int,
    ) -> Bools | None:
        """As `passed`; `own` and `other` give a column of a stretch of the pairs."""
        masks: list[Bools] = []
        for first in range(0, count, PAIRS_ASKED):
            piece = slice(first, min(count, first + PAIRS_ASKED))
            sides = [[own(i, piece) for i in self._columns[input_index]]]
            sides.append([other(i, piece) for i in self._columns[1 - input_index]])
            if input_index:
                sides.reverse()
            columns = [*sides[0], *sides[1], pa.nulls(piece.stop - piece.start)]
            pairs = pa.RecordBatch.from_arrays(columns, [f"c{i}" for i in range(len(columns))])
            _, mask = self._calc.filtered(pairs)
            if mask is None:
                masks.append(np.ones(pairs.num_rows, dtype=np.bool_))
            else:
                masks.append(mask.to_numpy(zero_copy_only=False))
        passed = masks[0] if len(masks) == 1 else np.concatenate(masks)
        return None if passed.all() else passed


def compile_condition(condition: Expression, left_count: int, context: OperatorContext) -> JoinCondition:
    """`condition` reads the `left_count` left columns, then the right ones."""
    used = sorted(input_indexes(condition))
    compact = shift_inputs(condition, {index: position for position, index in enumerate(used)})
    calc = compile_calc(compact, (), evaluation_context(context))
    return JoinCondition(calc, [i for i in used if i < left_count], [i - left_count for i in used if i >= left_count])
