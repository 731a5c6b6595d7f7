"""Latency under a steady load: from handing a row to Kafka until a read-committed reader has what came of it.

Rows carry the time of their making as `price`; the query keeps the highest price per key, so every row that comes out
names the newest row it holds.
"""

from __future__ import annotations

import threading
import time

import msgspec
import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.topics import PARTITIONS

TICK_S = 0.05


class _Row(msgspec.Struct):
    highest: int


class Load:
    """Writes rows at a steady rate from a thread of its own until stopped."""

    def __init__(self, bootstrap_servers: str, topic: str, rows_per_s: float, keys: int) -> None:
        self._topic = topic
        self._rows_per_tick = max(1, int(rows_per_s * TICK_S))
        self._random = np.random.default_rng(11)
        self._keys = keys
        client = {"bootstrap.servers": bootstrap_servers, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
        self._producer = Producer(client)
        self._stop = threading.Event()
        self.rows = 0
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due_s, partition = time.monotonic(), 0
        while not self._stop.wait(max(0.0, due_s - time.monotonic())):
            due_s += TICK_S
            partition = (partition + 1) % PARTITIONS
            now_ms = time.time_ns() // 1_000_000
            keys = self._random.integers(0, self._keys, self._rows_per_tick).tolist()
            messages = [{"value": b'{"auction":%d,"price":%d}' % (key, now_ms)} for key in keys]
            self.rows += self._producer.produce_batch(self._topic, messages, partition)
            self._producer.poll(0)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(60)


def latencies_ms(bootstrap_servers: str, topic: str, warm_s: float, seconds: float) -> npt.NDArray[np.int64]:
    """Ages of the rows in a topic at the moment a read-committed reader gets them, for a while after a while."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap_servers, "group.id": "latency", "enable.auto.commit": False,
        "isolation.level": "read_committed", "fetch.wait.max.ms": 50, "fetch.queue.backoff.ms": 5,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    decoder = msgspec.json.Decoder(_Row)
    found: list[npt.NDArray[np.int64]] = []
    from_s = time.monotonic() + warm_s
    while time.monotonic() < from_s + seconds:
        messages = consumer.consume(1_000, 0.02)
        now_ms = time.time_ns() // 1_000_000
        made = [decoder.decode(value).highest for m in messages if m.error() is None and (value := m.value())]
        if time.monotonic() >= from_s:
            found.append(now_ms - np.array(made, np.int64))
    consumer.close()
    return np.concatenate(found)
