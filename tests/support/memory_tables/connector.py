"""The connector `memory`: reads splits that a test has filled, and keeps what is written until it is committed.

Options: `name` (which table), `changelog` (insert-only, upsert, retract; both directions). A reader cuts its splits
into polls of random length from the table's seed, so that every restart cuts differently.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa

from connectors.api import (
    Committable,
    OwnerState,
    ReaderContext,
    SinkContext,
    Split,
    SplitBatch,
    SplitState,
    TableDefinition,
)
from planner.ir.types import ChangelogMode, DataType, arrow_schema

Row = tuple[Any, ...]
Change = tuple[int, Row]
"""Row kind (0 +I, 1 -U, 2 +U, 3 -D) and the values of the physical columns."""


class MemoryTable:
    """`splits`: the changes to be read, per split. `visible`: what was committed, by checkpoint id, owner and order.
    `readable`: how many changes of each split can be read already; None = all."""

    def __init__(self, splits: list[list[Change]] | None = None) -> None:
        self.splits = splits or []
        self.poll_rows_max = 7
        self.readable: int | None = None
        self.random = random.Random(0)
        self.sealed: dict[tuple[int, int], list[Change]] = {}
        self.committed: set[tuple[int, int]] = set()

    @property
    def changes(self) -> list[Change]:
        """Everything committed: epochs in order, owners in order within one."""
        return [change for key in sorted(self.committed) for change in self.sealed[key]]


TABLES: dict[str, MemoryTable] = {}
"""By the option `name`; a test makes its own names and removes them."""


class MemoryConnector:
    name = "memory"

    def source(self, table: TableDefinition) -> MemorySource:
        return MemorySource(table)

    def sink(self, table: TableDefinition) -> MemorySink:
        return MemorySink(table)


class MemorySource:
    bounded = True
    metadata_types: Mapping[str, DataType] = {}

    def __init__(self, table: TableDefinition) -> None:
        self._table = table
        self.changelog = ChangelogMode(table.options.get("changelog", "insert-only"))

    def enumerator(self) -> MemoryEnumerator:
        return MemoryEnumerator(TABLES[self._table.options["name"]])

    def reader(self, context: ReaderContext) -> MemoryReader:
        return MemoryReader(self._table, context, self.changelog is not ChangelogMode.INSERT_ONLY)


class MemoryEnumerator:
    discovery_interval_ms = 0

    def __init__(self, table: MemoryTable) -> None:
        self._table = table

    def discover(self, known: frozenset[str]) -> list[Split]:
        return [Split(f"split-{i:03}", str(i).encode()) for i in range(len(self._table.splits)) if not known]

    def close(self) -> None: ...


class MemoryReader:
    def __init__(self, table: TableDefinition, context: ReaderContext, has_kinds: bool) -> None:
        self._rows = TABLES[table.options["name"]]
        self._columns = context.scan_columns
        self._schema = arrow_schema(tuple(table.columns[i].type for i in context.scan_columns))
        self._rows_max = min(context.rows_max, self._rows.poll_rows_max)
        self._has_kinds = has_kinds
        self._states: dict[str, SplitState] = {}

    def add_splits(self, splits: list[SplitState]) -> None:
        self._states.update({state.split.id: state for state in splits})

    def poll(self, timeout_ms: int) -> list[SplitBatch]:
        live = [state for state in self._states.values() if not state.done and not self._waits(state)]
        if not live:
            return []
        chosen = self._rows.random.sample(live, self._rows.random.randint(1, len(live)))
        return [self._read(state) for state in chosen]

    def _read(self, state: SplitState) -> SplitBatch:
        changes = self._rows.splits[int(state.split.data)]
        start = self._start(state)
        stop = min(self._end(state), start + self._rows.random.randint(1, self._rows_max))
        done = stop == len(changes)
        self._states[state.split.id] = msgspec.structs.replace(state, position=str(stop).encode(), done=done)
        part = changes[start:stop]
        columns: list[Any] = [
            pa.array([row[i] for _, row in part], field.type)
            for i, field in zip(self._columns, self._schema, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        if not columns:
            batch = pa.RecordBatch.from_struct_array(pa.array([{}] * len(part), pa.struct([])))  # type: ignore[arg-type]
        kinds = pa.array([kind for kind, _ in part], pa.int8()) if self._has_kinds else None
        return SplitBatch(state.split.id, batch, done, kinds)

    def _waits(self, state: SplitState) -> bool:
        """All that can be read was read, and more is to come."""
        return self._start(state) == self._end(state) < len(self._rows.splits[int(state.split.data)])

    def _start(self, state: SplitState) -> int:
        return int(state.position or b"0")

    def _end(self, state: SplitState) -> int:
        size = len(self._rows.splits[int(state.split.data)])
        return size if self._rows.readable is None else min(size, self._rows.readable)

    def snapshot(self) -> list[SplitState]:
        return list(self._states.values())

    def notify_checkpoint_complete(self, checkpoint_id: int, states: list[SplitState]) -> None: ...

    def gauges(self) -> Mapping[str, float]:
        return {}

    def close(self) -> None: ...


class MemorySink:
    delivery_guarantee = "exactly-once"
    committing = True
    transactional_id_prefix = None
    metadata_types: Mapping[str, DataType] = {}

    def __init__(self, table: TableDefinition) -> None:
        self._table = TABLES[table.options["name"]]
        self.changelog = ChangelogMode(table.options.get("changelog", "insert-only"))

    def prepare(self, namespace: str) -> None: ...

    def fence(self, namespace: str, owner_count: int) -> None: ...

    def writer(self, context: SinkContext) -> MemoryWriter:
        return MemoryWriter(self._table, context.subtask_index)


class MemoryWriter:
    """An epoch is sealed at the barrier and counts once it is committed, by the writer or by recovery."""

    def __init__(self, table: MemoryTable, owner: int) -> None:
        self._table = table
        self._owner = owner
        self._open: list[Change] = []
        self._pending: list[Committable] = []

    def recover(self, owners: list[OwnerState]) -> dict[int, int]:
        for owner in owners:
            self._table.committed.update((c.checkpoint_id, c.owner) for c in owner.pending)
        return {}

    def write(self, batch: pa.RecordBatch, row_kinds: pa.Int8Array | None) -> None:
        kinds: list[Any] = [0] * batch.num_rows if row_kinds is None else row_kinds.to_pylist()
        values = [column.to_pylist() for column in batch.columns]
        rows: list[Row] = list(zip(*values, strict=True)) if values else [()] * batch.num_rows
        self._open += list(zip(kinds, rows, strict=True))

    def prepare_commit(self, checkpoint_id: int) -> tuple[Committable, ...]:
        self._table.sealed[checkpoint_id, self._owner] = self._open
        self._pending.append(Committable(self._owner, checkpoint_id, "", b"", len(self._open), 0))
        self._open = []
        return tuple(self._pending)

    def commit(self, checkpoint_id: int) -> None:
        done = [c for c in self._pending if c.checkpoint_id <= checkpoint_id]
        self._table.committed.update((c.checkpoint_id, c.owner) for c in done)
        self._pending = [c for c in self._pending if c.checkpoint_id > checkpoint_id]

    def checkpoint_wanted(self) -> bool:
        return False

    def gauges(self) -> Mapping[str, float]:
        return {}

    def close(self) -> None: ...


CONNECTOR = MemoryConnector()
