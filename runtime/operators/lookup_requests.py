"""Requests to an outside table, in threads of their own: the task hears of its end while it waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from queue import SimpleQueue
from typing import TypeVar

import numpy as np
import pyarrow as pa

from connectors.api import Found, LookupReader
from connectors.errors import ConnectorError, ErrorDomain

KEYS_MAX = 2048
"""Of one request."""
WAIT_S = 0.05
BACKOFF_S = 0.2
BACKOFF_MAX_S = 5.0

T = TypeVar("T")


class LookupRequests:
    """`thread_count` requests at once, each with a reader of its own. A request that fails and may succeed later is
    repeated `retries_max` times. `timeout_ms` is for all requests of one call, 0 = none; `check` raises when the task
    is to end."""

    def __init__(
        self,
        make_reader: Callable[[], LookupReader],
        thread_count: int,
        retries_max: int,
        timeout_ms: int,
        check: Callable[[], None],
    ) -> None:
        self._readers = [make_reader() for _ in range(thread_count)]
        self._free: SimpleQueue[LookupReader] = SimpleQueue()
        for reader in self._readers:
            self._free.put(reader)
        self._pool = ThreadPoolExecutor(thread_count, thread_name_prefix="lookup")
        self._retries_max = retries_max
        self._timeout_ms = timeout_ms
        self._check = check
        self._closed = threading.Event()
        self.request_count = 0
        self.failure_count = 0
        self.latest_ms = 0.0
        """What the last one took that was answered."""

    def lookup(self, keys: pa.RecordBatch) -> Found:
        """The rows of all keys. Raises ConnectorError."""
        count = keys.num_rows
        size = max(1, min(KEYS_MAX, -(-count // len(self._readers))))
        pieces = [keys.slice(first, size) for first in range(0, count, size)]
        answers: list[Found] = []
        for first in range(0, len(pieces), len(self._readers)):
            some = pieces[first : first + len(self._readers)]
            answers += self._all([self.begin(_asking(piece)) for piece in some])
        if len(answers) == 1:
            return answers[0]
        numbers = np.concatenate([answer.keys + i * size for i, answer in enumerate(answers)])
        return Found(numbers, together([answer.rows for answer in answers]))

    def begin(self, ask: Callable[[LookupReader], T]) -> Future[T]:
        """A request that is not waited for."""
        self.request_count += 1
        return self._pool.submit(self._tried, ask)

    def result(self, request: Future[T]) -> T:
        """Waits for it. Raises ConnectorError."""
        return self._all([request])[0]

    def pause(self, delay_ms: int) -> None:
        """Waits, for as long as the task goes on."""
        end = time.monotonic() + delay_ms / 1000
        while (rest := end - time.monotonic()) > 0:
            self._check()
            time.sleep(min(rest, WAIT_S))

    def _tried(self, ask: Callable[[LookupReader], T]) -> T:
        reader = self._free.get()
        try:
            failures = 0
            while True:
                began_s = time.monotonic()
                try:
                    answer = ask(reader)
                    self.latest_ms = (time.monotonic() - began_s) * 1000.0
                    return answer
                except ConnectorError as error:
                    self.failure_count += 1
                    if not error.retry or failures >= self._retries_max:
                        raise
                if self._closed.wait(min(BACKOFF_MAX_S, BACKOFF_S * 2**failures)):
                    raise ConnectorError("the look-up was given up", domain=ErrorDomain.INTERNAL, retry=True)
                failures += 1
        finally:
            self._free.put(reader)

    def _all(self, futures: Sequence[Future[T]]) -> list[T]:
        end = time.monotonic() + self._timeout_ms / 1000
        while True:
            self._check()
            rest = end - time.monotonic() if self._timeout_ms else WAIT_S
            if not wait(futures, max(0.0, min(WAIT_S, rest))).not_done:
                return [future.result() for future in futures]
            if self._timeout_ms and rest <= 0:
                raise ConnectorError(
                    f"a look-up has not been answered within {self._timeout_ms} ms",
                    domain=ErrorDomain.EXTERNAL,
                    retry=True,
                    hint="Set 'timeout' in the LOOKUP hint, or look at what the table's store is doing.",
                )

    def close(self) -> None:
        """Ends what is running."""
        self._closed.set()
        for reader in self._readers:
            reader.close()
        self._pool.shutdown(wait=False, cancel_futures=True)


def _asking(keys: pa.RecordBatch) -> Callable[[LookupReader], Found]:
    return lambda reader: reader.lookup(keys)


def together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of all rows; they have equal columns, maybe none."""
    if not batches[0].num_columns:
        return rows_only(sum(batch.num_rows for batch in batches))
    table = pa.Table.from_batches(batches).combine_chunks()
    if table.num_rows:
        return table.to_batches()[0]
    return batches[0]


def rows_only(count: int) -> pa.RecordBatch:
    """Rows without columns."""
    return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))  # type: ignore[arg-type]
