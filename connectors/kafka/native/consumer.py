"""Batches of records as columns, by assignment: what `connectors.kafka.source` needs of a consumer."""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from connectors.kafka.native.library import (
    CONSUMER,
    ERROR,
    ERROR_CALLBACK,
    ERROR_TEXT_BYTES,
    EVENT_ERROR,
    EVENT_LOG,
    KEY,
    KEY_BYTES,
    OFFSET,
    PARTITION,
    PAYLOAD,
    PAYLOAD_BYTES,
    TOPIC,
    Library,
)
from connectors.kafka.native.memory import words

Int64Array = npt.NDArray[np.int64]

_POINTER_BYTES = 8
_INVALID_OFFSET = -1001
_FIELDS = 8 * np.arange(OFFSET + 1, dtype=np.int64)[:, None]
_COLLECT_BELOW = 2_048
_COLLECT_MS = 10
"""Fewer messages than that wait so long for others: what follows costs as much for one as for hundreds."""


class Batch:
    """Messages of one call, alive until `close`. Row i of every column is message i; `errors` are codes, 0 for a
    record."""

    def __init__(self, library: Library, block: int, count: int) -> None:
        self._library = library
        self._block: int | None = block
        held: Any = (ctypes.c_int64 * count).from_address(block + _POINTER_BYTES)
        pointers = np.frombuffer(held, np.int64).copy()
        self._pointers = pointers
        self.count = count
        fields = words(pointers + _FIELDS)
        self.errors = fields[ERROR].astype(np.int32)
        self.topics = fields[TOPIC]
        self.partitions = fields[PARTITION].astype(np.int32).astype(np.int64)
        self.offsets = fields[OFFSET]
        self.value_addresses, self.value_bytes = fields[PAYLOAD], fields[PAYLOAD_BYTES]
        self._key_addresses, self._key_bytes = fields[KEY], fields[KEY_BYTES]

    def keys(self) -> tuple[Int64Array, Int64Array]:
        """Addresses (0 = no key) and lengths."""
        return self._key_addresses, self._key_bytes

    def topic_name(self, index: int) -> str:
        name: bytes = self._library.topic_name(int(self.topics[index]))
        return name.decode()

    def timestamps_ms(self, chosen: Int64Array) -> Int64Array:
        kind = ctypes.c_int()
        stamps = map(self._library.message_timestamp, self._pointers[chosen].tolist(), repeat(ctypes.addressof(kind)))
        return np.fromiter(stamps, np.int64, len(chosen))

    def error_text(self, index: int) -> str:
        """The reason in an error's payload."""
        address, size = int(self.value_addresses[index]), int(self.value_bytes[index])
        return ctypes.string_at(address, size).decode(errors="replace") if address else ""

    def close(self) -> None:
        """Frees the messages: no address is good any more. Idempotent."""
        if self._block is not None:
            self._library.messages_destroy(self._block)
            self._block = None


class NativeConsumer:
    """A consumer for assignment by hand. One thread, except for `high_watermark`, which any thread may call.

    `on_error` gets the client's own errors (code, text, fatal) within `consume`."""

    def __init__(
        self, library: Library, settings: Mapping[str, Any], on_error: Callable[[KafkaError], None], log: logging.Logger
    ) -> None:
        self._library = library
        self._on_error = on_error
        self._log = log
        self._lock = threading.Lock()
        self._told: list[KafkaError] = []
        # What concerns a partition is told by a callback, within a call of ours; what concerns the client by an event.
        self._callback = ERROR_CALLBACK(lambda _client, code, text, _opaque: self._told.append(_error(code, text)))
        self._client: int | None = _new_client(library, {**settings, "log.queue": True}, self._callback)
        self._events = library.queue_get_main(self._client)
        library.set_log_queue(self._client, None)
        self._queue = library.queue_get_consumer(self._client)

    def consume(self, count_max: int, timeout_ms: int) -> Batch | None:
        """Messages that are there, up to `count_max`; waits up to the time-out when there is none, and a moment when
        there are few."""
        library = self._library
        block = library.malloc(_POINTER_BYTES * (count_max + 1))
        if not block:
            raise MemoryError
        first = block + _POINTER_BYTES
        count: int = library.consume_batch_queue(self._queue, 0, first, count_max)
        if count == 0 and timeout_ms > 0:
            # With a time-out the call would wait for all `count_max`.
            count = library.consume_batch_queue(self._queue, timeout_ms, first, 1)
        if 0 < count < min(count_max, _COLLECT_BELOW) and timeout_ms > 0:
            behind = first + _POINTER_BYTES * count
            count += max(0, library.consume_batch_queue(self._queue, _COLLECT_MS, behind, count_max - count))
        self._serve_events()
        if count <= 0:
            library.free(block)
            return None
        ctypes.c_size_t.from_address(block).value = count
        return Batch(library, block, count)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these too, each from its offset."""
        self._change(self._library.incremental_assign, partitions)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        self._change(self._library.incremental_unassign, partitions)

    def commit(self, offsets: Iterable[TopicPartition]) -> None:
        """Publish group offsets; nobody waits for the answer."""
        with self._listed(offsets) as listed:
            code = self._library.commit(self._client, listed, 1)
        if code:
            raise KafkaException(_error(code, self._library.err2str(code)))

    def high_watermark(self, topic: str, partition: int) -> int | None:
        """The end of the partition as last heard from the broker; None when that is not known (any more)."""
        low, high = ctypes.c_int64(_INVALID_OFFSET), ctypes.c_int64(_INVALID_OFFSET)
        with self._lock:
            if self._client is None:
                return None
            code = self._library.get_watermark_offsets(
                self._client, topic.encode(), partition, ctypes.addressof(low), ctypes.addressof(high)
            )
        return None if code or high.value == _INVALID_OFFSET else high.value

    def close(self) -> None:
        """Every batch must be closed before. Idempotent."""
        with self._lock:
            client, self._client = self._client, None
        if client is None:
            return
        library = self._library
        library.consumer_close(client)
        library.queue_destroy(self._queue)
        library.queue_destroy(self._events)
        library.destroy(client)

    def _change(self, function: Callable[..., Any], partitions: Iterable[TopicPartition]) -> None:
        with self._listed(partitions) as listed:
            problem = function(self._client, listed)
        if problem:
            error = _error(self._library.error_code(problem), self._library.error_string(problem))
            self._library.error_destroy(problem)
            raise KafkaException(error)

    @contextmanager
    def _listed(self, partitions: Iterable[TopicPartition]) -> Iterator[int]:
        library = self._library
        listed = library.partitions_new(1)
        try:
            for each in partitions:
                topic = each.topic.encode()
                library.partitions_add(listed, topic, each.partition)
                library.partitions_set_offset(listed, topic, each.partition, each.offset)
            yield listed
        finally:
            library.partitions_destroy(listed)

    def _serve_events(self) -> None:
        library = self._library
        while event := library.queue_poll(self._events, 0):
            try:
                kind = library.event_type(event)
                if kind == EVENT_ERROR:
                    text = (library.event_error_string(event) or b"").decode(errors="replace")
                    fatal = bool(library.event_error_is_fatal(event))
                    self._told.append(KafkaError(library.event_error(event), text, fatal))
                elif kind == EVENT_LOG:
                    self._write_log(event)
            finally:
                library.event_destroy(event)
        for error in self._told:
            self._on_error(error)
        self._told.clear()

    def _write_log(self, event: int) -> None:
        facility, text, level = ctypes.c_char_p(), ctypes.c_char_p(), ctypes.c_int()
        library = self._library
        library.event_log(event, ctypes.addressof(facility), ctypes.addressof(text), ctypes.addressof(level))
        shown = [(part.value or b"").decode(errors="replace") for part in (facility, text)]
        self._log.log(_LOG_LEVELS[min(level.value, 7)], "%s %s", *shown)


# From syslog's levels.
_LOG_LEVELS = (50, 50, 50, logging.ERROR, logging.WARNING, logging.INFO, logging.INFO, logging.DEBUG)


def _error(code: int, text: bytes | None) -> KafkaError:
    return KafkaError(code, (text or b"").decode(errors="replace"))


def _new_client(library: Library, settings: Mapping[str, Any], callback: object) -> int:
    """Raises KafkaException for settings that the library does not accept."""
    text = ctypes.create_string_buffer(ERROR_TEXT_BYTES)
    configuration = library.conf_new()
    for name, value in settings.items():
        written = str(value).lower() if isinstance(value, bool) else str(value)
        if library.conf_set(configuration, name.encode(), written.encode(), ctypes.addressof(text), ERROR_TEXT_BYTES):
            library.conf_destroy(configuration)
            raise KafkaException(_error(KafkaError._INVALID_ARG, text.value))
    library.conf_set_error_cb(configuration, callback)
    library.conf_set_events(configuration, EVENT_ERROR | EVENT_LOG)
    client = library.new(CONSUMER, configuration, ctypes.addressof(text), ERROR_TEXT_BYTES)
    if not client:
        library.conf_destroy(configuration)
        raise KafkaException(_error(KafkaError._INVALID_ARG, text.value))
    return int(client)
