"""Each row once per projection: GROUPING SETS before their aggregate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from planner.ir.operators import Expand
from planner.ir.types import arrow_schema
from runtime.elements import Batch
from runtime.operators.calc import evaluation_context
from runtime.operators.expressions.calc import compile_calc
from runtime.operators.protocol import OUTPUT_ROWS_MAX, OperatorContext
from runtime.operators.stateless import StatelessOperator


class ExpandOperator(StatelessOperator):
    """Stateless. The copies of a row follow each other, with its row kind."""

    def __init__(self, node: Expand, context: OperatorContext) -> None:
        super().__init__(node.uid)
        self._node = node
        self._context = context
        self._schema = arrow_schema(node.output.types)

    def open(self) -> None:
        surroundings = evaluation_context(self._context)
        self._calcs = [compile_calc(None, projection, surroundings) for projection in self._node.projections]

    def process(self, batch: Batch) -> Iterator[Batch]:
        copies = len(self._calcs)
        rows_max = max(1, OUTPUT_ROWS_MAX // max(1, copies))
        for first in range(0, batch.row_count, rows_max):
            rows = batch.data.slice(first, rows_max)
            # Copy j of row i is row j * rows + i of all copies together.
            order = np.arange(copies * rows.num_rows).reshape(copies, rows.num_rows).T.ravel()
            projected = [calc(rows).columns for calc in self._calcs]
            columns = [pa.concat_arrays(parts).take(pa.array(order)) for parts in zip(*projected, strict=True)]
            kinds: Any = batch.row_kinds
            if kinds is not None:
                kinds = kinds.slice(first, rows_max).take(pa.array(order % rows.num_rows))
            yield Batch(pa.RecordBatch.from_arrays(columns, schema=self._schema), kinds)
