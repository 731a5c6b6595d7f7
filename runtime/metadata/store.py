"""Small durable records in one SQLite file (WAL, synchronous FULL), fenced by a leader token.

Opening the store for writing raises the token that is kept in the same file; every write checks it in its own
transaction. So a JobManager that was paused while another took over cannot change anything when it wakes up.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runtime.api import StaleLeaderError

SCHEMA_VERSION = 1
BUSY_TIMEOUT_S = 30.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    collection TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (collection, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leader (id INTEGER PRIMARY KEY CHECK (id = 1), token INTEGER NOT NULL);
INSERT OR IGNORE INTO leader VALUES (1, 0);
"""


class StoreFormatError(Exception):
    """The file was written by another version."""


class SqliteMetadataStore:
    """Implements `runtime.api.MetadataStore`. Thread-safe: one connection behind one lock."""

    def __init__(self, path: Path) -> None:
        """Opens (and creates) the file and takes the lease: older holders are fenced from here on."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._check_version()
            self._connection.executescript(_SCHEMA)
            self._token = self._take_lease()
        except BaseException:
            self._connection.close()
            raise

    @property
    def leader_token(self) -> int:
        """Ours; higher than that of every earlier leader."""
        return self._token

    def check_leader(self) -> None:
        with self._lock:
            self._check_token()

    def get(self, collection: str, key: str) -> bytes | None:
        query = "SELECT value FROM records WHERE collection = ? AND key = ?"
        with self._lock:
            row = self._connection.execute(query, (collection, key)).fetchone()
        return bytes(row[0]) if row is not None else None

    def put(self, collection: str, key: str, value: bytes) -> None:
        with self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", (collection, key, value))

    def compare_and_set(self, collection: str, key: str, expected: bytes | None, value: bytes) -> bool:
        """Write only if the current value is `expected` (None: absent). False: nothing changed."""
        with self._transaction() as connection:
            query = "SELECT value FROM records WHERE collection = ? AND key = ?"
            row = connection.execute(query, (collection, key)).fetchone()
            if (bytes(row[0]) if row is not None else None) != expected:
                return False
            connection.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", (collection, key, value))
            return True

    def delete(self, collection: str, key: str) -> None:
        with self._transaction() as connection:
            connection.execute("DELETE FROM records WHERE collection = ? AND key = ?", (collection, key))

    def items(self, collection: str) -> list[tuple[str, bytes]]:
        """All records of a collection in key order."""
        query = "SELECT key, value FROM records WHERE collection = ? ORDER BY key"
        with self._lock:
            rows = self._connection.execute(query, (collection,)).fetchall()
        return [(str(key), bytes(value)) for key, value in rows]

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _check_version(self) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        elif version != SCHEMA_VERSION:
            raise StoreFormatError(f"{self._path} has format {version}, not {SCHEMA_VERSION}")

    def _take_lease(self) -> int:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("UPDATE leader SET token = token + 1 WHERE id = 1")
        (token,) = self._connection.execute("SELECT token FROM leader WHERE id = 1").fetchone()
        self._connection.execute("COMMIT")
        return int(token)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One write transaction under the lease. Raises StaleLeaderError, also where the file cannot be written (a full
        disk): nothing has changed then."""
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                self._check_token()
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException as error:
                self._roll_back()
                if isinstance(error, sqlite3.OperationalError):
                    raise StaleLeaderError(f"{self._path} cannot be written: {error}") from error
                raise

    def _roll_back(self) -> None:
        if not self._connection.in_transaction:
            return  # SQLite has done it itself, as after a full disk.
        try:
            self._connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            pass  # What counts is the error before; an open transaction is never committed.

    def _check_token(self) -> None:
        (token,) = self._connection.execute("SELECT token FROM leader WHERE id = 1").fetchone()
        if token != self._token:
            raise StaleLeaderError(f"leader token {self._token} is older than {token}")
