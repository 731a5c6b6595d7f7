"""UNNEST: each row once per element of a collection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from planner.ir.operators import Unnest
from planner.ir.types import TypeRoot, arrow_schema
from runtime.elements import Batch
from runtime.operators.calc import evaluation_context
from runtime.operators.expressions.calc import compile_expression
from runtime.operators.protocol import OUTPUT_ROWS_MAX, OperatorContext
from runtime.operators.stateless import StatelessOperator

_Longs = npt.NDArray[np.int64]


class UnnestOperator(StatelessOperator):
    """Stateless. The elements of a row follow each other in their order, with its row kind."""

    def __init__(self, node: Unnest, context: OperatorContext) -> None:
        super().__init__(node.uid)
        self._node = node
        self._context = context
        self._schema = arrow_schema(node.output.types)
        self._passes: Any = None

    def open(self) -> None:
        if self._node.condition is not None:
            self._passes = compile_expression(self._node.condition, evaluation_context(self._context))

    def process(self, batch: Batch) -> Iterator[Batch]:
        """Raises ExpressionError where the condition fails on an element."""
        if batch.row_count == 0:
            return
        kept = batch.data.select(list(self._node.kept))
        elements = _Elements(batch.data.column(self._node.collection), self._node.collection_type.root)
        numbers: _Longs | None = None
        counts = elements.counts
        if self._passes is not None:
            numbers, counts = self._passing(kept, elements)
        spread = np.maximum(counts, 1) if self._node.is_outer else counts
        firsts = np.cumsum(counts) - counts
        for rows, positions in pieces(spread):
            is_padded = counts[rows] == 0 if self._node.is_outer else None
            if numbers is not None and len(numbers):
                # A padded row has no element of its own: any will do.
                chosen = numbers[np.minimum(firsts[rows] + positions, len(numbers) - 1)]
                positions = chosen - elements.firsts[rows]
            data = self._piece(kept, elements, rows, positions, is_padded)
            kinds: Any = batch.row_kinds
            yield Batch(data, None if kinds is None else kinds.take(pa.array(rows)))

    def _passing(self, kept: pa.RecordBatch, elements: _Elements) -> tuple[_Longs, _Longs]:
        """Which elements pass the condition, counted over all rows, and how many of each row."""
        masks: list[npt.NDArray[np.bool_]] = []
        for rows, positions in pieces(elements.counts):
            passed = self._passes(self._piece(kept, elements, rows, positions, None))
            masks.append(np.asarray(pc.fill_null(passed, False)))
        numbers = np.flatnonzero(np.concatenate(masks)) if masks else np.zeros(0, np.int64)
        rows = np.searchsorted(elements.firsts + elements.counts, numbers, side="right")
        return numbers, np.bincount(rows, minlength=len(elements.counts)).astype(np.int64)

    def _piece(
        self,
        kept: pa.RecordBatch,
        elements: _Elements,
        rows: _Longs,
        positions: _Longs,
        is_padded: npt.NDArray[np.bool_] | None,
    ) -> pa.RecordBatch:
        columns: list[Any] = list(kept.take(rows).columns) if self._node.kept else []
        columns += elements.columns(rows, positions, is_padded)
        if self._node.with_ordinality:
            columns.append(pa.array((positions + 1).astype(np.int32), mask=is_padded))
        types = self._schema.types
        arrays = [c if c.type == t else c.cast(t) for c, t in zip(columns, types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Elements:
    """The elements of one column of collections. `counts`: elements per row; `firsts`: those before the row's."""

    def __init__(self, column: Any, root: TypeRoot) -> None:
        self._offsets: _Longs = np.asarray(column.offsets).astype(np.int64)
        self._repeats: _Longs | None = None
        if root is TypeRoot.ARRAY:
            self._values = [column.values]
        elif root is TypeRoot.MAP:
            self._values = [column.keys, column.items]
        else:
            self._values = [column.keys]
            # An element stands as often as the multiset has it: elements are counted before they are spread.
            self._repeats = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(column.items), dtype=np.int64)])
        bounds = self._offsets if self._repeats is None else self._repeats[self._offsets]
        self._starts = bounds[:-1]
        self.counts: _Longs = np.diff(bounds)
        if column.null_count:
            self.counts[np.asarray(column.is_null())] = 0
        self.firsts: _Longs = np.cumsum(self.counts) - self.counts

    def columns(self, rows: _Longs, positions: _Longs, is_padded: npt.NDArray[np.bool_] | None) -> list[Any]:
        """The columns of element `positions[i]` of row `rows[i]`; NULL where there is none."""
        indices = self._starts[rows] + positions
        if self._repeats is not None:
            indices = np.searchsorted(self._repeats, indices, side="right") - 1
        values = [_taken(v, indices, is_padded) for v in self._values]
        if len(values) == 1 and pa.types.is_struct(values[0].type):
            # A NULL row gives NULL fields.
            return list(values[0].flatten())
        return values


def _taken(values: Any, indices: _Longs, is_padded: npt.NDArray[np.bool_] | None) -> Any:
    if is_padded is not None and is_padded.any():
        return values.take(pa.array(indices, mask=is_padded))
    count = len(indices)
    if count and indices[-1] - indices[0] == count - 1 and (count < 3 or bool((np.diff(indices) == 1).all())):
        return values.slice(int(indices[0]), count)
    return values.take(pa.array(indices))


def pieces(counts: _Longs) -> Iterator[tuple[_Longs, _Longs]]:
    """Row i `counts[i]` times, at most OUTPUT_ROWS_MAX at once: the rows, and which of its copies each is."""
    ends = np.cumsum(counts)
    firsts = ends - counts
    total = int(ends[-1])
    for start in range(0, total, OUTPUT_ROWS_MAX):
        stop = min(start + OUTPUT_ROWS_MAX, total)
        first = int(np.searchsorted(ends, start, side="right"))
        last = int(np.searchsorted(ends, stop - 1, side="right"))
        some = counts[first : last + 1].copy()
        some[0] -= start - firsts[first]
        some[-1] -= ends[last] - stop
        rows = np.repeat(np.arange(first, last + 1), some)
        yield rows, np.arange(start, stop) - firsts[rows]
