"""What a sink needs on the cluster before its job starts, and how its ids are fenced after it has ended."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from connectors.errors import ConnectorError, ErrorDomain
from connectors.kafka.client import REQUEST_TIMEOUT_S, admin_client, failed, kafka_error, missing_topic
from connectors.kafka.options import SinkOptions
from connectors.kafka.transactions import (
    OwnerTransactions,
    fence_all,
    marker_topic,
    transaction_timeout_too_long,
)

_MARKER_TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    # Small segments that close soon: only closed ones are compacted, and recovery reads the topic from its start.
    "segment.bytes": str(4 << 20),
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}


def prepare(options: SinkOptions, namespace: str) -> None:
    """Check that the topic exists and, for a sink that commits, that the broker allows the transactions; create the
    marker topic when it is missing. Raises ConnectorError."""
    admin = admin_client(options.client)
    try:
        # All topics, not this one: asking for a topic by name may create it on the broker.
        if options.topic not in admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics:
            raise missing_topic(options.topic)
        if options.committing:
            _check_transaction_timeout(admin, options.transaction_timeout_ms)
            _ensure_marker_topic(admin, marker_topic(namespace), options.topic)
    except KafkaException as error:
        raise failed(kafka_error(error), f"preparing topic {options.topic}") from error


def fence(options: SinkOptions, namespace: str, owner_count: int) -> None:
    """When this returns no transaction of the ids is open and every earlier commit is visible."""
    if not options.committing:
        return
    opened = [
        OwnerTransactions(options.client, namespace, owner, options.topic, options.transaction_timeout_ms)
        for owner in range(owner_count)
    ]
    try:
        fence_all(opened)
    finally:
        for transactions in opened:
            transactions.close()


def partition_count(admin: AdminClient, topic: str) -> int:
    """Number of partitions; raises ConnectorError when the topic does not exist."""
    metadata = admin.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
    if metadata.error is not None:
        if metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise missing_topic(topic)
        raise failed(metadata.error, f"looking for topic {topic}")
    return len(metadata.partitions)


def _check_transaction_timeout(admin: AdminClient, timeout_ms: int) -> None:
    brokers = admin.list_topics(timeout=REQUEST_TIMEOUT_S).brokers
    resource = ConfigResource(ResourceType.BROKER, str(min(brokers)))
    try:
        limit = int(_configuration(admin, resource)["transaction.max.timeout.ms"].value)
    except (KafkaException, KeyError, TypeError, ValueError):
        return  # Not allowed to read it, or a broker that does not tell: fencing finds out.
    if timeout_ms > limit:
        raise transaction_timeout_too_long(timeout_ms, limit)


def _ensure_marker_topic(admin: AdminClient, topic: str, target: str) -> None:
    found = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    existing = found.get(topic)
    if existing is None or existing.error is not None:
        replication = max(len(each.replicas) for each in found[target].partitions.values())
        new = NewTopic(topic, 1, replication, config=_MARKER_TOPIC_CONFIG)
        try:
            admin.create_topics([new])[topic].result(REQUEST_TIMEOUT_S)
        except KafkaException as error:
            if kafka_error(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        return
    policy = _configuration(admin, ConfigResource(ResourceType.TOPIC, topic))["cleanup.policy"].value
    if len(existing.partitions) != 1 or policy != "compact":
        raise ConnectorError(
            f"topic {topic} must have one partition and cleanup.policy=compact to hold commit markers, "
            f"not {len(existing.partitions)} and {policy}",
            domain=ErrorDomain.USER,
            retry=False,
            hint="A marker that is deleted by retention cannot be told from a commit that never was.",
        )


def _configuration(admin: AdminClient, resource: ConfigResource) -> dict[str, Any]:
    found: dict[str, Any] = admin.describe_configs([resource])[resource].result(REQUEST_TIMEOUT_S)
    return found
