"""Operators with two inputs without a task around them: an exchange by key group, restarts at any parallelism."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from planner.ir import types as t
from planner.ir.schema import Schema
from runtime.checkpoint.snapshot import OperatorRestore, OperatorSnapshot
from runtime.elements import Batch
from runtime.key_groups import hash_columns, key_group, subtask_of
from runtime.operators.protocol import OUTPUT_ROWS_MAX, OperatorContext
from tests.support.window_harness import MAX_PARALLELISM, operator_context

Row = tuple[Any, ...]
KINDS = ("+I", "-U", "+U", "-D")
EPOCH_MS = 1_700_000_000_000


def at(milliseconds: int) -> dt.datetime:
    """A timestamp of ms since the epoch."""
    return dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=milliseconds)


def batch_of(schema: Schema, rows: Sequence[Row], kinds: Sequence[int] | None = None) -> Batch:
    """A batch of Python rows, with their kinds if they are changes."""
    arrow = t.arrow_schema(schema.types)
    columns: list[Any] = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(arrow)]
    row_kinds: Any = None if kinds is None else pa.array(kinds, pa.int8())
    return Batch(pa.RecordBatch.from_arrays(columns, schema=arrow), row_kinds)


class TwoInputs:
    """Subtasks of one operator. What they put out is appended to `output` as (kind, row)."""

    def __init__(
        self,
        make: Callable[[OperatorContext], Any],
        schemas: tuple[Schema, Schema],
        keys: tuple[tuple[int, ...], tuple[int, ...]],
        directory: Path,
        settings: dict[str, str] | None = None,
        managed_bytes: int = 0,
    ) -> None:
        self._make = make
        self._schemas = schemas
        self._keys = keys
        self._directory = directory
        self._settings = settings
        self._managed_bytes = managed_bytes
        self._generation = 0
        self._checkpoint = 0
        self.now_ms = EPOCH_MS
        self.operators: list[Any] = []
        self.output: list[tuple[str, Row]] = []
        self.start(1)

    def start(self, parallelism: int, snapshots: Sequence[OperatorSnapshot] = ()) -> None:
        """New operators, restored from the snapshots of all earlier ones."""
        self.close()
        self._generation += 1
        segments = tuple(handle for snapshot in snapshots for handle in snapshot.segments)
        clocks = {group: clock for snapshot in snapshots for group, clock in snapshot.clocks.items()}
        late = sum(snapshot.counters.get("numLateRecordsDropped", 0) for snapshot in snapshots)
        self.operators = []
        for subtask in range(parallelism):
            counters = {"numLateRecordsDropped": late if subtask == 0 else 0}
            restore = (
                OperatorRestore("join", segments=segments, clocks=clocks, counters=counters) if snapshots else None
            )
            context = operator_context(
                self._directory, subtask, parallelism, generation=self._generation, restore=restore,
                wall_clock_ms=lambda: self.now_ms, settings=self._settings, managed_bytes=self._managed_bytes,
            )  # fmt: skip
            operator = self._make(context)
            operator.open()
            self.operators.append(operator)

    def snapshot(self) -> list[OperatorSnapshot]:
        self._checkpoint += 1
        halves = [operator.snapshot(self._checkpoint) for operator in self.operators]
        return [finish() for finish in halves]

    def restart(self, parallelism: int) -> None:
        self.start(parallelism, self.snapshot())

    def send(self, index: int, rows: Sequence[Row], kinds: Sequence[int] | None = None) -> None:
        """A batch of one input, through the exchange."""
        batch = batch_of(self._schemas[index], rows, kinds)
        keys = self._keys[index]
        if not keys:
            self.take(self.operators[0].process_input(index, batch))
            return
        groups = key_group(hash_columns([batch.data.column(i) for i in keys]), MAX_PARALLELISM)
        owners = subtask_of(groups, len(self.operators), MAX_PARALLELISM)
        for subtask, operator in enumerate(self.operators):
            mask: Any = pa.array(owners == subtask)
            part_kinds = None if batch.row_kinds is None else batch.row_kinds.filter(mask)
            self.take(operator.process_input(index, Batch(batch.data.filter(mask), part_kinds)))

    def advance(self, watermark_ms: int) -> None:
        for operator in self.operators:
            self.take(operator.advance(watermark_ms))

    def pass_time(self, now_ms: int) -> None:
        """The wall clock moves; timers that are due fire."""
        self.now_ms = now_ms
        for operator in self.operators:
            due = operator.timer_ms()
            if due is not None and due <= now_ms:
                self.take(operator.on_timer(now_ms))
                due = operator.timer_ms()
                assert due is None or due > now_ms

    def take(self, pieces: Any) -> None:
        for piece in pieces:
            self.note(piece)

    def note(self, piece: Batch) -> None:
        assert 0 < piece.row_count <= OUTPUT_ROWS_MAX
        kinds: list[Any] = [0] * piece.row_count if piece.row_kinds is None else piece.row_kinds.to_pylist()
        columns = [column.to_pylist() for column in piece.data.columns]
        self.output += [(KINDS[kind], tuple(c[i] for c in columns)) for i, kind in enumerate(kinds)]

    def taken(self) -> list[tuple[str, Row]]:
        """What has been put out since the last call."""
        output, self.output = self.output, []
        return output

    def counter(self, name: str) -> int:
        return int(sum(operator.counters()[name] for operator in self.operators))

    def close(self) -> None:
        for operator in self.operators:
            operator.close()


def first_of(pieces: Iterator[Batch]) -> list[Batch]:
    """The first piece, if there is one; the firing is left there."""
    return [piece for piece in (next(pieces, None),) if piece is not None]
