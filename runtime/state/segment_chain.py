"""Chains of state files: what a snapshot writes anew, and which files of earlier checkpoints it names.

A state counts its snapshots as *epochs*: what changes after the barrier of snapshot n belongs to epoch n + 1. A
snapshot writes what has changed in every epoch after the *cut*, the last epoch that a committed checkpoint holds, and
names the files of that checkpoint before its own. So whatever becomes of a checkpoint (declined, timed out, its
acknowledgement lost, several in a row), its changes are in the next snapshot again, and no file of an uncommitted
checkpoint is ever named by another.

A chain is kept short without writing everything at once: each snapshot also writes some *units* whole (the key groups
of a table in turn, windows that old files still hold), and what older files have of a unit that was written whole later
is not read any more: files are named with a smaller range of key groups, then not at all. Pure; `begin` and `committed`
are called by the task's thread, `settle` and `finish` by the one that writes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import msgspec

from runtime.checkpoint.snapshot import SegmentHandle
from runtime.operators.protocol import KeyGroupRange

EVERYTHING = -1
"""The cut of a snapshot that names no earlier file."""
WHOLE_ROWS_MAX = 65_536
"""A state of no more rows is written whole when its chain is worn: there is nothing to spread."""
WORN_ROWS_MIN = 1_024
CHECKPOINTS_MAX = 24
"""Checkpoints whose files a chain may have before units are renewed for the sake of their number."""
PENDING_MAX = 64


class ChainFile(msgspec.Struct, frozen=True):
    """A file and what of it counts: rows by unit. `contents`: the windows of a file that holds, or removes, windows."""

    handle: SegmentHandle
    epoch: int
    row_counts: dict[int, int]
    contents: frozenset[int] = frozenset()


class SnapshotPlan(msgspec.Struct):
    """One snapshot of one state. `base`: files it may name; `renewed`: units that it writes whole; `replaced`: windows
    of which no earlier file counts; `kept`: what of `base` it names; `files`: the chain, once everything is written."""

    checkpoint_id: int
    epoch: int
    cut: int
    base: tuple[ChainFile, ...]
    renewed: frozenset[int] = frozenset()
    renewed_at: dict[int, int] = {}
    replaced: dict[int, int] = {}
    changed_rows: int = 0
    kept: tuple[ChainFile, ...] = ()
    files: tuple[ChainFile, ...] | None = None

    @property
    def is_delta(self) -> bool:
        return self.cut != EVERYTHING


class SegmentChain(ABC):
    """The chain of one state in one subtask."""

    def __init__(self) -> None:
        self.epoch = 0
        """The epoch to which a change belongs now; 0 while the state is being restored."""
        self.cut = EVERYTHING
        self._files: tuple[ChainFile, ...] = ()
        self._renewed_at: dict[int, int] = {}
        self._changed_rows = 0
        self._pending: list[SnapshotPlan] = []

    @property
    def is_tracked(self) -> bool:
        """Whether a later snapshot may need to know what is removed now."""
        return self.cut != EVERYTHING or bool(self._pending)

    @property
    def floor(self) -> int:
        """No later snapshot of changes has to write what changed in epochs up to this one."""
        return self._pending[0].epoch if self.cut == EVERYTHING and self._pending else self.cut

    @property
    def row_count(self) -> int:
        """Rows that a restore of the last committed checkpoint would read."""
        return sum(sum(file.row_counts.values()) for file in self._files)

    def start(self, inherited: Sequence[ChainFile] = ()) -> None:
        """The state is restored. `inherited`: the files it came from, if the next snapshot may name them."""
        self.epoch = 1
        if inherited:
            self._files = tuple(inherited)
            self.cut = 0

    def begin(self, checkpoint_id: int, live_rows: int, *, full: bool) -> SnapshotPlan:
        """The barrier of a checkpoint. `full`: the snapshot must stand alone."""
        epoch, self.epoch = self.epoch, self.epoch + 1
        if full or self.cut == EVERYTHING or self._is_worn_out(live_rows):
            plan = SnapshotPlan(checkpoint_id, epoch, EVERYTHING, ())
        else:
            plan = SnapshotPlan(checkpoint_id, epoch, self.cut, self._files, renewed_at=self._renewed_at)
            if self._is_worn(live_rows):
                plan.renewed = self._choose(live_rows)
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
                self._files, self.cut, self._changed_rows = plan.files, plan.epoch, plan.changed_rows
                self._renewed_at = self._renewed_since(plan)
                del self._pending[: index + 1]
                return

    def forget(self) -> None:
        """The next snapshot is a full one, whatever becomes of those before it."""
        self.cut = EVERYTHING
        self._files = ()
        self._pending.clear()

    def _is_worn(self, live_rows: int) -> bool:
        """Whether a restore would read a quarter more than there is, or very many files."""
        return self.row_count > live_rows * 5 // 4 + WORN_ROWS_MIN or self._checkpoint_count > CHECKPOINTS_MAX

    def _is_worn_out(self, live_rows: int) -> bool:
        """Whether it is time to write everything."""
        read_rows = self.row_count
        if live_rows <= WHOLE_ROWS_MAX:
            return read_rows > live_rows * 3 // 2 + WORN_ROWS_MIN or self._checkpoint_count > CHECKPOINTS_MAX
        return read_rows > 3 * live_rows

    @property
    def _checkpoint_count(self) -> int:
        return len({file.handle.checkpoint_id for file in self._files})

    @abstractmethod
    def _choose(self, live_rows: int) -> frozenset[int]:
        """Units to be written whole now that the chain is worn."""

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

    def _choose(self, live_rows: int) -> frozenset[int]:
        # Two rows renewed for each that changes: when half as many rows as there are have changed, all are renewed.
        rows_per_group = max(1, live_rows // max(1, len(self._groups)))
        count = 1 + 2 * self._changed_rows // rows_per_group
        if self._checkpoint_count > CHECKPOINTS_MAX:
            count = max(count, 1 + len(self._groups) // CHECKPOINTS_MAX)
        oldest_first = sorted(self._groups, key=lambda group: self._renewed_at.get(group, EVERYTHING))
        return frozenset(oldest_first[:count])

    def _counting(self, plan: SnapshotPlan) -> list[ChainFile]:
        if not plan.is_delta:
            return []
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

    def _choose(self, live_rows: int) -> frozenset[int]:
        most = max(WHOLE_ROWS_MAX, 2 * self._changed_rows, live_rows // 8)
        chosen: set[int] = set()
        rows = 0
        for file in self._files:
            if rows >= most:
                break
            chosen.update(file.row_counts)
            rows += sum(file.row_counts.values())
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
