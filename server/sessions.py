"""Sessions: settings, current catalog and database, own definitions, operations. They survive a restart.

What a session is made of is one record in the metadata store, written whenever a statement changed it. Idle time
counts from the last request; after a restart it starts again.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping

import msgspec

from planner.catalog import CatalogEntry, ObjectPath
from planner.sql.statements import Insert
from runtime.api import JobId, MetadataStore
from server.catalog.session_catalog import SessionCatalog
from server.catalog.store import CatalogStore
from server.errors import LimitReachedError, UnknownOperationError, UnknownSessionError
from server.operations import Operation

_SESSIONS = "sessions"
_OPERATIONS = "operations"

FINISHED_OPERATIONS_MAX = 1_000
"""Flink's sql-client never closes operations other than queries: of the ended ones only the newest are kept."""


class _Definition(msgspec.Struct, frozen=True):
    path: ObjectPath
    entry: CatalogEntry
    temporary: bool


class _SessionRecord(msgspec.Struct, frozen=True):
    name: str
    properties: dict[str, str]
    current_catalog: str
    current_database: str
    definitions: tuple[_Definition, ...] = ()
    pending_inserts: tuple[str, ...] | None = None


class OperationRecord(msgspec.Struct, frozen=True):
    """What is left of an operation after a restart: the job it started."""

    session: str
    statement: str
    job_id: JobId
    is_query: bool
    awaits_job: bool = False
    """`table.dml-sync`: its result shows when the job has ended."""


_session_decoder = msgspec.msgpack.Decoder(_SessionRecord)
_operation_decoder = msgspec.msgpack.Decoder(OperationRecord)


class Session:
    """One client's state. Statements of a session run one at a time, under `lock`."""

    def __init__(self, handle: str, name: str, properties: Mapping[str, str], catalog: SessionCatalog) -> None:
        self.handle = handle
        self.name = name
        self.properties = dict(properties)
        self.catalog = catalog
        self.pending_inserts: list[Insert] | None = None
        """The INSERTs collected since BEGIN STATEMENT SET; None outside of one."""
        self.remarked: set[str] = set()
        """Setting names that were remarked on already."""
        self.operations: dict[str, Operation] = {}
        self.lock = asyncio.Lock()
        self.last_access_s = 0.0

    def operation(self, handle: str) -> Operation:
        operation = self.operations.get(handle)
        if operation is None:
            raise UnknownOperationError(
                f"Can not find the submitted operation in the OperationManager with the {handle}."
            )
        return operation

    def add_operation(self, operation: Operation) -> None:
        """Keeps it; forgets the oldest ended one when there are too many."""
        self.operations[operation.handle] = operation
        if len(self.operations) > FINISHED_OPERATIONS_MAX:
            ended = (o.handle for o in self.operations.values() if o.status.terminal and o.query_job is None)
            oldest = next(ended, None)
            if oldest is not None:
                del self.operations[oldest]


class SessionManager:
    """Opens, finds and ends sessions, and keeps their records. Owner of collections `sessions`, `operations`."""

    def __init__(
        self,
        metadata: MetadataStore,
        shared: CatalogStore,
        parse_inserts: Callable[[str], list[Insert]],
        clock: Callable[[], float],
        sessions_max: int,
    ) -> None:
        self._metadata = metadata
        self._shared = shared
        self._parse_inserts = parse_inserts
        self._clock = clock
        self._sessions_max = sessions_max
        self._sessions: dict[str, Session] = {}

    def all(self) -> list[Session]:
        return list(self._sessions.values())

    def restore(self) -> list[tuple[Session, str, OperationRecord]]:
        """Loads every session; returns the operations left from before, for the gateway to bring back. Blocks."""
        for handle, value in self._metadata.items(_SESSIONS):
            self._sessions[handle] = self._from_record(handle, _session_decoder.decode(value))
        left = []
        for handle, value in self._metadata.items(_OPERATIONS):
            record = _operation_decoder.decode(value)
            session = self._sessions.get(record.session)
            if session is None:
                self._metadata.delete(_OPERATIONS, handle)
            else:
                left.append((session, handle, record))
        return left

    async def open(self, name: str, properties: Mapping[str, str]) -> Session:
        """A new session, durable when it returns."""
        if len(self._sessions) >= self._sessions_max:
            raise LimitReachedError(
                f"there are {self._sessions_max} sessions already",
                hint="Close sessions, or raise gateway.sessions-max.",
            )
        session = Session(str(uuid.uuid4()), name, properties, SessionCatalog(self._shared))
        session.last_access_s = self._clock()
        self._sessions[session.handle] = session
        await self.persist(session)
        return session

    def get(self, handle: str) -> Session:
        """The session, touched. O(1): Flink's shell asks at every key press."""
        session = self._sessions.get(handle)
        if session is None:
            raise UnknownSessionError(
                f"Session '{handle}' does not exist.", hint="It was closed or has expired; open a new one."
            )
        session.last_access_s = self._clock()
        return session

    def idle(self, limit_s: float) -> list[Session]:
        """Sessions without a request for longer than `limit_s`."""
        now_s = self._clock()
        return [s for s in self._sessions.values() if now_s - s.last_access_s > limit_s]

    async def remove(self, session: Session) -> None:
        """Forgets a session and its records; its operations have been ended."""
        self._sessions.pop(session.handle, None)
        handles = list(session.operations)

        def delete() -> None:
            for handle in handles:
                self._metadata.delete(_OPERATIONS, handle)
            self._metadata.delete(_SESSIONS, session.handle)

        await asyncio.to_thread(delete)

    async def persist(self, session: Session) -> None:
        """Writes the session's record; on disk when it returns."""
        value = msgspec.msgpack.encode(_to_record(session))
        if session.handle in self._sessions:
            await asyncio.to_thread(self._metadata.put, _SESSIONS, session.handle, value)

    async def persist_operation(self, handle: str, record: OperationRecord) -> None:
        await asyncio.to_thread(self._metadata.put, _OPERATIONS, handle, msgspec.msgpack.encode(record))

    async def forget_operation(self, handle: str) -> None:
        await asyncio.to_thread(self._metadata.delete, _OPERATIONS, handle)

    def _from_record(self, handle: str, record: _SessionRecord) -> Session:
        catalog = SessionCatalog(
            self._shared,
            current_catalog=record.current_catalog,
            current_database=record.current_database,
            own={d.path: d.entry for d in record.definitions if not d.temporary},
            temporary={d.path: d.entry for d in record.definitions if d.temporary},
        )
        session = Session(handle, record.name, record.properties, catalog)
        if record.pending_inserts is not None:
            session.pending_inserts = [i for text in record.pending_inserts for i in self._parse_inserts(text)]
        session.last_access_s = self._clock()
        return session


def _to_record(session: Session) -> _SessionRecord:
    catalog = session.catalog
    definitions = [_Definition(path, entry, False) for path, entry in catalog.own.items()]
    definitions += [_Definition(path, entry, True) for path, entry in catalog.temporary.items()]
    pending = session.pending_inserts
    return _SessionRecord(
        name=session.name,
        properties=session.properties,
        current_catalog=catalog.current_catalog,
        current_database=catalog.current_database,
        definitions=tuple(definitions),
        pending_inserts=None if pending is None else tuple(insert.text for insert in pending),
    )
