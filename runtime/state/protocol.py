"""What a state backend offers to operators. One backend serves one operator of one subtask, on its task's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import pyarrow as pa

from runtime.checkpoint.snapshot import SegmentHandle

KEY_GROUP_FIELD = pa.field("key_group", pa.int16(), nullable=False)
"""First column of every block of state."""

Reduce = Callable[[Sequence[pa.RecordBatch]], pa.RecordBatch]
"""Merges consecutive blocks of one window, oldest first, into one with a row per key (keys in any order)."""

WriteSegments = Callable[[], tuple[SegmentHandle, ...]]
"""The asynchronous half of a snapshot: encodes captured, immutable blocks. Runs in a helper thread, once."""


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


class KeyedStateBackend(Protocol):
    """Makes the states of one operator, snapshots and restores them together."""

    @property
    def byte_size(self) -> int:
        """Bytes held by all states now."""

    def window_state(self, name: str, schema: pa.Schema, reduce: Reduce) -> WindowState:
        """The state called `name`, filled with the owned key groups of the restored segments of that name."""

    def capture(self, checkpoint_id: int) -> WriteSegments:
        """The synchronous half of a snapshot: takes references, copies nothing."""

    def close(self) -> None: ...
