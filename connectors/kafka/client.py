"""The door to librdkafka: client construction, and its errors in our words."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from connectors.errors import ConnectorError, ErrorDomain, OptionError
from connectors.kafka.native.consumer import NativeConsumer
from connectors.kafka.native.library import load
from connectors.kafka.properties import PREFIX, as_written

REQUEST_TIMEOUT_S = 30.0

T = TypeVar("T")
Settings = dict[str, str | int | float | bool]
OnError = Callable[[KafkaError], None]

_COMMON: Settings = {
    "enable.metrics.push": False,
    # Below "error" librdkafka reports what it then repairs by itself.
    "log_level": 3,
    "reconnect.backoff.ms": 200,
}

_CONSUMER: Settings = {
    "group.protocol": "classic",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    # The default of 1000 ms stalls a partition for that long whenever its queue is full: three times slower.
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 100,
    # How long a topic that was there may be unknown (a broker coming back) before reading it fails.
    "topic.metadata.propagation.max.ms": 10_000,
}

LINGER_MS = 5
"""Of a producer; the client's own default."""

_PRODUCER: Settings = {
    "linger.ms": LINGER_MS,
    "queue.buffering.max.messages": 500_000,
    "batch.num.messages": 100_000,
    # No call of Python per record that has arrived.
    "delivery.report.only.error": True,
    # Java's placement of keys, should ever a record be sent without a partition.
    "partitioner": "murmur2_random",
}

_AUTHORIZATION = frozenset({
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION,
})  # fmt: skip
_UNREACHABLE = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE})
_LASTING = frozenset({
    KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_TRANSACTION_TIMEOUT, KafkaError.TOPIC_EXCEPTION,
    KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_RECORD,
})  # fmt: skip


class _OncePerInterval(logging.Filter):
    """Lets a message through at most once per interval, its numbers aside: while a broker is away the library
    repeats the same line twenty times a second, for each client."""

    INTERVAL_S = 10.0
    _NUMBERS = re.compile(r"\d+")

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._shown_at_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now_s = self._NUMBERS.sub("#", record.getMessage()), time.monotonic()
        with self._lock:
            if now_s - self._shown_at_s.get(kind, -self.INTERVAL_S) < self.INTERVAL_S:
                return False
            self._shown_at_s[kind] = now_s
            return True


_LOGGER = logging.getLogger("connectors.kafka")
_LOGGER.addFilter(_OncePerInterval())


def admin_client(client: Mapping[str, str]) -> AdminClient:
    return _built(AdminClient, {**_COMMON, **client})


def consumer(client: Mapping[str, str], own: Settings, on_error: OnError | None = None) -> Consumer:
    """A consumer for assignment by hand. `own` beats the table's properties."""
    return _built(Consumer, {**_COMMON, **_CONSUMER, **client, **own, **_callback(on_error)})


def native_consumer(client: Mapping[str, str], own: Settings, on_error: OnError) -> NativeConsumer | None:
    """The same consumer by direct calls; None where they are not possible."""
    library = load()
    settings = {**_COMMON, **_CONSUMER, **client, **own}
    mechanism = str(settings.get("sasl.mechanisms", settings.get("sasl.mechanism", "")))
    if library is None or mechanism.upper() == "OAUTHBEARER":  # Its tokens are refreshed by callbacks.
        return None
    return _accepted(lambda: NativeConsumer(library, settings, on_error, _LOGGER))


def producer(client: Mapping[str, str], own: Settings) -> Producer:
    """A producer. `own` beats the table's properties."""
    return _built(Producer, {**_COMMON, **_PRODUCER, **client, **own})


def _callback(on_error: OnError | None) -> Settings:
    return {} if on_error is None else cast(Settings, {"error_cb": on_error})


def _built(kind: Callable[..., T], settings: Settings) -> T:
    return _accepted(lambda: kind({**settings, "logger": _LOGGER}))


def _accepted(make: Callable[[], T]) -> T:
    try:
        return make()
    except KafkaException as error:
        reason = kafka_error(error)
        message = f"Kafka's client does not accept the table's '{PREFIX}*' options: {as_written(reason.str())}"
        raise OptionError(message, option=PREFIX) from error


def kafka_error(error: KafkaException) -> KafkaError:
    """The KafkaError inside a KafkaException."""
    found = error.args[0]
    assert isinstance(found, KafkaError)
    return found


def failed(error: KafkaError, doing: str) -> ConnectorError:
    """A client error as a ConnectorError: `doing` says what was tried, e.g. `reading topic orders`."""
    code = error.code()
    text = f"{doing}: {error.str()} ({error.name()})"
    if code in _AUTHORIZATION:
        return ConnectorError(
            text, domain=ErrorDomain.USER, retry=False, hint="Check the credentials and the ACLs on the broker."
        )
    hint = ""
    if code in _UNREACHABLE:
        hint = f"No broker answers: check '{PREFIX}bootstrap.servers' and that the broker is up."
    return ConnectorError(text, domain=ErrorDomain.EXTERNAL, retry=code not in _LASTING, hint=hint)


def missing_topic(topic: str) -> ConnectorError:
    return ConnectorError(
        f"topic {topic} does not exist",
        domain=ErrorDomain.USER,
        retry=False,
        hint="Create it first; its number of partitions is a decision of yours.",
    )
