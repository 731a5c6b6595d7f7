"""What the state backends have in common: making states, restoring them from segments, writing them as segments."""

from __future__ import annotations

from abc import ABC, abstractmethod

import pyarrow as pa

from runtime.checkpoint.snapshot import SegmentHandle
from runtime.operators.protocol import KeyGroupRange, OperatorContext
from runtime.state.errors import StateTooLargeError
from runtime.state.keyed_table import MemoryKeyedTable
from runtime.state.protocol import KEY_GROUP_FIELD, KeyedTable, Reduce, WindowState, WriteSegments
from runtime.state.row_store import TableShape
from runtime.state.segments import SegmentWriter, read_owned
from runtime.state.table_snapshot import write_pieces
from runtime.state.window_blocks import MemoryWindowState


class SegmentedBackend(ABC):
    """States of one operator. `managed_bytes` 0 = no limit."""

    def __init__(self, operator: str, context: OperatorContext) -> None:
        self._operator = operator
        self._managed_bytes = context.managed_bytes
        self._files = context.files
        self._owned: KeyGroupRange = context.key_groups
        self._restored: tuple[SegmentHandle, ...] = context.restore.segments if context.restore else ()
        self._writer = SegmentWriter(context.files, operator, str(context.attempt))
        self._wall_clock_ms = context.wall_clock_ms
        self._windows: dict[str, MemoryWindowState] = {}
        self._tables: dict[str, MemoryKeyedTable] = {}

    @property
    def byte_size(self) -> int:
        sizes = [state.byte_size for state in self._windows.values()]
        return sum(sizes) + sum(table.byte_size for table in self._tables.values())

    def window_state(self, name: str, schema: pa.Schema, reduce: Reduce) -> WindowState:
        """See KeyedStateBackend. `schema` starts with the key group. Raises SegmentError, StateTooLargeError."""
        assert schema.field(0).equals(KEY_GROUP_FIELD)
        state = self._windows[name] = self._make_windows(name, schema, reduce)
        for handle in self._restored:
            if handle.state == name:
                for rows in read_owned(self._files, handle, self._owned):
                    state.restore(rows, handle.path)
        return state

    def keyed_table(
        self, name: str, keys: pa.Schema, values: pa.Schema, *, prefix_length: int = 0, ttl_ms: int = 0
    ) -> KeyedTable:
        """See KeyedStateBackend."""
        shape = TableShape(name, keys, values, prefix_length, ttl_ms)
        table = self._tables[name] = self._make_table(shape)
        for handle in self._restored:
            if handle.state == name:
                for rows in read_owned(self._files, handle, self._owned):
                    table.restore(rows, handle.path)
        table.finish_restore()
        return table

    def capture(self, checkpoint_id: int) -> WriteSegments:
        """See KeyedStateBackend."""
        captures = [(name, state.capture()) for name, state in self._windows.items()]
        captures += [(name, table.capture()) for name, table in self._tables.items()]
        handles: list[SegmentHandle] = []
        for name, capture in captures:
            capture.write_early(
                lambda pieces, name=name: handles.extend(  # type: ignore[misc]
                    write_pieces(pieces, self._writer, name, checkpoint_id)
                )
            )

        def write() -> tuple[SegmentHandle, ...]:
            try:
                for name, capture in captures:
                    handles.extend(write_pieces(capture.pieces(), self._writer, name, checkpoint_id))
            finally:
                for _, capture in captures:
                    capture.close()
            return tuple(handles)

        return write

    def close(self) -> None:
        self._windows.clear()
        self._tables.clear()

    @abstractmethod
    def check_size(self) -> None:
        """Called when states have grown. Raises StateTooLargeError."""

    @abstractmethod
    def _make_windows(self, name: str, schema: pa.Schema, reduce: Reduce) -> MemoryWindowState: ...

    @abstractmethod
    def _make_table(self, shape: TableShape) -> MemoryKeyedTable: ...


class MemoryStateBackend(SegmentedBackend):
    """The `hashmap` backend: everything in this process's memory."""

    def check_size(self) -> None:
        """Compact, then fail, when the states are above their share of managed memory."""
        if not self._managed_bytes or self.byte_size <= self._managed_bytes:
            return
        for state in self._windows.values():
            state.compact()
        for table in self._tables.values():
            with table.lock:
                table.store.compact(urgent=True)
        if self.byte_size > self._managed_bytes:
            raise StateTooLargeError(self._operator, self.byte_size, self._managed_bytes)

    def _make_windows(self, name: str, schema: pa.Schema, reduce: Reduce) -> MemoryWindowState:
        return MemoryWindowState(schema, reduce, self.check_size)

    def _make_table(self, shape: TableShape) -> MemoryKeyedTable:
        return MemoryKeyedTable(shape, self._wall_clock_ms, self.check_size)
