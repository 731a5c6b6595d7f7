"""What is PostgreSQL's alone: the lease, an unanswered write, a database that goes away, a paused leader's locks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from runtime.api import StaleLeaderError
from runtime.clock import monotonic_ms
from runtime.metadata.election import Contact, LeaseRecord
from runtime.metadata.lease import Lease, StoreUnavailableError
from runtime.metadata.postgresql import MetadataUrlError, PostgresDatabase, PostgresLeaseStore, PostgresMetadataStore
from tests.support.metadata_stores import PostgresPlace
from tests.support.postgresql import PostgresServer
from tests.support.standalone import free_port

A = Contact("a", "http://a")
B = Contact("b", "http://b")


@pytest.fixture
def place(postgres: PostgresServer) -> Iterator[PostgresPlace]:
    found = PostgresPlace(postgres.url)
    yield found
    found.close()


def held_for(duration_ms: int) -> Lease:
    lease = Lease()
    lease.hold_until(monotonic_ms() + duration_ms)
    return lease


def test_the_lease(place: PostgresPlace) -> None:
    leases = place.leases
    assert leases.look() == LeaseRecord(0, 0, 0, None)
    first = leases.take(leases.look(), A, 700)
    assert first == 1
    seen = leases.look()
    assert seen == LeaseRecord(1, 0, 700, A)
    assert leases.renew(1)
    assert leases.take(seen, B, 500) is None, "it was renewed since"
    assert leases.look() == LeaseRecord(1, 1, 700, A)
    assert leases.take(leases.look(), B, 500) == 2
    assert not leases.renew(1)
    leases.release(1)
    assert leases.look() == LeaseRecord(2, 0, 500, B)
    leases.release(2)
    assert leases.look() == LeaseRecord(2, 0, 500, None)


def test_clusters_in_one_database_do_not_meet(postgres: PostgresServer, place: PostgresPlace) -> None:
    other = PostgresPlace(postgres.url)
    here, there = place.open(), other.open()
    here.put("c", "k", b"here")
    assert there.get("c", "k") is None
    there.put("c", "k", b"there")
    assert (here.items("c"), there.items("c")) == ([("k", b"here")], [("k", b"there")])
    here.delete("c", "k")
    assert there.get("c", "k") == b"there"
    other.close()


def test_many_processes_may_create_the_tables_at_once(postgres: PostgresServer) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS fresh")
        connection.execute("CREATE DATABASE fresh")
    url = postgres.url.removesuffix("headrace") + "fresh"
    places = [PostgresDatabase(url, "c", 5_000) for _ in range(4)]
    failures: list[BaseException] = []

    def look(database: PostgresDatabase) -> None:
        try:
            PostgresLeaseStore(database).look()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=look, args=(database,)) for database in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE headrace_schema SET version = 9")
    later = PostgresDatabase(url, "c", 5_000)
    with pytest.raises(MetadataUrlError, match="format 9"):
        PostgresLeaseStore(later).look()
    for database in [*places, later]:
        database.close()


def test_a_lease_that_is_over_stops_every_write_before_it_is_sent(place: PostgresPlace) -> None:
    lease = held_for(60_000)
    store = place.open(lease)
    store.put("c", "k", b"1")
    lease.give_up()
    with pytest.raises(StaleLeaderError, match="lease is over"):
        store.put("c", "k", b"2")
    with pytest.raises(StaleLeaderError, match="lease is over"):
        store.check_leader()


def test_a_write_waits_for_a_database_that_starts_again(place: PostgresPlace, postgres: PostgresServer) -> None:
    store = place.open()
    store.put("c", "k", b"1")
    postgres.stop()
    with ThreadPoolExecutor() as threads:
        writing = threads.submit(store.compare_and_set, "c", "k", b"1", b"2")
        postgres.restart()
        assert writing.result(30)
    assert store.get("c", "k") == b"2"


def test_without_a_database_calls_end_with_the_lease() -> None:
    place = PostgresPlace(f"postgresql://headrace@127.0.0.1:{free_port()}/headrace")
    with pytest.raises(StoreUnavailableError):
        place.leases.look()
    store = PostgresMetadataStore(place.database(), 1, held_for(300))
    began = time.monotonic()
    with pytest.raises(StaleLeaderError):
        store.put("c", "k", b"1")
    assert time.monotonic() - began < 5
    place.close()


@pytest.mark.parametrize("expected", [None, b"0"])
def test_a_compare_and_set_whose_answer_was_lost_is_settled(
    place: PostgresPlace, monkeypatch: pytest.MonkeyPatch, expected: bytes | None
) -> None:
    """The first attempt is committed, but its connection breaks before the answer: the second finds it done."""
    store = place.open()
    if expected is not None:
        store.put("c", "k", expected)
    write = store._write
    lost = 0

    def write_and_lose_the_answer(statement: object) -> bool:
        nonlocal lost
        changed = write(statement)  # type: ignore[arg-type]
        lost += 1
        if lost == 1:
            raise StoreUnavailableError("the connection broke")
        return changed

    monkeypatch.setattr(store, "_write", write_and_lose_the_answer)
    assert store.compare_and_set("c", "k", expected, b"1")
    assert lost == 2
    assert not store.compare_and_set("c", "k", b"9", b"2")
    assert store.get("c", "k") == b"1"


def test_the_token_cannot_be_raised_in_the_middle_of_a_write(place: PostgresPlace, postgres: PostgresServer) -> None:
    """A write that has seen our token is done before a successor's first one: it waits for the row's lock."""
    store = place.open()
    seen = place.leases.look()
    store.put("c", "k", b"0")
    with psycopg.connect(postgres.url) as holder, ThreadPoolExecutor() as threads:
        # Holds up a write that has locked the leader's row already.
        holder.execute("SELECT * FROM headrace_records WHERE cluster_id = %s FOR UPDATE", [place.cluster_id])
        writing = threads.submit(store.put, "c", "k", b"1")
        _until_waiting(postgres, 1)
        taking = threads.submit(place.leases.take, seen, B, 500)
        _until_waiting(postgres, 2)
        assert not taking.done()
        holder.rollback()
        writing.result(10)
        assert taking.result(10) == seen.token + 1
    assert place.open().get("c", "k") == b"1"


def _until_waiting(postgres: PostgresServer, count: int) -> None:
    """So many connections wait for locks."""
    deadline = time.monotonic() + 10
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        while time.monotonic() < deadline:
            row = connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
            if row is not None and row[0] >= count:
                return
            time.sleep(0.01)
    raise TimeoutError(f"there are not {count} that wait for a lock")


@pytest.mark.parametrize("url", ["", "nonsense", "mysql://root@127.0.0.1/x", "sqlite:///x"])
def test_a_url_that_names_no_postgresql_is_refused(url: str) -> None:
    with pytest.raises(MetadataUrlError):
        PostgresDatabase(url, "c", 5_000)


def test_commits_are_durable_whatever_the_server_says(place: PostgresPlace, postgres: PostgresServer) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("ALTER ROLE headrace SET synchronous_commit = off")
        try:
            shown = place.database().run(lambda c: c.exec_driver_sql("SHOW synchronous_commit").scalar())
        finally:
            connection.execute("ALTER ROLE headrace RESET synchronous_commit")
    assert shown == "on"
