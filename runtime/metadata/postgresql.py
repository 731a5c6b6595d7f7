"""Metadata of one or more clusters in a PostgreSQL database that several JobManagers share.

Every write is one statement that locks the leader's row and does nothing unless our token is in it: a JobManager that
was paused holds no lock that its successor would have to wait for, and changes nothing when it wakes up. While the
database does not answer, calls are repeated until the lease is over; a write of which nobody knows whether it happened
is settled by that, because only the leader writes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, NotSupportedError, ProgrammingError

from runtime.api import StaleLeaderError
from runtime.metadata.election import Contact, LeaseRecord
from runtime.metadata.lease import Lease, StoreUnavailableError

_log = logging.getLogger(__name__)
T = TypeVar("T")

SCHEMA_VERSION = 1
POOL_SIZE = 4
RETRY_S = 0.1
CONNECT_TIMEOUT_S = 2
"""libpq takes no shorter one."""
_SCHEMES = ("postgresql", "postgres")
_SCHEMA_LOCK = 0x48656164
"""Advisory lock around the creation of tables: CREATE TABLE IF NOT EXISTS is not safe against itself."""
_BUGS = (ProgrammingError, DataError, IntegrityError, NotSupportedError)
"""What repeating cannot cure. All else (connection, shutdown, recovery, time-out, read-only standby) may pass."""

_tables = sa.MetaData()
_versions = sa.Table("headrace_schema", _tables, sa.Column("version", sa.Integer, primary_key=True))
_leaders = sa.Table(
    "headrace_leader",
    _tables,
    sa.Column("cluster_id", sa.Text, primary_key=True),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("renewals", sa.BigInteger, nullable=False),
    sa.Column("duration_ms", sa.BigInteger, nullable=False),
    sa.Column("holder", sa.LargeBinary, nullable=True),
)
_records = sa.Table(
    "headrace_records",
    _tables,
    sa.Column("cluster_id", sa.Text, primary_key=True),
    sa.Column("collection", sa.Text, primary_key=True),
    sa.Column("key", sa.Text(collation="C"), primary_key=True),
    sa.Column("value", sa.LargeBinary, nullable=False),
)


class MetadataUrlError(Exception):
    """The URL names no PostgreSQL database, or the tables in it are of another version."""


class PostgresDatabase:
    """One database and, in it, one cluster's rows. Thread-safe. Connects at the first use."""

    def __init__(self, url: str, cluster_id: str, timeout_ms: int) -> None:
        """`timeout_ms`: statements that take longer have failed. Raises MetadataUrlError."""
        try:
            parsed = sa.make_url(url)
        except ArgumentError as error:
            raise MetadataUrlError("it is not a URL like postgresql://user@host:5432/database") from error
        if parsed.drivername not in _SCHEMES:
            raise MetadataUrlError(f"'{parsed.drivername}' is not supported, only postgresql://")
        self.cluster_id = cluster_id
        self._prepared = False
        self._lock = threading.Lock()
        self._engine = sa.create_engine(
            parsed.set(drivername="postgresql+psycopg"),
            isolation_level="AUTOCOMMIT",
            pool_size=POOL_SIZE,
            pool_timeout=timeout_ms / 1000,
            # A prepared statement would not survive a pooler between us and the database; ours are few and small.
            connect_args={
                "connect_timeout": CONNECT_TIMEOUT_S,
                "tcp_user_timeout": timeout_ms,
                "keepalives_idle": 5,
                "keepalives_interval": 2,
                "keepalives_count": 3,
                "application_name": "headrace",
                "prepare_threshold": None,
            },
        )
        sa.event.listen(self._engine, "connect", _session_settings(timeout_ms))

    def run(self, call: Callable[[sa.Connection], T]) -> T:
        """One call on a connection of its own; every statement commits by itself, durably. Raises
        StoreUnavailableError when it may be repeated, MetadataUrlError for tables of another version."""
        try:
            if not self._prepared:
                self._prepare()
            with self._engine.connect() as connection:
                return call(connection)
        except _BUGS:
            raise
        except (DBAPIError, sa.exc.TimeoutError) as error:
            raise StoreUnavailableError(_reason(error)) from error

    def close(self) -> None:
        self._engine.dispose()

    def _prepare(self) -> None:
        with self._lock, self._engine.connect() as connection:
            if self._prepared:
                return
            connection.execute(sa.select(sa.func.pg_advisory_lock(_SCHEMA_LOCK)))
            try:
                self._create(connection)
            finally:
                connection.execute(sa.select(sa.func.pg_advisory_unlock(_SCHEMA_LOCK)))
            self._prepared = True

    def _create(self, connection: sa.Connection) -> None:
        _tables.create_all(connection)
        version = connection.execute(sa.select(_versions.c.version)).scalar()
        if version is None:
            connection.execute(sa.insert(_versions).values(version=SCHEMA_VERSION))
        elif version != SCHEMA_VERSION:
            raise MetadataUrlError(f"the metadata tables have format {version}, not {SCHEMA_VERSION}")
        first = {"cluster_id": self.cluster_id, "token": 0, "renewals": 0, "duration_ms": 0}
        connection.execute(upsert(_leaders).values(first).on_conflict_do_nothing())


class PostgresLeaseStore:
    """Implements `LeaseStore`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._ours = _leaders.c.cluster_id == database.cluster_id

    def look(self) -> LeaseRecord:
        query = sa.select(_leaders.c.token, _leaders.c.renewals, _leaders.c.duration_ms, _leaders.c.holder)
        row = self._database.run(lambda connection: connection.execute(query.where(self._ours)).one())
        holder = msgspec.json.decode(row.holder, type=Contact) if row.holder is not None else None
        return LeaseRecord(row.token, row.renewals, row.duration_ms, holder)

    def take(self, watched: LeaseRecord, contact: Contact, duration_ms: int) -> int | None:
        taken = (
            sa.update(_leaders)
            .where(self._ours, _leaders.c.token == watched.token, _leaders.c.renewals == watched.renewals)
            .values(
                token=_leaders.c.token + 1, renewals=0, duration_ms=duration_ms, holder=msgspec.json.encode(contact)
            )
            .returning(_leaders.c.token)
        )
        token: int | None = self._database.run(lambda connection: connection.execute(taken).scalar())
        return token

    def renew(self, token: int) -> bool:
        return self._update(token, renewals=_leaders.c.renewals + 1)

    def release(self, token: int) -> None:
        self._update(token, holder=None)

    def close(self) -> None:
        self._database.close()

    def _update(self, token: int, **values: Any) -> bool:
        statement = sa.update(_leaders).where(self._ours, _leaders.c.token == token).values(values)
        return self._database.run(lambda connection: connection.execute(statement).rowcount) == 1


class PostgresMetadataStore:
    """Implements `LeaderStore` under one token. Calls wait while the database is away, until the lease is over."""

    def __init__(self, database: PostgresDatabase, token: int, lease: Lease) -> None:
        self._database = database
        self._token = token
        self._lease = lease

    @property
    def leader_token(self) -> int:
        return self._token

    def check_leader(self) -> None:
        self._repeat(lambda: self._database.run(self._check_token))

    def get(self, collection: str, key: str) -> bytes | None:
        query = sa.select(_records.c.value).where(self._is_record(collection, key))
        return self._repeat(lambda: self._database.run(lambda connection: connection.execute(query).scalar()))

    def put(self, collection: str, key: str, value: bytes) -> None:
        statement = self._insert(collection, key, value)
        statement = statement.on_conflict_do_update(
            index_elements=[_records.c.cluster_id, _records.c.collection, _records.c.key],
            set_={"value": statement.excluded.value},
        )
        self._repeat(lambda: self._write(statement))

    def compare_and_set(self, collection: str, key: str, expected: bytes | None, value: bytes) -> bool:
        """Write only if the current value is `expected` (None: absent). False: nothing changed."""
        fence = self._fence()
        statement: sa.Insert | sa.Update
        if expected is None:
            statement = self._insert(collection, key, value).on_conflict_do_nothing()
        else:
            is_expected = sa.and_(self._is_record(collection, key), _records.c.value == expected)
            is_fenced = sa.exists(sa.select(fence.c.token))
            statement = sa.update(_records).where(is_expected, is_fenced).values(value=value)
        asked = 0

        def attempt() -> bool:
            nonlocal asked
            asked += 1
            return self._write(statement)

        changed = self._repeat(attempt)
        # An attempt that was not answered may have been the one that wrote it.
        return changed or (asked > 1 and self.get(collection, key) == value)

    def delete(self, collection: str, key: str) -> None:
        is_fenced = sa.exists(sa.select(self._fence().c.token))
        statement = sa.delete(_records).where(self._is_record(collection, key), is_fenced)
        self._repeat(lambda: self._write(statement))

    def items(self, collection: str) -> list[tuple[str, bytes]]:
        """All records of a collection in key order."""
        query = sa.select(_records.c.key, _records.c.value).order_by(_records.c.key)
        query = query.where(_records.c.cluster_id == self._database.cluster_id, _records.c.collection == collection)
        rows = self._repeat(lambda: self._database.run(lambda connection: connection.execute(query).all()))
        return [(row.key, bytes(row.value)) for row in rows]

    def close(self) -> None:
        self._database.close()

    def _is_record(self, collection: str, key: str) -> sa.ColumnElement[bool]:
        cluster_id = self._database.cluster_id
        return sa.and_(_records.c.cluster_id == cluster_id, _records.c.collection == collection, _records.c.key == key)

    def _fence(self) -> sa.CTE:
        """One row while our token is the newest, else none. Its lock lets nobody raise the token before the statement
        is done."""
        is_ours = sa.and_(_leaders.c.cluster_id == self._database.cluster_id, _leaders.c.token == self._token)
        return sa.select(_leaders.c.token).where(is_ours).with_for_update(read=True).cte("fence")

    def _insert(self, collection: str, key: str, value: bytes) -> Any:
        fence = self._fence()
        row = sa.select(
            sa.literal(self._database.cluster_id), sa.literal(collection), sa.literal(key), sa.literal(value)
        ).select_from(fence)
        return upsert(_records).from_select(["cluster_id", "collection", "key", "value"], row)

    def _write(self, statement: sa.Insert | sa.Update | sa.Delete) -> bool:
        """True: a row was written. False: none was, and not for want of the token. Raises StaleLeaderError."""

        def call(connection: sa.Connection) -> bool:
            if connection.execute(statement.returning(_records.c.key)).first() is not None:
                return True
            self._check_token(connection)
            return False

        return self._database.run(call)

    def _check_token(self, connection: sa.Connection) -> None:
        query = sa.select(_leaders.c.token).where(_leaders.c.cluster_id == self._database.cluster_id)
        token = connection.execute(query).scalar()
        if token != self._token:
            raise StaleLeaderError(f"leader token {self._token} is older than {token}")

    def _repeat(self, call: Callable[[], T]) -> T:
        """Until it is answered. Raises StaleLeaderError when the lease is over before that."""
        failed = False
        while True:
            self._lease.check()
            try:
                result = call()
            except StoreUnavailableError as error:
                if not failed:
                    _log.warning("the metadata store does not answer: %s", error)
                failed = True
                time.sleep(RETRY_S)
            else:
                return result


def _session_settings(timeout_ms: int) -> Callable[[Any, Any], None]:
    def set_up(connection: Any, _record: Any) -> None:
        """Durable commits whatever the server's default, and no statement that nobody waits for any more."""
        with connection.cursor() as cursor:
            cursor.execute(f"SET statement_timeout = {timeout_ms}")
            cursor.execute("SELECT current_setting('synchronous_commit') IN ('off', 'local')")
            if cursor.fetchone()[0]:
                cursor.execute("SET synchronous_commit = on")
        connection.commit()

    return set_up


def _reason(error: Exception) -> str:
    """The server's or libpq's own words, on one line: no statement, no parameters, no URL."""
    text = str(getattr(error, "orig", None) or error)
    return " ".join(text.split())
