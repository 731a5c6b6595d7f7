"""One outgoing edge of one task: spreads rows over channels, coalesces small pieces, waits for credit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import msgspec

from runtime.elements import Barrier, Batch, Control, Element, EndOfInput
from runtime.exchange.channel import OutputChannel
from runtime.exchange.partitioner import Partitioner, concat_batches, slice_batch

COALESCE_ROWS = 8000
COALESCE_BYTES = 400_000
"""A channel's rows are sent when there are this many, or so many bytes, or the buffer time-out has passed. Operators
have a fixed cost per batch: narrow rows are worth a copy for larger ones, wide ones are not."""
BATCH_BYTES_MAX = 2_000_000
"""A larger batch is cut, unless it is a single row."""

OVERDRAFT_BYTES = 16_000_000
"""So much of an edge's output may wait for credit in the task."""

WaitUntil = Callable[[Callable[[], bool]], None]
"""Blocks the task until the condition holds; the time counts as backpressure. Raises on cancellation."""


class _Pending:
    """Rows collected for one channel, not sent yet."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.row_count = 0
        self.byte_size = 0
        self.since_ms = 0.0


class _Queue:
    """What waits for one channel's credit, in order: batches with their sizes, and control elements behind them."""

    def __init__(self) -> None:
        self.elements: deque[tuple[Element, int]] = deque()

    def before(self, checkpoint_id: int) -> list[Element] | None:
        """The elements before a checkpoint's barrier, which is taken out; None when it is not there."""
        for position, (element, _) in enumerate(self.elements):
            if isinstance(element, Barrier) and element.checkpoint_id == checkpoint_id:
                del self.elements[position]
                return self.rows_and_times(position)
        return None

    def rows_and_times(self, count: int | None = None) -> list[Element]:
        """What of the first elements is in flight at a barrier that overtakes them: other barriers are not, nor is the
        end, which an ended producer says again after a restore."""
        elements = list(islice(self.elements, count))
        return [element for element, _ in elements if not isinstance(element, Barrier | EndOfInput)]


class RecordWriter:
    """Used by the task's thread. `now_ms` is the monotonic clock.

    What a channel has no credit for is queued. The task looks at `has_room` before it takes more to do: so an element
    that has been begun is finished without waiting, and the task can serve barriers. Only when one element's output
    passes OVERDRAFT_BYTES does the writer itself wait for credit."""

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
        self._queues = [_Queue() for _ in channels]
        self._queued_bytes = 0
        self.has_room = True
        """Nothing waits for credit."""
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
        """Rows of the edge; sent (or queued) now or within the buffer time-out."""
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
        for channel, queue in zip(self._channels, self._queues, strict=True):
            if queue.elements:
                queue.elements.append((self._dated(element), 0))
            else:
                channel.send_control(element)

    def flush(self) -> None:
        """Send (or queue) whatever was collected."""
        for index, pending in enumerate(self._pending):
            if pending.row_count:
                self._flush(index)

    def flush_if_due(self, now_ms: float) -> None:
        """Send (or queue) what has waited for the buffer time-out."""
        for index, pending in enumerate(self._pending):
            if pending.row_count and now_ms >= pending.since_ms + self._buffer_timeout_ms:
                self._flush(index)

    def _flush(self, index: int) -> None:
        pending, channel = self._pending[index], self._channels[index]
        batch = concat_batches(pending.batches)
        self._pending[index] = _Pending()
        queue = self._queues[index].elements
        for piece, byte_size in cut_by_bytes(batch):
            if queue or not channel.admits(byte_size):
                self._queue(index, piece, byte_size)
            else:
                self._send(channel, piece, byte_size)

    def _send(self, channel: OutputChannel, piece: Batch, byte_size: int) -> None:
        channel.send_batch(piece, byte_size)
        self.records_out += piece.row_count
        self.bytes_out += byte_size

    # ------------------------------------------------------------------------------------------------ without credit

    def _queue(self, index: int, piece: Batch, byte_size: int) -> None:
        self._queues[index].elements.append((piece, byte_size))
        self._queued_bytes += byte_size
        self.has_room = False
        while self._queued_bytes > OVERDRAFT_BYTES:
            self._wait_for_credit(self.can_drain)
            self.drain()

    def can_drain(self) -> bool:
        """Whether `drain` would send something. Called with the producer's inbox locked."""
        waiting = ((c, q.elements[0][1]) for c, q in zip(self._channels, self._queues, strict=True) if q.elements)
        return any(channel.admits(byte_size) for channel, byte_size in waiting)

    def drain(self) -> None:
        """Send what there is credit for now."""
        for channel, queue in zip(self._channels, self._queues, strict=True):
            elements = queue.elements
            while elements:
                element, byte_size = elements[0]
                if isinstance(element, Batch):
                    if not channel.admits(byte_size):
                        break
                    self._send(channel, element, byte_size)
                    self._queued_bytes -= byte_size
                else:
                    channel.send_control(self._left(element))
                elements.popleft()
        self.has_room = not any(queue.elements for queue in self._queues)

    def _dated(self, element: Control) -> Control:
        """A barrier in a queue holds the moment at which its time-out is over, not what is left of it."""
        if isinstance(element, Barrier) and element.aligned_timeout_ms is not None:
            return msgspec.structs.replace(element, aligned_timeout_ms=self._now_ms() + element.aligned_timeout_ms)
        return element

    def _left(self, element: Control) -> Control:
        if isinstance(element, Barrier) and element.aligned_timeout_ms is not None:
            left_ms = max(0.0, element.aligned_timeout_ms - self._now_ms())
            return msgspec.structs.replace(element, aligned_timeout_ms=left_ms)
        return element

    # ------------------------------------------------------------------------------------------ unaligned barriers

    def overtake(self, barrier: Barrier) -> list[list[Element]]:
        """Send a barrier before everything that waits: what it has overtaken, by channel. That stays where it is."""
        overtaken = [queue.rows_and_times() for queue in self._queues]
        for elements, pending in zip(overtaken, self._pending, strict=True):
            elements += pending.batches
        for channel in self._channels:
            channel.send_control(barrier)
        return overtaken

    def holds_barrier(self, checkpoint_id: int) -> bool:
        """Whether an aligned barrier of this checkpoint waits behind rows on some channel."""
        return any(
            isinstance(element, Barrier) and element.checkpoint_id == checkpoint_id
            for queue in self._queues
            for element, _ in queue.elements
        )

    def release(self, barrier: Barrier) -> list[list[Element]]:
        """An aligned barrier that still waits becomes this unaligned one: what it has overtaken, by channel."""
        overtaken: list[list[Element]] = []
        for channel, queue in zip(self._channels, self._queues, strict=True):
            before = queue.before(barrier.checkpoint_id)
            overtaken.append(before or [])
            if before is not None:
                channel.send_control(barrier)
        return overtaken

    def withdraw(self, checkpoint_id: int) -> None:
        """The checkpoint is given up: its barrier leaves the queues."""
        for queue in self._queues:
            queue.before(checkpoint_id)


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
