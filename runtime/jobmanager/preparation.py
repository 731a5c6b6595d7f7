"""The blocking work around a generation of a job, for helper threads: durable records, the restored checkpoint, sink
targets, splits, fencing. What it finds out comes back as plain data."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection

import msgspec

from connectors.api import SinkConnector, Split, SplitEnumerator, SplitState, TableDefinition
from connectors.registry import connector
from planner.ir.job_graph import JobGraph
from planner.ir.operators import Sink, Source, TableRef
from planner.ir.types import Field
from runtime.api import JobState
from runtime.checkpoint import savepoint as savepoints
from runtime.checkpoint.adoption import adopt
from runtime.checkpoint.identity import location_options
from runtime.checkpoint.manifest import CheckpointManifest, CheckpointPointer
from runtime.checkpoint.recovery import RestorePlan, plan_restore, spread_splits
from runtime.checkpoint.refusal import RestoreRefusedError
from runtime.checkpoint.store import CheckpointStore, DamagedCheckpointError
from runtime.ids import JobId
from runtime.job_settings import (
    ALLOW_REWIND,
    CHECKPOINT_INTERVAL,
    CHECKPOINT_RETENTION,
    JobSettings,
    RecoverySettings,
    SettingError,
    parse_job_settings,
)
from runtime.jobmanager.restore_choice import RestoreChoice, RetainedCheckpoint, choose_checkpoint
from runtime.metadata.jobs import JobRecord, JobRecords, NamespaceTakenError, SavepointOrigin
from runtime.operators.calc import LOCAL_TIME_ZONE
from runtime.operators.expressions.check import check_expressions

_log = logging.getLogger(__name__)

_NAMESPACE_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


class Restored(msgspec.Struct, frozen=True):
    """What a generation starts from. `pointer`: the latest checkpoint in the records, which is not the chosen one where
    it is damaged."""

    plan: RestorePlan
    pointer: CheckpointPointer | None
    choice: RestoreChoice | None
    checkpoint_directory: str

    @property
    def stopped_with(self) -> str:
        """The savepoint that has ended the job; empty: none has."""
        return self.pointer.stopped_with if self.pointer is not None else ""


class SourceSplits(msgspec.Struct, frozen=True):
    """`assigned[i]`: splits for subtask i that are in no checkpoint. `known`: ids of every split of the source."""

    assigned: tuple[tuple[SplitState, ...], ...]
    known: frozenset[str]
    discovery_interval_ms: int


def sinks_of(graph: JobGraph) -> list[tuple[Sink, int]]:
    """Each sink with its parallelism."""
    return [(o, vertex.parallelism) for vertex in graph.vertices for o in vertex.operators if isinstance(o, Sink)]


def sources_of(graph: JobGraph) -> list[tuple[Source, int, int]]:
    """Each source with its vertex id and parallelism."""
    return [
        (o, vertex.id, vertex.parallelism)
        for vertex in graph.vertices
        for o in vertex.operators
        if isinstance(o, Source)
    ]


def sink_connector(sink: Sink) -> SinkConnector:
    """Raises OptionError."""
    return connector(sink.table.connector).sink(_definition(sink.table))


def check_submission(graph: JobGraph, settings: JobSettings) -> None:
    """Refuse what cannot run. Raises OptionError, SettingError or UnsupportedExpression; connects to nothing."""
    check_expressions(graph, graph.settings.get(LOCAL_TIME_ZONE, "UTC"))
    for source, _, _ in sources_of(graph):
        connector(source.table.connector).source(_definition(source.table))
    committing = [sink for sink, _ in sinks_of(graph) if sink_connector(sink).committing]
    if committing and settings.checkpoint.interval_ms == 0 and not graph.bounded:
        raise SettingError(
            CHECKPOINT_INTERVAL,
            f"0 switches checkpoints off, but sink '{committing[0].table.identifier}' commits with checkpoints only",
        )


def begin_generation(records: JobRecords, record: JobRecord, graph: JobGraph) -> JobRecord:
    """Durable before anything is deployed: the raised generation, each committing sink's namespace (claimed) and the
    largest parallelism it was ever started with. Raises NamespaceTakenError, OptionError."""
    namespaces = dict(record.namespaces)
    owner_counts = dict(record.owner_counts)
    for number, (sink, parallelism) in enumerate(sinks_of(graph)):
        found = sink_connector(sink)
        if found.committing:
            prefix = found.transactional_id_prefix
            fresh = _unique_prefix(prefix, sink, graph) if prefix else f"{record.job_id}-{number}"
            namespace = namespaces.setdefault(sink.uid, fresh)
            owner_counts[sink.uid] = max(owner_counts.get(sink.uid, 0), parallelism)
            records.claim_namespace(namespace, record.job_id)
    begun = msgspec.structs.replace(
        record, generation=record.generation + 1, namespaces=namespaces, owner_counts=owner_counts
    )
    records.update(begun)
    return begun


def check_savepoint(records: JobRecords, graph: JobGraph, recovery: RecoverySettings, record: JobRecord) -> JobRecord:
    """The record of a job that is to start from a savepoint: what the savepoint says of its sinks, and its origin.
    Raises RestoreRefusedError or NamespaceTakenError: nothing has been started then."""
    savepoint = savepoints.read(recovery.path)
    manifest = savepoint.manifest
    if not manifest.is_savepoint and records.is_live(manifest.job_id):
        raise RestoreRefusedError(
            f"{savepoint.directory} is a checkpoint of job {manifest.job_id}, which is alive and may remove it",
            hint="Stop that job WITH SAVEPOINT, or take a savepoint of it, and start from that.",
        )
    adoption = adopt(
        graph,
        manifest,
        ignore_unclaimed_state=recovery.ignore_unclaimed_state,
        is_committed=savepoint.is_committed,
    )
    if not recovery.allow_rewind:
        _check_newest(records, manifest, graph)
    sinks = {sink.uid: sink for sink in adoption.manifest.sinks}
    for sink in sinks.values():
        owner = records.live_owner(sink.namespace)
        if owner:
            raise NamespaceTakenError(sink.namespace, owner)
    return msgspec.structs.replace(
        record,
        namespaces={sink.uid: sink.namespace for sink in sinks.values()},
        owner_counts={sink.uid: sink.owner_count for sink in sinks.values()},
        origin=SavepointOrigin(
            recovery.path,
            manifest.job_id,
            manifest.checkpoint_id,
            recovery.ignore_unclaimed_state,
            recovery.allow_rewind,
        ),
        restore_notes=adoption.notes,
    )


def _check_newest(records: JobRecords, manifest: CheckpointManifest, graph: JobGraph) -> None:
    """Neither the job that took the savepoint nor one that went on from it has completed more and written it where the
    new one writes, as far as this JobManager remembers. (Markers of sinks are looked at when they have started.)"""
    successors = [
        record.job_id
        for record in records.all()
        if record.origin is not None
        and (record.origin.job_id, record.origin.checkpoint_id) == (manifest.job_id, manifest.checkpoint_id)
    ]
    for job_id in (manifest.job_id, *successors):
        pointer = records.pointer(job_id)
        if pointer is None or pointer.checkpoint_id <= manifest.checkpoint_id:
            continue
        if _targets(graph) & _targets(records.graph(job_id)):
            raise _rewind(
                f"job {job_id} went on from there and completed checkpoint {pointer.checkpoint_id}, the savepoint is "
                f"checkpoint {manifest.checkpoint_id}"
            )


def _targets(graph: JobGraph) -> set[tuple[str, str]]:
    """Tables written, and where they are."""
    tables = (sink.table for sink, _ in sinks_of(graph))
    return {(table.identifier, repr(sorted(location_options(table.options).items()))) for table in tables}


def refuse_rewind(record: JobRecord, highest_marker: int, restored_id: int) -> None:
    """At a job's first start from a savepoint: its sinks must not have committed more. Raises RestoreRefusedError."""
    origin = record.origin
    if origin is None or origin.allow_rewind or record.marker_floor is not None or highest_marker <= restored_id:
        return
    raise _rewind(f"a sink has committed checkpoint {highest_marker}, the savepoint is checkpoint {restored_id}")


def keeps_checkpoints(state: JobState, graph: JobGraph, settings: JobSettings, *, forgotten: bool = False) -> bool:
    """Whether the checkpoints of a job that has ended stay. What a FINISHED one holds is committed. `forgotten`: the
    job's record goes, and with it what stayed only because nobody had said otherwise."""
    if graph.is_query or state is JobState.FINISHED or (forgotten and CHECKPOINT_RETENTION not in graph.settings):
        return False
    return settings.checkpoint.retention.keeps(failed=state is JobState.FAILED)


def drop_checkpoints(
    records: JobRecords, store: CheckpointStore, record: JobRecord, *, forgotten: bool = False
) -> None:
    """Of a job that has ended, unless they are to stay. Those of a job that nobody can read stay, too."""
    try:
        graph = records.graph(record.job_id)
        settings = parse_job_settings(graph.settings)
    except (KeyError, ValueError) as error:
        _log.warning("job %s cannot be read, its checkpoints stay: %s", record.job_id, error)
        return
    if not keeps_checkpoints(record.state, graph, settings, forgotten=forgotten):
        store.drop_job(record.job_id)


def mark_stopped(records: JobRecords, job_id: JobId) -> None:
    """A job has ended; if a savepoint stopped it, all that the savepoint holds is committed."""
    pointer = records.pointer(job_id)
    if pointer is None or not pointer.stopped_with:
        return
    try:
        savepoints.mark_committed(pointer.stopped_with)
    except OSError as error:
        # Somebody has moved it. Without the mark a later job may not leave out its sinks, nothing worse.
        _log.warning("savepoint %s could not be marked as committed: %s", pointer.stopped_with, error)


def _rewind(what: str) -> RestoreRefusedError:
    return RestoreRefusedError(
        f"starting from this savepoint would go back: {what}; the output since then would be repeated",
        hint=f"Start from a newer savepoint, or accept the repeated output with SET '{ALLOW_REWIND}' = 'true'.",
    )


def _adopted(
    records: JobRecords, store: CheckpointStore, record: JobRecord, graph: JobGraph, origin: SavepointOrigin
) -> CheckpointPointer:
    """Makes the savepoint the job's own first checkpoint."""
    savepoint = savepoints.read(origin.path)
    if savepoint.manifest.checkpoint_id != origin.checkpoint_id:
        raise RestoreRefusedError(f"{origin.path} holds another savepoint than when the job was submitted")
    adoption = adopt(
        graph,
        savepoint.manifest,
        ignore_unclaimed_state=origin.ignore_unclaimed_state,
        is_committed=savepoint.is_committed,
    )
    pointer = savepoints.adopt_files(store, savepoint, adoption.manifest, record.job_id)
    records.move_pointer(record.job_id, None, pointer)
    return pointer


def restore(
    records: JobRecords, store: CheckpointStore, record: JobRecord, graph: JobGraph, suspects: Collection[str] = ()
) -> Restored:
    """The latest whole checkpoint (before the first one: the savepoint that the job starts from) as restore records of
    every task; files of attempts that no checkpoint names are swept, unless one is damaged: then nothing is deleted
    before the job has a new one. `suspects`: files that tasks have found damaged. Raises RestoreRefusedError."""
    job_id = record.job_id
    pointer = records.pointer(job_id)
    if pointer is None and record.origin is not None:
        pointer = _adopted(records, store, record, graph, record.origin)
    choice = choose_checkpoint(store, job_id, pointer, suspects) if pointer is not None else None
    if choice is None or not choice.damage:
        retained = [] if choice is None else [*choice.earlier, choice.chosen]
        store.sweep(job_id, [(each.pointer, each.manifest) for each in retained], record.generation)
    manifest = choice.chosen.manifest if choice is not None else None
    goes_back = record.origin is not None and record.origin.allow_rewind and record.marker_floor is None
    plan = plan_restore(graph, manifest, record.owner_counts, repeats=goes_back)
    return Restored(plan, pointer, choice, store.uri(job_id))


def restore_again(
    records: JobRecords,
    store: CheckpointStore,
    record: JobRecord,
    graph: JobGraph,
    first: Restored,
    suspects: Collection[str] = (),
) -> Restored:
    """The latest committed checkpoint for tasks that restart while others run: nothing is swept. `first`: what the
    generation started from, which they start from again if it has taken no checkpoint since. Tasks that run cannot go
    back with them: a file that one has found damaged needs a start of the whole job, which looks closer. Raises
    DamagedCheckpointError, RestoreRefusedError, OSError."""
    pointer = records.pointer(record.job_id)
    if pointer == first.pointer:
        choice = first.choice
    else:
        assert pointer is not None
        choice = RestoreChoice(RetainedCheckpoint(pointer, store.read(record.job_id, pointer)))
    manifest = choice.chosen.manifest if choice is not None else None
    if manifest is not None:
        store.check(record.job_id, manifest.files)
        found = sorted(manifest.paths.intersection(suspects))
        if found:
            raise DamagedCheckpointError(f"{store.files(record.job_id).locate(found[0])}: a task has found it damaged")
    return Restored(plan_restore(graph, manifest, record.owner_counts), pointer, choice, store.uri(record.job_id))


class Outside:
    """A job's dealings with the systems it reads and writes. Used by one helper thread at a time."""

    def __init__(self, graph: JobGraph, job_id: JobId, records: JobRecords) -> None:
        self._graph = graph
        self._job_id = job_id
        self._records = records
        self._enumerators: dict[str, SplitEnumerator] = {}

    def prepare(self, record: JobRecord, restored: Restored) -> dict[str, SourceSplits]:
        """Check and create sink targets, then find each source's splits. Before the first checkpoint the splits of
        the first enumeration are used again, so that `latest` means the same place. Raises ConnectorError."""
        for sink, _ in sinks_of(self._graph):
            sink_connector(sink).prepare(record.namespaces.get(sink.uid, ""))
        first = self._records.first_splits(self._job_id)
        found: dict[str, SourceSplits] = {}
        enumerated: dict[str, tuple[Split, ...]] = {}
        for source, _, parallelism in sources_of(self._graph):
            enumerator = self._enumerator(source)
            restored_splits = restored.plan.known_splits.get(source.uid, ())
            known = frozenset(state.split.id for state in restored_splits)
            fresh: tuple[Split, ...] = ()
            if not restored_splits and first is not None:
                fresh = first.get(source.uid, ())
                known = known | {split.id for split in fresh}
            fresh = (*fresh, *enumerator.discover(known))
            if not restored_splits:
                enumerated[source.uid] = fresh
            found[source.uid] = SourceSplits(
                tuple(spread_splits((SplitState(s) for s in fresh), parallelism, first=len(restored_splits))),
                known | {split.id for split in fresh},
                enumerator.discovery_interval_ms,
            )
        if enumerated and enumerated != first:
            self._records.set_first_splits(self._job_id, enumerated)
        return found

    def discover(self, source: Source, known: frozenset[str]) -> tuple[SplitState, ...]:
        """Splits that appeared since. Raises ConnectorError."""
        return tuple(SplitState(split) for split in self._enumerator(source).discover(known))

    def fence(self, record: JobRecord) -> None:
        """End every open transaction of the job's sinks. Raises ConnectorError, or StaleLeaderError: the writers of a
        newer leader's must not be fenced."""
        self._records.check_leader()
        for sink, _ in sinks_of(self._graph):
            namespace = record.namespaces.get(sink.uid)
            if namespace:
                sink_connector(sink).fence(namespace, record.owner_counts.get(sink.uid, 1))

    def replace_graph(self, graph: JobGraph) -> None:
        """The same tables at another parallelism."""
        self._graph = graph

    def close(self) -> None:
        for enumerator in self._enumerators.values():
            enumerator.close()
        self._enumerators = {}

    def _enumerator(self, source: Source) -> SplitEnumerator:
        enumerator = self._enumerators.get(source.uid)
        if enumerator is None:
            enumerator = connector(source.table.connector).source(_definition(source.table)).enumerator()
            self._enumerators[source.uid] = enumerator
        return enumerator


def _definition(table: TableRef) -> TableDefinition:
    columns = tuple(Field(column.name, column.type) for column in table.physical.columns)
    return TableDefinition(table.identifier, table.options, columns, table.primary_key)


def _unique_prefix(prefix: str, sink: Sink, graph: JobGraph) -> str:
    """The user's prefix; with the sink's uid behind it when several sinks of the job share it."""
    sharing = [s for s, _ in sinks_of(graph) if sink_connector(s).transactional_id_prefix == prefix]
    return prefix if len(sharing) == 1 else f"{prefix}-{_NAMESPACE_UNSAFE.sub('-', sink.uid)}"
