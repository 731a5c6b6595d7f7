"""Exactly once where it is hard. What is here and where the rest is:

* transaction time-out longer and shorter than the down time, a commit with unknown outcome, a savepoint resumed after
  days, no transaction left open: here; a death behind the commit: test_kafka_sink `test_killed_while_running`
* sink parallelism up and down across a restart: test_kafka_sink `test_rescaling_commits_by_the_old_owners_ids`,
  test_savepoints, test_rescaling
* two recoveries in a row: test_kafka_sink `test_killed_twice_while_recovering`
* zombie subtasks: test_kafka_sink `test_a_zombie_…`, test_chaos_faults (processes that stop and wake up)
* broker restart during a commit: test_kafka_broker_loss, test_chaos_faults
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from connectors.api import OwnerState
from connectors.errors import ConnectorError
from tests.integration.test_kafka_sink import Place
from tests.integration.test_savepoints import Pipeline, until, windows
from tests.support.cluster import Cluster
from tests.support.faults import stopped
from tests.support.sink_worker import SinkProcess, context, rows, table
from tests.support.standalone import request
from tests.support.topics import open_transactions, unique_name

pytestmark = pytest.mark.kafka
TIMEOUT_S = 60.0


@pytest.fixture
def place(kafka: str, tmp_path: Path) -> Place:
    return Place(kafka, tmp_path / "epochs")


@pytest.mark.parametrize("is_over", [True, False], ids=["shorter", "longer"])
def test_a_transaction_time_out_and_the_time_a_job_is_down(place: Place, is_over: bool) -> None:
    """The process dies in the transaction of a durable checkpoint. Whether the broker has given the transaction up by
    the time somebody recovers, or not: the epoch is in the write-ahead file."""
    options = {"properties__transaction__timeout__ms": "1000" if is_over else "600000"}
    definition = table(place.bootstrap_servers, place.topic, **options)
    process = SinkProcess(definition, context(place.namespace, place.directory), kill_at="produced", kill_skip=0)
    process.recover([OwnerState(0)])
    assert process.write(0, 50)
    pending = process.prepare_commit(1)
    assert pending
    assert not process.commit(1)
    assert process.end() == -9
    if is_over:
        _until_none_is_open(place)
    else:
        assert open_transactions(place.bootstrap_servers, place.namespace)
    heir = place.writer(options, attempt="a2", incarnation="g2", restored_checkpoint_id=1)
    assert heir.recover([OwnerState(0, pending)]) == {0: 1}
    heir.write(rows(0, 50, 50), None)
    heir.prepare_commit(2)
    heir.commit(2)
    heir.close()
    place.settled()
    place.assert_exactly({0: 100})


def test_a_stalled_commit_that_outlives_its_transaction_is_not_taken_for_done(place: Place) -> None:
    """The broker has aborted it meanwhile, and says so; the next recovery finds no marker and writes again."""
    options = {"properties__transaction__timeout__ms": "1000"}
    writer = place.writer(options)
    writer.recover([OwnerState(0)])
    writer.write(rows(0, 0, 10), None)
    pending = writer.prepare_commit(1)
    transactions: Any = writer._transactions  # type: ignore[attr-defined]
    commit = transactions._commit

    def stalled(marker: Any) -> None:
        transactions._producer.flush(30)
        _until_none_is_open(place)
        commit(marker)

    transactions._commit = stalled
    with pytest.raises(ConnectorError) as caught:
        writer.commit(1)
    assert caught.value.retry
    writer.close()
    heir = place.writer(options, attempt="a2", incarnation="g2", restored_checkpoint_id=1)
    assert heir.recover([OwnerState(0, pending)]) == {0: 1}
    heir.close()
    place.settled()
    place.assert_exactly({0: 10})


@pytest.mark.parametrize("has_happened", [True, False])
def test_a_commit_with_unknown_outcome_is_settled_by_the_marker(place: Place, has_happened: bool) -> None:
    """The answer is lost: the sink neither repeats the transaction nor believes in it."""
    writer = place.writer()
    writer.recover([OwnerState(0)])
    writer.write(rows(0, 0, 10), None)
    pending = writer.prepare_commit(1)
    transactions: Any = writer._transactions  # type: ignore[attr-defined]
    transactions._producer = _AnswerLost(transactions._producer, has_happened)
    with pytest.raises(ConnectorError) as caught:
        writer.commit(1)
    assert caught.value.retry
    with pytest.raises(ConnectorError, match="must be fenced anew"):
        writer.commit(1)
    writer.close()
    heir = place.writer(attempt="a2", incarnation="g2", restored_checkpoint_id=1)
    assert heir.recover([OwnerState(0, pending)]) == {0: 1}
    heir.close()
    place.settled()
    place.assert_exactly({0: 10})


class _AnswerLost:
    """A producer whose commits end in a time-out, on the way there or on the way back."""

    def __init__(self, producer: Any, has_happened: bool) -> None:
        self._producer, self._has_happened = producer, has_happened

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def __len__(self) -> int:
        return len(self._producer)

    def commit_transaction(self, timeout_s: float) -> None:
        self._producer.flush(30)
        if self._has_happened:
            self._producer.commit_transaction(timeout_s)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def _until_none_is_open(place: Place) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while open_transactions(place.bootstrap_servers, place.namespace):
        assert time.monotonic() < deadline
        time.sleep(0.05)


class InGroup(Pipeline):
    """Its source publishes offsets in a group."""

    def __init__(self, cluster: Cluster, kafka: str, count: int) -> None:
        super().__init__(cluster, kafka, count)
        self.group = unique_name("group")
        self.source_options = f", 'properties.group.id' = '{self.group}'"


@pytest.mark.timeout(240)
def test_a_savepoint_resumed_after_the_groups_offsets_have_gone(cluster: Cluster, kafka: str) -> None:
    """A broker drops the offsets of a group that nobody reads with for some days. Neither the source nor the sinks
    depend on them."""
    pipeline = InGroup(cluster, kafka, 4_000)
    job_id = pipeline.start(2, bounded=True)
    pipeline.produce(0.0, slice(0, 2_000)).join()
    pipeline.checkpointed(job_id, 2)
    savepoint = pipeline.stop(job_id)
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})
    for group in [g.group_id for g in admin.list_consumer_groups().result(30).valid]:
        if pipeline.group in group or pipeline.prefix in group:
            admin.delete_consumer_groups([group])[group].result(30)
    job_id = pipeline.start(3, savepoint, bounded=True)
    pipeline.produce(0.0, slice(2_000, None)).join()
    cluster.wait_for_job(job_id, "FINISHED", TIMEOUT_S)
    found, expected = windows(pipeline.rows()), pipeline.expected()
    assert (found - expected, expected - found) == (Counter(), Counter())


@pytest.mark.parametrize("end", ["CANCELED", "FAILED"])
@pytest.mark.timeout(240)
def test_a_job_that_ends_while_it_commits_leaves_no_transaction_open(cluster: Cluster, kafka: str, end: str) -> None:
    """Its slots die in the middle, so that nobody is there to abort: the JobManager fences their ids, and readers of
    committed rows are not held up."""
    pipeline = Pipeline(cluster, kafka, 40_000)
    settings = {"execution.checkpointing.interval": "10 ms"}
    if end == "FAILED":
        settings["restart-strategy.type"] = "none"
    job_id = pipeline.start(2, settings=settings)
    pipeline.checkpointed(job_id, 1)
    producer = pipeline.produce(10.0)
    _kill_slots_in_a_transaction(pipeline)
    if end == "CANCELED":
        request("PATCH", f"{cluster.url}/jobs/{job_id}?mode=cancel")
    until(end, lambda: bool(cluster.job(job_id)["state"] == end), TIMEOUT_S)
    assert open_transactions(kafka, pipeline.prefix) == []
    producer.stop()


def _kill_slots_in_a_transaction(pipeline: Pipeline) -> None:
    """They are stopped at any moment, and go on if none of their transactions is open."""

    def is_open() -> bool:
        return "Ongoing" in {state for _, state in open_transactions(pipeline.kafka, pipeline.prefix)}

    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        slots = pipeline.cluster.pids("slot")
        with stopped(*slots):
            # Asked twice: the last that the broker was told may have been on its way.
            if is_open() and is_open():
                for pid in slots:
                    os.kill(pid, signal.SIGKILL)
                return
    raise TimeoutError("no transaction was ever open")
