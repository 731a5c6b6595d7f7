"""Batches of records as columns, by assignment: what `connectors.kafka.source` needs of a consumer."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from connectors.kafka.native.library import (
    CONSUMER,
    ERROR,
    ERROR_TEXT_BYTES,
    EVENT_ERROR,
    EVENT_LOG,
    KEY,
    KEY_BYTES,
    MESSAGE_WORDS,
    OFFSET,
    PARTITION,
    PAYLOAD,
    PAYLOAD_BYTES,
    TOPIC,
    Library,
)
from connectors.kafka.native.memory import joined_lines, words

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_POINTER_BYTES = 8
_INVALID_OFFSET = -1001
_FIELDS = np.arange(MESSAGE_WORDS, dtype=np.int64) * 8


class Batch:
    """Messages of one call, alive until `close`. Row i of every column is message i; `errors` are codes, 0 for a
    record."""

    def __init__(self, library: Library, block: int, count: int) -> None:
        self._library = library
        self._block: int | None = block
        pointers = np.frombuffer((ctypes.c_int64 * count).from_address(block + _POINTER_BYTES), np.int64).copy()
        self._pointers = pointers
        self.count = count
        self.errors = self._field(ERROR).astype(np.int32)
        self.topics = self._field(TOPIC)
        self.partitions = self._field(PARTITION).astype(np.int32).astype(np.int64)
        self.offsets = self._field(OFFSET)
        self.value_addresses, self.value_bytes = self._field(PAYLOAD), self._field(PAYLOAD_BYTES)

    def _field(self, index: int) -> Int64Array:
        return words(self._pointers + index * 8)

    def keys(self) -> tuple[Int64Array, Int64Array]:
        """Addresses (0 = no key) and lengths."""
        return self._field(KEY), self._field(KEY_BYTES)

    def topic_name(self, index: int) -> str:
        name: bytes = self._library.topic_name(int(self.topics[index]))
        return name.decode()

    def timestamp_ms(self, index: int) -> int:
        kind = ctypes.c_int()
        return int(self._library.message_timestamp(int(self._pointers[index]), ctypes.addressof(kind)))

    def error_text(self, index: int) -> str:
        """The reason in an error's payload."""
        address, size = int(self.value_addresses[index]), int(self.value_bytes[index])
        return ctypes.string_at(address, size).decode(errors="replace") if address else ""

    def close(self) -> None:
        """Frees the messages: no address is good any more. Idempotent."""
        if self._block is not None:
            self._library.messages_destroy(self._block)
            self._block = None
