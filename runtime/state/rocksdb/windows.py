"""Windows whose older blocks are in the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pyarrow as pa

from runtime.state.protocol import Reduce
from runtime.state.rocksdb.database import Family, View
from runtime.state.table_snapshot import Capture, WritePieces
from runtime.state.window_blocks import MemoryWindowState, WindowsCapture

SPILLED_ROWS = 16_384
"""Rows of a block in the database."""
MERGED_ROWS_MIN = 65_536


class RocksWindowState(MemoryWindowState):
    """A block in the database is named by its window's end and a running number: blocks are read in the order in which
    they arrived, and are older than those in memory."""

    def __init__(self, schema: pa.Schema, reduce: Reduce, check_size: Callable[[], None], family: Family) -> None:
        super().__init__(schema, reduce, check_size)
        self._family = family
        self._spilled: set[int] = set()
        self._block_count = 0

    def ends(self) -> list[int]:
        return sorted(self._spilled.union(self._windows)) if self._spilled else super().ends()

    def merge(self, window_end: int) -> pa.RecordBatch:
        if window_end in self._spilled:
            younger = self._windows.get(window_end, ())
            view = self._family.view()
            try:
                pending: list[pa.RecordBatch] = []
                for block in (*self.read_blocks(view, window_end), *younger):
                    pending.append(block)
                    # Each row is merged a logarithmic number of times.
                    if sum(b.num_rows for b in pending[1:]) > max(MERGED_ROWS_MIN, pending[0].num_rows):
                        pending = [self._reduce(pending)]
            finally:
                view.close()
            self._drop_spilled(window_end)
            self._store(window_end, tuple(pending))
        return super().merge(window_end)

    def keep_rest(self, window_end: int, rest: pa.RecordBatch | None) -> None:
        if window_end in self._spilled:
            self._drop_spilled(window_end)
        super().keep_rest(window_end, rest)

    def capture(self) -> Capture:
        return RocksWindowsCapture(
            self, WindowsCapture(self, dict(self._windows)), self._family.view(), sorted(self._spilled)
        )

    def spill(self) -> None:
        """Move all blocks to the database."""
        for end, blocks in self._windows.items():
            rows = blocks[0] if len(blocks) == 1 else self._reduce(blocks)
            names, values = [], []
            for first in range(0, rows.num_rows, SPILLED_ROWS):
                self._block_count += 1
                names.append(_name(end) + self._block_count.to_bytes(8, "big"))
                values.append(cast(Any, rows.slice(first, SPILLED_ROWS)).serialize().to_pybytes())
            self._family.put(names, values)
            self._spilled.add(end)
        self._windows.clear()
        self._merged.clear()
        self._bytes_by_window.clear()

    def read_blocks(self, view: View, window_end: int) -> Iterator[pa.RecordBatch]:
        """A window's blocks in the database, oldest first."""
        for _, values in view.pieces(_name(window_end), _name(window_end + 1), limit=1):
            for value in values:
                yield pa.ipc.read_record_batch(pa.py_buffer(value), self._schema)

    def _drop_spilled(self, window_end: int) -> None:
        self._spilled.discard(window_end)
        self._family.delete_range(_name(window_end), _name(window_end + 1))


class RocksWindowsCapture:
    """Blocks as they were in the database, then those that were in memory."""

    def __init__(self, state: RocksWindowState, young: WindowsCapture, old: View, spilled_ends: list[int]) -> None:
        self._state = state
        self._young = young
        self._old = old
        self._spilled_ends = spilled_ends

    def write_early(self, write: WritePieces) -> None:
        """Nothing piles up: blocks are immutable."""

    def pieces(self) -> Iterator[pa.RecordBatch]:
        for end in self._spilled_ends:
            for block in self._state.read_blocks(self._old, end):
                yield self._state.snapshot_rows(end, (block,))
        yield from self._young.pieces()

    def close(self) -> None:
        self._young.close()
        self._old.close()


def _name(window_end: int) -> bytes:
    """A window's end so that names sort as ends do."""
    return (window_end + (1 << 63)).to_bytes(8, "big")
