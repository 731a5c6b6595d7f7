"""From a key's hash to its slot: open addressing over whole batches, in numpy.

The table holds slot numbers. A probe compares the 64-bit hash stored per slot first and the keys themselves (through
the caller's comparison) after it: a hash alone is no identity. Growing never stops the world: the bigger table takes
new keys at once, old ones move over in pieces, and until then look-ups ask both.

An entry is never deleted: the hash of a freed slot is spoilt instead, so the entry matches nothing; when the slot is
used again it simply has two entries. Such stale entries go when the table is made anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from runtime.key_groups import Hashes
from runtime.state.growing import grown

EMPTY = -1
TABLE_SIZE_MIN = 1 << 10
LOAD_MAX = 0.375
MOVED_PER_INSERT = 4
"""Slots moved to a bigger table per new key: the move ends well before the table is full again."""
MOVED_MIN = 16_384
PREPARED_LOAD = 0.7
"""Share of a table's room at which the one after it begins to be prepared."""

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Table = npt.NDArray[np.int32]
SameKey = Callable[[Rows, Rows], Mask]
"""Whether the key in each slot equals the key of the batch's row beside it."""
SameRow = Callable[[Rows, Rows], Mask]
"""Whether two rows of the batch have equal keys."""


class _Ways(NamedTuple):
    """Where the ways of a batch's keys ended in a table: at the key's entry or at an empty place."""

    hashes: Hashes
    table: Table
    ends: Rows


class KeyIndex:
    """`hashes` and `live` are indexed by slot and belong to the index; the owner of the slots reads them."""

    def __init__(self) -> None:
        self.hashes: Hashes = np.zeros(1, dtype=np.uint64)
        self.live: Mask = np.zeros(1, dtype=np.bool_)
        self.live_count = 0
        self._table: Table = np.full(TABLE_SIZE_MIN, EMPTY, dtype=np.int32)
        self._entry_count = 0
        self._old: Table | None = None
        self._moved = 0
        self._move_end = 0
        self._ways: _Ways | None = None
        self._next: Table | None = None
        """The bigger table to come, empty up to `_next_filled` and undefined behind."""
        self._next_filled = 0

    @property
    def byte_size(self) -> int:
        old = 0 if self._old is None else self._old.nbytes
        # Memory is taken where it is written.
        prepared = 0 if self._next is None else self._next[: self._next_filled].nbytes
        return self._table.nbytes + old + prepared + self.hashes.nbytes + self.live.nbytes

    def grow(self, capacity: int) -> None:
        """Make room for slots below `capacity`."""
        self.hashes = grown(self.hashes, capacity)
        slot_count = len(self.live)
        self.live = grown(self.live, capacity)
        self.live[slot_count:] = False

    def find(self, hashes: Hashes, same: SameKey) -> Rows:
        """Slot of each row's key, -1 where there is none. Where the way of each key ended is remembered until the next
        call: an `insert` of the same hashes goes on from there."""
        slots, ends = self._find_in(self._table, hashes, same)
        self._ways = _Ways(hashes, self._table, ends)
        if self._old is not None:
            missing = (slots < 0).nonzero()[0]
            if len(missing):
                slots[missing], _ = self._find_in(
                    self._old, hashes[missing], lambda found, rows: same(found, missing[rows])
                )
        return slots

    def insert(self, hashes: Hashes, rows: Rows, same: SameRow, allocate: Callable[[Rows], Rows]) -> tuple[Rows, Mask]:
        """Take in the keys of `rows` (ascending), none of which is in the index. `allocate` gets the first row of each
        distinct key, in order, and returns their slots. Returns slot of each row, and whether it is the first of its
        key."""
        self._reserve(len(rows))
        ways, self._ways = self._ways, None
        ends = None
        if ways is not None and ways.hashes is hashes and ways.table is self._table:
            ends = ways.ends[rows]
        own_hashes = hashes[rows]
        owners, places = self._claim(own_hashes, ends, lambda left, right: same(rows[left], rows[right]))
        if owners is None:
            first, firsts = np.ones(len(rows), dtype=np.bool_), rows
        else:
            first = owners == np.arange(len(rows))
            places, own_hashes, firsts = places[first], own_hashes[first], rows[first]
        new_slots = allocate(firsts)
        self._table[places] = new_slots
        self.hashes[new_slots] = own_hashes
        self.live[new_slots] = True
        self.live_count += len(new_slots)
        self._entry_count += len(new_slots)
        if owners is None:
            return new_slots, first
        slots = np.empty(len(rows), dtype=np.int64)
        slots[first] = new_slots
        return slots[owners], first

    def drop_entries(self) -> None:
        """No key is looked up any more."""
        if self._entry_count or self._old is not None:
            self._table = np.full(TABLE_SIZE_MIN, EMPTY, dtype=np.int32)
            self._old = self._next = self._ways = None
            self._entry_count = self._next_filled = 0

    def take_in(self, slots: Rows) -> None:
        """Slots of new rows whose keys are not looked up (see `drop_entries`)."""
        self.live[slots] = True
        self.live_count += len(slots)

    def free(self, slots: Rows) -> None:
        """The keys of these (distinct, live) slots are no longer in the index."""
        self.hashes[slots] = ~self.hashes[slots]
        self.live[slots] = False
        self.live_count -= len(slots)

    def move(self, slot_count: int) -> None:
        """Go on with moving entries to the bigger table."""
        if self._old is None:
            return
        end = min(self._moved + slot_count, self._move_end)
        slots = self._moved + (self.live[self._moved : end]).nonzero()[0]
        self._place(slots)
        self._moved = end
        if end == self._move_end:
            self._old = None

    def _find_in(self, table: Table, hashes: Hashes, same: SameKey) -> tuple[Rows, Rows]:
        """Slots, and the place at which each key's way ended."""
        slots, ends = self._probe(table, hashes)
        found = (slots >= 0).nonzero()[0]
        if len(found):
            equal = same(slots[found], found)
            if np.count_nonzero(equal) < len(found):
                # Other keys with the same 64 bits: go on behind them, comparing keys at each step.
                unequal = found[~equal]
                slots[unequal], ends[unequal] = self._probe_exactly(table, hashes, unequal, same)
        return slots, ends

    def _probe(self, table: Table, hashes: Hashes) -> tuple[Rows, Rows]:
        """Per row, the first slot on the key's way with its hash, -1 without; and the place where it or nothing is."""
        mask, stored = len(table) - 1, self.hashes
        ends = (hashes & np.uint64(mask)).view(np.int64)
        slots = table.take(ends).astype(np.int64)
        # An empty place shows the hash of the last slot: whether that is the wanted one or not, nothing is found.
        rest = ((slots >= 0) & (stored[slots] != hashes)).nonzero()[0]
        pending, wanted, places = rest, hashes[rest], ends[rest]
        step = 0
        while len(rest):
            step += 1
            places = (places + step) & mask
            seen = table.take(places).astype(np.int64)
            slots[pending], ends[pending] = seen, places
            rest = ((seen >= 0) & (stored[seen] != wanted)).nonzero()[0]
            pending, wanted, places = pending[rest], wanted[rest], places[rest]
        return slots, ends

    def _probe_exactly(self, table: Table, hashes: Hashes, rows: Rows, same: SameKey) -> tuple[Rows, Rows]:
        """As `_probe`, for some rows, by their keys."""
        mask = len(table) - 1
        slots = np.full(len(rows), EMPTY, dtype=np.int64)
        wanted = hashes[rows]
        ends = (wanted & np.uint64(mask)).view(np.int64)
        pending, places = np.arange(len(rows)), ends.copy()
        step = 0
        while len(pending):
            seen = table[places].astype(np.int64)
            hit = (seen >= 0) & (self.hashes[seen] == wanted)
            hits = hit.nonzero()[0]
            if len(hits):
                hit[hits] = same(seen[hits], rows[pending[hits]])
            slots[pending[hit]], ends[pending] = seen[hit], places
            rest = ((seen >= 0) & ~hit).nonzero()[0]
            pending, wanted = pending[rest], wanted[rest]
            step += 1
            places = (places[rest] + step) & mask
        return slots, ends

    def _claim(self, hashes: Hashes, ends: Rows | None, same: SameRow) -> tuple[Rows | None, Rows]:
        """A place in the table for each distinct key; provisional entries (-2 - row) stand there. Returns the first row
        of each row's key (None: all keys are distinct), and the places of those. `ends`: where the ways of the keys
        have ended; most find their place empty at once."""
        table = self._table
        if ends is None:
            return self._claim_in_steps(hashes, np.arange(len(hashes)), None, same)
        entries = np.arange(-2, -2 - len(hashes), -1, dtype=np.int32)
        seen = table.take(ends)
        vacant = (seen == EMPTY).nonzero()[0]
        # Of the rows that want one place the last stays; the first one takes it over if there are several.
        table[ends[vacant]] = entries[vacant]
        seen = table.take(ends)
        beaten = (seen != entries).nonzero()[0]
        if len(beaten):
            contested = beaten[seen[beaten] < EMPTY][::-1]
            table[ends[contested]] = entries[contested]
            beaten = (table.take(ends) != entries).nonzero()[0]
        if not len(beaten):
            return None, ends
        # From the beginning of their ways: equal keys go the same way step by step.
        return self._claim_in_steps(hashes, beaten, ends, same)

    def _claim_in_steps(self, hashes: Hashes, pending: Rows, ends: Rows | None, same: SameRow) -> tuple[Rows, Rows]:
        """`pending` rows have no place yet, all others those in `ends`."""
        table, mask = self._table, len(self._table) - 1
        owners = np.arange(len(hashes))
        taken = np.empty(len(hashes), dtype=np.int64) if ends is None else ends
        places = (hashes[pending] & np.uint64(mask)).view(np.int64)
        step = 0
        while len(pending):
            seen = table[places]
            empty = (seen == EMPTY).nonzero()[0][::-1]
            if len(empty):
                # Backwards: of the rows that want one place the first is written last and stays. Rows with equal keys
                # go the same way step by step, so the first of a key is its owner.
                table[places[empty]] = -2 - pending[empty]
                seen = table[places]
            owner = -2 - seen.astype(np.int64)
            own = owner == pending
            twin = ((owner >= 0) & ~own).nonzero()[0]
            twin = twin[hashes[owner[twin]] == hashes[pending[twin]]]
            if len(twin):
                twin = twin[same(owner[twin], pending[twin])]
            taken[pending[own]] = places[own]
            done = own
            done[twin] = True
            owners[pending[done]] = owner[done]
            rest = (~done).nonzero()[0]
            pending = pending[rest]
            step += 1
            places = (places[rest] + step) & mask
        return owners, taken

    def _place(self, slots: Rows) -> None:
        """Enter slots whose keys are distinct and not in the current table."""
        table, mask = self._table, len(self._table) - 1
        places = (self.hashes[slots] & np.uint64(mask)).view(np.int64)
        step = 0
        while len(slots):
            empty = (table[places] == EMPTY).nonzero()[0]
            table[places[empty]] = slots[empty]
            rest = (table[places] != slots).nonzero()[0]
            slots = slots[rest]
            step += 1
            places = (places[rest] + step) & mask

    def _reserve(self, key_count: int) -> None:
        """Room for so many more keys; a bigger (or cleaner) table is started where there is none."""
        self.move(max(MOVED_MIN, MOVED_PER_INSERT * key_count))
        room = int(LOAD_MAX * len(self._table)) - self._entry_count - key_count
        if room >= 0:
            if self._entry_count > PREPARED_LOAD * LOAD_MAX * len(self._table):
                self._prepare(key_count, room)
            return
        self.move(len(self.live))
        size = self._size_for(self.live_count + key_count)
        if self._next is None or len(self._next) != size:
            self._next, self._next_filled = np.empty(size, dtype=np.int32), 0
        self._next[self._next_filled :] = EMPTY
        self._old, self._table, self._next = self._table, self._next, None
        self._entry_count = self.live_count
        self._moved, self._move_end = 0, len(self.live)
        self.move(max(MOVED_MIN, MOVED_PER_INSERT * key_count))

    def _prepare(self, key_count: int, room: int) -> None:
        """Empty the next stretch of the table to come, so that all of it is when there is no room left."""
        if self._next is None:
            self._next, self._next_filled = np.empty(self._size_for(self.live_count + room), dtype=np.int32), 0
        rest = len(self._next) - self._next_filled
        end = self._next_filled + int(1.5 * key_count * rest / (room + key_count)) + MOVED_MIN
        self._next[self._next_filled : end] = EMPTY
        self._next_filled = min(end, len(self._next))

    def _size_for(self, key_count: int) -> int:
        size = TABLE_SIZE_MIN
        while size * LOAD_MAX < 1.2 * key_count:
            size *= 2
        return size
