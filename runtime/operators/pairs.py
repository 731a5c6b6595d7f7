"""Pairs of rows: from keys to the rows that meet, in pieces, the rest of the condition, and joined rows.

Rows are numbers (places in columns), so that a pair costs two integers until it is known to be wanted: then only the
columns that the condition reads are gathered, and all columns of what passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from planner.ir.expressions import Expression, input_indexes, shift_inputs
from runtime.operators.calc import evaluation_context
from runtime.operators.expressions.calc import compile_expression
from runtime.operators.protocol import OUTPUT_ROWS_MAX, OperatorContext

Array = Any
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_CODE_MAX = 1 << 62


def without_null_keys(keys: Sequence[Array], null_safe: Sequence[bool]) -> Bools | None:
    """The rows whose key may be equal to another: not those with a NULL in a key that is not null-safe; None when all
    may."""
    able: Bools | None = None
    for key, is_safe in zip(keys, null_safe, strict=True):
        if not is_safe and key.null_count:
            valid: Bools = key.is_valid().to_numpy(zero_copy_only=False)
            able = valid if able is None else able & valid
    return able


def equal_ranges(left: Ints, right: Ints) -> tuple[Ints, Ints, Ints]:
    """Of codes from 0 on (negative ones equal nothing): an order of the right rows by code, stable, and of each left
    row the first place in that order and the number of right rows with its code."""
    code_count = int(max(left.max(initial=-1), right.max(initial=-1))) + 1
    order = np.argsort(right, kind="stable")
    below = int((right < 0).sum())
    counts = np.bincount(right[order[below:]], minlength=code_count + 1)
    starts = np.cumsum(counts) - counts + below
    wanted = np.where(left < 0, code_count, left)
    return order, starts[wanted], counts[wanted]


def time_codes(ids: Ints, times: Ints, *others: tuple[Ints, Ints]) -> list[Ints]:
    """Integers that order as (id, time), alike for all of the given columns. Ids are from 0 on."""
    pairs = [(ids, times), *((i, t) for i, t in others)]
    lowest = min((int(t.min()) for _, t in pairs if len(t)), default=0)
    highest = max((int(t.max()) for _, t in pairs if len(t)), default=0)
    most = max((int(i.max()) for i, _ in pairs if len(i)), default=0)
    span = highest - lowest + 1
    if (most + 1) * span < _CODE_MAX:
        return [i * span + (t - lowest) for i, t in pairs]
    # Times from the ends of the calendar in one batch: their ranks are small.
    distinct = np.unique(np.concatenate([t for _, t in pairs]))
    return [i * len(distinct) + np.searchsorted(distinct, t) for i, t in pairs]


def pair_pieces(starts: Ints, counts: Ints, most: int = OUTPUT_ROWS_MAX) -> Iterator[tuple[Ints, Ints]]:
    """Row i meets places starts[i] … starts[i] + counts[i] - 1. The pairs in order: row, and place; at most `most` at
    once, however many there are."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    shifts = starts - (ends - counts)
    for first in range(0, total, most):
        last = min(first + most, total)
        if last - first == total:
            rows = np.repeat(np.arange(len(counts)), counts)
        else:
            begin = int(np.searchsorted(ends, first, side="right"))
            end = int(np.searchsorted(ends, last, side="left")) + 1
            lengths = np.minimum(ends[begin:end], last) - np.maximum(ends[begin:end] - counts[begin:end], first)
            rows = np.repeat(np.arange(begin, end), lengths)
        yield rows, np.arange(first, last) + shifts[rows]


class Residual:
    """What a join asks of a pair beside equal keys. Reads the left columns, then the right ones."""

    def __init__(self, condition: Expression | None, context: OperatorContext) -> None:
        self._inputs = sorted(input_indexes(condition)) if condition is not None else []
        self._evaluate: Callable[[pa.RecordBatch], Array] | None = None
        if condition is not None:
            places = {index: place for place, index in enumerate(self._inputs)}
            self._evaluate = compile_expression(shift_inputs(condition, places), evaluation_context(context))

    @property
    def is_needed(self) -> bool:
        return self._evaluate is not None

    def passing(self, column: Callable[[int], Array], count: int) -> Bools | None:
        """The pairs for which the condition is TRUE, None when there is no condition. `column` gives an input column by
        its index, a value per pair. Raises ExpressionError."""
        if self._evaluate is None:
            return None
        # A batch without columns would have no rows.
        columns = [column(index) for index in self._inputs] or [pa.nulls(count)]
        names = [f"c{i}" for i in range(len(columns))]
        verdict = self._evaluate(pa.RecordBatch.from_arrays(columns, names))
        passing: Bools = verdict.fill_null(False).to_numpy(zero_copy_only=False)
        return passing


def taken(columns: Sequence[Array], rows: Ints) -> list[Array]:
    """Rows of columns."""
    index: Any = pa.array(rows)
    return [column.take(index) for column in columns]


def nulls(kinds: Sequence[Any], count: int) -> list[Array]:
    """Columns of a side that an outer join has no row of."""
    return [pa.nulls(count, kind) for kind in kinds]
