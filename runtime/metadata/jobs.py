"""A job's durable records; what changes often lives in records of its own:

jobs              JobRecord: state, generation, namespaces, …
job-graphs        the JobGraph's bytes; another parallelism replaces it
checkpoint-ids    the next checkpoint id, as decimal text: it only grows
pointers          CheckpointPointer: the latest committed checkpoint
splits            the splits of each source as first enumerated: a start before the first checkpoint reads the same
namespaces        sink namespace → the live job that owns it
savepoints        <job>/<location> → what is known of a savepoint that was taken of the job
"""

from __future__ import annotations

import msgspec

from connectors.api import Split
from planner.ir import codec
from planner.ir.job_graph import JobGraph
from runtime.api import JobState, JobStatus, MetadataStore, SavepointEntry
from runtime.checkpoint.manifest import CheckpointPointer
from runtime.ids import JobId
from runtime.protocol.messages import Failure

_JOBS = "jobs"
_GRAPHS = "job-graphs"
_NEXT_IDS = "checkpoint-ids"
_POINTERS = "pointers"
_SPLITS = "splits"
_NAMESPACES = "namespaces"
_HISTORY = "job-history"
_SAVEPOINTS = "savepoints"


class NamespaceTakenError(Exception):
    """Another live job writes under this namespace."""

    domain = "user"
    retry = False

    def __init__(self, namespace: str, owner: str) -> None:
        super().__init__(
            f"the sink namespace '{namespace}' belongs to job {owner}, which is still alive; "
            "stop that job or choose another 'sink.transactional-id-prefix'"
        )


class PointerConflictError(Exception):
    """The pointer is not what this JobManager last wrote: somebody else moved it."""


class SavepointOrigin(msgspec.Struct, frozen=True):
    """The savepoint a job starts from. `job_id` took it; `checkpoint_id` is pinned: another one in the same place is
    refused."""

    path: str
    job_id: JobId
    checkpoint_id: int
    ignore_unclaimed_state: bool = False
    allow_rewind: bool = False


class JobRecord(msgspec.Struct, frozen=True):
    """`namespaces`: sink uid → namespace. `owner_counts`: sink uid → largest parallelism ever started (durable before
    a start, so that ids of a larger attempt that failed are still fenced). `marker_floor`: the highest marker found at
    the first start, left by earlier jobs under the same namespace (None before that). Times are epoch ms."""

    job_id: JobId
    name: str
    state: JobState
    is_query: bool
    submitted_at_ms: int
    generation: int = 0
    restarts: int = 0
    state_timestamps_ms: dict[str, int] = {}
    end_ms: int = -1
    namespaces: dict[str, str] = {}
    owner_counts: dict[str, int] = {}
    marker_floor: int | None = None
    failure: Failure | None = None
    origin: SavepointOrigin | None = None
    restore_notes: tuple[str, ...] = ()


class JobRecords:
    """Typed access to the records above. Blocking; raises StaleLeaderError like the store below it."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def check_leader(self) -> None:
        """Raises StaleLeaderError when another JobManager leads."""
        self._store.check_leader()

    def create(self, record: JobRecord, graph: JobGraph) -> None:
        """The graph first: a job exists once its record does."""
        self._store.put(_GRAPHS, record.job_id, codec.encode(graph))
        self.update(record)

    def replace_graph(self, job_id: JobId, graph: JobGraph) -> None:
        """Of a job that is there: its next start takes it."""
        self._store.put(_GRAPHS, job_id, codec.encode(graph))

    def update(self, record: JobRecord) -> None:
        self._store.put(_JOBS, record.job_id, msgspec.msgpack.encode(record))

    def all(self) -> list[JobRecord]:
        return [msgspec.msgpack.decode(value, type=JobRecord) for _, value in self._store.items(_JOBS)]

    def graph(self, job_id: JobId) -> JobGraph:
        """Raises JobGraphFormatError when another version wrote it, KeyError when it is missing."""
        data = self._store.get(_GRAPHS, job_id)
        if data is None:
            raise KeyError(job_id)
        return codec.decode(data)

    def delete(self, job_id: JobId) -> None:
        """Forget an ended job; its record goes last."""
        for savepoint in self.savepoints(job_id):
            self._store.delete(_SAVEPOINTS, f"{job_id}/{savepoint.location}")
        for collection in (_HISTORY, _NEXT_IDS, _POINTERS, _SPLITS, _GRAPHS, _JOBS):
            self._store.delete(collection, job_id)

    def history(self, job_id: JobId) -> JobStatus | None:
        value = self._store.get(_HISTORY, job_id)
        return msgspec.msgpack.decode(value, type=JobStatus) if value is not None else None

    def set_history(self, status: JobStatus) -> None:
        self._store.put(_HISTORY, status.job_id, msgspec.msgpack.encode(status))

    # ------------------------------------------------------------------------------------------------ checkpoints

    def next_checkpoint_id(self, job_id: JobId) -> int:
        """1 for a job that never took one."""
        value = self._store.get(_NEXT_IDS, job_id)
        return int(value) if value is not None else 1

    def set_next_checkpoint_id(self, job_id: JobId, next_id: int) -> None:
        """Never lowers it. Raises StaleLeaderError also when there is nothing to write: no barrier of an old leader's
        may follow."""
        if next_id > self.next_checkpoint_id(job_id):
            self._store.put(_NEXT_IDS, job_id, str(next_id).encode())
        else:
            self._store.check_leader()

    def pointer(self, job_id: JobId) -> CheckpointPointer | None:
        value = self._store.get(_POINTERS, job_id)
        return msgspec.msgpack.decode(value, type=CheckpointPointer) if value is not None else None

    def move_pointer(self, job_id: JobId, old: CheckpointPointer | None, new: CheckpointPointer) -> None:
        """The commit point. Raises PointerConflictError unless the pointer is `old`."""
        expected = msgspec.msgpack.encode(old) if old is not None else None
        if not self._store.compare_and_set(_POINTERS, job_id, expected, msgspec.msgpack.encode(new)):
            raise PointerConflictError(f"job {job_id}: the checkpoint pointer was moved by another JobManager")

    # ------------------------------------------------------------------------------------------------- savepoints

    def add_savepoint(self, job_id: JobId, savepoint: SavepointEntry) -> None:
        self._store.put(_SAVEPOINTS, f"{job_id}/{savepoint.location}", msgspec.msgpack.encode(savepoint))

    def savepoints(self, job_id: JobId) -> list[SavepointEntry]:
        """Those taken of the job and not disposed of, oldest first."""
        found = [
            msgspec.msgpack.decode(value, type=SavepointEntry)
            for key, value in self._store.items(_SAVEPOINTS)
            if key.startswith(f"{job_id}/")
        ]
        return sorted(found, key=lambda savepoint: (savepoint.checkpoint_id, savepoint.location))

    def forget_savepoint(self, location: str) -> None:
        for key, _ in self._store.items(_SAVEPOINTS):
            if key.partition("/")[2] == location:
                self._store.delete(_SAVEPOINTS, key)

    # --------------------------------------------------------------------------------------------- splits, sinks

    def first_splits(self, job_id: JobId) -> dict[str, tuple[Split, ...]] | None:
        """Source uid → splits; None before the first enumeration."""
        value = self._store.get(_SPLITS, job_id)
        return msgspec.msgpack.decode(value, type=dict[str, tuple[Split, ...]]) if value is not None else None

    def set_first_splits(self, job_id: JobId, splits: dict[str, tuple[Split, ...]]) -> None:
        self._store.put(_SPLITS, job_id, msgspec.msgpack.encode(splits))

    def claim_namespace(self, namespace: str, job_id: JobId) -> None:
        """Raises NamespaceTakenError when another job that has not ended owns it."""
        owner = self._store.get(_NAMESPACES, namespace)
        if owner == job_id.encode():
            return
        if owner is not None and self.is_live(JobId(owner.decode())):
            raise NamespaceTakenError(namespace, owner.decode())
        if not self._store.compare_and_set(_NAMESPACES, namespace, owner, job_id.encode()):
            raise NamespaceTakenError(namespace, "another one")

    def live_owner(self, namespace: str) -> str:
        """The live job that owns the namespace; empty: nobody."""
        owner = self._store.get(_NAMESPACES, namespace)
        return owner.decode() if owner is not None and self.is_live(JobId(owner.decode())) else ""

    def release_namespace(self, namespace: str, job_id: JobId) -> None:
        owner = self._store.get(_NAMESPACES, namespace)
        if owner is not None and owner.decode() == job_id:
            self._store.delete(_NAMESPACES, namespace)

    def is_live(self, job_id: JobId) -> bool:
        """It is known and has not ended."""
        value = self._store.get(_JOBS, job_id)
        return value is not None and not msgspec.msgpack.decode(value, type=JobRecord).state.terminal
