"""Rows with kinds to change events, as Flink writes them: additions as op c, removals as op d."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from connectors.arrow import Array, pc
from connectors.formats.json.encode import JsonEncoder
from connectors.formats.json.options import JsonOptions
from planner.ir.types import Field

_REMOVES = np.array([False, True, False, True])
"""By row kind."""


class DebeziumEncoder:
    """An update is two events, the removal of the old row and the addition of the new one. Used by one thread."""

    def __init__(self, columns: tuple[Field, ...], options: JsonOptions) -> None:
        self._rows = JsonEncoder(columns, options)
        absent = not options.ignore_null_fields
        before_null, after_null = ('"before":null,', '"after":null,') if absent else ("", "")
        self._opening: Array = pa.array([f'{{{before_null}"after":'.encode(), b'{"before":'], pa.binary())
        self._closing: Array = pa.array([b',"op":"c"}', f',{after_null}"op":"d"}}'.encode()], pa.binary())
        self._nothing = pa.scalar(b"", pa.binary())

    def encode(self, batch: pa.RecordBatch, row_kinds: pa.Int8Array | None = None) -> pa.BinaryArray:
        """One event per row."""
        images = self._rows.encode(batch)
        opening, closing = self._opening[0], self._closing[0]
        if row_kinds is not None:
            removes: Array = pa.array(_REMOVES[row_kinds.to_numpy()].astype(np.int64))
            opening, closing = self._opening.take(removes), self._closing.take(removes)
        joined: pa.BinaryArray = pc.binary_join_element_wise(opening, images, closing, self._nothing)
        return joined
