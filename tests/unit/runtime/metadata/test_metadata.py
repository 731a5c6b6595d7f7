"""The metadata stores: one contract, tested on SQLite and on a real PostgreSQL; and a job's records in them."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.api import Split
from runtime.api import JobState, StaleLeaderError
from runtime.checkpoint.manifest import CheckpointPointer
from runtime.ids import JobId
from runtime.metadata.jobs import JobRecord, JobRecords, NamespaceTakenError, PointerConflictError
from runtime.metadata.store import SqliteMetadataStore, StoreFormatError
from tests.support import graphs
from tests.support.metadata_stores import STORES, StorePlace, store_place

JOB = JobId("1" * 32)
OTHER = JobId("2" * 32)
GRAPH = graphs.graph(graphs.vertex(0, graphs.generator(), graphs.sink()))


def record(job_id: JobId = JOB, state: JobState = JobState.RUNNING) -> JobRecord:
    return JobRecord(job_id, "name", state, False, 5)


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StorePlace]:
    yield from store_place(request, tmp_path)


def test_records_survive(place: StorePlace) -> None:
    store = place.open()
    store.put("c", "b", b"2")
    store.put("c", "a", b"1")
    store.put("c", "b", b"\x00\xff")
    store.put("d", "a", b"3")
    store.delete("d", "a")
    store.delete("d", "never there")
    store.close()
    store = place.open()
    assert store.items("c") == [("a", b"1"), ("b", b"\x00\xff")]
    assert (store.get("c", "a"), store.get("c", "z"), store.items("d")) == (b"1", None, [])


def test_keys_are_in_the_order_of_their_bytes(place: StorePlace) -> None:
    """Whatever the database's language: both stores list alike."""
    store = place.open()
    keys = ["a", "B", "_", "ä", "Z", "b-1", "b1", "\u4e2d", ""]
    for key in keys:
        store.put("c", key, key.encode())
    assert [key for key, _ in store.items("c")] == sorted(keys, key=str.encode)


def test_compare_and_set(place: StorePlace) -> None:
    store = place.open()
    assert store.compare_and_set("c", "k", None, b"1")
    assert not store.compare_and_set("c", "k", None, b"2")
    assert not store.compare_and_set("c", "k", b"0", b"2")
    assert store.get("c", "k") == b"1"
    assert store.compare_and_set("c", "k", b"1", b"2")
    assert store.get("c", "k") == b"2"
    assert not store.compare_and_set("c", "not there", b"1", b"2")
    assert store.get("c", "not there") is None


def test_an_older_leader_changes_nothing(place: StorePlace) -> None:
    old = place.open()
    old.check_leader()
    old.put("c", "k", b"old")
    new = place.open()
    assert new.leader_token > old.leader_token
    with pytest.raises(StaleLeaderError):
        old.check_leader()
    with pytest.raises(StaleLeaderError):
        old.put("c", "k", b"zombie")
    with pytest.raises(StaleLeaderError):
        old.put("c", "new", b"zombie")
    with pytest.raises(StaleLeaderError):
        old.compare_and_set("c", "k", b"old", b"zombie")
    with pytest.raises(StaleLeaderError):
        old.compare_and_set("c", "new", None, b"zombie")
    with pytest.raises(StaleLeaderError):
        old.compare_and_set("c", "k", None, b"zombie")
    with pytest.raises(StaleLeaderError):
        old.delete("c", "k")
    assert new.items("c") == [("k", b"old")]
    new.put("c", "k", b"new")
    new.check_leader()
    assert old.get("c", "k") == b"new"


def test_many_threads_share_a_store(place: StorePlace) -> None:
    store = place.open()
    won: list[int] = []

    def race(number: int) -> None:
        if store.compare_and_set("c", "k", None, str(number).encode()):
            won.append(number)

    threads = [threading.Thread(target=race, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store.get("c", "k") == str(won[0]).encode()


def test_tokens_only_grow(place: StorePlace) -> None:
    tokens = [place.open().leader_token for _ in range(4)]
    assert tokens == sorted(set(tokens))


def test_every_write_is_synced_to_disk(tmp_path: Path) -> None:
    store = SqliteMetadataStore(tmp_path / "m")
    connection = store._connection
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    store.close()


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "m")
    connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(StoreFormatError, match="format 9"):
        SqliteMetadataStore(tmp_path / "m")


@pytest.fixture
def records(place: StorePlace) -> JobRecords:
    return JobRecords(place.open())


def test_a_job_and_its_graph(records: JobRecords) -> None:
    records.create(record(), GRAPH)
    assert records.all() == [record()]
    assert records.graph(JOB) == GRAPH
    records.delete(JOB)
    assert records.all() == []
    with pytest.raises(KeyError):
        records.graph(JOB)


def test_a_checkpoint_id_is_reserved_by_a_leader_only(place: StorePlace) -> None:
    """Also one that is reserved already: a barrier follows."""
    old = JobRecords(place.open())
    old.set_next_checkpoint_id(JOB, 7)
    place.open()
    with pytest.raises(StaleLeaderError):
        old.set_next_checkpoint_id(JOB, 5)


def test_checkpoint_ids_only_grow(records: JobRecords) -> None:
    assert records.next_checkpoint_id(JOB) == 1
    records.set_next_checkpoint_id(JOB, 7)
    records.set_next_checkpoint_id(JOB, 5)
    assert records.next_checkpoint_id(JOB) == 7


def test_the_pointer_moves_from_what_it_was(records: JobRecords) -> None:
    first, second = (CheckpointPointer(1, n, f"g1/chk-{n}/manifest", "00") for n in (1, 2))
    records.move_pointer(JOB, None, first)
    with pytest.raises(PointerConflictError):
        records.move_pointer(JOB, None, second)
    records.move_pointer(JOB, first, second)
    assert records.pointer(JOB) == second
    assert records.pointer(OTHER) is None


def test_first_splits(records: JobRecords) -> None:
    assert records.first_splits(JOB) is None
    records.set_first_splits(JOB, {"s": (Split("0", b"latest=5"),)})
    assert records.first_splits(JOB) == {"s": (Split("0", b"latest=5"),)}


def test_a_namespace_has_one_live_owner(records: JobRecords) -> None:
    records.create(record(JOB), GRAPH)
    records.create(record(OTHER), GRAPH)
    records.claim_namespace("ns", JOB)
    records.claim_namespace("ns", JOB)
    with pytest.raises(NamespaceTakenError, match=JOB):
        records.claim_namespace("ns", OTHER)
    records.update(record(JOB, JobState.CANCELED))
    records.claim_namespace("ns", OTHER)
    records.release_namespace("ns", JOB)
    with pytest.raises(NamespaceTakenError):
        records.claim_namespace("ns", JobId("3" * 32))
    records.release_namespace("ns", OTHER)
    records.claim_namespace("ns", JobId("3" * 32))


def test_a_write_that_finds_no_room_changes_nothing(tmp_path: Path) -> None:
    store = SqliteMetadataStore(tmp_path / "metadata.sqlite")
    store.put("c", "a", b"1")
    store._connection.execute("PRAGMA max_page_count = 1")  # As many as there are.
    for _ in range(2):
        with pytest.raises(StaleLeaderError, match="disk is full"):
            store.put("c", "b", bytes(1_000_000))
    assert store.items("c") == [("a", b"1")]
    store._connection.execute("PRAGMA max_page_count = 100000")
    store.put("c", "b", bytes(1_000_000))
    store.close()
