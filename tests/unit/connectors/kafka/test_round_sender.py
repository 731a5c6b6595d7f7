"""At-least-once: what a client is given while the broker works, and when."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from connectors.errors import ConnectorError
from connectors.kafka import round_sender
from connectors.kafka.epoch_file import record_schema
from connectors.kafka.round_sender import RoundSender

WAIT_S = 10.0
HOUR_MS = 3_600_000.0


class Client:
    """Stands in for a Producer whose broker answers when the test says so."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.given: list[bytes] = []
        self.answered = 0
        self.error: KafkaError | None = None
        self.purged = False
        self._reports: list[Callable[..., None]] = []
        self._reported = 0

    def produce_batch(self, topic: str, messages: list[dict[str, bytes]], partition: int, on_delivery: Any) -> int:
        assert (topic, partition) == ("out", 0)
        with self.changed:
            self.given += [message["value"] for message in messages]
            self._reports += [on_delivery] * len(messages)
            self.changed.notify_all()
        return len(messages)

    def flush(self, timeout_s: float) -> int:
        with self.changed:
            self.changed.wait_for(lambda: self.purged or self.answered >= len(self.given), timeout_s)
            due = self._reports[self._reported : len(self._reports) if self.purged else self.answered]
            self._reported += len(due)
        for report in due:
            report(self.error, None)
        return len(self)

    def purge(self) -> None:
        with self.changed:
            self.purged = True
            self.changed.notify_all()

    def __len__(self) -> int:
        return len(self._reports) - self._reported

    def answer(self) -> None:
        """The broker has all that it was given."""
        with self.changed:
            self.answered = len(self.given)
            self.changed.notify_all()

    def await_given(self, *values: bytes) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.given) >= len(values), WAIT_S)
            assert self.given == list(values)


def records(*values: bytes) -> pa.RecordBatch:
    absent = pa.nulls(len(values))
    partitions: Any = pa.array([0] * len(values), pa.int32())
    arrays = [partitions, absent, pa.array(values, pa.binary()), absent, absent]
    return pa.RecordBatch.from_arrays(arrays, schema=record_schema(keys=False, timestamps=False, headers=False))


class Ended(Exception):
    pass


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def sender_to(client: Client) -> Iterator[Callable[..., RoundSender]]:
    made: list[RoundSender] = []

    def make(linger_ms: float = 0.0, check: Callable[[], None] = lambda: None) -> RoundSender:
        made.append(RoundSender(cast(Any, client), "out", {}, linger_ms, check))
        return made[-1]

    yield make
    for sender in made:
        sender.close()
        assert not sender._thread.is_alive()


def test_what_comes_while_a_round_is_under_way_is_the_next(client: Client, sender_to: Any) -> None:
    sender = sender_to()
    sender.put(records(b"a"))
    client.await_given(b"a")
    sender.put(records(b"b"))
    sender.put(records(b"c", b"d"))
    client.await_given(b"a")
    assert sender.record_count == 4
    client.answer()
    client.await_given(b"a", b"b", b"c", b"d")
    client.answer()
    sender.flush()
    assert sender.record_count == 0


def test_a_round_waits_for_further_records_but_not_at_a_barrier_or_when_a_batch_is_full(
    client: Client, sender_to: Any
) -> None:
    sender = sender_to(HOUR_MS)
    sender.put(records(b"a"))
    sender.put(records(b"b"))
    assert client.given == []
    barrier = threading.Thread(target=sender.flush)
    barrier.start()
    client.await_given(b"a", b"b")
    assert barrier.is_alive(), "the broker has not answered"
    client.answer()
    barrier.join(WAIT_S)
    assert not barrier.is_alive()
    sender.put(records(b"c"))
    client.await_given(b"a", b"b")
    large = b"x" * 1_000_000
    sender.put(records(large))
    client.await_given(b"a", b"b", b"c")
    client.answer()
    client.await_given(b"a", b"b", b"c", large)


def test_a_failed_delivery_is_raised_from_then_on(client: Client, sender_to: Any) -> None:
    sender = sender_to()
    client.error = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    sender.put(records(b"a"))
    client.await_given(b"a")
    client.answer()
    for call in (sender.flush, sender.flush, lambda: sender.put(records(b"b"))):
        with pytest.raises(ConnectorError, match="delivering records to topic out"):
            call()
    client.await_given(b"a")


def test_a_task_that_waits_hears_of_its_end(client: Client, sender_to: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_sender, "QUEUED_BYTES_MAX", 1)

    def check() -> None:
        raise Ended

    sender = sender_to(check=check)
    sender.put(records(b"a"))
    client.await_given(b"a")
    sender.put(records(b"b"))
    with pytest.raises(Ended):
        sender.put(records(b"c"))
    with pytest.raises(Ended):
        sender.flush()
    assert client.given == [b"a"]
