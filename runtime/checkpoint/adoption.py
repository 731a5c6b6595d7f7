"""What a new job may take over from a savepoint, and what it may not. Pure.

An operator is the same if its uid is; its state is taken over if the state fingerprint is the same too. A changed input
is allowed and said. Refused by name, each with what to do: state of another shape, state that nobody claims, another
place outside, another max parallelism, a savepoint of a drained job whose windows are closed for good.
"""

from __future__ import annotations

import msgspec

from planner.ir.job_graph import Fingerprint, JobGraph
from planner.ir.operators import Operator, Sink, Source
from runtime.checkpoint.identity import OperatorRecord, operator_record
from runtime.checkpoint.in_flight_plan import check_unchanged
from runtime.checkpoint.manifest import CheckpointManifest
from runtime.checkpoint.recovery import has_state, keyed_operators
from runtime.checkpoint.refusal import RestoreRefusedError
from runtime.checkpoint.state_changes import state_changes, state_hint
from runtime.elements import MAX_WATERMARK_MS
from runtime.job_settings import IGNORE_UNCLAIMED_STATE

MAX_PARALLELISM = "pipeline.max-parallelism"


class Adoption(msgspec.Struct, frozen=True):
    """`manifest` holds what the job takes over and nothing else; `notes` are what the user should know."""

    manifest: CheckpointManifest
    notes: tuple[str, ...]


def adopt(
    graph: JobGraph, manifest: CheckpointManifest, *, ignore_unclaimed_state: bool, is_committed: bool
) -> Adoption:
    """`is_committed`: every epoch that the savepoint holds is known to be visible. Raises RestoreRefusedError."""
    operators = {operator.uid: operator for vertex in graph.vertices for operator in vertex.operators}
    records = {record.uid: record for record in manifest.operators}
    check_unchanged(graph, manifest)
    kept, notes = _claimed(manifest, operators, records, ignore_unclaimed_state, is_committed)
    notes += _check_fingerprints(graph, manifest, kept, operators, records)
    _check_max_parallelism(graph, manifest, kept)
    if manifest.drained:
        _check_open(manifest, kept, records)
    notes += _newcomers(graph, manifest, operators)
    adopted = msgspec.structs.replace(_filtered(manifest, kept, operators), fingerprints=graph.fingerprints)
    return Adoption(adopted, tuple(notes))


def _claimed(
    manifest: CheckpointManifest,
    operators: dict[str, Operator],
    records: dict[str, OperatorRecord],
    ignore_unclaimed_state: bool,
    is_committed: bool,
) -> tuple[set[str], list[str]]:
    """Uids whose state goes on."""
    stateful = {o.uid: o for s in manifest.snapshots for o in s.operators if has_state(o)}
    notes: list[str] = []
    for uid in sorted(stateful.keys() - operators.keys()):
        shown = _shown(uid, records)
        if not ignore_unclaimed_state:
            raise RestoreRefusedError(
                f"the savepoint has state of {shown}, which the job no longer has",
                hint=f"SET '{IGNORE_UNCLAIMED_STATE}' = 'true' to drop that state, or bring the operator back.",
            )
        pending = any(o.committables for s in manifest.snapshots for o in s.operators if o.uid == uid)
        if pending and not is_committed:
            raise RestoreRefusedError(
                f"the savepoint holds output of {shown} that may not be committed yet, and the job no longer has "
                "that sink",
                hint="Start the old statement from the savepoint first and stop it with a new one: that commits it.",
            )
        notes.append(f"The state of {shown} is dropped: the job no longer has it.")
    return stateful.keys() & operators.keys(), notes


def _check_fingerprints(
    graph: JobGraph,
    manifest: CheckpointManifest,
    kept: set[str],
    operators: dict[str, Operator],
    records: dict[str, OperatorRecord],
) -> list[str]:
    notes: list[str] = []
    old_fingerprints = {fingerprint.uid: fingerprint for fingerprint in manifest.fingerprints}
    for new in graph.fingerprints:
        old = old_fingerprints.get(new.uid)
        if old is None or new.uid not in operators:
            continue
        operator = operators[new.uid]
        shown = _shown(new.uid, records)
        if new.uid in kept and old.location != new.location:
            _refuse_location(shown, operator, records.get(new.uid))
        # What a sink keeps are records already written out: the shape of its rows does not matter to them.
        if new.uid in kept and old.state != new.state and not isinstance(operator, Sink):
            _refuse_state(shown, operator, old, new)
        if old.input != new.input:
            notes.append(f"The query below {shown} has changed; what it has kept so far goes on.")
    return notes


def _refuse_location(shown: str, operator: Operator, record: OperatorRecord | None) -> None:
    then = record.location if record is not None else {}
    now = operator_record(operator).location
    changes = [
        f"'{key}' was {_quoted(then.get(key))} and is {_quoted(now.get(key))}"
        for key in sorted(then.keys() | now.keys())
        if then.get(key) != now.get(key)
    ]
    what = "its positions" if isinstance(operator, Source) else "its uncommitted output"
    raise RestoreRefusedError(
        f"{shown} is in another place than in the savepoint: {', '.join(changes) or 'its options have changed'}; "
        f"{what} would mean nothing there",
        hint="Give the table its old options, or the new one another name: as a new table it starts without state.",
    )


def _refuse_state(shown: str, operator: Operator, old: Fingerprint, new: Fingerprint) -> None:
    change = state_changes(old.parts, new.parts)
    raise RestoreRefusedError(
        f"the state of {shown} has another shape than in the savepoint{f' ({change})' if change else ''}",
        hint=state_hint(operator),
    )


def _quoted(value: str | None) -> str:
    return "not set" if value is None else f"'{value}'"


def _check_max_parallelism(graph: JobGraph, manifest: CheckpointManifest, kept: set[str]) -> None:
    then = {uid: record.max_parallelism for record in manifest.vertices for uid in record.operator_uids}
    keyed = keyed_operators(manifest)
    for vertex in graph.vertices:
        for operator in vertex.operators:
            old = then.get(operator.uid, vertex.max_parallelism)
            if operator.uid in kept & keyed and old != vertex.max_parallelism:
                raise RestoreRefusedError(
                    f"max parallelism of '{vertex.name}' is {vertex.max_parallelism}, but {old} in the savepoint: its "
                    "state is cut into that many key groups",
                    hint=f"SET '{MAX_PARALLELISM}' = '{old}'.",
                )


def _check_open(manifest: CheckpointManifest, kept: set[str], records: dict[str, OperatorRecord]) -> None:
    for snapshot in manifest.snapshots:
        for operator in snapshot.operators:
            if operator.uid in kept and MAX_WATERMARK_MS in operator.clocks.values():
                raise RestoreRefusedError(
                    f"the job was drained before this savepoint: every window of {_shown(operator.uid, records)} is "
                    "closed, and each further row would be late",
                    hint="Stop a job WITH SAVEPOINT alone if it is to go on later; WITH DRAIN ends it for good.",
                )


def _newcomers(graph: JobGraph, manifest: CheckpointManifest, operators: dict[str, Operator]) -> list[str]:
    known = {uid for record in manifest.vertices for uid in record.operator_uids}
    new = [operators[f.uid].name for f in graph.fingerprints if f.uid in operators and f.uid not in known]
    return [f"{name} is not in the savepoint and starts without state." for name in new]


def _filtered(manifest: CheckpointManifest, kept: set[str], operators: dict[str, Operator]) -> CheckpointManifest:
    snapshots = tuple(
        msgspec.structs.replace(
            snapshot,
            operators=tuple(
                # After a drain every task had ended; a job that goes on reads on.
                msgspec.structs.replace(operator, ended=operator.ended and not manifest.drained)
                for operator in snapshot.operators
                if operator.uid in kept
            ),
            finished=snapshot.finished and not manifest.drained,
        )
        for snapshot in manifest.snapshots
    )
    sinks = tuple(sink for sink in manifest.sinks if sink.uid in operators)
    return msgspec.structs.replace(manifest, snapshots=snapshots, sinks=sinks)


def _shown(uid: str, records: dict[str, OperatorRecord]) -> str:
    record = records.get(uid)
    return f"'{record.name}' ({uid})" if record is not None else f"operator '{uid}'"
