"""What an upsert sink leaves out: of several changes of one key only the last one counts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.api import Int64Array

if TYPE_CHECKING:
    Array = pa.Array[Any]

Changes = tuple[pa.RecordBatch, "Array"]

_REMOVES = np.array([False, True, False, True])
"""By row kind: -U and -D take a row away."""


def removals(row_kinds: Array | None, row_count: int) -> npt.NDArray[np.bool_]:
    """Which rows are removals. A -U without a later row of its key in the batch is one: the key has no row then."""
    return np.zeros(row_count, np.bool_) if row_kinds is None else _REMOVES[row_kinds.to_numpy()]


def last_per_key(keys: Array, hashes: npt.NDArray[np.uint32] | None = None) -> Int64Array | None:
    """The rows that are the last of their key, in order; None when all are. Where `hashes` of the keys are all
    different no key is looked at."""
    if hashes is not None:
        ordered = hashes.copy()
        ordered.sort()
        if (ordered[1:] != ordered[:-1]).all():
            return None
    encoded = keys.dictionary_encode(null_encoding="encode")
    codes = encoded.indices.to_numpy()
    if len(encoded.dictionary) == len(codes):
        return None
    last = np.empty(len(encoded.dictionary), np.int64)
    last[codes] = np.arange(len(codes))  # of an index that stands there twice the last value is kept
    last.sort()
    return last


class UpsertBuffer:
    """Holds changes until there are `rows_max` of them or the oldest is `interval_ms` old, so that fewer changes of a
    key are written. A barrier empties it."""

    def __init__(self, rows_max: int, interval_ms: int) -> None:
        self._rows_max = rows_max
        self._interval_s = interval_ms / 1000
        self._held: list[Changes] = []
        self._rows = 0
        self._since_s = 0.0

    def add(self, batch: pa.RecordBatch, row_kinds: Array | None) -> Changes | None:
        """All changes held, when they are due."""
        if not self._held:
            self._since_s = time.monotonic()
        kinds: Any = pa.array(np.zeros(batch.num_rows, np.int8)) if row_kinds is None else row_kinds
        self._held.append((batch, kinds))
        self._rows += batch.num_rows
        if self._rows < self._rows_max and time.monotonic() < self._since_s + self._interval_s:
            return None
        return self.drain()

    def drain(self) -> Changes | None:
        """All changes held as one batch; None when there are none."""
        if not self._held:
            return None
        batch: pa.RecordBatch = pa.concat_batches([batch for batch, _ in self._held])  # type: ignore[attr-defined]
        kinds: Any = pa.concat_arrays([kinds for _, kinds in self._held])
        self._held.clear()
        self._rows = 0
        return batch, kinds
