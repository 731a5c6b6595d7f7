"""What recovery of one sink subtask must do, decided from facts alone: no client, no clock, no files.

The rules (owner = the sink subtask whose transactional id commits an epoch):

1. A marker of an owner is written only in transactions of that owner's transactional id.
2. An epoch becomes visible only in a transaction that also writes the owner's marker at or above it.
3. Whoever commits for an owner has fenced the id first, then read the marker, with the same producer.
4. Every epoch is in each checkpoint's pending list until its commit was acknowledged.
5. A marker exists before the first checkpoint that holds a pending epoch of the owner (the birth marker), so a
   missing marker is a lost one and never "nothing was committed".

From 1 to 3 follows that an epoch is committed at most once whatever old processes still do; from 4 that it is
committed at least once; from 5 that a lost marker stops the job instead of doubling its output.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from connectors.api import Committable, OwnerState
from connectors.errors import ConnectorError, ErrorDomain


class Marker(msgspec.Struct, frozen=True, rename={"version": "v", "checkpoint_id": "ckpt", "incarnation": "inc"}):
    """The newest commit of an owner, as stored in the marker topic (key: the owner's number).

    `upto`: only the first so many records of the epoch are visible (a long epoch committed in parts); None = all.
    `count` and `crc32` describe the epoch's file, for people who must look at a broken state."""

    checkpoint_id: int
    incarnation: str
    upto: int | None = None
    count: int = 0
    crc32: int = 0
    version: int = 1


class Redo(msgspec.Struct, frozen=True):
    """An epoch to produce again, from its record number `skip` on."""

    committable: Committable
    skip: int = 0


class Recovery(msgspec.Struct, frozen=True):
    """`redo` oldest first; `birth`: nothing to redo, and a first marker must be written."""

    redo: tuple[Redo, ...] = ()
    birth: bool = False


class MarkerLost(ConnectorError):
    """A marker that must exist does not, or is older than an acknowledged commit: going on could double output."""


class Fork(ConnectorError):
    """The marker names the same checkpoint as a pending epoch, but of another line of history."""


def plan_recovery(state: OwnerState, marker: Marker | None) -> Recovery:
    """Which pending epochs of an owner must be committed, given its marker. Raises MarkerLost or Fork."""
    pending = sorted(state.pending, key=lambda each: each.checkpoint_id)
    if marker is None:
        if state.floor > 0 or pending or state.marker_expected:
            raise MarkerLost(
                f"the commit marker of sink subtask {state.owner} is missing, but "
                + (
                    f"its commit of checkpoint {state.floor} was acknowledged"
                    if state.floor > 0
                    else "it must exist since before its first checkpoint"
                ),
                domain=ErrorDomain.EXTERNAL,
                retry=False,
                hint=_LOST_HINT,
            )
        return Recovery(birth=True)
    if marker.checkpoint_id < state.floor:
        raise MarkerLost(
            f"the commit marker of sink subtask {state.owner} says checkpoint {marker.checkpoint_id}, but its commit "
            f"of checkpoint {state.floor} was acknowledged",
            domain=ErrorDomain.EXTERNAL,
            retry=False,
            hint=_LOST_HINT,
        )
    if state.repeats and pending and pending[-1].checkpoint_id < marker.checkpoint_id:
        # What the marker stands for may have left the restored checkpoint's line of history before these epochs.
        return Recovery(tuple(Redo(epoch) for epoch in pending))
    redo = []
    for epoch in pending:
        if epoch.checkpoint_id > marker.checkpoint_id:
            redo.append(Redo(epoch))
        elif epoch.checkpoint_id == marker.checkpoint_id:
            if epoch.incarnation != marker.incarnation:
                raise Fork(
                    f"checkpoint {epoch.checkpoint_id} of sink subtask {state.owner} was already committed by "
                    f"another run ({marker.incarnation}) than the one being restored ({epoch.incarnation})",
                    domain=ErrorDomain.USER,
                    retry=False,
                    hint="Two jobs continued from one checkpoint under one transactional id prefix. Restore from "
                    "the line whose output is in the topic, or give this job another prefix.",
                )
            if marker.upto is not None and marker.upto < epoch.record_count:
                redo.append(Redo(epoch, skip=marker.upto))
    return Recovery(tuple(redo))


def marker_for(epochs: Sequence[Redo], crc32: int) -> Marker:
    """The marker that says all of `epochs` are visible."""
    last = epochs[-1].committable
    return Marker(last.checkpoint_id, last.incarnation, None, last.record_count, crc32)


_LOST_HINT = (
    "The marker topic was deleted, truncated or is another one than the job wrote to. Restoring it is the only way to "
    "go on without the risk of repeated output."
)
