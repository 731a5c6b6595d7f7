"""What a state backend offers to operators. One backend serves one operator of one subtask, on its task's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runtime.checkpoint.snapshot import SegmentHandle
from runtime.key_groups import Hashes, KeyGroups

KEY_GROUP_FIELD = pa.field("key_group", pa.int16(), nullable=False)
"""First column of every block of state."""

Reduce = Callable[[Sequence[pa.RecordBatch]], pa.RecordBatch]
"""Merges consecutive blocks of one window, oldest first, into one with a row per key (keys in any order)."""

WriteSegments = Callable[[], tuple[SegmentHandle, ...]]
"""The asynchronous half of a snapshot: writes what was captured, and returns the chain of files that are the state, in
the order in which a restore reads them. Runs in a helper thread, once. Raises OSError."""


class WindowState(Protocol):
    """Partial aggregates by window. A window is named by its end (ms, in the window's own clock); its rows are blocks
    whose first column is the key group."""

    def append(self, window_end: int, block: pa.RecordBatch) -> None:
        """Keep a block. The caller gives it away: it must own its memory, not be a slice of an input. Raises
        StateTooLargeError."""

    def ends(self) -> list[int]:
        """Ends of the windows that hold rows, ascending."""

    def merge(self, window_end: int) -> pa.RecordBatch:
        """The window's rows, one per key, sorted by key group; they stay in the state in this form."""

    def keep_rest(self, window_end: int, rest: pa.RecordBatch | None) -> None:
        """Replace a merged window by what has not been emitted yet; None drops the window whole."""


Slots = npt.NDArray[np.int64]
"""Positions of rows in a keyed table."""


class KeyedTable(Protocol):
    """Rows by unique key, column-wise. A row lives in a *slot*. Slots that a call returned stay valid until `settle`,
    which an operator calls once at the end of each batch: only there may the backend evict, expire or move rows.

    Keys equal by value as key hashing has it: NULL equals NULL, -0.0 equals 0.0, every NaN is one. Key and value
    columns have Arrow types; a value column that is declared not nullable and of a fixed-width primitive type can be
    used in place through `numbers`."""

    @property
    def row_count(self) -> int:
        """Rows held, evicted ones included."""

    @property
    def next_sequence(self) -> int:
        """Larger than the number of every row there is, of a table with a prefix: rows are numbered in the order in
        which they are made. Holds after a restore, too."""

    def slots(self, keys: Sequence[pa.Array[Any]], groups: KeyGroups) -> tuple[Slots, npt.NDArray[np.bool_]]:
        """Slot of each row's key, made where it is missing (value columns of a new row: NULL, or 0 where not
        nullable). Second: whether the row is the first of a key that was made by this call. Raises
        StateTooLargeError."""

    def find(self, keys: Sequence[pa.Array[Any]], groups: KeyGroups) -> Slots:
        """Slot of each row's key, -1 where there is none."""

    def append(
        self,
        prefix: Sequence[pa.Array[Any]],
        groups: KeyGroups,
        values: Sequence[pa.Array[Any]],
        hashes: Hashes | None = None,
    ) -> None:
        """New rows with all their value columns. Their key is `prefix` and, as the one more column that such a table's
        key has, `next_sequence` and what follows. Rows of this table are found by their prefix only, never by `slots`
        or `find`. `hashes`: of `prefix` (see `hash_columns`), if they are known. Raises StateTooLargeError."""

    def prefix_row_count(self, hashes: Hashes) -> int | None:
        """No more rows would `find_prefix` give for prefixes with these hashes, equal ones counted each time; None
        where this is not known. The look-up is shared by a `find_prefix` that is given the same hashes next."""

    def find_prefix(
        self, prefix: Sequence[pa.Array[Any]], groups: KeyGroups, hashes: Hashes | None = None
    ) -> tuple[Slots, Slots]:
        """All rows whose first key columns equal a row of `prefix` (as many columns as the table was made with):
        index into `prefix`, and slot; ordered by index, then by the order in which the rows were made. Rows of
        `prefix` that are equal are better given once: each gets all slots. `hashes` as for `append`."""

    def keys(self, slots: Slots) -> list[pa.Array[Any]]:
        """Key columns of the rows."""

    def key(self, column: int, slots: Slots) -> pa.Array[Any]:
        """Values of one key column."""

    def read(self, column: int, slots: Slots) -> pa.Array[Any]:
        """Values of one value column."""

    def write(self, column: int, slots: Slots, values: pa.Array[Any]) -> None:
        """Set values; of a slot that occurs several times the last one stands. Marks the rows as changed."""

    def numbers(self, column: int) -> npt.NDArray[Any]:
        """The live column, indexed by slot, to be read and changed in place. Before changing it, `touch` the slots.
        Valid until the next call of `slots` or `settle`."""

    def touch(self, slots: Slots) -> None:
        """The rows are about to be changed, or are written again as they are (their time to live starts anew)."""

    def remove(self, slots: Slots) -> None:
        """The rows are gone; a later `slots` of their keys makes new ones."""

    def all_slots(self) -> Iterator[Slots]:
        """Every row, in pieces of <= 65,536; the next piece ends the validity of the one before."""

    def settle(self) -> None:
        """The batch is done: slots lose their validity; expired rows may be swept, cold ones evicted. Raises
        StateTooLargeError."""


class KeyedStateBackend(Protocol):
    """Makes the states of one operator, snapshots and restores them together."""

    @property
    def byte_size(self) -> int:
        """Bytes held by all states now."""

    def window_state(self, name: str, schema: pa.Schema, reduce: Reduce) -> WindowState:
        """The state called `name`, filled with the owned key groups of the restored segments of that name."""

    def keyed_table(
        self, name: str, keys: pa.Schema, values: pa.Schema, *, prefix_length: int = 0, ttl_ms: int = 0
    ) -> KeyedTable:
        """The table called `name`, filled with the owned key groups of the restored segments of that name.
        `prefix_length` > 0 allows `find_prefix` over that many first key columns (0 = not asked for);
        rows are stored by the key group of what `slots` was given. `ttl_ms` > 0: a row not written or touched for so
        long by the wall clock is as good as gone, at once. Raises SegmentError, StateTooLargeError."""

    def capture(self, checkpoint_id: int) -> WriteSegments:
        """The synchronous half of a snapshot: takes references, copies nothing. Only what has changed since the last
        checkpoint that is known to be committed will be written (everything, if the task's notices say that this one
        is full, or nothing is committed yet). Several snapshots may be open."""

    def committed(self, checkpoint_id: int) -> None:
        """The checkpoint is durable: its files stay as long as later ones name them. Called through the task's
        notices; a call that is missed only makes the next snapshot larger."""

    def close(self) -> None: ...
