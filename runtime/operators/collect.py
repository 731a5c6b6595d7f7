"""The sink of a SELECT: a bounded buffer in the slot, read page by page over the slot's data port."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

import pyarrow as pa

from planner.ir.operators import Collect
from planner.ir.types import arrow_schema
from runtime.api import ResultPage
from runtime.checkpoint.snapshot import OperatorSnapshot
from runtime.elements import Batch
from runtime.exchange.partitioner import concat_batches, slice_batch
from runtime.operators.environment import TaskEnvironment
from runtime.operators.protocol import FinishSnapshot, OperatorContext
from runtime.operators.sink import select_columns

BUFFER_BYTES_MAX = 4_000_000
"""When the buffer is fuller the task takes no more input: that is backpressure. One batch is always taken."""
OVERDRAFT_BYTES = 16_000_000
"""The output of one element may fill it further; beyond this the task waits in the middle of it."""


class UnexpectedSequence(ValueError):
    """A page was asked for that is neither the next one nor the one given last."""


class ResultBuffer:
    """Rows between the task's thread (`put`, `end`) and the reader (`page`). `sequence` is the number of a page's
    first row; the last page is kept, so that a reader may ask again for what it lost."""

    def __init__(self, empty: Batch, on_taken: Callable[[], None]) -> None:
        self._empty = empty
        self._on_taken = on_taken
        self._lock = threading.Lock()
        self._batches: deque[Batch] = deque()
        self._bytes = 0
        self._next_sequence = 0
        self._last_page: ResultPage | None = None
        self._ended = False
        self._end_given = False
        self._closed = False
        self._listeners: list[Callable[[], None]] = []

    def has_room(self) -> bool:
        return not self._batches or self._bytes < BUFFER_BYTES_MAX

    def is_overdrawn(self) -> bool:
        return self._bytes >= OVERDRAFT_BYTES

    @property
    def closed(self) -> bool:
        """The task is gone: nothing more can be read."""
        return self._closed

    def drained(self) -> bool:
        """A reader has been told that no row will follow, so it has taken all before."""
        return self._end_given

    def put(self, batch: Batch) -> None:
        with self._lock:
            self._batches.append(batch)
            self._bytes += batch.byte_size
        self._wake()

    def end(self) -> None:
        """No row will follow."""
        with self._lock:
            self._ended = True
        self._wake()

    def close(self) -> None:
        """The task is over. A result that is complete stays readable as long as its process lives."""
        self._closed = not self._ended
        self._wake()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` once, at the next change."""
        with self._lock:
            self._listeners.append(listener)

    def _wake(self) -> None:
        with self._lock:
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()

    def page(self, sequence: int, rows_max: int) -> ResultPage | None:
        """The page that begins with row `sequence`; None when there is nothing to say yet. Raises
        UnexpectedSequence."""
        with self._lock:
            last = self._last_page
            if sequence != self._next_sequence:
                if last is not None and last.sequence == sequence:
                    return last
                raise UnexpectedSequence(f"rows from {sequence} on are gone; the next ones are {self._next_sequence}")
            if not self._batches and not self._ended:
                return None
            page = self._next_page(sequence, rows_max)
        self._on_taken()
        return page

    def nothing(self, sequence: int) -> ResultPage:
        """An empty page that asks for `sequence` again."""
        return ResultPage(sequence, sequence, self._empty.data, None, False)

    def _next_page(self, sequence: int, rows_max: int) -> ResultPage:
        taken: list[Batch] = []
        room = max(1, rows_max)
        while self._batches and room:
            batch = self._batches.popleft()
            self._bytes -= batch.byte_size
            if batch.row_count > room:
                rest = slice_batch(batch, room, batch.row_count - room)
                self._batches.appendleft(rest)
                self._bytes += rest.byte_size
                batch = slice_batch(batch, 0, room)
            taken.append(batch)
            room -= batch.row_count
        rows = concat_batches(taken) if taken else self._empty
        ended = self._ended and not self._batches
        page = ResultPage(sequence, sequence + rows.row_count, rows.data, rows.row_kinds, ended)
        if rows.row_count:
            self._last_page = page
        self._next_sequence = page.next_sequence
        self._end_given = self._end_given or ended
        return page


class CollectOperator:
    """The last operator of a query's chain. A query is not restarted: its rows are no part of a checkpoint."""

    def __init__(self, node: Collect, context: OperatorContext, environment: TaskEnvironment) -> None:
        self._node = node
        self._environment = environment
        schema = arrow_schema(node.input.types)
        self.buffer = ResultBuffer(Batch(pa.RecordBatch.from_pylist([], schema=schema)), environment.notify)

    @property
    def uid(self) -> str:
        return self._node.uid

    def open(self) -> None:
        pass

    def process(self, batch: Batch) -> Iterator[Batch]:
        if batch.row_count:
            if self.buffer.is_overdrawn():
                self._environment.wait_until(self.buffer.has_room)
            self.buffer.put(select_columns(batch, self._node.selection))
        return iter(())

    def advance(self, watermark_ms: int) -> Iterator[Batch]:
        return iter(())

    def end(self, drain: bool) -> Iterator[Batch]:
        self.buffer.end()
        return iter(())

    def snapshot(self, checkpoint_id: int) -> FinishSnapshot:
        return lambda: OperatorSnapshot(self.uid)

    def counters(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        self.buffer.close()
