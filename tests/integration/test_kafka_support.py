"""The helpers other tests lean on: a wrong helper would prove wrong things."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from tests.support.topics import (
    Record,
    create_topic,
    end_offsets,
    open_transactions,
    produce,
    read_topic,
    unique_name,
)

pytestmark = pytest.mark.kafka


def test_what_is_produced_is_read_in_order(kafka: str) -> None:
    topic = unique_name("support")
    create_topic(kafka, topic, partitions=2)
    sent = [
        Record(0, b"k", b"a", 1_000, [("h", b"1"), ("h", None)]),
        Record(1, None, b"b", 2_000),
        Record(0, b"k", None, 3_000),
    ]
    produce(kafka, topic, sent)
    got = read_topic(kafka, topic)
    assert [(r.partition, r.offset, r.key, r.value, r.timestamp_ms) for r in got] == [
        (0, 0, b"k", b"a", 1_000),
        (0, 1, b"k", None, 3_000),
        (1, 0, None, b"b", 2_000),
    ]
    assert got[0].headers == [("h", b"1"), ("h", None)]


def test_an_open_transaction_is_seen_and_a_committed_one_is_not(kafka: str) -> None:
    topic = unique_name("support")
    create_topic(kafka, topic)
    open_id = unique_name("txn")
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": open_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    producer.flush(30)
    assert open_transactions(kafka, open_id) == [(open_id, "Ongoing")]
    assert end_offsets(kafka, topic) == {0: (0, 1)}
    assert read_topic(kafka, topic) == []
    assert len(read_topic(kafka, topic, "read_uncommitted")) == 1
    producer.commit_transaction(30)
    assert open_transactions(kafka, open_id) == []
    assert [r.value for r in read_topic(kafka, topic)] == [b"x"]
