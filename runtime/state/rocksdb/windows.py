"""Windows whose older blocks are in the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pyarrow as pa

from runtime.state.protocol import Reduce
from runtime.state.rocksdb.database import Family, View
from runtime.state.segment_chain import SnapshotPlan, WindowChain
from runtime.state.table_snapshot import Capture, WritePieces
from runtime.state.window_blocks import Block, MemoryWindowState, WindowsCapture, since

SPILLED_ROWS = 16_384
"""Rows of a block in the database."""
MERGED_ROWS_MIN = 65_536
_NUMBER_BYTES = 8


class RocksWindowState(MemoryWindowState):
    """A block in the database is named by its window's end, its epoch and a running number: blocks are read in the
    order in which they arrived, and are older than those in memory."""

    def __init__(
        self,
        schema: pa.Schema,
        reduce: Reduce,
        check_size: Callable[[], None],
        chain: WindowChain,
        family: Family,
    ) -> None:
        super().__init__(schema, reduce, check_size, chain)
        self._family = family
        self._spilled_rows: dict[int, int] = {}
        self._block_count = 0

    @property
    def row_count(self) -> int:
        return super().row_count + sum(self._spilled_rows.values())

    def ends(self) -> list[int]:
        return sorted(self._windows.keys() | self._spilled_rows.keys())

    def merge(self, window_end: int) -> pa.RecordBatch:
        if window_end in self._spilled_rows:
            younger = self._windows.get(window_end, ())
            epochs: set[int] = set()
            view = self._family.view()
            try:
                pending: list[pa.RecordBatch] = []
                for epoch, rows in (*self.read_blocks(view, window_end), *younger):
                    epochs.add(epoch)
                    pending.append(rows)
                    # Each row is merged a logarithmic number of times.
                    if sum(b.num_rows for b in pending[1:]) > max(MERGED_ROWS_MIN, pending[0].num_rows):
                        pending = [self._reduce(pending)]
            finally:
                view.close()
            self._drop_spilled(window_end)
            epoch = self.epoch_of(window_end, epochs, sum(rows.num_rows for rows in pending))
            self._store(window_end, tuple(Block(epoch, rows) for rows in pending))
        return super().merge(window_end)

    def keep_rest(self, window_end: int, rest: pa.RecordBatch | None) -> None:
        if window_end in self._spilled_rows:
            self._drop_spilled(window_end)
        super().keep_rest(window_end, rest)

    def capture(self, plan: SnapshotPlan) -> Capture:
        self.note_replaced(plan)
        young = WindowsCapture(self, dict(self._windows), plan)
        return RocksWindowsCapture(self, young, self._family.view(), sorted(self._spilled_rows), plan)

    def spill(self) -> None:
        """Move all blocks to the database."""
        for end, blocks in self._windows.items():
            for epoch, rows in self.merged_runs(blocks):
                names, values = [], []
                for first in range(0, rows.num_rows, SPILLED_ROWS):
                    self._block_count += 1
                    names.append(_name(end) + _number(epoch) + _number(self._block_count))
                    values.append(cast(Any, rows.slice(first, SPILLED_ROWS)).serialize().to_pybytes())
                self._family.put(names, values)
                self._spilled_rows[end] = self._spilled_rows.get(end, 0) + rows.num_rows
        self._windows.clear()
        self._merged.clear()
        self._bytes_by_window.clear()

    def read_blocks(self, view: View, window_end: int, cut: int = -1) -> Iterator[Block]:
        """A window's blocks of later epochs than `cut` in the database, oldest first."""
        first, end = _name(window_end) + _number(cut + 1), _name(window_end + 1)
        for names, values in view.pieces(first, end, limit=1):
            for name, value in zip(names, values, strict=True):
                epoch = int.from_bytes(name[_NUMBER_BYTES : 2 * _NUMBER_BYTES], "big")
                yield Block(epoch, pa.ipc.read_record_batch(pa.py_buffer(value), self._schema))

    def _drop_spilled(self, window_end: int) -> None:
        self._spilled_rows.pop(window_end, None)
        self._family.delete_range(_name(window_end), _name(window_end + 1))


class RocksWindowsCapture:
    """Blocks as they were in the database, then those that were in memory."""

    def __init__(
        self, state: RocksWindowState, young: WindowsCapture, old: View, spilled_ends: list[int], plan: SnapshotPlan
    ) -> None:
        self._state = state
        self._young = young
        self._old = old
        self._spilled_ends = spilled_ends
        self._plan = plan

    def write_early(self, write: WritePieces) -> None:
        """Nothing piles up: blocks are immutable."""

    def logged(self) -> Iterator[pa.RecordBatch]:
        yield from ()

    def pieces(self) -> Iterator[pa.RecordBatch]:
        for end in self._spilled_ends:
            for block in self._state.read_blocks(self._old, end, since(self._plan, end)):
                yield self._state.snapshot_rows(end, (block.rows,))
        yield from self._young.pieces()

    def close(self) -> None:
        self._young.close()
        self._old.close()


def _name(window_end: int) -> bytes:
    """A window's end so that names sort as ends do."""
    return (window_end + (1 << 63)).to_bytes(8, "big")


def _number(number: int) -> bytes:
    return number.to_bytes(_NUMBER_BYTES, "big")
