"""The broker dies and comes back: reading goes on, a commit in doubt is settled by the marker, a barrier waits."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.api import OwnerState, SinkWriter, SplitState
from connectors.errors import ConnectorError
from tests.integration.test_kafka_sink import Place
from tests.integration.test_kafka_source import context as reader_context
from tests.integration.test_kafka_source import discovered, filled, ids, person, reading, rows, source
from tests.support.kafka import KafkaBroker
from tests.support.sink_worker import rows as sink_rows
from tests.support.topics import Record, produce

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker of our own, whatever KAFKA_BOOTSTRAP_SERVERS says: this one is killed."""
    with KafkaBroker.start(tmp_path_factory.mktemp("broker")) as started:
        yield started


def test_reading_survives_a_broker_restart(broker: KafkaBroker) -> None:
    topic = filled(broker.bootstrap_servers, partitions=1, per_partition=10)
    table = source(broker.bootstrap_servers, topic)
    splits: list[SplitState] = discovered(table)
    with reading(table, splits, reader_context()) as reader:
        assert ids(rows(reader, 10), f"{topic}-0") == list(range(10))
        broker.kill()
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            assert reader.poll(100) == []  # the client notices and keeps trying
        broker.restart()
        produce(broker.bootstrap_servers, topic, [Record(0, None, person(i)) for i in range(10, 20)])
        assert ids(rows(reader, 10), f"{topic}-0") == list(range(10, 20))


@pytest.mark.parametrize(
    "delay_s", [0.05, *(pytest.param(delay_s, marks=pytest.mark.chaos) for delay_s in (0.0, 0.1, 0.2, 0.4))]
)
def test_a_commit_during_the_brokers_death_is_settled_by_the_marker(
    broker: KafkaBroker, tmp_path: Path, delay_s: float
) -> None:
    place = Place(broker.bootstrap_servers, tmp_path)
    writer = place.writer()
    writer.recover([OwnerState(0)])
    for start in range(0, 20_000, 1000):
        writer.write(sink_rows(0, start, 1000), None)
    pending = writer.prepare_commit(1)
    failures: list[ConnectorError] = []
    committing = threading.Thread(target=_commit, args=(writer, failures))
    committing.start()
    time.sleep(delay_s)  # any moment of the commit will do
    broker.kill()
    broker.restart()
    committing.join(120)
    assert not committing.is_alive()
    assert all(failure.retry for failure in failures)
    writer.close()
    heir = place.writer(attempt="a2", incarnation="g2", restored_checkpoint_id=1)
    assert heir.recover([OwnerState(0, pending)]) == {0: 1}
    heir.close()
    place.settled()
    assert Counter(place.output()[0]) == Counter(range(20_000))


def test_a_barrier_of_at_least_once_waits_for_the_broker(broker: KafkaBroker, tmp_path: Path) -> None:
    place = Place(broker.bootstrap_servers, tmp_path, partitions=1)
    writer, given_up = (place.writer({"sink__delivery_guarantee": "at-least-once"}) for _ in range(2))
    writer.recover([])
    given_up.recover([])
    for start in range(0, 5_000, 1000):
        writer.write(sink_rows(0, start, 1000), None)
    writer.prepare_commit(1)
    broker.kill()
    for start in range(5_000, 10_000, 1000):
        writer.write(sink_rows(0, start, 1000), None)
    given_up.write(sink_rows(0, 10_000, 1000), None)
    given_up.close()
    barrier = threading.Thread(target=writer.prepare_commit, args=(2,))
    barrier.start()
    assert barrier.is_alive()
    broker.restart()
    barrier.join(60)
    assert not barrier.is_alive()
    assert place.output()[0] == list(range(10_000))
    writer.close()


def _commit(writer: SinkWriter, failures: list[ConnectorError]) -> None:
    try:
        writer.commit(1)
    except ConnectorError as error:
        failures.append(error)
