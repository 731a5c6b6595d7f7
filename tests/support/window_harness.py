"""Window aggregates without a task around them: local operators, a hash exchange by key group, global operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from planner.ir import types as t
from planner.ir.operators import (
    AggregateCall,
    AttachedWindow,
    ChangelogMode,
    Column,
    GlobalWindowAggregate,
    LocalWindowAggregate,
    Schema,
    Window,
    WindowProperty,
    accumulator_types,
)
from planner.ir.types import DataType
from runtime.checkpoint.files import LocalFiles
from runtime.checkpoint.snapshot import OperatorRestore, OperatorSnapshot
from runtime.elements import MIN_WATERMARK_MS, Batch
from runtime.ids import AttemptId, JobId
from runtime.key_groups import hash_columns, key_group, key_group_range, subtask_of
from runtime.operators.protocol import KeyGroupRange, OperatorContext
from runtime.operators.window_aggregate_global import GlobalWindowAggregateOperator
from runtime.operators.window_aggregate_local import LocalWindowAggregateOperator

MAX_PARALLELISM = 16
ROWTIME = t.timestamp(3).with_time_attribute(t.TimeAttribute.ROWTIME)
ROWTIME_LTZ = t.timestamp_ltz(3).with_time_attribute(t.TimeAttribute.ROWTIME)


def schema(*types: DataType) -> Schema:
    return Schema(tuple(Column(f"x{i}", kind) for i, kind in enumerate(types)))


def operator_context(
    directory: Path,
    subtask: int = 0,
    parallelism: int = 1,
    *,
    generation: int = 1,
    restore: OperatorRestore | None = None,
    managed_bytes: int = 0,
    wall_clock_ms: Callable[[], int] = lambda: 0,
    settings: dict[str, str] | None = None,
) -> OperatorContext:
    first, last = key_group_range(subtask, parallelism, MAX_PARALLELISM)
    return OperatorContext(
        attempt=AttemptId(JobId("0" * 32), generation, 1, subtask, 1),
        parallelism=parallelism,
        max_parallelism=MAX_PARALLELISM,
        key_groups=KeyGroupRange(first, last),
        settings=settings or {},
        files=LocalFiles(str(directory)),
        restore=restore,
        managed_bytes=managed_bytes,
        wall_clock_ms=wall_clock_ms,
    )


class WindowPlan(msgspec.Struct, frozen=True):
    """A window aggregate over rows of `row_types`: the plan of both phases, or of one."""

    row_types: tuple[DataType, ...]
    keys: tuple[int, ...]
    aggregates: tuple[AggregateCall, ...]
    window: Window
    properties: tuple[WindowProperty, ...] = (WindowProperty.START, WindowProperty.END)
    two_phases: bool = True
    input_changelog: ChangelogMode = ChangelogMode.INSERT_ONLY

    @property
    def key_types(self) -> tuple[DataType, ...]:
        return tuple(self.row_types[i] for i in self.keys)

    def local(self) -> LocalWindowAggregate:
        changes = self.input_changelog is not ChangelogMode.INSERT_ONLY
        accumulators = [kind for call in self.aggregates for kind in accumulator_types(call, retracting=changes)]
        counts = [t.BIGINT] * (2 if changes else 1)
        output = schema(*self.key_types, t.BIGINT, *counts, *accumulators)
        return LocalWindowAggregate(
            "local", "local", self.keys, self.aggregates, self.window, output, self.input_changelog
        )

    def global_(self) -> GlobalWindowAggregate:
        aligned = self.window.window if isinstance(self.window, AttachedWindow) else self.window
        time = aligned.time_type if WindowProperty.TIME in self.properties else t.timestamp(3)
        kinds = [time if p is WindowProperty.TIME else t.timestamp(3) for p in self.properties]
        output = schema(*self.key_types, *(call.type for call in self.aggregates), *kinds)
        keys = tuple(range(len(self.keys))) if self.two_phases else self.keys
        return GlobalWindowAggregate(
            "global", "global", self.two_phases, keys, self.key_types, self.aggregates, self.window, self.properties,
            output, self.input_changelog,
        )  # fmt: skip

    def rows(self, rows: Sequence[Sequence[Any]], kinds: Sequence[int] | None = None) -> Batch:
        """A batch of Python rows, with their kinds if they are changes."""
        columns: Any = [pa.array([row[i] for row in rows], t.to_arrow(kind)) for i, kind in enumerate(self.row_types)]
        row_kinds: Any = None if kinds is None else pa.array(kinds, pa.int8())
        return Batch(pa.RecordBatch.from_arrays(columns, schema=t.arrow_schema(self.row_types)), row_kinds)


class Pipeline:
    """`producers` local subtasks (or plain forwarders, in one phase) and `parallelism` global ones."""

    def __init__(
        self,
        plan: WindowPlan,
        directory: Path,
        producers: int = 1,
        parallelism: int = 1,
        settings: dict[str, str] | None = None,
        managed_bytes: int = 0,
    ) -> None:
        self.plan = plan
        self._managed_bytes = managed_bytes
        self.directory = directory
        self.now_ms = 0
        self._settings = settings
        self.results: list[dict[str, Any]] = []
        self.globals: list[GlobalWindowAggregateOperator] = []
        self._generation = 0
        self.restart(producers, parallelism, ())

    def restart(self, producers: int, parallelism: int, snapshots: Sequence[OperatorSnapshot]) -> None:
        """New operators, restored from snapshots of all global subtasks of an earlier start."""
        for operator in self.globals:
            operator.close()
        self._generation += 1
        self.parallelism = parallelism
        self.watermarks = [MIN_WATERMARK_MS] * producers
        self.advanced = MIN_WATERMARK_MS
        self.locals = []
        if self.plan.two_phases:
            self.locals = [LocalWindowAggregateOperator(self.plan.local()) for _ in range(producers)]
        segments = tuple(handle for snapshot in snapshots for handle in snapshot.segments)
        clocks = {group: clock for snapshot in snapshots for group, clock in snapshot.clocks.items()}
        late = sum(snapshot.counters["numLateRecordsDropped"] for snapshot in snapshots)
        self.globals = []
        for subtask in range(parallelism):
            counters = {"numLateRecordsDropped": late if subtask == 0 else 0}
            restore = OperatorRestore("global", segments=segments, clocks=clocks, counters=counters)
            context = operator_context(
                self.directory,
                subtask,
                parallelism,
                generation=self._generation,
                restore=restore,
                wall_clock_ms=lambda: self.now_ms,
                settings=self._settings,
                managed_bytes=self._managed_bytes,
            )
            self.globals.append(GlobalWindowAggregateOperator(self.plan.global_(), context))
        for local in self.locals:
            local.open()
        for operator in self.globals:
            operator.open()

    def send(self, producer: int, rows: Sequence[Sequence[Any]], kinds: Sequence[int] | None = None) -> None:
        """One batch of one producer, through the exchange."""
        batch = self.plan.rows(rows, kinds)
        if not self.plan.two_phases:
            self._exchange(batch, self.plan.keys)
            return
        for piece in self.locals[producer].process(batch):
            self._exchange(piece, tuple(range(len(self.plan.keys))))

    def advance(self, producer: int, watermark_ms: int) -> None:
        """A producer's watermark moves; consumers advance to the minimum."""
        self.watermarks[producer] = max(self.watermarks[producer], watermark_ms)
        if self.plan.two_phases:
            assert list(self.locals[producer].advance(self.watermarks[producer])) == []
        lowest = min(self.watermarks)
        if lowest > self.advanced:
            self.advanced = lowest
            for operator in self.globals:
                for piece in operator.advance(lowest):
                    self.results += piece.data.to_pylist()

    def pass_time(self, now_ms: int) -> None:
        """The wall clock moves; timers that are due fire."""
        self.now_ms = now_ms
        for operator in self.globals:
            timer = operator.timer_ms()
            if timer is not None and timer <= now_ms:
                for piece in operator.on_timer(now_ms):
                    self.results += piece.data.to_pylist()

    def snapshot(self, checkpoint_id: int) -> list[OperatorSnapshot]:
        halves = [operator.snapshot(checkpoint_id) for operator in self.globals]
        return [finish() for finish in halves]

    @property
    def late_rows(self) -> int:
        return int(sum(operator.counters()["numLateRecordsDropped"] for operator in self.globals))

    def _exchange(self, batch: Batch, keys: tuple[int, ...]) -> None:
        if not keys:
            assert list(self.globals[0].process(batch)) == []
            return
        groups = key_group(hash_columns([batch.data.column(i) for i in keys]), MAX_PARALLELISM)
        owners = subtask_of(groups, self.parallelism, MAX_PARALLELISM)
        for subtask, operator in enumerate(self.globals):
            rows: Any = pa.array(owners == subtask)
            kinds = None if batch.row_kinds is None else batch.row_kinds.filter(rows)
            part = Batch(batch.data.filter(rows), kinds)
            assert list(operator.process(part)) == []
