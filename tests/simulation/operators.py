"""The operators of the model job: a source of splits with event time, and a keyed counter with windows.

Event time of the source is the runtime's own core (`SourceWatermarks`); state is a base file and files of changes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from connectors.api import Split, SplitState
from runtime import key_groups
from runtime.checkpoint.snapshot import OperatorRestore, SegmentHandle
from runtime.elements import MIN_WATERMARK_MS, Watermark, WatermarkStatus
from runtime.operators.source_watermarks import SourceWatermarks
from tests.simulation.workload import KEY_GROUPS, OUT_OF_ORDER_MS, WINDOW_MS, Output, Row, key_group_of, window_end

if TYPE_CHECKING:
    from tests.simulation.task import Task

Rows = list[Row]
CHAIN_MAX = 3
"""So many files of changes, then a new base."""


class SourceOperator:
    def __init__(self, task: Task, uid: str, restore: OperatorRestore) -> None:
        self.uid = uid
        self._task = task
        self._workload = task.world.workload
        self._positions: dict[int, int] = {}
        self._watermarks = SourceWatermarks(self._workload.watermark_interval_ms, self._workload.idle_timeout_ms)
        self._assigned = False
        self._stopped = False
        self._polled_at_ms = task.kernel.now_ms
        self._add(restore.splits)

    @property
    def ended(self) -> bool:
        return self._stopped or (self._assigned and not self.readable)

    @property
    def readable(self) -> bool:
        return not self._stopped and bool(self._unread())

    def add_splits(self, splits: tuple[SplitState, ...]) -> None:
        self._add(splits)
        self._assigned = True

    def stop(self) -> None:
        self._stopped = True

    def _add(self, splits: tuple[SplitState, ...]) -> None:
        for state in splits:
            split = int(state.split.id)
            if split not in self._positions:
                self._positions[split] = int(state.position or b"0")
                self._watermarks.add_split(state.split.id, state.watermark_ms, state.done)

    def _unread(self) -> list[int]:
        splits = self._workload.splits
        return [split for split, position in self._positions.items() if position < len(splits[split])]

    def poll(self) -> Iterator[Rows | Watermark | WatermarkStatus]:
        """Rows of one split, and what they do to event time: in the order of `runtime.operators.source`."""
        kernel, watermarks = self._task.kernel, self._watermarks
        unread = self._unread()
        if not unread or self._stopped:
            if self._assigned:
                yield from watermarks.status()
            return
        split = unread[kernel.below(len(unread))]
        position = self._positions[split]
        rows = list(self._workload.splits[split][position : position + 1 + kernel.below(3)])
        silent_ms, self._polled_at_ms = kernel.now_ms - self._polled_at_ms, kernel.now_ms
        for other in unread:
            if other != split:
                watermarks.on_silence(str(other), silent_ms)
        self._positions[split] = position = position + len(rows)
        watermarks.on_rows(str(split), max(row.time_ms for row in rows) - OUT_OF_ORDER_MS)
        if position == len(self._workload.splits[split]):
            watermarks.on_ended(str(split))
        else:
            yield from watermarks.status()
        yield rows
        yield from watermarks.advance(kernel.now_ms)
        if not self.ended:
            statuses = watermarks.status()
            yield from watermarks.advance(kernel.now_ms, at_once=bool(statuses))
            yield from statuses

    def snapshot(self) -> tuple[SplitState, ...]:
        splits = self._workload.splits
        return tuple(
            SplitState(
                Split(str(split), b""),
                str(position).encode(),
                position == len(splits[split]),
                watermark_ms=self._watermarks.split_watermark(str(split)),
            )
            for split, position in self._positions.items()
        )


StateKey = tuple[str, int, int]
"""("n", key, 0) or ("w", key, window end)."""


class CountOperator:
    """Counts rows per key, and per key and window. Each key group has a clock, as window aggregates have."""

    def __init__(self, task: Task, uid: str, restore: OperatorRestore) -> None:
        self.uid = uid
        self._task = task
        descriptor = task.descriptor
        first, last = key_groups.key_group_range(descriptor.subtask_index, descriptor.parallelism, KEY_GROUPS)
        self.first, self.last = first, last
        self._clocks = {group: restore.clocks.get(group, MIN_WATERMARK_MS) for group in range(first, last + 1)}
        self._late = restore.counters.get("late", 0)
        self._state: dict[StateKey, int] = {}
        self._changed: dict[int, set[StateKey]] = {}
        """Checkpoint → keys changed since its snapshot: the last committed one and those in flight."""
        self._chains: dict[int, tuple[SegmentHandle, ...]] = {}
        self._committed_id = 0
        for handle in sorted(restore.segments, key=lambda handle: handle.checkpoint_id):
            self._load(handle)

    def _load(self, handle: SegmentHandle) -> None:
        content: dict[StateKey, int | None] = self._task.read(handle.path)
        for key, count in content.items():
            group = key_group_of(key[1])
            if self.first <= group <= self.last and handle.key_group_first <= group <= handle.key_group_last:
                if count is None:
                    self._state.pop(key, None)
                else:
                    self._state[key] = count

    def process(self, rows: Rows) -> list[Output]:
        outputs: list[Output] = []
        check = self._task.world.checks
        for row in rows:
            group = key_group_of(row.key)
            check.row_processed(self._task, group)
            outputs.append(("n", row.key, self._add(("n", row.key, 0)), 0))
            end = window_end(row.time_ms)
            if end - 1 <= self._clocks.get(group, MIN_WATERMARK_MS):
                self._late += 1
                check.row_dropped(self._task, row)
            else:
                self._add(("w", row.key, end))
        return outputs

    def _add(self, key: StateKey) -> int:
        self._state[key] = count = self._state.get(key, 0) + 1
        for changed in self._changed.values():
            changed.add(key)
        return count

    def advance(self, watermark_ms: int) -> list[Output]:
        """Windows whose time has come, by the clock of their key group."""
        clocks = self._clocks
        for group, clock_ms in clocks.items():
            if watermark_ms > clock_ms:
                clocks[group] = watermark_ms
        due = [key for key in self._state if key[0] == "w" and key[2] - 1 <= watermark_ms]
        due.sort(key=lambda key: (key[2], key[1]))
        for changed in self._changed.values():
            changed.update(due)
        return [("w", key[1], key[2], self._state.pop(key)) for key in due]

    def snapshot(self, checkpoint_id: int, full: bool) -> tuple[SegmentHandle, dict[StateKey, int | None]] | None:
        """A file to be written: all of the state, or what has changed since the last committed checkpoint."""
        base = self._chains.get(self._committed_id, ())
        is_delta = bool(base) and len(base) <= CHAIN_MAX and not full
        keys = self._changed[self._committed_id] if is_delta else set(self._state)
        self._changed[checkpoint_id] = set()
        if is_delta and not keys:
            self._chains[checkpoint_id] = base
            return None
        content = {key: self._state.get(key) for key in keys}
        path = f"state/{self._task.attempt}-{checkpoint_id}"
        checksum = hashlib.sha256(path.encode()).hexdigest()
        handle = SegmentHandle(path, "count", self.first, self.last, len(content), 1, checksum, checkpoint_id, is_delta)
        self._chains[checkpoint_id] = (*base, handle) if is_delta else (handle,)
        return handle, content

    def committed(self, checkpoint_id: int) -> None:
        """Later files hold what has changed since then."""
        if checkpoint_id in self._chains and checkpoint_id > self._committed_id:
            self._committed_id = checkpoint_id
            self._chains = {number: c for number, c in self._chains.items() if number >= checkpoint_id}
            self._changed = {number: c for number, c in self._changed.items() if number >= checkpoint_id}

    def chain(self, checkpoint_id: int) -> tuple[SegmentHandle, ...]:
        return self._chains.get(checkpoint_id, ())

    @property
    def committed_chain(self) -> tuple[SegmentHandle, ...]:
        return self.chain(self._committed_id)

    @property
    def clocks(self) -> dict[int, int]:
        return {group: clock_ms for group, clock_ms in self._clocks.items() if clock_ms != MIN_WATERMARK_MS}

    @property
    def counters(self) -> dict[str, int]:
        return {"late": self._late}


assert WINDOW_MS > OUT_OF_ORDER_MS
