"""Rows of a keyed table by the hash of their first key columns, in the order in which they were made.

The slots of one prefix stand side by side in a piece of one array; a piece that is full moves to the end with twice
the room. A removed row leaves a hole; a piece that is half holes is closed up, and the array is written anew when half
of it is unused. Prefixes with equal hashes share a piece: the table compares keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from runtime.key_groups import Hashes
from runtime.state.growing import grown
from runtime.state.key_index import KeyIndex, Rows

HOLE = -1
PIECE_MIN = 2
UNUSED_MIN = 65_536

Ints = npt.NDArray[Any]


class PrefixIndex:
    """Used by its table only."""

    def __init__(self) -> None:
        self._ids = KeyIndex()
        self._free_ids: list[int] = []
        self._id_count = 0
        self._start: Ints = np.zeros(1, dtype=np.int64)
        self._length: Ints = np.zeros(1, dtype=np.int32)
        self._room: Ints = np.zeros(1, dtype=np.int32)
        self._holes: Ints = np.zeros(1, dtype=np.int32)
        self._complete = np.zeros(1, dtype=np.bool_)
        self._slots: Ints = np.zeros(1024, dtype=np.int32)
        self._end = 0
        self._unused = 0
        self._id_of_row: Ints = np.zeros(1, dtype=np.int32)
        self._place_of_row: Ints = np.zeros(1, dtype=np.int32)
        self._found: tuple[Hashes, Rows] | None = None
        """What was looked up last, and the ids found; as long as no id has come or gone."""

    @property
    def byte_size(self) -> int:
        arrays = (self._start, self._length, self._room, self._holes, self._slots, self._id_of_row, self._place_of_row)
        return self._ids.byte_size + sum(array.nbytes for array in arrays)

    def grow(self, capacity: int) -> None:
        """Make room for rows in slots below `capacity`."""
        if capacity <= len(self._id_of_row):
            return
        self._id_of_row = grown(self._id_of_row, capacity)
        self._place_of_row = grown(self._place_of_row, capacity)

    def add(self, slots: Rows, hashes: Hashes) -> None:
        """New rows, oldest first, and the hashes of their prefixes."""
        if not len(slots):
            return
        ids = self._ids_of(hashes)
        order = np.argsort(ids, kind="stable")
        sorted_ids = ids[order]
        starts = np.flatnonzero(np.concatenate(([True], sorted_ids[1:] != sorted_ids[:-1])))
        distinct = sorted_ids[starts]
        counts = np.diff(np.append(starts, len(ids)))
        self._make_room(distinct, counts)
        places = self._length[sorted_ids] + np.arange(len(ids)) - np.repeat(starts, counts)
        rows = slots[order]
        self._slots[self._start[sorted_ids] + places] = rows
        self._id_of_row[rows] = sorted_ids
        self._place_of_row[rows] = places
        self._length[distinct] += counts.astype(np.int32)

    def remove(self, slots: Rows) -> None:
        """Rows (distinct) that are gone."""
        if not len(slots):
            return
        self._found = None
        ids = self._id_of_row[slots]
        self._slots[self._start[ids] + self._place_of_row[slots]] = HOLE
        distinct, counts = counted(ids)
        self._holes[distinct] += counts.astype(np.int32)
        empty = self._holes[distinct] == self._length[distinct]
        gone = distinct[empty]
        if len(gone):
            self._unused += int(self._room[gone].sum())
            self._room[gone] = self._length[gone] = self._holes[gone] = 0
            self._ids.free(gone)
            self._free_ids += gone.tolist()
        rest = distinct[~empty]
        self._close_up(rest[2 * self._holes[rest] > self._length[rest]])

    def find(self, hashes: Hashes) -> tuple[Rows, Rows]:
        """Index into `hashes`, and slot, of every row whose prefix has that hash; ordered by index, then by age."""
        ids = self._find_ids(hashes)
        known = (ids >= 0).nonzero()[0]
        if len(known) < len(ids):
            ids = ids[known]
        starts, lengths = self._start[ids], self._length[ids]
        if lengths.max(initial=0) == 1 == lengths.min(initial=1):
            owners, slots = known, self._slots[starts]
        else:
            own, places = expand(starts, lengths)
            owners, slots = known[own], self._slots[places]
        present = slots != HOLE
        if not present.all():
            owners, slots = owners[present], slots[present]
        return owners, slots.astype(np.int64)

    def row_count(self, hashes: Hashes) -> int:
        """No more rows would `find` give."""
        ids = self._find_ids(hashes)
        return int(self._length[ids[ids >= 0]].sum())

    def incomplete(self, hashes: Hashes) -> Rows:
        """Index of the hashes of which not all rows are known to be here (see `complete`)."""
        ids = self._ids.find(hashes, _all_equal)
        return np.flatnonzero((ids < 0) | ~self._complete[ids])

    def complete(self, hashes: Hashes) -> None:
        """All rows with these hashes are here now, until one of them is taken out by `displace`."""
        ids = self._ids.find(hashes, _all_equal)
        self._complete[ids[ids >= 0]] = True

    def displace(self, slots: Rows) -> None:
        """These rows are kept elsewhere from now on."""
        self._complete[self._id_of_row[slots]] = False
        self.remove(slots)

    def compact(self) -> None:
        """Write the array anew when more than half of it is unused."""
        self._ids.move(65_536)
        if self._unused <= max(UNUSED_MIN, self._end // 2):
            return
        ids = np.flatnonzero(self._ids.live[: self._id_count])
        lengths = self._length[ids].astype(np.int64)
        _, places = expand(self._start[ids], lengths)
        rooms = np.maximum(PIECE_MIN, lengths + lengths // 4)
        starts = np.cumsum(rooms) - rooms
        _, new_places = expand(starts, lengths)
        slots = np.empty(int(rooms.sum()) + 1024, dtype=np.int32)
        slots[new_places] = self._slots[places]
        self._slots, self._end, self._unused = slots, int(rooms.sum()), 0
        self._start[ids], self._room[ids] = starts, rooms

    def _find_ids(self, hashes: Hashes) -> Rows:
        if self._found is not None and self._found[0] is hashes:
            return self._found[1]
        ids = self._ids.find(hashes, _all_equal)
        self._found = (hashes, ids)
        return ids

    def _ids_of(self, hashes: Hashes) -> Rows:
        self._found = None
        ids = self._ids.find(hashes, _all_equal)
        missing = np.flatnonzero(ids < 0)
        if len(missing):
            ids[missing], _ = self._ids.insert(hashes, missing, _all_equal, self._new_ids)
        return ids

    def _new_ids(self, rows: Rows) -> Rows:
        count = len(rows)
        reused = self._free_ids[len(self._free_ids) - min(count, len(self._free_ids)) :]
        del self._free_ids[len(self._free_ids) - len(reused) :]
        fresh = np.arange(self._id_count, self._id_count + count - len(reused))
        self._id_count += len(fresh)
        if self._id_count > len(self._start):
            capacity = max(1024, self._id_count, len(self._start) * 2)
            self._ids.grow(capacity)
            self._start = grown(self._start, capacity)
            self._length = grown(self._length, capacity)
            self._room = grown(self._room, capacity)
            self._holes = grown(self._holes, capacity)
            self._complete = grown(self._complete, capacity)
        ids = np.concatenate((np.array(reused, dtype=np.int64), fresh))
        self._start[ids] = self._length[ids] = self._room[ids] = self._holes[ids] = 0
        self._complete[ids] = False
        return ids

    def _make_room(self, ids: Rows, counts: Rows) -> None:
        """Move the pieces of `ids` (distinct) that have no room for so many more rows."""
        needed = self._length[ids] + counts
        full = np.flatnonzero(needed > self._room[ids])
        if not len(full):
            return
        ids, needed = ids[full], needed[full].astype(np.int64)
        # A piece that grows for the first time is given no more than asked: most prefixes have a single row.
        rooms = np.maximum(PIECE_MIN, np.where(self._room[ids] == 0, needed, 2 * needed))
        end = self._end + int(rooms.sum())
        if end > len(self._slots):
            self._slots = grown(self._slots, max(end, int(len(self._slots) * 1.5)))
        starts = self._end + np.cumsum(rooms) - rooms
        lengths = self._length[ids]
        if lengths.any():
            _, places = expand(self._start[ids], lengths)
            _, new_places = expand(starts, lengths)
            self._slots[new_places] = self._slots[places]
            self._unused += int(self._room[ids].sum())
        self._start[ids], self._room[ids] = starts, rooms
        self._end = end

    def _close_up(self, ids: Rows) -> None:
        """Take the holes out of pieces."""
        if not len(ids):
            return
        owners, places = expand(self._start[ids], self._length[ids])
        slots = self._slots[places]
        present = slots != HOLE
        owners, slots = owners[present], slots[present]
        lengths = np.bincount(owners, minlength=len(ids))
        _, new_places = expand(self._start[ids], lengths)
        self._slots[new_places] = slots
        self._place_of_row[slots] = new_places - self._start[ids][owners]
        self._length[ids] = lengths
        self._holes[ids] = 0


def expand(starts: Ints, lengths: Ints) -> tuple[Rows, Rows]:
    """Stretches start..start+length-1 one after the other: number of the stretch, and position."""
    lengths = lengths.astype(np.int64)
    owners = np.repeat(np.arange(len(lengths)), lengths)
    ends = np.cumsum(lengths)
    shift = starts - (ends - lengths)
    return owners, np.arange(len(owners)) + shift[owners]


def counted(values: Ints) -> tuple[Rows, Rows]:
    """The distinct values, ascending, and how often each occurs. By sorting, which is a fraction of what `np.unique`
    takes."""
    ordered = np.sort(values).astype(np.int64)
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))[: len(ordered)]
    return ordered[starts], np.diff(np.append(starts, len(ordered)))


def _all_equal(left: Rows, right: Rows) -> npt.NDArray[np.bool_]:
    """Prefixes are told apart by hash alone."""
    return np.ones(len(left), dtype=np.bool_)
