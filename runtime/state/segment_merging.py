"""Which part of a chain of state files the next snapshot writes anew. Pure: sizes in, sizes out.

*Merging* bounds the number of files. What checkpoints have added since the last large file are *steps*; the youngest of
them are written as one when there are too many, as in a tree of `FAN_IN` children: a row moves up through levels of
sizes and is written once in each, until its file is large enough to stay as it is. So a state that only grows writes
what is new times a logarithm of the checkpoints that fill a file, and in one checkpoint never more than one and a half
segments beside what is new.

*Renewal* bounds the space, because dead rows lie in large files too. Once a restore would read a quarter more than
there is, two rows are written anew for each that dies, a segment's worth or more at a time; what is merged anyway goes
with them. A restore reads no more than twice the state and a segment, and files hold no more than four times the state.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

SEGMENT_ROWS = 262_144
SEGMENT_BYTES = 16 << 20
"""What is written as one file, at most."""
ROW_BYTES = SEGMENT_BYTES // SEGMENT_ROWS
FAN_IN = 4
"""Steps of one level that are merged."""
LIGHT = 128
"""Weight of steps of the lowest level: what such a merge writes does not matter."""
WORN_ROWS_MIN = 1_024
FILES_MIN = 64
FILES_PER_SEGMENT = 8
"""A chain of more files than `FILES_MIN` and so many per segment of the state is scattered."""
NAMED_MAX = 4
"""So is one whose files hold, with what is not read of them any more, so many times the state."""
SCATTERED_PARTS = 16
"""A scattered state is renewed in so many checkpoints."""


class Wear(msgspec.Struct, frozen=True):
    """What a chain is made of. `read_rows`: what a restore reads; `named_rows`: what the files hold, `weight`: and as
    their size; `dead_rows_left`: dead rows after the last renewal; `unit_rows`: the least that can be renewed."""

    live_rows: int
    read_rows: int
    named_rows: int
    weight: int
    file_count: int
    dead_rows_left: int = 0
    unit_rows: int = 0

    @property
    def dead_rows(self) -> int:
        return self.read_rows - self.live_rows

    @property
    def segment_rows(self) -> int:
        """Rows of this state that make a file."""
        return max(1, SEGMENT_ROWS * self.named_rows // max(1, self.weight))

    @property
    def is_scattered(self) -> bool:
        """After many restores, a rescale, or bursts of changes between little ones."""
        files_max = FILES_MIN + FILES_PER_SEGMENT * self.live_rows // self.segment_rows
        return self.file_count > files_max or self.named_rows > NAMED_MAX * self.live_rows + SEGMENT_ROWS


def weight(row_count: int, byte_size: int) -> int:
    """Size of a file in rows of which a full one has `SEGMENT_ROWS`."""
    return max(row_count, byte_size // ROW_BYTES)


def is_large(step_weight: int) -> bool:
    """Whether a step stays as it is."""
    return step_weight >= SEGMENT_ROWS // 2


def steps_to_merge(weights: Sequence[int]) -> int:
    """How many of the youngest steps, given oldest first, the next snapshot writes together with what is new. So the
    lowest n levels never have more than n * (FAN_IN - 1) steps, and all together less than a segment and a half."""
    if sum(weights) >= SEGMENT_ROWS:
        return len(weights)
    merged = highest = 0
    for count, step_weight in enumerate(reversed(weights), start=1):
        highest = max(highest, _level(step_weight))
        if count >= (FAN_IN - 1) * (highest + 1):
            merged = count
    return merged


def rows_to_renew(wear: Wear) -> int:
    """How many rows the next snapshot writes whatever their age; all, if as many as there are."""
    live_rows, dead_rows = wear.live_rows, wear.dead_rows
    if live_rows <= wear.segment_rows:
        # One file: nothing to spread.
        return max(1, live_rows) if dead_rows > live_rows // 2 + WORN_ROWS_MIN or wear.is_scattered else 0
    if dead_rows > 2 * live_rows:
        return live_rows
    # Whole units, and a segment of them.
    least = max(wear.segment_rows, -(-wear.segment_rows // max(1, wear.unit_rows)) * wear.unit_rows)
    due = 2 * (dead_rows - max(wear.dead_rows_left, live_rows // 4 + WORN_ROWS_MIN))
    if wear.is_scattered:
        return max(due, least, live_rows // SCATTERED_PARTS)
    return due if due >= least else 0


def _level(step_weight: int) -> int:
    level, bound = 0, LIGHT
    while step_weight >= bound:
        level, bound = level + 1, bound * FAN_IN
    return level
