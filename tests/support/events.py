"""The events of the exactly-once tests: JSON of about 200 bytes, four partitions, out of order, deterministic."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

import msgspec
from confluent_kafka import Producer

from tests.support.topics import Record

PARTITIONS = 4
WATERMARK_DELAY_MS = 5_000
WINDOW_MS = 10_000
EVENT_TIME_SPAN_MS = 900_000
KEYS = 200
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Event(msgspec.Struct):
    """`ts` is written as SQL text; `partition` is where it is sent."""

    id: int
    k: str
    v: int
    ts_ms: int

    @property
    def partition(self) -> int:
        return self.id % PARTITIONS

    def encode(self) -> bytes:
        text = (EPOCH + timedelta(milliseconds=self.ts_ms)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        pad = "x" * (110 - len(self.k))
        return f'{{"id":{self.id},"k":"{self.k}","v":{self.v},"ts":"{text}","pad":"{pad}"}}'.encode()


def events(
    count: int, seed: int, late_share: float = 0.0, span_ms: int = EVENT_TIME_SPAN_MS, keys: int = KEYS
) -> Iterator[Event]:
    """`count` events whose time advances evenly over `span_ms`; each is up to WATERMARK_DELAY_MS - 1 behind its
    partition's newest, except a `late_share` that is 20–60 s behind."""
    rng = random.Random(seed)
    for i in range(count):
        base = 60_000 + i * span_ms // count
        behind = rng.randrange(WATERMARK_DELAY_MS)
        if late_share and rng.random() < late_share:
            behind = rng.randrange(20_000, 60_000)
        yield Event(i, f"key-{rng.randrange(keys)}", rng.randrange(-1000, 1000), base - behind)


def window_totals(found: Iterator[Event]) -> dict[tuple[str, int], tuple[int, int]]:
    """(key, window start ms) → (COUNT(*), SUM(v)) over 10-second windows."""
    counts: Counter[tuple[str, int]] = Counter()
    sums: Counter[tuple[str, int]] = Counter()
    for event in found:
        window = (event.k, event.ts_ms // WINDOW_MS * WINDOW_MS)
        counts[window] += 1
        sums[window] += event.v
    return {window: (count, sums[window]) for window, count in counts.items()}


def time_text(ms: int) -> str:
    """As Flink's JSON format writes a TIMESTAMP(3) of whole seconds."""
    return (EPOCH + timedelta(milliseconds=ms)).strftime("%Y-%m-%d %H:%M:%S")


class PacedRecords(threading.Thread):
    """Sends records to their topics evenly over `duration_s`, or until it is told to stop. `join()` raises what went
    wrong."""

    def __init__(
        self, bootstrap_servers: str, records: Iterable[tuple[str, Record]], count: int, duration_s: float
    ) -> None:
        super().__init__(name="paced-producer", daemon=True)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "linger.ms": 5, "enable.idempotence": True, "log_level": 0}
        )
        self._records, self._count, self._duration_s = records, count, duration_s
        self._stopped = threading.Event()
        self._failure: BaseException | None = None

    def stop(self) -> None:
        """Send no more, and end as `join()` does."""
        self._stopped.set()
        self.join()

    def run(self) -> None:
        try:
            self._send()
        except BaseException as error:
            self._failure = error

    def _send(self) -> None:
        start = time.monotonic()
        for number, (topic, record) in enumerate(self._records):
            if number % 500 == 0:
                due = start + self._duration_s * number / self._count
                self._producer.poll(max(0.0, due - time.monotonic()))
                while time.monotonic() < due and not self._stopped.is_set():
                    self._producer.poll(max(0.0, due - time.monotonic()))  # negative would wait for ever
                if self._stopped.is_set():
                    break
            while True:
                try:
                    self._producer.produce(
                        topic, record.value, record.key, record.partition, timestamp=record.timestamp_ms or 0
                    )
                    break
                except BufferError:
                    self._producer.poll(0.05)
        if self._producer.flush(60):
            raise RuntimeError("not all events were delivered")

    def join(self, timeout: float | None = None) -> None:
        super().join(timeout)
        if self._failure is not None:
            raise self._failure


class PacedProducer(PacedRecords):
    """Of events, to one topic."""

    def __init__(self, bootstrap_servers: str, topic: str, found: list[Event], duration_s: float) -> None:
        records = ((topic, Record(event.partition, None, event.encode())) for event in found)
        super().__init__(bootstrap_servers, records, len(found), duration_s)


def bounded_offsets(found: list[Event]) -> str:
    """`scan.bounded.specific-offsets` that ends each partition behind its last event."""
    return ended_at(Counter(event.partition for event in found))


def ended_at(counts: Counter[int]) -> str:
    """The same for so many records in each partition."""
    return ";".join(f"partition:{p},offset:{counts[p]}" for p in range(PARTITIONS))
