"""What a runtime operator is. One operator is one link of a chain, used by its task's thread alone.

The chain drives operators: batches in arrival order, then watermarks, barriers and the end of input between them.
Operators yield their output piece by piece (<= OUTPUT_ROWS_MAX rows), so the task can serve cancellation and
backpressure between pieces; the chain passes each piece on before it asks for the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

import msgspec

from connectors.api import CheckpointFiles, SplitState
from runtime.checkpoint.notices import CheckpointNotices
from runtime.checkpoint.snapshot import OperatorRestore, OperatorSnapshot
from runtime.elements import Batch, Watermark, WatermarkStatus
from runtime.ids import AttemptId

OUTPUT_ROWS_MAX = 32_768

FinishSnapshot = Callable[[], OperatorSnapshot]
"""The asynchronous half of a snapshot: encodes and writes what the synchronous half captured (immutable data), in a
helper thread. Raises OSError or ConnectorError; the checkpoint is then declined."""


class KeyGroupRange(msgspec.Struct, frozen=True):
    """Key groups `first`..`last`, inclusive; empty when first > last."""

    first: int
    last: int


class OperatorContext(msgspec.Struct, frozen=True):
    """What an operator knows of its task. `files` are those of the job's checkpoints: handles hold paths in them.
    `managed_bytes` is the operator's share of the slot's
    managed memory (0 = unlimited). `wall_clock_ms` is the injected wall clock. `notices` is shared by all operators
    of a task."""

    attempt: AttemptId
    parallelism: int
    max_parallelism: int
    key_groups: KeyGroupRange
    settings: dict[str, str]
    files: CheckpointFiles
    restore: OperatorRestore | None
    managed_bytes: int
    wall_clock_ms: Callable[[], int]
    notices: CheckpointNotices = msgspec.field(default_factory=CheckpointNotices)

    @property
    def subtask_index(self) -> int:
        return self.attempt.subtask_index


class Operator(Protocol):
    """A non-source, non-sink operator."""

    @property
    def uid(self) -> str: ...

    def open(self) -> None:
        """Compile, restore from `context.restore`. Raises a failure that ends the task."""

    def process(self, batch: Batch) -> Iterator[Batch]:
        """Rows in arrival order."""

    def advance(self, watermark_ms: int) -> Iterator[Batch]:
        """Event time has reached `watermark_ms` (monotone); what is due fires. The chain forwards the watermark
        afterwards."""

    def end(self, drain: bool) -> Iterator[Batch]:
        """No input will follow. With `drain` the watermark MAX has been seen before."""

    def snapshot(self, checkpoint_id: int) -> FinishSnapshot:
        """The synchronous half: capture state as of now without copying more than needed, in milliseconds."""

    def counters(self) -> dict[str, float]:
        """Counters and gauges by Flink's metric names, e.g. `numLateRecordsDropped`."""

    def close(self) -> None: ...


@runtime_checkable
class TwoInputOperator(Protocol):
    """What an operator with a left and a right input has besides `Operator`; it is the first of its chain, and its
    `process` is not called. Watermarks and statuses of both inputs are one: the minimum over all channels."""

    def process_input(self, input_index: int, batch: Batch) -> Iterator[Batch]:
        """Rows of input 0 (left) or 1 (right), in arrival order."""


@runtime_checkable
class DelayingOperator(Protocol):
    """What an operator has besides `Operator` if its output is behind its input in event time."""

    @property
    def watermark_delay_ms(self) -> int:
        """The watermark that goes on is the one that came, minus this (MAX stays MAX)."""


@runtime_checkable
class TimedOperator(Protocol):
    """What an operator with processing-time timers has besides `Operator`. The task asks before each wait and calls
    when the wall clock has reached the timer; a timer that was due while the job was down fires after the restore."""

    def timer_ms(self) -> int | None:
        """Wall-clock ms (as `context.wall_clock_ms`) of the earliest timer; None when there is none."""

    def on_timer(self, now_ms: int) -> Iterator[Batch]:
        """Every timer up to `now_ms` fires."""


@runtime_checkable
class FiringOperator(Protocol):
    """What an operator has besides `Operator` if between two pieces of `advance` and `on_timer` its state holds exactly
    what has not been put out: the task may be held up there, and a snapshot taken."""

    @property
    def keeps_unsent(self) -> bool:
        """True."""


@runtime_checkable
class HoldingOperator(Protocol):
    """What an operator that holds rows back has besides `Operator` (a mini-batch)."""

    def flush(self) -> Iterator[Batch]:
        """Put out what is held back. The chain calls it before a barrier's snapshot, a watermark and the end of input,
        from the first operator to the last, passing the pieces on."""


class SourceOperator(Protocol):
    """The first operator of a chain without inputs."""

    @property
    def uid(self) -> str: ...

    @property
    def ended(self) -> bool:
        """No element will ever follow."""

    @property
    def readable(self) -> bool:
        """Whether `poll` can give anything: False until there is a split."""

    def open(self) -> None: ...

    def add_splits(self, splits: tuple[SplitState, ...], all_assigned: bool) -> None:
        """Splits to read from now on; known ones are ignored. `all_assigned`: none will ever follow."""

    def stop(self) -> None:
        """End as if the input had; positions stay where they are."""

    def poll(self, timeout_ms: int) -> Iterator[Batch | Watermark | WatermarkStatus]:
        """What is there now; waits up to `timeout_ms` if nothing is."""

    def snapshot(self, checkpoint_id: int) -> FinishSnapshot:
        """Positions after the last element given out. Called between two polls only."""

    def checkpoint_committed(self, checkpoint_id: int) -> None: ...

    def counters(self) -> dict[str, float]: ...

    def close(self) -> None: ...
