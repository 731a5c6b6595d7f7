"""What the Kafka demo does as its own user, without Headrace: make topics, read them, and count what must come out.

This is the one place of the server that speaks to Kafka: the proof must not come from the engine that is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import orjson
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

PARTITIONS = 4
TIMEOUT_S = 30.0
MESSAGES_PER_CALL = 10_000

Window = tuple[int, str, int, int]
"""Auction, start of the window, bids in it, sum of their prices."""


def create_topics(bootstrap_servers: str, *names: str) -> None:
    """Create topics of four partitions, each on one broker."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = [NewTopic(name, num_partitions=PARTITIONS, replication_factor=1) for name in names]
    for created in admin.create_topics(topics).values():
        created.result(TIMEOUT_S)


def expected_windows(bootstrap_servers: str, topic: str) -> Counter[Window]:
    """Ten-second windows of the bids in a topic, counted by plain Python."""
    bids: Counter[tuple[int, str]] = Counter()
    totals: Counter[tuple[int, str]] = Counter()
    for value in read_committed(bootstrap_servers, topic):
        bid = orjson.loads(value)
        # 'yyyy-MM-dd HH:mm:ss.SSS': a window of ten seconds begins where the last digit of the second is 0.
        key = (int(bid["auction"]), str(bid["dateTime"])[:18] + "0")
        bids[key] += 1
        totals[key] += int(bid["price"])
    return Counter({(*key, count, totals[key]): 1 for key, count in bids.items()})


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
