"""Both kinds of metadata store behind one face, so that one suite tests them: every `open` is a new leader's."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from runtime.clock import monotonic_ms
from runtime.metadata.election import Contact
from runtime.metadata.lease import LeaderStore, Lease
from runtime.metadata.postgresql import PostgresDatabase, PostgresLeaseStore, PostgresMetadataStore
from runtime.metadata.store import SqliteMetadataStore

LONG_MS = 600_000


class StorePlace(Protocol):
    def open(self) -> LeaderStore:
        """Takes the lease: earlier ones are fenced from here on."""

    def close(self) -> None: ...


class SqlitePlace:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "metadata.sqlite"
        self._opened: list[LeaderStore] = []

    def open(self) -> LeaderStore:
        self._opened.append(SqliteMetadataStore(self.path))
        return self._opened[-1]

    def close(self) -> None:
        for store in self._opened:
            store.close()


class PostgresPlace:
    """One cluster's rows in a database, under a cluster id of its own."""

    def __init__(self, url: str, timeout_ms: int = 5_000) -> None:
        self.url = url
        self.cluster_id = uuid.uuid4().hex
        self.timeout_ms = timeout_ms
        self._databases: list[PostgresDatabase] = []
        self.leases = PostgresLeaseStore(self.database())

    def database(self) -> PostgresDatabase:
        self._databases.append(PostgresDatabase(self.url, self.cluster_id, self.timeout_ms))
        return self._databases[-1]

    def open(self, lease: Lease | None = None) -> PostgresMetadataStore:
        token = self.leases.take(self.leases.look(), Contact("test", "http://test"), LONG_MS)
        assert token is not None
        if lease is None:
            lease = Lease()
            lease.hold_until(monotonic_ms() + LONG_MS)
        return PostgresMetadataStore(self.database(), token, lease)

    def close(self) -> None:
        for database in self._databases:
            database.close()


STORES = ("sqlite", "postgresql")
"""What a fixture is given as `params` for a test to run on either store."""


def store_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StorePlace]:
    """The body of such a fixture."""
    found: StorePlace = (
        SqlitePlace(tmp_path) if request.param == "sqlite" else PostgresPlace(request.getfixturevalue("postgres").url)
    )
    yield found
    found.close()
