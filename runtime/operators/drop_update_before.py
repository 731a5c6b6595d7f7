"""Removes the -U rows of a retracting stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from planner.ir.operators import DropUpdateBefore
from runtime.elements import Batch
from runtime.operators.group_aggregate_output import UPDATE_BEFORE
from runtime.operators.stateless import StatelessOperator


class DropUpdateBeforeOperator(StatelessOperator):
    """Holds nothing."""

    def __init__(self, node: DropUpdateBefore) -> None:
        super().__init__(node.uid)
        self._node = node

    def process(self, batch: Batch) -> Iterator[Batch]:
        kept = without_update_before(batch)
        if kept.row_count:
            yield kept


def without_update_before(batch: Batch) -> Batch:
    """The batch without its -U rows; the batch itself when there are none."""
    if batch.row_kinds is None:
        return batch
    kinds = batch.row_kinds.to_numpy()
    kept = kinds != UPDATE_BEFORE
    if kept.all():
        return batch
    index: Any = pa.array(np.flatnonzero(kept))
    row_kinds: Any = batch.row_kinds.take(index)
    return Batch(batch.data.take(index), row_kinds)
