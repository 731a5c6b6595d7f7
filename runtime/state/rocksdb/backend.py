"""The `rocksdb` backend of one operator of one subtask."""

from __future__ import annotations

import pyarrow as pa

from runtime.operators.protocol import OperatorContext
from runtime.state.memory import SegmentedBackend
from runtime.state.protocol import Reduce
from runtime.state.rocksdb.database import Database, divide
from runtime.state.rocksdb.table import GROUP_BYTES, PREFIX_BYTES, RocksKeyedTable
from runtime.state.rocksdb.windows import RocksWindowState
from runtime.state.row_store import TableShape
from runtime.state.segment_chain import TableChain, WindowChain
from runtime.state.window_blocks import MemoryWindowState


class RocksStateBackend(SegmentedBackend):
    """Memory is bounded by the operator's share of managed memory; state by the disk."""

    def __init__(self, operator: str, context: OperatorContext) -> None:
        super().__init__(operator, context)
        self._shares = divide(context.managed_bytes)
        self._database = Database(self._shares)

    def check_size(self) -> None:
        """Move windows to the database, the largest state first, when they take more than their part of memory."""
        most = self._hot_bytes()
        while sum(state.byte_size for state in self._windows.values()) > most:
            largest = max(self._windows.values(), key=lambda state: state.byte_size)
            assert isinstance(largest, RocksWindowState)
            largest.spill()

    def close(self) -> None:
        super().close()
        self._database.close()

    def _make_windows(self, name: str, schema: pa.Schema, reduce: Reduce, chain: WindowChain) -> MemoryWindowState:
        return RocksWindowState(schema, reduce, self.check_size, chain, self._database.family(f"windows {name}"))

    def _make_table(self, shape: TableShape, chain: TableChain) -> RocksKeyedTable:
        prefix_bytes = GROUP_BYTES + PREFIX_BYTES if shape.prefix_length else 0
        family = self._database.family(f"table {shape.name}", prefix_bytes)
        return RocksKeyedTable(shape, chain, self._wall_clock_ms, family, self._hot_bytes)

    def _hot_bytes(self) -> int:
        """What a table, or all windows together, may take."""
        return self._shares.hot // max(1, len(self._tables) + bool(self._windows))
