"""What one subtask contributes to a checkpoint, and what a new subtask gets back. Plain data, part of manifests."""

from __future__ import annotations

import msgspec

from connectors.api import Committable, OwnerState, SplitState


class SegmentHandle(msgspec.Struct, frozen=True):
    """One immutable state file: Arrow IPC sorted by key group with a footer. `path` is relative to the job's
    checkpoint directory; `checksum` is the hex SHA-256 of the whole file; key groups are inclusive: those to be read,
    which may be fewer than the file holds.

    The files of one state in one subtask form a chain, in the order in which they are to be read: a base, then changes
    (`is_delta`), of which a later row replaces or removes an earlier one of its key. A file that `is_removal` names
    windows: what the files before it hold of these is gone. `checkpoint_id` is the checkpoint a file was written for.
    Chains of different subtasks hold different key groups."""

    path: str
    state: str
    key_group_first: int
    key_group_last: int
    row_count: int
    byte_size: int
    checksum: str
    checkpoint_id: int = 0
    is_delta: bool = False
    is_removal: bool = False


class InFlightHandle(msgspec.Struct, frozen=True):
    """Elements of one channel (producer subtask to consumer subtask of an edge) that an unaligned barrier overtook, in
    order, as one immutable file: they are processed before anything else at a restore. The edge is that of the job that
    wrote them; `source_uid` and `target_uid`, the operators at its ends, and the `input_index` of the latter name it
    for another one, in which the two may have become neighbours in a chain. `layout` is a digest of the columns."""

    edge_id: int
    producer_index: int
    consumer_index: int
    path: str
    row_count: int
    byte_size: int
    checksum: str
    source_uid: str = ""
    target_uid: str = ""
    layout: str = ""
    input_index: int = 0


class InFlightRestore(msgspec.Struct, frozen=True):
    """Elements in flight for one new subtask. The operator `handle.target_uid` of its chain takes them. `keys`: only
    rows of the subtask's key groups by these columns are its own; None: all are. `edge_id` is the channel's edge in the
    new job (-1: there is none), `with_times`: its watermarks and statuses are those of the channel from the same
    producer; else they mean nothing any more."""

    handle: InFlightHandle
    edge_id: int
    keys: tuple[int, ...] | None = None
    with_times: bool = False


class OperatorSnapshot(msgspec.Struct, frozen=True):
    """State of one operator in one subtask at a barrier. `clocks` is the event-time clock (last watermark, ms) per
    key group of operators with timers; `counters` are exact counts that are state (late rows, skipped records)."""

    uid: str
    splits: tuple[SplitState, ...] = ()
    segments: tuple[SegmentHandle, ...] = ()
    clocks: dict[int, int] = {}
    counters: dict[str, int] = {}
    committables: tuple[Committable, ...] = ()
    data: bytes = b""
    """The operator's own small state that is neither keyed nor split (e.g. rows already passed by a LIMIT)."""
    ended: bool = False
    """What it puts out at the end of its input is out, if not in this attempt then before its restore."""


class SubtaskSnapshot(msgspec.Struct, frozen=True):
    """All operators of one task. `finished`: the task had ended before the barrier; its state is final."""

    vertex_id: int
    vertex_uid: str
    subtask_index: int
    parallelism: int
    operators: tuple[OperatorSnapshot, ...]
    finished: bool = False
    in_flight: tuple[InFlightHandle, ...] = ()


class OperatorRestore(msgspec.Struct, frozen=True):
    """State handed to one operator of a new subtask. Segments may contain foreign key groups: read only the owned
    range. `owners`: sink owners this subtask must resolve (its own first). `ended`: what the operator puts out at the
    end of its input is out, though it may be chained now to one that had not ended."""

    uid: str
    splits: tuple[SplitState, ...] = ()
    segments: tuple[SegmentHandle, ...] = ()
    clocks: dict[int, int] = {}
    counters: dict[str, int] = {}
    owners: tuple[OwnerState, ...] = ()
    data: bytes = b""
    ended: bool = False
