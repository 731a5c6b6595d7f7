"""Rows that wait for a point in time: appended as they come, taken out in order of time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runtime.elements import MAX_WATERMARK_MS
from runtime.key_groups import KeyGroups
from runtime.state.protocol import KEY_GROUP_FIELD, KeyedStateBackend
from runtime.state.window_blocks import concat_blocks

Ints = npt.NDArray[np.int64]

TIME_FIELD = pa.field("time_ms", pa.int64(), nullable=False)
SEQ_FIELD = pa.field("seq", pa.int64(), nullable=False)
STRETCHES_MAX = 8
"""Stretches of time that one batch is spread over, at most."""
STRETCH_MS_MIN = 1_024
RUNS_MAX = 16
NO_LIMIT = 1 << 62


class Run(msgspec.Struct):
    """Rows in order of time; those before `position` have been taken."""

    rows: Any
    times: Any
    position: int = 0

    @property
    def left(self) -> int:
        return len(self.times) - self.position


class Due(msgspec.Struct, frozen=True):
    """Rows of key group, time, seq and the other columns, in order of time, then seq: all that wait for a moment up to
    `reached_ms`."""

    rows: pa.RecordBatch
    reached_ms: int


class TimeOrderedRows:
    """In the state they are blocks of window state, which costs an append and is dropped whole. A block is named by the
    begin of a stretch of time, as long as spreads a batch over no more than STRETCHES_MAX of them: rows of a stretch
    are not before its name. A stretch whose begin is reached is read once, sorted, and then given out piece by piece;
    it leaves the state with its last row (`settle`). So the state holds rows that have been taken: after a restore they
    would come again. Who cannot bear that says in `gone` up to which time (per key group) they have been."""

    def __init__(
        self, backend: KeyedStateBackend, name: str, columns: pa.Schema, gone: npt.NDArray[np.int64] | None = None
    ) -> None:
        self.schema = pa.schema([KEY_GROUP_FIELD, TIME_FIELD, SEQ_FIELD, *columns])
        self._state = backend.window_state(name, self.schema, lambda blocks: concat_blocks(blocks, self.schema))
        self._gone = None if gone is None else gone.copy()
        self._waiting: list[int] = self._state.ends()
        """Names of stretches that have not been read: a heap."""
        self._unread = set(self._waiting)
        self._last: dict[int, int] = {}
        """Latest time of each stretch that has been read."""
        self._runs: list[Run] = []
        self._read_up_to = -MAX_WATERMARK_MS
        self._restored = bool(self._waiting)

    def next_seq(self) -> int:
        """Larger than those of all rows; looks at every one."""
        parts = [run.rows for run in self._runs] + [self._state.merge(name) for name in self._waiting]
        return max((int(cast(Any, part.column(2)).to_numpy().max(initial=-1)) for part in parts), default=-1) + 1

    @property
    def earliest_ms(self) -> int | None:
        """No row waits for a moment before; None when none waits."""
        times = [int(run.times[run.position]) for run in self._runs] + self._waiting[:1]
        return min(times, default=None)

    def append(self, groups: KeyGroups, times: Ints, numbers: Ints, columns: list[Any]) -> None:
        """Rows, with the numbers that order those of one moment. Raises StateTooLargeError."""
        if not len(times):
            return
        arrays: list[Any] = [pa.array(groups), pa.array(times), pa.array(numbers), *columns]
        block = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        for name, rows in _stretches(times):
            # `take` copies: the state never holds on to the memory of an input batch.
            part = block.take(rows)
            self._state.append(name, part)
            if name in self._last or name <= self._read_up_to:
                # Its time has come already: it is given out with the next that is due.
                self._add_run(name, part)
            elif name not in self._unread:
                self._unread.add(name)
                heapq.heappush(self._waiting, name)

    def take(self, time_ms: int, most: int = NO_LIMIT) -> Due | None:
        """Take rows that wait for a moment up to `time_ms`: the earliest `most`, and those of the same moment as the
        last of them; None when there are none."""
        self._read(time_ms)
        ready = [run.times[run.position :].searchsorted(time_ms, side="right") for run in self._runs]
        count = int(sum(ready))
        if not count:
            return None
        reached = time_ms
        if count > most:
            times = np.concatenate(
                [r.times[r.position : r.position + n] for r, n in zip(self._runs, ready, strict=True)]
            )
            reached = int(np.partition(times, most - 1)[most - 1])
            ready = [run.times[run.position :].searchsorted(reached, side="right") for run in self._runs]
        parts = []
        for run, length in zip(self._runs, ready, strict=True):
            if length:
                parts.append(run.rows.slice(run.position, int(length)))
                run.position += int(length)
        self._runs = [run for run in self._runs if run.left]
        rows = parts[0] if len(parts) == 1 else _sorted(concat_blocks(parts, self.schema))
        return Due(rows, reached)

    def settle(self, reached_ms: int) -> None:
        """What was taken up to a moment need not come again after a restore."""
        for name, last in list(self._last.items()):
            if last <= reached_ms:
                del self._last[name]
                self._state.keep_rest(name, None)

    def _read(self, time_ms: int) -> None:
        """Bring in the stretches that have begun."""
        while self._waiting and self._waiting[0] <= time_ms:
            name = heapq.heappop(self._waiting)
            self._unread.discard(name)
            rows = self._state.merge(name)
            if self._restored and self._gone is not None:
                groups, times = (cast(Any, column).to_numpy() for column in rows.columns[:2])
                rows = rows.filter(pa.array(times > self._gone[groups]))
            self._add_run(name, rows)
        self._read_up_to = max(self._read_up_to, time_ms)

    def _add_run(self, name: int, rows: pa.RecordBatch) -> None:
        rows = _sorted(rows)
        times = cast(Any, rows.column(1)).to_numpy()
        last = int(times[-1]) if len(times) else name
        self._last[name] = max(self._last.get(name, last), last)
        if len(times):
            self._runs.append(Run(rows, times))
        if len(self._runs) > RUNS_MAX:
            # The small ones become one: each row is sorted a logarithmic number of times.
            self._runs.sort(key=lambda run: -run.left)
            small = self._runs[RUNS_MAX // 4 :]
            parts = [run.rows.slice(run.position) for run in small]
            merged = _sorted(concat_blocks(parts, self.schema))
            self._runs[RUNS_MAX // 4 :] = [Run(merged, cast(Any, merged.column(1)).to_numpy())]


def _sorted(rows: pa.RecordBatch) -> pa.RecordBatch:
    """By time, then seq."""
    times, numbers = (cast(Any, column).to_numpy() for column in rows.columns[1:3])
    if len(times) < 2 or _is_sorted(times, numbers):
        return rows
    return rows.take(np.lexsort((numbers, times)))


def _is_sorted(times: Ints, numbers: Ints) -> bool:
    steps = np.diff(times)
    return bool(((steps > 0) | ((steps == 0) & (np.diff(numbers) > 0))).all())


def _stretches(times: Ints) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Begin of each stretch, and the rows in it, in order of arrival."""
    first, last = int(times.min()), int(times.max())
    width = max(STRETCH_MS_MIN, 1 << ((last - first) // STRETCHES_MAX).bit_length())
    names = times // width
    if first // width == last // width:
        yield first // width * width, np.arange(len(times))
        return
    order = np.argsort(names, kind="stable")
    sorted_names = names[order]
    borders = np.flatnonzero(np.concatenate(([True], sorted_names[1:] != sorted_names[:-1], [True])))
    for begin, end in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        yield int(sorted_names[begin]) * width, order[begin:end]
