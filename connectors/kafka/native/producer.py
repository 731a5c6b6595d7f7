"""Record batches to librdkafka: one call per partition and piece, payloads straight from Arrow's buffers."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import confluent_kafka
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import KafkaError, Producer

from connectors.arrow import text_buffers
from connectors.kafka.native.library import (
    COPY_PAYLOAD,
    ERROR,
    KEY,
    KEY_BYTES,
    MESSAGE_WORDS,
    PAYLOAD,
    PAYLOAD_BYTES,
    Library,
    load,
)

if TYPE_CHECKING:
    Array = pa.Array[Any]

Messages = npt.NDArray[np.int64]
"""A row of words per message: the client's structure."""
Order = npt.NDArray[np.integer[Any]]

TESTED_BINDINGS = frozenset({"2.16.0", "2.16.1"})
"""Of confluent-kafka: in these the pointer to librdkafka's client is the first field of a Producer object."""
_HANDLE_OFFSET = object.__basicsize__

RECORDS_PER_CALL_MAX = 8_192
_QUEUE_FULL = KafkaError._QUEUE_FULL


def batch_sender(producer: Producer, topic: str) -> BatchSender | None:
    """A sender to `topic` through the producer's own client, or None where that is not possible."""
    library = load()
    if library is None or str(confluent_kafka.__version__) not in TESTED_BINDINGS or type(producer) is not Producer:
        return None
    client = ctypes.c_void_p.from_address(id(producer) + _HANDLE_OFFSET).value
    if client is None or b"#producer-" not in library.name(client):
        return None
    return BatchSender(library, producer, client, topic)


class BatchSender:
    """Sends to one topic through a Producer's own client; transactions and polls stay the Producer's. One thread at a
    time. Records carry no callback: their failures show at the commit of the transaction."""

    def __init__(self, library: Library, producer: Producer, client: int, topic: str) -> None:
        self._library = library
        self._producer = producer  # Keeps the client alive.
        self._topic = library.topic_new(client, topic.encode(), None)

    def close(self) -> None:
        """Before the Producer ends. Idempotent."""
        if self._topic is not None:
            self._library.topic_destroy(self._topic)
            self._topic = None

    def send(self, messages: Messages, partition: int) -> tuple[int, int]:
        """Hand a stretch of `messages_of` to the client, which copies the texts. Returns how many it took and, when
        those are not all, the error code of the first one refused; with a full queue it refuses that one and all behind
        it."""
        assert self._topic is not None
        messages[:, ERROR] = 0
        taken: int = self._library.produce_batch(
            self._topic, partition, COPY_PAYLOAD, messages.ctypes.data, len(messages)
        )
        if taken == len(messages):
            return taken, 0
        codes = messages[:, ERROR].astype(np.int32)
        refused = np.flatnonzero(codes)
        code = int(codes[refused[0]])
        others = codes[refused[codes[refused] != _QUEUE_FULL]]
        if len(others):
            return int(refused[0]), int(others[0])
        return int(refused[0]), code


def messages_of(values: Array, keys: Array | None, order: Order | None) -> Messages:
    """Records (binary arrays, NULL = no value, no key) as the client wants them, in another order if one is given. They
    point to the texts of the arrays, which must outlive them."""
    messages: Messages = np.zeros((len(values), MESSAGE_WORDS), np.int64)
    _point_to(messages, PAYLOAD, PAYLOAD_BYTES, values)
    if keys is not None:
        _point_to(messages, KEY, KEY_BYTES, keys)
    return messages if order is None else messages.take(order, axis=0)


def _point_to(messages: npt.NDArray[np.int64], pointer: int, length: int, texts: Array) -> None:
    """Address and length of each text. An empty text has an address, a NULL has none."""
    offsets, data = text_buffers(texts)
    base = data.ctypes.data if len(data) else offsets.ctypes.data
    messages[:, pointer] = offsets[:-1]
    messages[:, pointer] += base
    messages[:, length] = np.diff(offsets)
    if texts.null_count:
        absent = texts.is_null().to_numpy(zero_copy_only=False)
        messages[absent, pointer] = 0
        messages[absent, length] = 0
