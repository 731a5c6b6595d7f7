"""What the state backends have in common: making states, restoring them from segments, writing them as segments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from runtime.checkpoint.snapshot import SegmentHandle
from runtime.operators.protocol import KeyGroupRange, OperatorContext
from runtime.state.errors import StateTooLargeError
from runtime.state.keyed_table import MemoryKeyedTable
from runtime.state.protocol import KEY_GROUP_FIELD, KeyedTable, Reduce, WindowState, WriteSegments
from runtime.state.read_once import ReadOnce
from runtime.state.row_store import REMOVED_FIELD, TableShape
from runtime.state.segment_chain import ChainFile, SnapshotPlan, TableChain, WindowChain, removed_windows
from runtime.state.segments import SegmentWriter, read_owned
from runtime.state.snapshot_writer import SnapshotWriter, count_groups, count_windows
from runtime.state.table_snapshot import Capture
from runtime.state.window_blocks import MemoryWindowState, removal_rows


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
        self._notices = context.notices
        self._notices.listen(self.committed)

    @property
    def byte_size(self) -> int:
        sizes = [state.byte_size for state in self._windows.values()]
        return sum(sizes) + sum(table.byte_size for table in self._tables.values())

    def window_state(self, name: str, schema: pa.Schema, reduce: Reduce) -> WindowState:
        """See KeyedStateBackend. `schema` starts with the key group. Raises SegmentError, StateTooLargeError."""
        assert schema.field(0).equals(KEY_GROUP_FIELD)
        chain = WindowChain()
        state = self._windows[name] = self._make_windows(name, schema, reduce, chain)
        handles = [handle for handle in self._restored if handle.state == name]
        chain.start(self._restore_windows(state, handles))
        return state

    def keyed_table(
        self, name: str, keys: pa.Schema, values: pa.Schema, *, prefix_length: int = 0, ttl_ms: int = 0
    ) -> KeyedTable:
        """See KeyedStateBackend."""
        shape = TableShape(name, keys, values, prefix_length, ttl_ms)
        chain = TableChain(self._owned)
        table = self._tables[name] = self._make_table(shape, chain)
        chain.start(self._restore_table(table, [handle for handle in self._restored if handle.state == name]))
        return table

    def capture(self, checkpoint_id: int) -> WriteSegments:
        """See KeyedStateBackend."""
        full = self._notices.is_full(checkpoint_id)
        parts: list[tuple[MemoryWindowState | MemoryKeyedTable, SnapshotPlan, Capture, SnapshotWriter]] = []
        for windows_name, windows in self._windows.items():
            plan = windows.chain.begin(checkpoint_id, windows.row_count, full=full)
            writer = SnapshotWriter(plan, windows_name, self._writer, count_windows)
            parts.append((windows, plan, windows.capture(plan), writer))
        for table_name, table in self._tables.items():
            plan = table.chain.begin(checkpoint_id, table.row_count, full=full)
            writer = SnapshotWriter(plan, table_name, self._writer, count_groups)
            parts.append((table, plan, table.capture(plan), writer))
        for _, _, capture, writer in parts:
            capture.write_early(writer.early)

        def write() -> tuple[SegmentHandle, ...]:
            handles: list[SegmentHandle] = []
            try:
                for state, plan, capture, writer in parts:
                    state.chain.settle(plan)
                    removed = removed_windows(plan)
                    files = [writer.removal(removal_rows(removed, self._owned))] if removed else []
                    handles += state.chain.finish(plan, [*files, *writer.rest(capture)])
            finally:
                for _, _, capture, _ in parts:
                    capture.close()
            return tuple(handles)

        return write

    def committed(self, checkpoint_id: int) -> None:
        """The files of this checkpoint stay: later snapshots may name them."""
        for state in self._windows.values():
            state.chain.committed(checkpoint_id)
        for table in self._tables.values():
            table.chain.committed(checkpoint_id)
            table.log.drop(table.chain.floor)

    def _restore_table(self, table: MemoryKeyedTable, handles: Sequence[SegmentHandle]) -> list[ChainFile]:
        """Read the files of a table; what the next snapshot may name of them."""
        plain = table.shape.segment_schema.names
        inherited: list[ChainFile] | None = []
        files = ReadOnce(self._files)
        for handle, epoch in zip(handles, table.chain.inherit(handles), strict=True):
            table.chain.epoch = epoch
            counts: Counter[int] = Counter()
            for rows in read_owned(files, handle, self._owned):
                table.restore(rows, handle.path)
                counts.update(count_groups(rows)[0])
                # Columns that a file lacks (of a time to live that is new) are made up at each restore.
                if [name for name in rows.schema.names if name != REMOVED_FIELD.name] != plain:
                    inherited = None
            if counts and inherited is not None:
                inherited.append(ChainFile(_narrowed(handle, counts), epoch, dict(counts)))
        table.finish_restore()
        if not inherited:
            table.log.drop(table.chain.epoch)
        return inherited or []

    def _restore_windows(self, state: MemoryWindowState, handles: Sequence[SegmentHandle]) -> list[ChainFile]:
        """Read the files of windows but for what later files of the same key groups have removed."""
        inherited: list[ChainFile] = []
        files = ReadOnce(self._files)
        removals = self._read_removals(handles)
        for position, (handle, epoch) in enumerate(zip(handles, state.chain.inherit(handles), strict=True)):
            state.chain.epoch = epoch
            if handle.is_removal:
                contents = frozenset(end for (end, _), at in removals.items() if position in at)
                if contents:
                    state.note_removed(contents)
                    inherited.append(ChainFile(_narrowed(handle, self._owned), epoch, {}, contents))
                continue
            counts: Counter[int] = Counter()
            ends: set[int] = set()
            for rows in read_owned(files, handle, self._owned):
                ends |= count_windows(rows)[1]
                rows = _without_removed(rows, removals, position)
                if rows.num_rows:
                    counts.update(count_windows(rows)[0])
                    state.restore(rows, handle.path)
            if counts:
                narrowed = _narrowed(handle, self._owned)
                inherited.append(ChainFile(narrowed, epoch, dict(counts), frozenset(ends)))
        return inherited

    def _read_removals(self, handles: Sequence[SegmentHandle]) -> dict[tuple[int, int], list[int]]:
        """Window and key group → positions of the files that say that what is before them is gone."""
        removals: dict[tuple[int, int], list[int]] = defaultdict(list)
        files = ReadOnce(self._files)
        for position, handle in enumerate(handles):
            if handle.is_removal:
                for rows in read_owned(files, handle, self._owned):
                    groups, ends = (column.to_numpy().tolist() for column in rows.columns)
                    for group, end in zip(groups, ends, strict=True):
                        removals[end, group].append(position)
        return removals

    def close(self) -> None:
        self._windows.clear()
        self._tables.clear()

    @abstractmethod
    def check_size(self) -> None:
        """Called when states have grown. Raises StateTooLargeError."""

    @abstractmethod
    def _make_windows(self, name: str, schema: pa.Schema, reduce: Reduce, chain: WindowChain) -> MemoryWindowState: ...

    @abstractmethod
    def _make_table(self, shape: TableShape, chain: TableChain) -> MemoryKeyedTable: ...


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

    def _make_windows(self, name: str, schema: pa.Schema, reduce: Reduce, chain: WindowChain) -> MemoryWindowState:
        return MemoryWindowState(schema, reduce, self.check_size, chain)

    def _make_table(self, shape: TableShape, chain: TableChain) -> MemoryKeyedTable:
        return MemoryKeyedTable(shape, chain, self._wall_clock_ms, self.check_size)


def _narrowed(handle: SegmentHandle, groups: Counter[int] | KeyGroupRange) -> SegmentHandle:
    """The part of a file that belongs to some key groups."""
    first, last = (groups.first, groups.last) if isinstance(groups, KeyGroupRange) else (min(groups), max(groups))
    return msgspec.structs.replace(
        handle, key_group_first=max(first, handle.key_group_first), key_group_last=min(last, handle.key_group_last)
    )


def _without_removed(rows: pa.RecordBatch, removals: dict[tuple[int, int], list[int]], position: int) -> pa.RecordBatch:
    """The rows of the file at `position` that still count."""
    if not removals:
        return rows
    pairs = np.rec.fromarrays([rows.column(1).to_numpy(), rows.column(0).to_numpy()])
    distinct, inverse = np.unique(pairs, return_inverse=True)
    stays = [not any(at > position for at in removals.get((end, group), ())) for end, group in distinct.tolist()]
    mask: Any = np.array(stays, dtype=np.bool_)[inverse]
    return rows if mask.all() else rows.filter(pa.array(mask))
