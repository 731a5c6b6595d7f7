"""What one sink subtask does around its transactions, decided without a client, a clock or files. Pure: the writer
performs what is said here, and the cluster simulation does the same against a model of a broker.

Recovery is `fence all owners → read the markers up to the high watermark taken after that → write again what is behind
them`; the rules are in `protocol`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from connectors.api import Committable, OwnerState
from connectors.kafka.protocol import Marker, Redo, plan_recovery


class Publish(msgspec.Struct, frozen=True):
    """Make the epochs (oldest first) visible in transactions of the owner, with its marker."""

    owner: int
    epochs: tuple[Redo, ...]


class WriteMarker(msgspec.Struct, frozen=True):
    """A transaction of the marker alone: the birth marker."""

    owner: int
    marker: Marker


class SinkRecovery:
    """`states` are the owners that the restored checkpoint gives to subtask `own`; when its own number is not among
    them it is new. Order of calls: `owners` are fenced, all of them; then the markers are read; then `resolve`."""

    def __init__(self, own: int, states: Sequence[OwnerState], restored_checkpoint_id: int, incarnation: str) -> None:
        if all(state.owner != own for state in states):
            states = [OwnerState(own), *states]
        self._states = sorted(states, key=lambda state: (state.owner != own, state.owner))
        self._birth_marker = Marker(restored_checkpoint_id, incarnation)
        self.found: dict[int, int] = {}
        """Owner → checkpoint id of its marker once everything `resolve` asked for is done. Owners of other subtasks,
        and of larger parallelisms that nobody is the heir of, as their markers were found: ids must rise above all."""

    @property
    def owners(self) -> tuple[int, ...]:
        """Own first."""
        return tuple(state.owner for state in self._states)

    @property
    def epochs(self) -> list[Committable]:
        """All that is committed once everything `resolve` asked for is done."""
        return [epoch for state in self._states for epoch in state.pending]

    def resolve(self, markers: Mapping[int, Marker]) -> list[Publish | WriteMarker]:
        """What is to be done, in order, given the newest marker of each owner. Raises MarkerLost or Fork."""
        steps: list[Publish | WriteMarker] = []
        self.found = {owner: marker.checkpoint_id for owner, marker in markers.items()}
        for state in self._states:
            marker = markers.get(state.owner)
            plan = plan_recovery(state, marker)
            if plan.redo:
                steps.append(Publish(state.owner, plan.redo))
                self.found[state.owner] = plan.redo[-1].committable.checkpoint_id
            elif marker is None:
                steps.append(WriteMarker(state.owner, self._birth_marker))
                self.found[state.owner] = self._birth_marker.checkpoint_id
            else:
                self.found[state.owner] = marker.checkpoint_id
        return steps


class MarkerScan:
    """The marker topic read committed, up to `high`: the high watermark (not the last stable offset: behind another
    owner's open transaction there may be newer markers), taken after the fence."""

    def __init__(self, high: int) -> None:
        self._high = high
        self.position = 0
        self.markers: dict[int, Marker] = {}

    @property
    def complete(self) -> bool:
        return self.position >= self._high

    def add(self, offset: int, owner: int, marker: Marker) -> None:
        """A record; a later one of the same owner replaces it."""
        self.markers[owner] = marker
        self.reached(offset + 1)

    def reached(self, position: int) -> None:
        """Nothing is left to be read below it."""
        self.position = max(self.position, position)


class PendingEpochs:
    """Sealed epochs of a running subtask. Each stays in every checkpoint until its commit has succeeded."""

    def __init__(self, committed: Iterable[Committable] = ()) -> None:
        """`committed`: what its recovery has made visible."""
        self._pending: list[Committable] = []
        self._committed = list(committed)

    @property
    def pending(self) -> tuple[Committable, ...]:
        """Oldest first."""
        return tuple(self._pending)

    def seal(self, epoch: Committable) -> None:
        self._pending.append(epoch)

    def due(self, checkpoint_id: int) -> tuple[Redo, ...]:
        """What the commit of a checkpoint makes visible: epochs of given-up checkpoints before it, too."""
        return tuple(Redo(each) for each in self._pending if each.checkpoint_id <= checkpoint_id)

    def committed(self, due: Sequence[Redo]) -> list[Committable]:
        """They are visible. Returns the epochs whose files may go: those of the commit before, so that whoever
        investigates finds the file of the newest marker."""
        done = [each.committable for each in due]
        self._pending = [each for each in self._pending if each not in done]
        unneeded, self._committed = self._committed, done
        return unneeded


def may_repeat(*, retriable: bool, fatal: bool, overdue: bool) -> bool:
    """Whether a request that failed is to be made again, the same one. Otherwise its outcome is unknown: the producer
    is dropped, and whoever comes next fences the id, reads the marker and decides. Never: abort and produce again."""
    return retriable and not fatal and not overdue
