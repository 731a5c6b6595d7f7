"""Operators outside a task: a context, an environment that records, and sources with rows made by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
from planner.ir.job_graph import Vertex
from planner.ir.operators import Operator
from runtime.checkpoint.files import LocalFiles
from runtime.checkpoint.snapshot import OperatorRestore
from runtime.elements import Batch
from runtime.ids import AttemptId, JobId
from runtime.operators.environment import TaskEnvironment
from runtime.operators.protocol import KeyGroupRange, OperatorContext
from runtime.protocol.descriptors import TaskDescriptor
from runtime.protocol.messages import FromSlot

ATTEMPT = AttemptId(JobId("0" * 32), 1, 1, 0, 1)


class ManualClock:
    """Milliseconds, moved by hand."""

    def __init__(self) -> None:
        self.ms = 1_000.0

    def __call__(self) -> float:
        return self.ms


class Surroundings:
    """Context and environment of one operator; `sent` are its messages to the JobManager."""

    def __init__(
        self,
        directory: str = "",
        *,
        restore: OperatorRestore | None = None,
        settings: dict[str, str] | None = None,
        operators: tuple[Operator, ...] = (),
    ) -> None:
        self.clock = ManualClock()
        self.backpressured_ms = 0.0
        self.sent: list[FromSlot] = []
        self.waits = 0
        self.on_wait: Callable[[], None] = lambda: None
        self.context = OperatorContext(
            attempt=ATTEMPT,
            parallelism=1,
            max_parallelism=128,
            key_groups=KeyGroupRange(0, 127),
            settings=settings or {},
            files=LocalFiles(directory),
            restore=restore,
            managed_bytes=0,
            wall_clock_ms=lambda: 1_700_000_000_000,
        )
        self.environment = TaskEnvironment(
            descriptor=TaskDescriptor(ATTEMPT, Vertex(1, "v", "v", operators, 1), (), (), {}, directory, "inc"),
            monotonic_ms=self.clock,
            wait_until=self._wait,
            notify=lambda: None,
            send=self.sent.append,
            backpressured_ms=lambda: self.backpressured_ms,
        )

    def _wait(self, ready: Callable[[], bool]) -> None:
        self.waits += 1
        self.on_wait()
        assert ready()


def batch_of(*columns: pa.Array, kinds: list[int] | None = None) -> Batch:  # type: ignore[type-arg]
    data = pa.RecordBatch.from_arrays(list(columns), [f"c{i}" for i in range(len(columns))])
    return Batch(data, None if kinds is None else pa.array(kinds, pa.int8()))


def ints(*values: int | None) -> pa.Array:  # type: ignore[type-arg]
    return pa.array(values, pa.int32())


class HandReader:
    """A reader whose next polls are written by the test: lists of (split id, columns, done)."""

    def __init__(self) -> None:
        self.context: ReaderContext | None = None
        self.states: dict[str, SplitState] = {}
        self.polls: list[list[SplitBatch]] = []
        self.committed: list[tuple[int, list[SplitState]]] = []
        self.closed = False

    def give(self, *batches: SplitBatch) -> None:
        """What the next poll returns."""
        self.polls.append(list(batches))

    def add_splits(self, splits: list[SplitState]) -> None:
        self.states.update({state.split.id: state for state in splits})

    def poll(self, timeout_ms: int) -> list[SplitBatch]:
        given = self.polls.pop(0) if self.polls else []
        for read in given:
            old = self.states[read.split_id]
            position = int(old.position or b"0") + read.batch.num_rows
            self.states[read.split_id] = SplitState(old.split, str(position).encode(), read.done, old.counters)
        return given

    def snapshot(self) -> list[SplitState]:
        return list(self.states.values())

    def notify_checkpoint_complete(self, checkpoint_id: int, states: list[SplitState]) -> None:
        self.committed.append((checkpoint_id, states))

    def gauges(self) -> Mapping[str, float]:
        return {"pendingRecords": 3.0}

    def close(self) -> None:
        self.closed = True


class HandWriter:
    """A writer that records; `wanted` asks for a checkpoint."""

    def __init__(self) -> None:
        self.context: SinkContext | None = None
        self.owners: list[OwnerState] = []
        self.written: list[pa.RecordBatch] = []
        self.kinds: list[pa.Int8Array | None] = []
        self.committed: list[int] = []
        self.wanted = False

    def recover(self, owners: list[OwnerState]) -> dict[int, int]:
        self.owners = owners
        return {owner.owner: 7 for owner in owners}

    def write(self, batch: pa.RecordBatch, row_kinds: pa.Int8Array | None) -> None:
        self.written.append(batch)
        self.kinds.append(row_kinds)

    def prepare_commit(self, checkpoint_id: int) -> tuple[Committable, ...]:
        return (Committable(0, checkpoint_id, "inc", b"file", 1, 1),)

    def commit(self, checkpoint_id: int) -> None:
        self.committed.append(checkpoint_id)

    def checkpoint_wanted(self) -> bool:
        return self.wanted

    def gauges(self) -> Mapping[str, float]:
        return {}

    def close(self) -> None: ...


class HandConnector:
    """Answers for every connector name in a test."""

    def __init__(self) -> None:
        self.made = HandReader()
        self.sink_writer = HandWriter()

    def source(self, table: TableDefinition) -> HandConnector:
        return self

    def sink(self, table: TableDefinition) -> HandConnector:
        return self

    def reader(self, context: ReaderContext) -> HandReader:
        self.made.context = context
        return self.made

    def writer(self, context: SinkContext) -> HandWriter:
        self.sink_writer.context = context
        return self.sink_writer


def split(name: str, watermark_ms: int | None = None, done: bool = False) -> SplitState:
    return SplitState(Split(name, b""), watermark_ms=watermark_ms, done=done)
