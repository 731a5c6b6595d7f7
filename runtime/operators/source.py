"""Reads a table through a connector's reader: computed columns, event time per split, positions as state."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors import registry
from connectors.api import ReaderContext, SourceReader, SplitBatch, SplitState
from connectors.errors import ErrorDomain
from planner.ir.expressions import InputRef
from planner.ir.operators import Source, WatermarkSpec, WatermarkStrategy
from planner.ir.types import ChangelogMode
from runtime.checkpoint.snapshot import OperatorSnapshot
from runtime.elements import Batch, Watermark, WatermarkStatus
from runtime.errors import TaskError
from runtime.job_settings import integer
from runtime.operators.calc import LOCAL_TIME_ZONE, evaluation_context
from runtime.operators.environment import TaskEnvironment
from runtime.operators.expressions.calc import Calc, compile_calc, compile_expression
from runtime.operators.expressions.errors import ExpressionError
from runtime.operators.protocol import FinishSnapshot, OperatorContext
from runtime.operators.sink import metadata_fields, table_definition
from runtime.operators.source_watermarks import SourceWatermarks

BATCH_ROWS = "table.exec.batch.max-rows"
BATCH_ROWS_DEFAULT = 8192
BATCH_BYTES = 2_000_000
NARROW_COLUMNS_MAX = 3
NARROW_FACTOR = 2
"""Rows of few columns make small batches of long messages: a poll takes more of them, because operators have a fixed
cost per batch."""

COUNT_INTERVAL_MS = 1_000

Elements = Iterator[Batch | Watermark | WatermarkStatus]
Milliseconds = npt.NDArray[np.int64]


class SourceOperator:
    """One reader over the splits assigned to this subtask."""

    def __init__(self, node: Source, context: OperatorContext, environment: TaskEnvironment) -> None:
        self._node = node
        self._context = context
        self._environment = environment
        factor = NARROW_FACTOR if len(node.scan_columns.columns) <= NARROW_COLUMNS_MAX else 1
        self._rows_max = integer(context.settings, BATCH_ROWS, factor * BATCH_ROWS_DEFAULT, minimum=1)
        self._bytes_max = factor * BATCH_BYTES
        self._reader: SourceReader | None = None
        self._live: dict[str, bool] = {}
        self._assigned = False
        self._said_again = False
        self._all_assigned = False
        self._stopped = False
        self._committing: dict[int, list[SplitState]] = {}
        self._polled_at_ms: float | None = None
        self._backpressured_ms = 0.0
        self._records = 0
        self._split_counters: dict[str, float] = {}
        self._counted_at_ms = 0.0
        spec = node.watermark
        self._on_event = spec is not None and (spec.strategy is WatermarkStrategy.ON_EVENT or spec.interval_ms == 0)
        self._watermarks = SourceWatermarks(
            0 if self._on_event or spec is None else spec.interval_ms, 0 if spec is None else spec.idle_timeout_ms
        )

    # ------------------------------------------------------------------------------------------------ life cycle

    @property
    def uid(self) -> str:
        return self._node.uid

    @property
    def ended(self) -> bool:
        return self._stopped or (self._all_assigned and not self.readable)

    @property
    def readable(self) -> bool:
        return not self._stopped and any(self._live.values())

    @property
    def reader(self) -> SourceReader:
        assert self._reader is not None, "the source is not open"
        return self._reader

    def open(self) -> None:
        node, context = self._node, self._context
        expressions = evaluation_context(context)
        self._project: Calc | None = None
        if any(not isinstance(p, InputRef) or p.index != i for i, p in enumerate(node.projections)) or len(
            node.projections
        ) != len(node.scan_columns.columns) + len(node.metadata_columns):
            self._project = compile_calc(None, node.projections, expressions)
        if node.watermark is not None:
            self._event_time = compile_expression(node.watermark.expression, expressions)
        physical = {name: index for index, name in enumerate(node.table.physical.names)}
        connector = registry.connector(node.table.connector)
        self._reader = connector.source(table_definition(node.table)).reader(
            ReaderContext(
                subtask_index=context.subtask_index,
                parallelism=context.parallelism,
                scan_columns=tuple(physical[name] for name in node.scan_columns.names),
                metadata_columns=metadata_fields(node.metadata_columns),
                local_time_zone=context.settings.get(LOCAL_TIME_ZONE, "UTC"),
                rows_max=self._rows_max,
                bytes_max=self._bytes_max,
            )
        )
        if context.restore is not None and context.restore.splits:
            self._add(context.restore.splits)

    def add_splits(self, splits: tuple[SplitState, ...], all_assigned: bool) -> None:
        self._add(splits)
        self._assigned = True
        self._all_assigned = self._all_assigned or all_assigned

    def _add(self, splits: tuple[SplitState, ...]) -> None:
        new = [state for state in splits if state.split.id not in self._live]
        for state in new:
            self._live[state.split.id] = not state.done
            self._watermarks.add_split(state.split.id, state.watermark_ms, state.done)
        if new:
            self.reader.add_splits(new)

    def stop(self) -> None:
        self._stopped = True

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    # --------------------------------------------------------------------------------------------------- reading

    def poll(self, timeout_ms: int) -> Elements:
        if not self.readable:
            # Idle, but not before the first assignment: splits still to come hold the minimum.
            if self._assigned and self._node.watermark is not None:
                yield from self._watermarks.status()
            return
        if self._node.watermark is not None and not self._said_again:
            # The barrier may have come between the rows that a restored watermark is from and the watermark itself:
            # rows behind it are judged as they would have been.
            self._said_again = True
            yield from self._watermarks.advance(self._environment.monotonic_ms(), at_once=True)
        batches = self.reader.poll(timeout_ms)
        self._note_silence(batches)
        self._count()
        for read in batches:
            self._records += read.batch.num_rows
        spec = self._node.watermark
        try:
            if spec is None:
                yield from self._without_event_time(batches)
            elif self._on_event:
                for read in batches:
                    yield from self._row_by_row(spec, read)
            else:
                yield from self._periodically(spec, batches)
        finally:
            for read in batches:
                if read.done:
                    self._live[read.split_id] = False
        if spec is not None:
            yield from self._after_poll()

    def _count(self) -> None:
        """Once a second: the splits' exact counts (skipped records) as metrics of this subtask."""
        now_ms = self._environment.monotonic_ms()
        if now_ms >= self._counted_at_ms + COUNT_INTERVAL_MS:
            self._counted_at_ms = now_ms
            self._split_counters = total_counters(self.reader.snapshot())

    def _after_poll(self) -> Elements:
        """What has become of splits that ended or fell silent."""
        if self.ended:
            return
        now_ms = self._environment.monotonic_ms()
        statuses = self._watermarks.status()
        # Before this subtask leaves the minimum of its consumers, they get its last word.
        yield from self._watermarks.advance(now_ms, at_once=bool(statuses) or self._on_event)
        yield from statuses

    def _without_event_time(self, batches: list[SplitBatch]) -> Elements:
        filled = [read for read in batches if read.batch.num_rows]
        for batch, kinds in _merged(filled):
            yield Batch(self._projected(batch, filled), kinds)

    def _periodically(self, spec: WatermarkSpec, batches: list[SplitBatch]) -> Elements:
        """All rows of a poll as one batch, then one watermark if it is due."""
        filled = [read for read in batches if read.batch.num_rows]
        outputs = [Batch(self._projected(batch, filled), kinds) for batch, kinds in _merged(filled)]
        if outputs:
            self._note_maxima(spec, filled, outputs)
        for read in batches:
            if read.done:
                self._watermarks.on_ended(read.split_id)
        if any(read.batch.num_rows and not read.done for read in filled):
            yield from self._watermarks.status()
        yield from outputs
        yield from self._watermarks.advance(self._environment.monotonic_ms())

    def _note_maxima(self, spec: WatermarkSpec, filled: list[SplitBatch], outputs: list[Batch]) -> None:
        """Running maxima of the splits; `outputs` hold the rows of `filled` in order."""
        times = [self._event_times(spec, output, filled) for output in outputs]
        values = np.concatenate([t[0] for t in times])
        starts = list(accumulate([read.batch.num_rows for read in filled[:-1]], initial=0))
        maxima = np.maximum.reduceat(values, starts)
        for read, maximum in zip(filled, maxima, strict=True):
            self._watermarks.on_rows(read.split_id, None if maximum == _NO_TIME else int(maximum))

    def _row_by_row(self, spec: WatermarkSpec, read: SplitBatch) -> Elements:
        """The batch is cut behind each row that moves the source's watermark."""
        if read.batch.num_rows:
            output = Batch(self._projected(read.batch, [read]), read.row_kinds)
            values, known = self._event_times(spec, output, [read])
            before = self._watermarks.split_watermark(read.split_id)
            others = self._watermarks.minimum_of_others(read.split_id)
            self._watermarks.on_rows(read.split_id, int(values.max()) if known else None)
            yield from self._watermarks.status()
            yield from self._cut(output, values, before, others)
        if read.done:
            self._watermarks.on_ended(read.split_id)

    def _cut(self, output: Batch, values: Milliseconds, before: int | None, others: int | None) -> Elements:
        start = 0
        if others is not None:
            running = np.maximum.accumulate(values if before is None else np.maximum(values, before))
            lowest = self._watermarks.watermark_ms
            combined = np.minimum(running, others)
            sent = np.concatenate([[_NO_TIME if lowest is None else lowest], combined[:-1]])
            for index in np.flatnonzero(combined > np.maximum.accumulate(sent)):
                stop = int(index) + 1
                yield _slice(output, start, stop)
                self._watermarks.sent(int(combined[index]), self._environment.monotonic_ms())
                yield Watermark(int(combined[index]))
                start = stop
        if start < output.row_count:
            yield _slice(output, start, output.row_count)

    def _note_silence(self, batches: list[SplitBatch]) -> None:
        """The idle clock of each split that was polled and empty: time since the last poll, without backpressure. A
        poll that came back full may not have reached every split: then no clock runs."""
        now_ms = self._environment.monotonic_ms()
        backpressured_ms = self._environment.backpressured_ms()
        since_ms = 0.0 if self._polled_at_ms is None else now_ms - self._polled_at_ms
        silent_ms = max(0.0, since_ms - (backpressured_ms - self._backpressured_ms))
        self._polled_at_ms, self._backpressured_ms = now_ms, backpressured_ms
        rows = 0
        for read in batches:
            rows += read.batch.num_rows
        if rows >= self._rows_max:
            return
        heard = {read.split_id for read in batches}
        for split_id, live in self._live.items():
            if live and split_id not in heard:
                self._watermarks.on_silence(split_id, silent_ms)

    # ------------------------------------------------------------------------------------------------ expressions

    def _projected(self, batch: pa.RecordBatch, reads: list[SplitBatch]) -> pa.RecordBatch:
        if self._project is None:
            return batch
        try:
            return self._project(batch)
        except ExpressionError as error:
            raise self._located(str(error), error.row_index, reads) from error

    def _event_times(self, spec: WatermarkSpec, output: Batch, reads: list[SplitBatch]) -> tuple[Milliseconds, bool]:
        """The watermark of each row in ms (a very low value where the expression is NULL), and whether any is known."""
        rowtime = output.data.column(spec.rowtime_index)
        nulls = np.flatnonzero(rowtime.is_null().to_numpy(zero_copy_only=False)) if rowtime.null_count else _NO_ROWS
        if output.row_kinds is not None and self._node.changelog is ChangelogMode.UPSERT:
            # A deletion may be filled in its key columns only: it has no event time.
            nulls = nulls[output.row_kinds.to_numpy()[nulls] != DELETE]
        if len(nulls):
            row = int(nulls[0])
            name = self._node.output.columns[spec.rowtime_index].name
            raise self._located(
                f"the time column '{name}' is NULL",
                row,
                reads,
                "A rowtime column must not be NULL: filter such rows before they reach the topic, or compute the "
                "column with COALESCE.",
            )
        try:
            times: Any = self._event_time(output.data).cast(pa.int64())
        except ExpressionError as error:
            raise self._located(str(error), error.row_index, reads) from error
        known = times.null_count < len(times)
        return times.fill_null(_NO_TIME).to_numpy(), known

    def _located(self, problem: str, row: int, reads: list[SplitBatch], hint: str = "") -> TaskError:
        """Row `row` of the rows of `reads`, as split, position and place."""
        for read in reads:
            if row < read.batch.num_rows:
                break
            row -= read.batch.num_rows
        position = next((s.position for s in self.reader.snapshot() if s.split.id == read.split_id), None)
        behind = read.batch.num_rows - row
        return TaskError(
            f"table {self._node.table.identifier}: {problem} (split {read.split_id}, "
            f"{behind} row(s) before position {_shown(position)})",
            domain=ErrorDomain.USER,
            retry=False,
            hint=hint,
        )

    # ------------------------------------------------------------------------------------------------------ state

    def snapshot(self, checkpoint_id: int) -> FinishSnapshot:
        states = self.reader.snapshot()
        self._split_counters = total_counters(states)
        self._committing[checkpoint_id] = states
        if self._node.watermark is not None:
            states = [
                msgspec.structs.replace(state, watermark_ms=self._watermarks.split_watermark(state.split.id))
                for state in states
            ]
        snapshot = OperatorSnapshot(self.uid, splits=tuple(states))
        return lambda: snapshot

    def checkpoint_committed(self, checkpoint_id: int) -> None:
        states = self._committing.get(checkpoint_id)
        self._committing = {i: s for i, s in self._committing.items() if i > checkpoint_id}
        if states is not None:
            self.reader.notify_checkpoint_complete(checkpoint_id, states)

    def counters(self) -> dict[str, float]:
        gauges = dict(self._reader.gauges()) if self._reader is not None else {}
        return {**gauges, **self._split_counters, "numRecordsIn": self._records, "numSplits": len(self._live)}


_NO_TIME = -(2**63)
_NO_ROWS = np.zeros(0, np.int64)
DELETE = 3


def total_counters(states: list[SplitState]) -> dict[str, float]:
    """The exact counts of all splits, by name."""
    totals: dict[str, float] = {}
    for state in states:
        for name, count in state.counters.items():
            totals[name] = totals.get(name, 0.0) + count
    return totals


def _merged(reads: list[SplitBatch]) -> list[tuple[pa.RecordBatch, pa.Int8Array | None]]:
    """One batch of all rows and their kinds. Rows without columns cannot be merged: Arrow would lose their number."""
    if len(reads) <= 1 or reads[0].batch.num_columns == 0:
        return [(read.batch, read.row_kinds) for read in reads]
    merged = pa.concat_batches([read.batch for read in reads])  # type: ignore[attr-defined]
    if not [read for read in reads if read.row_kinds is not None]:
        return [(merged, None)]
    kinds: Any = pa.concat_arrays([_kinds(read) for read in reads])
    return [(merged, kinds)]


def _slice(batch: Batch, start: int, stop: int) -> Batch:
    kinds: Any = batch.row_kinds
    return Batch(batch.data.slice(start, stop - start), None if kinds is None else kinds.slice(start, stop - start))


def _kinds(read: SplitBatch) -> Any:
    return read.row_kinds if read.row_kinds is not None else pa.array(np.zeros(read.batch.num_rows, np.int8))


def _shown(position: bytes | None) -> str:
    if position is None:
        return "(start)"
    text = position.decode("ascii", "replace")
    return text if text.isprintable() else position.hex()
