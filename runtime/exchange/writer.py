"""One outgoing edge of one task: spreads rows over channels, coalesces small pieces, waits for credit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from runtime.elements import Batch, Control
from runtime.exchange.channel import OutputChannel
from runtime.exchange.partitioner import Partitioner, concat_batches, slice_batch

COALESCE_ROWS = 8000
COALESCE_BYTES = 400_000
"""A channel's rows are sent when there are this many, or so many bytes, or the buffer time-out has passed. Operators
have a fixed cost per batch: narrow rows are worth a copy for larger ones, wide ones are not."""
BATCH_BYTES_MAX = 2_000_000
"""A larger batch is cut, unless it is a single row."""

WaitUntil = Callable[[Callable[[], bool]], None]
"""Blocks the task until the condition holds; the time counts as backpressure. Raises on cancellation."""


class _Pending:
    """Rows collected for one channel, not sent yet."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.row_count = 0
        self.byte_size = 0
        self.since_ms = 0.0


class RecordWriter:
    """Used by the task's thread. `now_ms` is the monotonic clock."""

    def __init__(
        self,
        partition: Partitioner,
        channels: Sequence[OutputChannel],
        wait_for_credit: WaitUntil,
        now_ms: Callable[[], float],
        buffer_timeout_ms: int,
    ) -> None:
        self._partition = partition
        self._channels = channels
        self._wait_for_credit = wait_for_credit
        self._now_ms = now_ms
        self._buffer_timeout_ms = buffer_timeout_ms
        self._pending = [_Pending() for _ in channels]
        self.records_out = 0
        self.bytes_out = 0

    @property
    def is_open(self) -> bool:
        """Every consumer has announced its credit."""
        return all(channel.is_open for channel in self._channels)

    @property
    def flush_due_ms(self) -> float | None:
        """When the oldest collected rows must go (monotonic ms); None when there are none."""
        waiting = [p.since_ms for p in self._pending if p.row_count]
        return min(waiting) + self._buffer_timeout_ms if waiting else None

    def write(self, batch: Batch) -> None:
        """Rows of the edge; sent now or within the buffer time-out."""
        if batch.row_count == 0:
            return
        for index, part in self._partition(batch):
            pending = self._pending[index]
            if not pending.row_count:
                pending.since_ms = self._now_ms()
            pending.batches.append(part)
            pending.row_count += part.row_count
            pending.byte_size += part.byte_size
            is_full = pending.row_count >= COALESCE_ROWS or pending.byte_size >= COALESCE_BYTES
            if is_full or self._buffer_timeout_ms == 0:
                self._flush(index)

    def broadcast(self, element: Control) -> None:
        """A control element to every consumer, behind all rows written before."""
        self.flush()
        for channel in self._channels:
            channel.send_control(element)

    def flush(self) -> None:
        """Send whatever was collected."""
        for index, pending in enumerate(self._pending):
            if pending.row_count:
                self._flush(index)

    def flush_if_due(self, now_ms: float) -> None:
        """Send what has waited for the buffer time-out."""
        for index, pending in enumerate(self._pending):
            if pending.row_count and now_ms >= pending.since_ms + self._buffer_timeout_ms:
                self._flush(index)

    def _flush(self, index: int) -> None:
        pending, channel = self._pending[index], self._channels[index]
        batch = concat_batches(pending.batches)
        self._pending[index] = _Pending()
        for piece, byte_size in cut_by_bytes(batch):
            if not channel.admits(byte_size):
                self._wait_for_credit(lambda size=byte_size: channel.admits(size))  # type: ignore[misc]
            channel.send_batch(piece, byte_size)
            self.records_out += piece.row_count
            self.bytes_out += byte_size


def cut_by_bytes(batch: Batch, bytes_max: int = BATCH_BYTES_MAX) -> Iterator[tuple[Batch, int]]:
    """Pieces of at most `bytes_max` (or of one row) with their sizes, in order. A size is at least 1: every batch
    counts against the credit."""
    byte_size = batch.byte_size
    if byte_size <= bytes_max or batch.row_count <= 1:
        yield batch, max(1, byte_size)
        return
    rows = max(1, batch.row_count * bytes_max // byte_size)
    for start in range(0, batch.row_count, rows):
        piece = slice_batch(batch, start, rows)
        piece_bytes = piece.byte_size
        if piece_bytes <= bytes_max or piece.row_count <= 1:
            yield piece, max(1, piece_bytes)
        else:
            # Row sizes are uneven: halves end at single rows.
            half = piece.row_count // 2
            yield from cut_by_bytes(slice_batch(piece, 0, half), bytes_max)
            yield from cut_by_bytes(slice_batch(piece, half, piece.row_count - half), bytes_max)
