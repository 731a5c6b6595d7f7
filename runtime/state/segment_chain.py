"""Chains of state files: what a snapshot writes anew, and which files of earlier checkpoints it names.

A state counts its snapshots as *epochs*: what changes after the barrier of snapshot n belongs to epoch n + 1. A
snapshot writes what has changed in every epoch after its *cut*, and names before its own files those that the last
committed checkpoint has for epochs up to the cut. So whatever becomes of a checkpoint (declined, timed out, its
acknowledgement lost, several in a row), its changes are in the next snapshot again, and no file of an uncommitted
checkpoint is ever named by another.

The usual cut is the last epoch that the committed checkpoint holds. With an earlier one the files in between become
one, with what is new: a chain keeps the cuts that are still possible, those since its last large file. And some
snapshots write *units* whole (the key groups of a table in turn, windows that old files still hold): what older files
have of such a unit is not read any more; files are named with a smaller range of key groups, then not at all. What is
merged and renewed when is decided in `segment_merging`. Pure; `begin` and `committed` are called by the task's thread,
`settle` and `finish` by the one that writes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Sequence

import msgspec

from runtime.checkpoint.snapshot import SegmentHandle
from runtime.operators.protocol import KeyGroupRange
from runtime.state.segment_merging import Wear, is_large, rows_to_renew, steps_to_merge, weight

EVERYTHING = -1
"""The cut of a snapshot that names no earlier file."""
PENDING_MAX = 64


class ChainFile(msgspec.Struct, frozen=True):
    """A file and what of it counts: rows by unit. `contents`: the windows of a file that holds, or removes, windows."""

    handle: SegmentHandle
    epoch: int
    row_counts: dict[int, int]
    contents: frozenset[int] = frozenset()


class SnapshotPlan(msgspec.Struct):
    """One snapshot of one state. `cuts`: those that stay possible, its own the last; `base`: files it may name;
    `renewed`: units that it writes whole, `renews`: not only again; `replaced`: windows of which no earlier file
    counts; `kept`: what of `base` it names; `files`: the chain, once everything is written."""

    checkpoint_id: int
    epoch: int
    cut: int
    base: tuple[ChainFile, ...]
    cuts: tuple[int, ...] = ()
    live_rows: int = 0
    renewed: frozenset[int] = frozenset()
    renews: bool = False
    renewed_at: dict[int, int] = {}
    replaced: dict[int, int] = {}
    kept: tuple[ChainFile, ...] = ()
    files: tuple[ChainFile, ...] | None = None

    @property
    def is_delta(self) -> bool:
        return self.cut != EVERYTHING


class SegmentChain(ABC):
    """The chain of one state in one subtask."""

    def __init__(self) -> None:
        self.epoch = 0
        """The epoch to which a change belongs now; 0 while what no snapshot may write as changed is being restored."""
        self._cuts: tuple[int, ...] = (EVERYTHING,)
        """Ascending. Blocks of a window are merged between two of them: a cut that is gone does not come back."""
        self._files: tuple[ChainFile, ...] = ()
        self._renewed_at: dict[int, int] = {}
        self._dead_rows_left: int | None = None
        """After the last renewal; None: the chain was inherited, and that is not known."""
        self._pending: list[SnapshotPlan] = []

    @property
    def cut(self) -> int:
        """The last epoch that a committed checkpoint holds."""
        return self._cuts[-1]

    @property
    def is_tracked(self) -> bool:
        """Whether a later snapshot may need to know what is removed now."""
        return self.epoch > 0 and (self.cut != EVERYTHING or bool(self._pending))

    @property
    def floor(self) -> int:
        """No later snapshot of changes has to write what changed in epochs up to this one."""
        if self.cut == EVERYTHING and self._pending:
            return self._pending[0].epoch
        return next((cut for cut in self._cuts if cut != EVERYTHING), EVERYTHING)

    @property
    def row_count(self) -> int:
        """Rows that a restore of the last committed checkpoint would read."""
        return sum(sum(file.row_counts.values()) for file in self._files)

    def level(self, epoch: int) -> int:
        """What belongs to epochs of one level is written by the same snapshots of changes."""
        position = bisect_left(self._cuts, epoch)
        return self._cuts[position] if position < len(self._cuts) else epoch

    def inherit(self, handles: Sequence[SegmentHandle]) -> list[int]:
        """These files are restored next, in order: the epoch to which the rows of each belong. Those since the last
        large one can be merged, as if this chain had written them."""
        weights = [_weight(handle) for handle in handles]
        first = next((i + 1 for i in reversed(range(len(weights))) if is_large(weights[i])), 0)
        epochs = [max(0, i - first + 1) for i in range(len(handles))]
        self._cuts = (0 if first else EVERYTHING, *epochs[first:])
        return epochs

    def start(self, inherited: Sequence[ChainFile] = ()) -> None:
        """The state is restored. `inherited`: the files it came from, if the next snapshot may name them."""
        self._files = tuple(inherited)
        epochs = sorted({file.epoch for file in inherited})
        self._cuts = tuple(epochs) if epochs[:1] == [0] else (EVERYTHING, *epochs)
        self.epoch = max(self.cut, 0) + 1

    def begin(self, checkpoint_id: int, live_rows: int, *, full: bool) -> SnapshotPlan:
        """The barrier of a checkpoint. `full`: the snapshot must stand alone."""
        epoch, self.epoch = self.epoch, self.epoch + 1
        cut, renewed = EVERYTHING, frozenset[int]()
        if self._dead_rows_left is None:
            # Not all that are there: a job restarted often would never renew.
            self._dead_rows_left = min(max(0, self.row_count - live_rows), live_rows)
        if not full and self.cut != EVERYTHING:
            rows = rows_to_renew(self._wear(live_rows))
            if rows == 0:
                cut = self._cuts[-1 - steps_to_merge(self._step_weights())]
            elif rows < live_rows:
                # A large file: with it goes all that can be merged.
                cut, renewed = self._cuts[0], self._choose(rows, live_rows)
        plan = SnapshotPlan(checkpoint_id, epoch, cut, (), live_rows=live_rows)
        if plan.is_delta:
            plan.base = tuple(file for file in self._files if file.epoch <= cut)
            plan.cuts = tuple(earlier for earlier in self._cuts if earlier <= cut)
            plan.renewed_at = self._renewed_at
            plan.renews = bool(renewed)
            plan.renewed = renewed | {unit for unit, at in self._renewed_at.items() if at > cut}
        self._pending.append(plan)
        del self._pending[:-PENDING_MAX]
        return plan

    def settle(self, plan: SnapshotPlan) -> None:
        """Find what of the plan's base still counts."""
        plan.kept = tuple(self._counting(plan))

    def finish(self, plan: SnapshotPlan, written: Iterable[ChainFile]) -> tuple[SegmentHandle, ...]:
        """Everything is written; what the checkpoint names, in the order in which a restore reads it."""
        plan.files = (*plan.kept, *written)
        return tuple(file.handle for file in plan.files)

    def committed(self, checkpoint_id: int) -> None:
        """A checkpoint is durable. Unknown ones are ignored."""
        for index, plan in enumerate(self._pending):
            if plan.checkpoint_id == checkpoint_id and plan.files is not None:
                self._take_over(plan, plan.files)
                del self._pending[: index + 1]
                return

    def forget_cuts(self) -> None:
        """What committed checkpoints hold is not merged any more."""
        self._cuts = self._cuts[-1:]

    def forget(self) -> None:
        """The next snapshot is a full one, whatever becomes of those before it."""
        self._cuts = (EVERYTHING,)
        self._files = ()
        self._pending.clear()

    def _take_over(self, plan: SnapshotPlan, files: tuple[ChainFile, ...]) -> None:
        cuts = [cut for cut in plan.cuts if cut in self._cuts] if plan.is_delta else [EVERYTHING]
        if cuts and cuts[-1] != EVERYTHING and all(file.epoch < plan.epoch for file in files):
            # Nothing has changed: no step for that.
            cuts.pop()
        self._files, self._cuts = files, (*cuts, plan.epoch)
        large = [step for step, step_weight in enumerate(self._step_weights(), start=1) if is_large(step_weight)]
        self._cuts = self._cuts[large[-1] if large else 0 :]
        self._renewed_at = self._renewed_since(plan)
        dead_rows, left = self.row_count - plan.live_rows, self._dead_rows_left
        self._dead_rows_left = dead_rows if plan.renews or not plan.is_delta or left is None else min(left, dead_rows)

    def _wear(self, live_rows: int) -> Wear:
        read_rows = self.row_count
        handles = {file.handle.path: file.handle for file in self._files}.values()
        return Wear(
            live_rows=live_rows,
            read_rows=read_rows,
            named_rows=sum(handle.row_count for handle in handles),
            weight=sum(_weight(handle) for handle in handles),
            file_count=len(handles),
            dead_rows_left=self._dead_rows_left or 0,
            unit_rows=self._unit_rows(live_rows),
        )

    def _step_weights(self) -> list[int]:
        """Of the files between each two neighbouring cuts."""
        weights = [0] * len(self._cuts)
        for file in self._files:
            weights[bisect_left(self._cuts, file.epoch)] += _weight(file.handle)
        return weights[1:]

    @abstractmethod
    def _unit_rows(self, live_rows: int) -> int:
        """Rows of a unit, if all units are alike."""

    @abstractmethod
    def _choose(self, rows: int, live_rows: int) -> frozenset[int]:
        """Units of about so many rows to be written whole."""

    @abstractmethod
    def _counting(self, plan: SnapshotPlan) -> list[ChainFile]:
        """What of the plan's base still counts."""

    @abstractmethod
    def _renewed_since(self, plan: SnapshotPlan) -> dict[int, int]:
        """Epoch in which each unit was last written whole, once the plan's checkpoint is committed."""


class TableChain(SegmentChain):
    """Units are key groups."""

    def __init__(self, owned: KeyGroupRange) -> None:
        super().__init__()
        self._groups = range(owned.first, owned.last + 1)

    def _unit_rows(self, live_rows: int) -> int:
        return max(1, live_rows // max(1, len(self._groups)))

    def _choose(self, rows: int, live_rows: int) -> frozenset[int]:
        # What was renewed before a restart is seen by the files that are left of it.
        oldest_file: dict[int, int] = {}
        for number, file in enumerate(self._files):
            for group in range(file.handle.key_group_first, file.handle.key_group_last + 1):
                oldest_file.setdefault(group, number)
        last = len(self._files)
        oldest_first = sorted(
            self._groups, key=lambda g: (self._renewed_at.get(g, EVERYTHING), oldest_file.get(g, last))
        )
        return frozenset(oldest_first[: max(1, rows // self._unit_rows(live_rows))])

    def _counting(self, plan: SnapshotPlan) -> list[ChainFile]:
        if not plan.renewed:
            return list(plan.base)
        renewed_at = self._renewed_since(plan)
        kept: list[ChainFile] = []
        covered: KeyGroupRange | None = None
        for file in plan.base:
            needed = [group for group in file.row_counts if renewed_at.get(group, EVERYTHING) <= file.epoch]
            if covered is not None:
                # What it removes of the key groups that older files are read for must stay removed.
                needed += [group for group in file.row_counts if covered.first <= group <= covered.last]
            if not needed:
                continue
            first, last = min(needed), max(needed)
            handle = msgspec.structs.replace(file.handle, key_group_first=first, key_group_last=last)
            counts = {group: count for group, count in file.row_counts.items() if first <= group <= last}
            kept.append(msgspec.structs.replace(file, handle=handle, row_counts=counts))
            if covered is not None:
                first, last = min(first, covered.first), max(last, covered.last)
            covered = KeyGroupRange(first, last)
        return kept

    def _renewed_since(self, plan: SnapshotPlan) -> dict[int, int]:
        if not plan.is_delta:
            return dict.fromkeys(self._groups, plan.epoch)
        return plan.renewed_at | dict.fromkeys(plan.renewed, plan.epoch)


class WindowChain(SegmentChain):
    """Units are windows, by their end."""

    def __init__(self) -> None:
        super().__init__()
        self._moved_rows = self._moved_in = 0

    def joined(self, epochs: set[int], row_count: int) -> int | None:
        """Blocks of a window, which are of these epochs, become one of so many rows: to which epoch it belongs; None:
        to the current one, so that the whole window is written again."""
        levels = {self.level(epoch) for epoch in epochs}
        newest = max(levels)
        if len(levels) == 1:
            return newest
        moved_rows = row_count + (self._moved_rows if self._moved_in == self.epoch else 0)
        if newest > self.cut or not is_large(moved_rows):
            self._moved_rows, self._moved_in = moved_rows, self.epoch
            return None
        # A committed checkpoint holds it all, and it is much: rather no snapshot goes back to between its parts.
        self._cuts = tuple(cut for cut in self._cuts if not min(levels) <= cut < newest)
        return newest

    def _unit_rows(self, live_rows: int) -> int:
        return 0

    def _choose(self, rows: int, live_rows: int) -> frozenset[int]:
        chosen: set[int] = set()
        chosen_rows = 0
        for file in self._files:
            if chosen_rows >= rows:
                break
            chosen.update(file.row_counts)
            chosen_rows += sum(file.row_counts.values())
        return frozenset(chosen)

    def _counting(self, plan: SnapshotPlan) -> list[ChainFile]:
        kept: list[ChainFile] = []
        held: set[int] = set()
        for file in plan.base:
            if file.handle.is_removal:
                if not held.isdisjoint(file.contents):
                    kept.append(file)
                continue
            counts = {end: count for end, count in file.row_counts.items() if end not in plan.replaced}
            if counts:
                kept.append(msgspec.structs.replace(file, row_counts=counts))
                held |= file.contents
        return kept

    def _renewed_since(self, plan: SnapshotPlan) -> dict[int, int]:
        return {}


def removed_windows(plan: SnapshotPlan) -> list[int]:
    """Windows that no longer count where the files hold them that a settled plan names."""
    held: set[int] = set().union(*(file.contents for file in plan.kept if not file.handle.is_removal))
    return sorted(held.intersection(plan.replaced))


def _weight(handle: SegmentHandle) -> int:
    return weight(handle.row_count, handle.byte_size)
