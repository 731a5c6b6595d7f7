"""The exactly-once sink on a real broker: killed at every step, rescaled, raced by zombies, deprived of its marker."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from connectors import registry
from connectors.api import Committable, MetadataField, OwnerState, SinkConnector, SinkWriter
from connectors.errors import ConnectorError, OptionError
from connectors.kafka.epoch_file import reference
from connectors.kafka.protocol import Fork, MarkerLost
from connectors.kafka.transactions import marker_topic, read_markers
from planner.ir.types import BYTES, STRING, map_of, timestamp_ltz
from tests.support.sink_worker import (
    KILL_POINTS,
    RECOVERY_KILL_POINTS,
    SinkProcess,
    context,
    rows,
    table,
)
from tests.support.topics import (
    DEADLINE_S,
    create_topic,
    delete_topic,
    open_transactions,
    read_topic,
    unique_name,
)

pytestmark = pytest.mark.kafka

ROWS_PER_EPOCH = 50


class Place:
    """A topic, a namespace and a directory of one test."""

    def __init__(self, bootstrap_servers: str, directory: Path, partitions: int = 3) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.directory = directory
        self.topic = unique_name("sink")
        self.namespace = unique_name("ns")
        create_topic(bootstrap_servers, self.topic, partitions)
        self.sink().prepare(self.namespace)

    def sink(self, **options: str) -> SinkConnector:
        return registry.connector("kafka").sink(table(self.bootstrap_servers, self.topic, **options))

    def writer(self, options: dict[str, str] | None = None, **changes: Any) -> SinkWriter:
        return self.sink(**(options or {})).writer(context(self.namespace, self.directory, **changes))

    def settled(self, owner_count: int = 1) -> None:
        """Wait as the JobManager does before it reports FINISHED."""
        self.sink().fence(self.namespace, owner_count)
        assert open_transactions(self.bootstrap_servers, self.namespace) == []

    def output(self) -> dict[int, list[int]]:
        """Sequence numbers by subtask, in topic order within the partitions."""
        found: dict[int, list[int]] = {}
        for record in read_topic(self.bootstrap_servers, self.topic):
            assert record.value is not None
            row = json.loads(record.value)
            assert row["name"] == f"row {row['seq']}"
            found.setdefault(row["subtask"], []).append(row["seq"])
        return found

    def assert_exactly(self, counts: dict[int, int]) -> None:
        output = self.output()
        assert {owner: Counter(seen) for owner, seen in output.items()} == {
            owner: Counter(range(count)) for owner, count in counts.items()
        }


@pytest.fixture
def place(kafka: str, tmp_path: Path) -> Place:
    return Place(kafka, tmp_path / "epochs")


class History:
    """What a JobManager would have made durable for one sink subtask."""

    def __init__(self) -> None:
        self.pending: tuple[Committable, ...] = ()
        self.floor = 0
        self.restored = 0
        self.next_id = 1
        self.next_row = 0
        self.attempts = 0
        self.deaths = 0


def run_attempt(place: Place, history: History, rows_total: int, kill_at: str | None, skip: int = 0) -> None:
    """One attempt from the newest checkpoint, until all rows are committed or the process died."""
    history.attempts += 1
    where = context(
        place.namespace,
        place.directory,
        attempt=f"a{history.attempts}",
        incarnation=f"g{history.attempts}",
        restored_checkpoint_id=history.restored,
    )
    process = SinkProcess(table(place.bootstrap_servers, place.topic), where, kill_at, skip)
    try:
        markers = process.recover([OwnerState(0, history.pending, history.floor)])
        if markers is None:
            return
        assert markers[0] <= history.restored, "output is ahead of the restored checkpoint"
        row, pending = history.next_row, history.pending
        while row < rows_total or pending:
            count = min(ROWS_PER_EPOCH, rows_total - row)
            if count and not process.write(row, count):
                return
            row += count
            number = history.next_id
            history.next_id += 1
            sealed = process.prepare_commit(number)
            if sealed is None:
                return
            pending = sealed
            # The commit point: from here on this checkpoint is the newest one.
            history.pending, history.restored, history.next_row = pending, number, row
            if not process.commit(number):
                return
            history.floor = max([history.floor, *(each.checkpoint_id for each in pending)])
            pending = ()
        history.pending = ()
    finally:
        if process.end() == -9:
            history.deaths += 1


def test_without_failures(place: Place) -> None:
    history = History()
    run_attempt(place, history, 4 * ROWS_PER_EPOCH, None)
    assert (history.attempts, history.deaths, history.floor) == (1, 0, 4)
    place.settled()
    place.assert_exactly({0: 4 * ROWS_PER_EPOCH})


@pytest.mark.parametrize("point", KILL_POINTS)
def test_killed_while_running(place: Place, point: str) -> None:
    """Dies at the point in its second epoch, recovers, and the output is exact."""
    history = History()
    # Recovery writes the birth marker, so the steps of a transaction are first passed there.
    skip = 2 if point in ("begun", "marked", "committed") else 1
    run_attempt(place, history, 4 * ROWS_PER_EPOCH, point, skip)
    assert history.deaths == 1
    run_attempt(place, history, 4 * ROWS_PER_EPOCH, None)
    assert history.deaths == 1
    place.settled()
    place.assert_exactly({0: 4 * ROWS_PER_EPOCH})


@pytest.mark.parametrize("point", RECOVERY_KILL_POINTS)
def test_killed_twice_while_recovering(place: Place, point: str) -> None:
    """Dies before COMMIT of a durable checkpoint, then twice in recovery at the same point."""
    history = History()
    run_attempt(place, history, 4 * ROWS_PER_EPOCH, "begun", 1)
    assert history.pending
    for _ in range(2):
        run_attempt(place, history, 4 * ROWS_PER_EPOCH, point)
    # Where the first recovery got as far as its commit, the second has nothing to redo and dies in its next epoch.
    assert history.deaths == 3
    run_attempt(place, history, 4 * ROWS_PER_EPOCH, None)
    place.settled()
    place.assert_exactly({0: 4 * ROWS_PER_EPOCH})


def test_an_epoch_without_records_costs_nothing(place: Place) -> None:
    writer = place.writer()
    writer.recover([OwnerState(0)])
    before = len(read_topic(place.bootstrap_servers, marker_topic(place.namespace), "read_uncommitted"))
    assert writer.prepare_commit(1) == ()
    writer.commit(1)
    writer.close()
    after = len(read_topic(place.bootstrap_servers, marker_topic(place.namespace), "read_uncommitted"))
    assert (before, after) == (1, 1)
    assert not place.directory.exists() or not list(place.directory.iterdir())


def test_an_aborted_checkpoint_is_committed_with_the_next_one(place: Place) -> None:
    writer = place.writer()
    writer.recover([OwnerState(0)])
    writer.write(rows(0, 0, 10), None)
    writer.prepare_commit(1)  # never becomes durable
    writer.write(rows(0, 10, 10), None)
    assert [each.checkpoint_id for each in writer.prepare_commit(2)] == [1, 2]
    writer.commit(2)
    writer.commit(2)
    assert writer.prepare_commit(3) == ()
    writer.close()
    place.settled()
    place.assert_exactly({0: 20})


def test_rows_written_between_barrier_and_commit_belong_to_the_next_epoch(place: Place) -> None:
    writer = place.writer()
    writer.recover([OwnerState(0)])
    writer.write(rows(0, 0, 10), None)
    writer.prepare_commit(1)
    writer.write(rows(0, 10, 10), None)
    writer.commit(1)
    writer.close()
    place.settled()
    place.assert_exactly({0: 10})


def test_a_zombie_is_fenced(place: Place) -> None:
    """An old attempt gets its COMMIT after its successor has recovered: it must not commit a second time."""
    zombie = place.writer()
    zombie.recover([OwnerState(0)])
    zombie.write(rows(0, 0, 10), None)
    pending = zombie.prepare_commit(1)
    heir = place.writer(attempt="a2", incarnation="g2", restored_checkpoint_id=1)
    assert heir.recover([OwnerState(0, pending)]) == {0: 1}
    with pytest.raises(ConnectorError) as caught:
        zombie.commit(1)
    assert caught.value.retry
    with pytest.raises(ConnectorError, match="must be fenced anew"):
        zombie.commit(1)
    heir.write(rows(0, 10, 10), None)
    heir.prepare_commit(2)
    heir.commit(2)
    zombie.close()
    heir.close()
    place.settled()
    place.assert_exactly({0: 20})


def test_a_zombie_that_commits_before_the_fence_is_seen(place: Place) -> None:
    zombie = place.writer()
    zombie.recover([OwnerState(0)])
    zombie.write(rows(0, 0, 10), None)
    pending = zombie.prepare_commit(1)
    zombie.commit(1)
    heir = place.writer(attempt="a2", incarnation="g2", restored_checkpoint_id=1)
    assert heir.recover([OwnerState(0, pending)]) == {0: 1}
    for writer in (zombie, heir):
        writer.close()
    place.settled()
    place.assert_exactly({0: 10})


def test_rescaling_commits_by_the_old_owners_ids(place: Place) -> None:
    """Three subtasks die before COMMIT; one recovers all three, dies as well; two go on."""
    states = []
    for subtask in range(3):
        writer = place.writer(subtask_index=subtask, parallelism=3)
        writer.recover([OwnerState(subtask)])
        writer.write(rows(subtask, 0, 10), None)
        states.append(OwnerState(subtask, writer.prepare_commit(1)))
        writer.close()
    single = place.writer(attempt="a2", incarnation="g2", restored_checkpoint_id=1)
    assert single.recover(states) == {0: 1, 1: 1, 2: 1}
    single.close()
    # The same checkpoint again, at another parallelism: the markers say that nothing is left to do.
    pair = [
        place.writer(subtask_index=s, parallelism=2, attempt=f"b{s}", incarnation="g3", restored_checkpoint_id=1)
        for s in range(2)
    ]
    # Markers of owners that others recover are told as well: checkpoint ids must rise above all of them.
    assert pair[0].recover([states[0], states[2]]) == {0: 1, 1: 1, 2: 1}
    assert pair[1].recover([states[1]]) == {0: 1, 1: 1, 2: 1}
    for subtask, writer in enumerate(pair):
        writer.write(rows(subtask, 10, 5), None)
        writer.prepare_commit(2)
        writer.commit(2)
        writer.close()
    place.settled(3)
    place.assert_exactly({0: 15, 1: 15, 2: 10})
    markers = read_markers({"bootstrap.servers": place.bootstrap_servers}, place.namespace, 30)
    assert {owner: (m.checkpoint_id, m.incarnation) for owner, m in markers.items()} == {
        0: (2, "g3"),
        1: (2, "g3"),
        2: (1, "g1"),
    }


def test_a_fork_is_refused(place: Place) -> None:
    one = place.writer()
    one.recover([OwnerState(0)])
    one.write(rows(0, 0, 10), None)
    (epoch,) = one.prepare_commit(1)
    one.commit(1)
    one.close()
    other = place.writer(attempt="a2", incarnation="g2", restored_checkpoint_id=1)
    with pytest.raises(Fork, match="another run"):
        other.recover([OwnerState(0, (msgspec.structs.replace(epoch, incarnation="elsewhere"),))])
    other.close()


def test_a_lost_marker_fails_closed(place: Place) -> None:
    writer = place.writer()
    writer.recover([OwnerState(0)])
    writer.write(rows(0, 0, 10), None)
    pending = writer.prepare_commit(1)
    writer.commit(1)
    writer.close()
    delete_topic(place.bootstrap_servers, marker_topic(place.namespace))
    place.sink().prepare(place.namespace)
    for state in (OwnerState(0, (), 1), OwnerState(0, pending, 1), OwnerState(0, pending)):
        heir = place.writer(attempt="a2", incarnation="g2", restored_checkpoint_id=1)
        with pytest.raises(MarkerLost):
            heir.recover([state])
        heir.close()
    place.settled()
    place.assert_exactly({0: 10})


def test_a_damaged_or_missing_file_stops_recovery(place: Place) -> None:
    writer = place.writer()
    writer.recover([OwnerState(0)])
    writer.write(rows(0, 0, 10), None)
    pending = writer.prepare_commit(1)
    writer.close()
    path = place.directory / pending[0].file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    heir = place.writer(attempt="a2", incarnation="g2", restored_checkpoint_id=1)
    with pytest.raises(ConnectorError, match="checksum"):
        heir.recover([OwnerState(0, pending)])
    heir.close()
    path.unlink()
    heir = place.writer(attempt="a3", incarnation="g3", restored_checkpoint_id=1)
    with pytest.raises(ConnectorError, match="does not exist"):
        heir.recover([OwnerState(0, pending)])
    heir.close()
    place.settled()
    assert place.output() == {}


def test_files_that_moved_with_the_checkpoint_are_found(place: Place, tmp_path: Path) -> None:
    writer = place.writer()
    writer.recover([OwnerState(0)])
    writer.write(rows(0, 0, 10), None)
    pending = writer.prepare_commit(1)
    writer.close()
    place.directory = place.directory.rename(tmp_path / "elsewhere")
    heir = place.writer(attempt="a2", incarnation="g2", restored_checkpoint_id=1)
    heir.recover([OwnerState(0, pending)])
    heir.close()
    place.settled()
    place.assert_exactly({0: 10})


def test_a_long_epoch_is_committed_in_parts_and_resumed(place: Place) -> None:
    """Parts are forced after each record batch; the second transaction dies; recovery goes on behind the first."""
    writer = place.writer()
    writer.recover([OwnerState(0)])
    for start in range(0, 40, 10):
        writer.write(rows(0, start, 10), None)
    pending = writer.prepare_commit(1)
    transactions: Any = writer._transactions  # type: ignore[attr-defined]
    transactions._part_s = -1.0
    commit = transactions._commit
    commits: list[object] = []

    def dying(marker: object) -> None:
        commits.append(marker)
        if len(commits) == 3:
            raise ConnectorError("died", domain="external", retry=True)  # type: ignore[arg-type]
        commit(marker)

    transactions._commit = dying
    with pytest.raises(ConnectorError, match="died"):
        writer.commit(1)
    writer.close()
    markers = read_markers({"bootstrap.servers": place.bootstrap_servers}, place.namespace, 30)
    assert (markers[0].checkpoint_id, markers[0].upto) == (1, 20)
    heir = place.writer(attempt="a2", incarnation="g2", restored_checkpoint_id=1)
    assert heir.recover([OwnerState(0, pending)]) == {0: 1}
    heir.close()
    place.settled()
    place.assert_exactly({0: 40})


def test_files_go_one_commit_after_their_own(place: Place) -> None:
    writer = place.writer()
    writer.recover([OwnerState(0)])
    names = []
    for number in (1, 2, 3):
        writer.write(rows(0, number * 10, 10), None)
        names.append(reference(writer.prepare_commit(number)[-1]).file)
        writer.commit(number)
    assert [f"epochs/{path.name}" for path in (place.directory / "epochs").iterdir()] == names[-1:]
    writer.close()


def test_limits_of_the_write_ahead_file(place: Place) -> None:
    options = {"sink__write_ahead__soft_limit": "1 kb", "sink__write_ahead__hard_limit": "16 kb"}
    writer = place.writer(options)
    writer.recover([OwnerState(0)])
    assert not writer.checkpoint_wanted()
    writer.write(rows(0, 0, 100), None)
    assert writer.checkpoint_wanted()
    with pytest.raises(ConnectorError, match="hard-limit"):
        writer.write(rows(0, 0, 1000), None)
    writer.close()


def test_a_record_that_is_too_large_fails_before_it_is_part_of_a_checkpoint(place: Place) -> None:
    writer = place.writer()
    writer.recover([OwnerState(0)])
    batch = pa.RecordBatch.from_pydict({"c0": [1], "c1": [1], "c2": ["x" * 1_000_000]})
    with pytest.raises(ConnectorError, match="larger than"):
        writer.write(batch, None)
    writer.close()


def test_a_transaction_timeout_above_the_brokers_maximum_is_refused(place: Place) -> None:
    options = {"properties__transaction__timeout__ms": "3600000"}
    with pytest.raises(OptionError, match="above the broker's maximum of 900000"):
        place.sink(**options).prepare(place.namespace)
    writer = place.writer(options)
    with pytest.raises(OptionError, match="above the broker's maximum"):
        writer.recover([OwnerState(0)])
    writer.close()


def test_a_marker_topic_that_is_not_compacted_is_refused(place: Place) -> None:
    namespace = unique_name("ns")
    create_topic(place.bootstrap_servers, marker_topic(namespace), 1, {"cleanup.policy": "delete"})
    with pytest.raises(ConnectorError, match=r"cleanup\.policy=compact"):
        place.sink().prepare(namespace)


def test_fence_ends_open_transactions(place: Place) -> None:
    writer = place.writer()
    writer.recover([OwnerState(0)])
    transactions: Any = writer._transactions  # type: ignore[attr-defined]
    transactions._begin()
    transactions._producer.produce(place.topic, b"{}", partition=0)
    transactions._producer.flush(30)
    assert open_transactions(place.bootstrap_servers, place.namespace)
    place.sink().fence(place.namespace, 1)
    assert open_transactions(place.bootstrap_servers, place.namespace) == []
    assert read_topic(place.bootstrap_servers, place.topic) == []
    writer.close()


def test_keys_timestamps_and_headers(place: Place) -> None:
    metadata = (
        MetadataField("ts", "timestamp", timestamp_ltz(3)),
        MetadataField("h", "headers", map_of(STRING, BYTES)),
    )
    options = {"key__format": "json", "key__fields": "seq", "sink__delivery_guarantee": "exactly-once"}
    writer = place.writer(options, metadata_columns=metadata)
    writer.recover([OwnerState(0)])
    batch = rows(0, 0, 6)
    stamps = pa.array([1_700_000_000_000 + i for i in range(6)]).cast(pa.timestamp("ms", "UTC"))
    headers = pa.array([[("n", b"%d" % i)] for i in range(6)], pa.map_(pa.string(), pa.binary()))
    columns = [*batch.columns, stamps, headers]
    writer.write(pa.RecordBatch.from_arrays(columns, names=[f"c{i}" for i in range(5)]), None)
    writer.prepare_commit(1)
    writer.commit(1)
    writer.close()
    place.settled()
    records = read_topic(place.bootstrap_servers, place.topic)
    assert len(records) == 6
    for record in records:
        assert record.value is not None
        assert record.key is not None
        number = json.loads(record.value)["seq"]
        assert json.loads(record.key) == {"seq": number}
        assert record.timestamp_ms == 1_700_000_000_000 + number
        assert record.headers == [("n", b"%d" % number)]


@pytest.mark.parametrize("guarantee", ["at-least-once", "none"])
def test_direct_guarantees_deliver(place: Place, guarantee: str) -> None:
    writer = place.writer({"sink__delivery_guarantee": guarantee})
    assert writer.recover([]) == {}
    writer.write(rows(0, 0, 1000), None)
    assert writer.prepare_commit(1) == ()
    writer.commit(1)
    if guarantee == "at-least-once":
        place.assert_exactly({0: 1000})
    writer.close()
    place.assert_exactly({0: 1000})


def test_a_failed_delivery_is_never_swallowed(kafka: str, tmp_path: Path) -> None:
    """The broker refuses the record after the client has taken it."""
    topic = unique_name("sink")
    create_topic(kafka, topic, 1, {"max.message.bytes": "500"})
    sink = registry.connector("kafka").sink(table(kafka, topic, sink__delivery_guarantee="at-least-once"))
    writer = sink.writer(context("unused", tmp_path))
    writer.recover([])
    batch = pa.RecordBatch.from_pydict({"c0": [1], "c1": [1], "c2": ["x" * 5000]})
    writer.write(batch, None)
    with pytest.raises(ConnectorError, match="MSG_SIZE_TOO_LARGE"):
        writer.prepare_commit(1)
    with pytest.raises(ConnectorError, match="MSG_SIZE_TOO_LARGE"):
        writer.write(rows(0, 0, 1), None)
    writer.close()


def test_a_refused_transaction_fails_the_commit(kafka: str, tmp_path: Path) -> None:
    topic = unique_name("sink")
    create_topic(kafka, topic, 1, {"max.message.bytes": "500"})
    namespace = unique_name("ns")
    sink = registry.connector("kafka").sink(table(kafka, topic))
    sink.prepare(namespace)
    writer = sink.writer(context(namespace, tmp_path))
    writer.recover([OwnerState(0)])
    writer.write(pa.RecordBatch.from_pydict({"c0": [1], "c1": [1], "c2": ["x" * 5000]}), None)
    writer.prepare_commit(1)
    with pytest.raises(ConnectorError):
        writer.commit(1)
    writer.close()
    assert read_topic(kafka, topic) == []


def test_a_missing_topic_is_named(kafka: str, tmp_path: Path) -> None:
    sink = registry.connector("kafka").sink(table(kafka, "no-such-topic-at-all"))
    with pytest.raises(ConnectorError, match="no-such-topic-at-all does not exist"):
        sink.prepare(unique_name("ns"))


def test_output_is_visible_soon_after_commit_without_fencing(place: Place) -> None:
    """The broker answers a commit before its control records are written; readers see the rows a little later."""
    writer = place.writer()
    writer.recover([OwnerState(0)])
    writer.write(rows(0, 0, 10), None)
    writer.prepare_commit(1)
    writer.commit(1)
    deadline = time.monotonic() + DEADLINE_S
    while place.output() != {0: list(range(10))} and sum(map(len, place.output().values())) < 10:
        assert time.monotonic() < deadline
    writer.close()
    place.assert_exactly({0: 10})
