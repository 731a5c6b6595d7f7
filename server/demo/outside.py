"""What the Kafka demo does as its own user, without Headrace: make topics, send events, count what must come out.

This is the one place of the server that speaks to Kafka: the proof must not come from the engine that is shown.
"""

from __future__ import annotations

import datetime as dt
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator

import orjson
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

PARTITIONS = 4
TIMEOUT_S = 30.0
MESSAGES_PER_CALL = 10_000

AUCTIONS = 1_000
PRICE_MAX = 10_000
EVENTS_PER_SECOND_OF_EVENT_TIME = 5_000
OUT_OF_ORDER_MS = 900
WINDOW_MS = 10_000
FIRST_MS = 1_767_225_600_000
TICK_S = 0.02

Window = tuple[int, str, int, int]
"""Auction, start of the window, bids in it, sum of their prices."""


def create_topics(bootstrap_servers: str, *names: str) -> None:
    """Create topics of four partitions, each on one broker."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = [NewTopic(name, num_partitions=PARTITIONS, replication_factor=1) for name in names]
    for created in admin.create_topics(topics).values():
        created.result(TIMEOUT_S)


class Sender:
    """Sends bids to a topic at an even pace, on a thread of its own, and counts them in plain Python.

    Event time runs on by itself; a bid lies up to 0.9 s behind the newest of its partition. Each partition gets the
    same number of bids."""

    def __init__(self, bootstrap_servers: str, topic: str, bids: int, seconds: float) -> None:
        self.bids_per_partition = bids // PARTITIONS
        self.bids = self.bids_per_partition * PARTITIONS
        self.sent = 0
        self._topic = topic
        self._seconds = seconds
        self._failure: BaseException | None = None
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 3}
        )
        self._counts: Counter[tuple[int, int]] = Counter()
        self._totals: Counter[tuple[int, int]] = Counter()
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def expected(self) -> Counter[Window]:
        """Wait until everything was sent; the windows that must come out of it."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return Counter(
            (auction, _text(start_ms), count, self._totals[(auction, start_ms)])
            for (auction, start_ms), count in self._counts.items()
        )

    def _run(self) -> None:
        try:
            chance, began_s = random.Random(7), time.monotonic()
            while self.sent < self.bids:
                due = min(int((time.monotonic() - began_s) / self._seconds * self.bids), self.bids)
                for number in range(self.sent, due):
                    self._send(number, chance)
                self.sent = due
                self._producer.poll(0)
                time.sleep(TICK_S)
            if self._producer.flush(TIMEOUT_S):
                raise TimeoutError("Kafka did not take all bids in time")
        except BaseException as failure:
            self._failure = failure  # Raised where somebody waits for the result.

    def _send(self, number: int, chance: random.Random) -> None:
        auction, price = chance.randrange(AUCTIONS), chance.randrange(1, PRICE_MAX)
        time_ms = FIRST_MS + number * 1000 // EVENTS_PER_SECOND_OF_EVENT_TIME
        time_ms = max(time_ms - chance.randrange(OUT_OF_ORDER_MS), FIRST_MS)
        bid = {"auction": auction, "price": price, "bidder": chance.randrange(10**6), "time": _text(time_ms)}
        while not self._offered(orjson.dumps(bid), number % PARTITIONS):
            self._producer.poll(0.05)
        window = (auction, time_ms // WINDOW_MS * WINDOW_MS)
        self._counts[window] += 1
        self._totals[window] += price

    def _offered(self, value: bytes, partition: int) -> bool:
        """False: the client's queue is full for the moment."""
        try:
            self._producer.produce(self._topic, value, partition=partition)
        except BufferError:
            return False
        return True


def _text(time_ms: int) -> str:
    """As the json format writes a TIMESTAMP(3): without trailing zeros of the fraction."""
    moment = dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC)
    text = moment.strftime("%Y-%m-%d %H:%M:%S")
    return f"{text}.{time_ms % 1000:03}".rstrip("0") if time_ms % 1000 else text


def written_windows(bootstrap_servers: str, topic: str) -> Counter[Window]:
    """The windows that stand in the output topic, each as often as it stands there."""
    found: Counter[Window] = Counter()
    for value in read_committed(bootstrap_servers, topic):
        row = orjson.loads(value)
        found[(int(row["auction"]), str(row["window_start"]), int(row["bids"]), int(row["total"]))] += 1
    return found


def read_committed(bootstrap_servers: str, topic: str) -> Iterator[bytes]:
    """All committed values of a topic, as any consumer with `isolation.level=read_committed` sees them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"{topic}-proof",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    ended = 0
    while ended < PARTITIONS:
        for message in consumer.consume(MESSAGES_PER_CALL, 1.0):
            error, value = message.error(), message.value()
            if error is None:
                yield value or b""
            elif error.name() == "_PARTITION_EOF":
                ended += 1
            else:
                raise KafkaException(error)
    consumer.close()
