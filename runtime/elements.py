"""What flows on a channel: batches and, between them, watermarks, statuses, barriers and the end of input."""

from __future__ import annotations

import msgspec
import pyarrow as pa

MAX_WATERMARK_MS = 2**63 - 1
"""Sent by the last active input when it ends: every window fires."""
MIN_WATERMARK_MS = -(2**63)
"""A watermark that has not been set."""


class Batch(msgspec.Struct, frozen=True):
    """Rows. `row_kinds` is an int8 array (0 +I, 1 -U, 2 +U, 3 -D) on changelog edges, None where all are inserts."""

    data: pa.RecordBatch
    row_kinds: pa.Int8Array | None = None

    @property
    def row_count(self) -> int:
        return self.data.num_rows

    @property
    def byte_size(self) -> int:
        """Bytes this batch's rows take (slices count only their part)."""
        return int(self.data.nbytes) if self.data.num_rows else 0


class Watermark(msgspec.Struct, frozen=True, tag="watermark"):
    """No row with event time <= `timestamp_ms` (epoch ms) is expected behind it."""

    timestamp_ms: int


class WatermarkStatus(msgspec.Struct, frozen=True, tag="status"):
    """An idle producer leaves the consumer's minimum until it is active again."""

    idle: bool


class Barrier(msgspec.Struct, frozen=True, tag="barrier"):
    """Separates the rows that belong to checkpoint `checkpoint_id` from those that do not. `stop`: the checkpoint is to
    be the job's last: until it is committed (then the sources end) or given up, no row follows and no timer fires.
    `aligned_timeout_ms`: how long from now on it stays in its place; then it overtakes the elements before it, which
    become part of the checkpoint (0 = it has overtaken all it met; None = it never does). Whoever passes it on takes
    off the time that it has spent there, so clocks of processes need not agree. `full`: every state is written whole;
    `committed_id`: the latest durable checkpoint when it was made, 0 = none."""

    checkpoint_id: int
    generation: int
    stop: bool = False
    aligned_timeout_ms: float | None = None
    full: bool = False
    committed_id: int = 0


class EndOfInput(msgspec.Struct, frozen=True, tag="end"):
    """The producer has ended. `drain`: event time is complete, what is due fires; otherwise nothing fires (stop)."""

    drain: bool


Control = Watermark | WatermarkStatus | Barrier | EndOfInput
Element = Batch | Control
