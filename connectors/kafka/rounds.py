"""Hands records to an idempotent producer so that its threads sleep while the broker works.

Such a producer has one request at a time under way per partition, although more are allowed: librdkafka counts the
messages of the request where it means requests. While a partition has another full batch waiting, the client's broker
thread looks for the answer without a pause: a whole core for as long as the broker takes. So a partition gets no more
than one batch at a time; when it is full all of them are waited for, and the next *round* begins.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from confluent_kafka import Producer

from connectors.api import Int64Array
from connectors.arrow import Array, text_buffers

_LINGER_MS_MAX = 1000

_BATCH_BYTES_DEFAULT = 1_000_000
_BATCH_RECORDS_DEFAULT = 100_000
_FULL_SHARE = 0.9
_RECORD_BYTES = 24
"""What a record takes in a request beside key and value, at most, without headers."""
_WAIT_S = 0.004
_WAIT_S_MAX = 0.1
_STALLED_S = 1.0


def linger_ms(timeout_ms: int) -> int:
    """A batch goes when it is full or waited for, not while it is being filled: what came behind it would have to
    wait. A message lives no longer than its transaction or delivery, and the client lets none linger for its whole
    life."""
    return min(_LINGER_MS_MAX, timeout_ms // 2)


class Rounds:
    """One producer's. `client`: its settings where they differ from the defaults."""

    def __init__(self, producer: Producer, client: Mapping[str, str]) -> None:
        self._producer = producer
        sizes = (int(client.get(name, _BATCH_BYTES_DEFAULT)) for name in ("batch.size", "message.max.bytes"))
        self.batch_bytes = int(_FULL_SHARE * min(sizes))
        """A partition's share of a round."""
        self._records_max = int(client.get("batch.num.messages", _BATCH_RECORDS_DEFAULT))
        self._bytes: dict[int, int] = {}
        self._records: dict[int, int] = {}

    def take(self, partition: int, ends: Int64Array, first: int, end: int) -> int:
        """How many of the records from `first` to `end` may be handed over now, at least one; waits if there is no
        room. `ends`: running size of the records, one entry more in front."""
        room = self.batch_bytes - self._bytes.get(partition, 0)
        count = int(np.searchsorted(ends[first + 1 : end + 1], ends[first] + room, side="right"))
        count = min(count, self._records_max - self._records.get(partition, 0))
        if count < 1:
            if partition in self._bytes:
                self.finish()
                return self.take(partition, ends, first, end)
            count = 1  # It is larger than a batch should be.
        self._bytes[partition] = self._bytes.get(partition, 0) + int(ends[first + count] - ends[first])
        self._records[partition] = self._records.get(partition, 0) + count
        return count

    def finish(self) -> None:
        """Wait until the broker has all records, as long as it takes some. A client whose transaction has failed sends
        nothing more and keeps what it has; its commit will say so."""
        wait_s, waited_s, fewest = _WAIT_S, 0.0, sys.maxsize
        while waited_s < _STALLED_S and (left := self._producer.flush(wait_s)):
            waited_s = 0.0 if left < fewest else waited_s + wait_s
            fewest, wait_s = min(fewest, left), min(1.5 * wait_s, _WAIT_S_MAX)
        self.begin()

    def begin(self) -> None:
        """Nothing is under way."""
        self._bytes.clear()
        self._records.clear()


def running_sizes(values: Array, keys: Array, order: npt.NDArray[np.integer[Any]] | None = None) -> Int64Array:
    """What the first n records take in requests, from n = 0 on; records in another order if one is given."""
    sizes = np.full(len(values), _RECORD_BYTES, np.int64)
    for texts in (values, keys):
        if texts.null_count < len(texts):
            offsets, _ = text_buffers(texts)
            sizes += offsets[1:]
            sizes -= offsets[:-1]
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes if order is None else sizes[order], out=ends[1:])
    return ends
