"""Windows: whatever becomes of checkpoints, a restore of a committed one is the state at its barrier."""

from __future__ import annotations

import copy
import random
import tempfile
from collections import Counter
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.checkpoint.segment_order import merged
from runtime.checkpoint.snapshot import OperatorRestore, SegmentHandle
from runtime.state.backends import open_backend
from tests.support.window_harness import MAX_PARALLELISM, operator_context
from tests.unit.runtime.state.tables import BACKENDS
from tests.unit.runtime.state.test_chains import small_limits
from tests.unit.runtime.state.test_memory import SCHEMA, block, reduce

Sums = Counter[tuple[int, int]]
"""By key group and key."""
Windows = dict[int, Sums]


class Subtask:
    """A backend with one state of windows, and what should be in it."""

    def __init__(
        self, directory: Path, backend: str, index: int, parallelism: int, handles: tuple[SegmentHandle, ...]
    ) -> None:
        restore = OperatorRestore("op", segments=handles) if handles else None
        context = operator_context(
            directory, index, parallelism, restore=restore, managed_bytes=1, settings={"state.backend.type": backend}
        )
        if backend == "hashmap":
            context = msgspec.structs.replace(context, managed_bytes=0)
        self.notices, self.owned = context.notices, context.key_groups
        self.backend = open_backend("op", context)
        self.state = self.backend.window_state("sums", SCHEMA, reduce)
        self.windows: Windows = {}

    def change(self, choice: random.Random) -> None:
        end = choice.choice([*self.windows, choice.randrange(1, 9)])
        if choice.random() < 0.6 or end not in self.windows:
            groups = range(self.owned.first, self.owned.last + 1)
            rows = [(choice.choice(groups), choice.randrange(4), 1) for _ in range(choice.randrange(1, 9))]
            self.state.append(end, block(*rows))
            sums = self.windows.setdefault(end, Counter())
            for group, key, number in rows:
                sums[group, key] += number
            return
        merged_rows = self.state.merge(end)
        assert sums_of(merged_rows) == self.windows[end]
        how = choice.random()
        if how < 0.5:
            self.state.keep_rest(end, None)
            del self.windows[end]
        elif how < 0.8:
            rest = merged_rows.slice(merged_rows.num_rows // 2)
            self.state.keep_rest(end, rest)
            self.windows[end] = sums_of(rest)

    def check(self) -> None:
        assert self.state.ends() == sorted(self.windows)
        for end, sums in self.windows.items():
            assert sums_of(self.state.merge(end)) == sums


def sums_of(rows: pa.RecordBatch) -> Sums:
    sums: Sums = Counter()
    for row in rows.to_pylist():
        sums[row["key_group"], row["c0"]] += row["c1"]
    return sums


class Job:
    def __init__(self, directory: Path, choice: random.Random) -> None:
        self._directory = directory
        self._choice = choice
        self._checkpoint_id = 0
        self._chains: list[tuple[SegmentHandle, ...]] = []
        self._committed: Windows = {}
        self.crash()

    def change(self) -> None:
        for _ in range(self._choice.randrange(1, 6)):
            self._choice.choice(self._subtasks).change(self._choice)

    def checkpoint(self) -> None:
        self._checkpoint_id += 1
        writes = [subtask.backend.capture(self._checkpoint_id) for subtask in self._subtasks]
        windows: Windows = {}
        for subtask in self._subtasks:
            for end, sums in copy.deepcopy(subtask.windows).items():
                windows.setdefault(end, Counter()).update(sums)
        self.change()
        chains = [write() for write in writes]
        if self._choice.random() < 0.2:
            return
        self._chains, self._committed = chains, windows
        for subtask in self._subtasks:
            if self._choice.random() < 0.9:
                subtask.notices.committed(self._checkpoint_id)

    def crash(self) -> None:
        parallelism = self._choice.choice((1, 1, 2, 3))
        backend = self._choice.choice(BACKENDS)
        self._subtasks = []
        for index in range(parallelism):
            subtask = Subtask(self._directory, backend, index, parallelism, merged(self._chains))
            for end, sums in self._committed.items():
                owned = {
                    key: number for key, number in sums.items() if subtask.owned.first <= key[0] <= subtask.owned.last
                }
                if owned:
                    subtask.windows[end] = Counter(owned)
            if self._choice.random() < 0.5:
                subtask.check()
            self._subtasks.append(subtask)


def run(seed: int) -> None:
    choice = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory, small_limits(choice):
        job = Job(Path(directory), choice)
        for _ in range(40):
            step = choice.random()
            if step < 0.4:
                job.change()
            elif step < 0.9:
                job.checkpoint()
            else:
                job.crash()
        job.crash()
        for subtask in job._subtasks:
            subtask.check()


@settings(max_examples=5)
@given(seed=st.integers(0, 1 << 32))
def test_any_sequence_of_checkpoints_crashes_and_rescales(seed: int) -> None:
    run(seed)


@pytest.mark.fuzz
@settings(max_examples=300)
@given(seed=st.integers(0, 1 << 32))
def test_any_sequence_long(seed: int) -> None:
    run(seed)


@pytest.mark.parametrize("backend", BACKENDS)
def test_many_windows_that_stay_are_written_a_logarithmic_number_of_times(tmp_path: Path, backend: str) -> None:
    """Rows kept by time for an interval join of days, a checkpoint every few seconds."""
    subtask = Subtask(tmp_path, backend, 0, 1, ())
    rows_each, checkpoints, segment_rows = 20, 100, 512
    written = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runtime.state.segment_merging.SEGMENT_ROWS", segment_rows)
        patch.setattr("runtime.state.segment_merging.LIGHT", 8)
        patch.setattr("runtime.state.snapshot_writer.SEGMENT_ROWS", segment_rows)
        for checkpoint_id in range(1, checkpoints + 1):
            subtask.state.append(checkpoint_id, block(*((i % MAX_PARALLELISM, i, 1) for i in range(rows_each))))
            handles = subtask.backend.capture(checkpoint_id)()
            subtask.notices.committed(checkpoint_id)
            own = sum(h.row_count for h in handles if h.checkpoint_id == checkpoint_id)
            assert own <= rows_each + segment_rows * 3 // 2
            written += own
            assert len({h.path for h in handles}) <= 12 + 2 * checkpoint_id * rows_each // segment_rows
    assert written < 3 * rows_each * checkpoints
    again = Subtask(tmp_path, backend, 0, 1, handles)
    assert again.state.ends() == list(range(1, checkpoints + 1))
    subtask.backend.close()
    again.backend.close()
