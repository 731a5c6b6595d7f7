"""Input of the benchmarks: topics filled with Nexmark bids as JSON, about 200 bytes each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from connectors.formats.json.format import FORMAT
from connectors.generated import GeneratorSplit
from connectors.nexmark.connector import Rows
from connectors.nexmark.events import BID, Settings
from planner.ir.types import BIGINT, INT, STRING, Field, timestamp

PARTITIONS = 4
EVENTS_PER_SECOND = 20_000
"""Of event time: a window of 10 s holds so many times ten events."""
ROWS_PER_BATCH = 10_000
TIMEOUT_S = 60.0

COLUMNS = (
    Field("auction", BIGINT),
    Field("bidder", BIGINT),
    Field("price", BIGINT),
    Field("channel", STRING),
    Field("url", STRING),
    Field("dateTime", timestamp(3)),
    Field("extra", STRING),
)

AUCTION_COLUMNS = (Field("id", BIGINT), Field("seller", BIGINT), Field("category", INT), Field("reserve", BIGINT))


def create(bootstrap_servers: str, *names: str) -> None:
    """Create empty topics, replacing none."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = [NewTopic(name, num_partitions=PARTITIONS, replication_factor=1) for name in names]
    for created in admin.create_topics(topics).values():
        created.result(TIMEOUT_S)


def fill(bootstrap_servers: str, topic: str, rows: int, keys: int = 0) -> int:
    """Write that many bids, in order of event time within each partition; returns bytes written. `keys`: auctions are
    so many, each bid for any of them."""
    random = np.random.default_rng(7)
    settings = Settings(rate=EVENTS_PER_SECOND, auction_proportion=3, bid_proportion=46, bid_size=120)
    make = Rows(settings, BID, COLUMNS)
    encoder = FORMAT.encoder(COLUMNS, {}, "UTC")
    client = {"bootstrap.servers": bootstrap_servers, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    producer = Producer(client)
    written, bytes_written, first = 0, 0, 0
    split = GeneratorSplit(0, 1, None, 7, 1_767_225_600_000)
    while written < rows:
        batch = make(split, first, ROWS_PER_BATCH)
        first += ROWS_PER_BATCH
        batch = batch.slice(0, min(batch.num_rows, rows - written))
        if keys:
            auctions = pa.array(random.integers(0, keys, batch.num_rows))
            batch = pa.RecordBatch.from_arrays([auctions, *batch.columns[1:]], schema=batch.schema)
        bytes_written += _produce(producer, topic, encoder.encode(batch))
        written += batch.num_rows
    _flush(producer)
    return bytes_written


def fill_auctions(bootstrap_servers: str, topic: str, count: int) -> None:
    """Write auctions 0 to count - 1, in no order."""
    random = np.random.default_rng(8)
    encoder = FORMAT.encoder(AUCTION_COLUMNS, {}, "UTC")
    client = {"bootstrap.servers": bootstrap_servers, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    producer = Producer(client)
    order = random.permutation(count)
    for first in range(0, count, ROWS_PER_BATCH):
        ids = order[first : first + ROWS_PER_BATCH]
        numbers: list[Any] = [ids, random.integers(0, count, len(ids)), (ids % 20).astype(np.int32), ids * 3]
        batch = pa.RecordBatch.from_arrays([pa.array(n) for n in numbers], names=[c.name for c in AUCTION_COLUMNS])
        _produce(producer, topic, encoder.encode(batch))
    _flush(producer)


def _produce(producer: Producer, topic: str, values: pa.Array[Any]) -> int:
    """Spread records over the partitions; their bytes."""
    bytes_written = 0
    for partition in range(PARTITIONS):
        chosen = values.take(np.arange(partition, len(values), PARTITIONS)).to_pylist()
        accepted = producer.produce_batch(topic, [{"value": value} for value in chosen], partition)
        if accepted != len(chosen):
            raise RuntimeError(f"Kafka's client took {accepted} of {len(chosen)} records")
        bytes_written += sum(map(len, filter(None, chosen)))
    while len(producer) > 500_000:
        producer.poll(0.05)
    return bytes_written


def _flush(producer: Producer) -> None:
    if producer.flush(TIMEOUT_S):
        raise RuntimeError("Kafka did not take all records in time")


def count_committed(bootstrap_servers: str, topic: str) -> int:
    """How many committed records a topic holds."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap_servers, "group.id": "count", "enable.auto.commit": False,
        "isolation.level": "read_committed", "enable.partition.eof": True,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    rows, ended = 0, 0
    while ended < PARTITIONS:
        for message in consumer.consume(10_000, 1.0):
            if message.error() is None:
                rows += 1
            else:
                ended += 1  # The end of a partition is reported as an error.
    consumer.close()
    return rows
