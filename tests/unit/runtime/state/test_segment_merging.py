"""What snapshots write anew: a chain has few files, little of them is dead, and writing it costs a logarithm. Amounts
only, in a table that is nothing but the epochs of its rows; that it is the right rows `test_chains` says."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.checkpoint.snapshot import SegmentHandle
from runtime.operators.protocol import KeyGroupRange
from runtime.state import segment_chain, segment_merging
from runtime.state.segment_chain import ChainFile, SnapshotPlan, TableChain
from runtime.state.segment_merging import FAN_IN, FILES_MIN, FILES_PER_SEGMENT, Wear, rows_to_renew, steps_to_merge

GROUPS = 32
SEGMENT_ROWS = 1_024
LIGHT = 8
LEVELS = 4
"""Of steps that are not large: below 8, 32, 128 and 512 rows."""


@pytest.fixture(autouse=True)
def small_segments() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_merging, "SEGMENT_ROWS", SEGMENT_ROWS)
        patch.setattr(segment_merging, "LIGHT", LIGHT)
        patch.setattr(segment_merging, "WORN_ROWS_MIN", 16)
        yield


class Table:
    """Rows by number, and the checkpoints of it; every one is committed."""

    def __init__(self, seed: int = 1) -> None:
        self.chain = TableChain(KeyGroupRange(0, GROUPS - 1))
        self.chain.start()
        self.written: list[int] = []
        self.file_counts: list[int] = []
        self.files: tuple[SegmentHandle, ...] = ()
        self.changes = 0
        self._random = np.random.default_rng(seed)
        self._groups = self._random.integers(0, GROUPS, 200_000)
        self._changed: npt.NDArray[np.int64] = np.zeros(200_000, dtype=np.int64)
        self._alive: npt.NDArray[np.bool_] = np.zeros(200_000, dtype=np.bool_)
        self._made = 0
        self._removed: list[tuple[int, npt.NDArray[np.int64]]] = []

    @property
    def row_count(self) -> int:
        return int(np.count_nonzero(self._alive))

    def add(self, count: int) -> None:
        rows = slice(self._made, self._made + count)
        self._made += count
        self._alive[rows] = True
        self._changed[rows] = self.chain.epoch
        self.changes += count

    def update(self, count: int, hot: float = 1.0) -> None:
        """So many at random of the first part `hot` of the rows."""
        rows = np.flatnonzero(self._alive)
        rows = rows[: max(1, int(len(rows) * hot))]
        rows = np.unique(self._random.choice(rows, min(count, len(rows))))
        self._changed[rows] = self.chain.epoch
        self.changes += len(rows)

    def remove(self, count: int) -> None:
        """The oldest ones."""
        rows = np.flatnonzero(self._alive)[:count]
        self._alive[rows] = False
        if self.chain.is_tracked:
            self._removed.append((self.chain.epoch, self._groups[rows]))
        self.changes += len(rows)

    def checkpoint(self) -> None:
        plan = self.chain.begin(len(self.written) + 1, self.row_count, full=False)
        groups = self._of(plan)
        files = []
        for first in range(0, len(groups), SEGMENT_ROWS):
            counts = Counter(groups[first : first + SEGMENT_ROWS].tolist())
            name, rows = f"{plan.checkpoint_id}-{first}", sum(counts.values())
            handle = SegmentHandle(name, "t", min(counts), max(counts), rows, rows, "", plan.checkpoint_id)
            files.append(ChainFile(handle, plan.epoch, dict(counts)))
        self.chain.settle(plan)
        self.files = self.chain.finish(plan, files)
        self.chain.committed(plan.checkpoint_id)
        self._removed = [entry for entry in self._removed if entry[0] > self.chain.floor]
        self.written.append(len(groups))
        self.file_counts.append(len({handle.path for handle in self.files}))

    def check_bounds(self) -> None:
        rows = self.row_count
        assert self.chain.row_count <= 2 * rows + 2 * SEGMENT_ROWS
        assert sum({h.path: h.row_count for h in self.files}.values()) <= 4 * rows + 4 * SEGMENT_ROWS
        assert self.file_counts[-1] <= FILES_MIN + FILES_PER_SEGMENT * max(1, rows // SEGMENT_ROWS)

    def _of(self, plan: SnapshotPlan) -> npt.NDArray[np.int64]:
        """Key groups of the rows and removals of a snapshot, in no order."""
        wanted = self._alive
        if plan.is_delta:
            wanted = wanted & ((self._changed > plan.cut) | np.isin(self._groups, list(plan.renewed)))
        removed = [groups for epoch, groups in self._removed if plan.is_delta and epoch > plan.cut]
        return self._random.permutation(np.concatenate([self._groups[wanted], *removed]))


@given(st.lists(st.sampled_from((1, 5, 40, 100, 400, 511)), max_size=200))
def test_steps_stay_few_and_light(sizes: list[int]) -> None:
    steps: list[int] = []
    written = 0
    for size in sizes:
        merged = steps_to_merge(steps)
        size += sum(steps[len(steps) - merged :])
        steps[len(steps) - merged :] = [size]
        written += size
        if segment_merging.is_large(size):
            steps.clear()
        assert len(steps) <= (FAN_IN - 1) * LEVELS
        assert sum(steps) < SEGMENT_ROWS * 3 // 2
    assert written <= sum(sizes) * (1 + FAN_IN * LEVELS) + LIGHT * FAN_IN * len(sizes)


@pytest.mark.parametrize("rows_each", [3, 20, 150, 400, 700])
def test_a_growing_table_is_written_a_logarithmic_number_of_times(rows_each: int) -> None:
    table = Table()
    table.add(5_000)
    table.checkpoint()
    for _ in range(200):
        table.add(rows_each)
        table.checkpoint()
        table.check_bounds()
        assert table.written[-1] <= rows_each + SEGMENT_ROWS * 3 // 2
        # Files are half full.
        assert table.file_counts[-1] <= 2 * table.row_count // SEGMENT_ROWS + (FAN_IN - 1) * LEVELS + 1
    levels = max(0, math.ceil(math.log(SEGMENT_ROWS / rows_each, FAN_IN)))
    assert sum(table.written[1:]) <= 200 * (rows_each * (1 + levels) + LIGHT)


@pytest.mark.parametrize(("count", "hot"), [(4, 1.0), (4, 0.05), (100, 1.0), (100, 0.05), (3_000, 1.0)])
def test_a_table_that_is_updated_in_place_keeps_its_size(count: int, hot: float) -> None:
    table = Table()
    table.add(10_000)
    table.checkpoint()
    changes = table.changes
    for _ in range(200 if count < 1_000 else 40):
        table.update(count, hot)
        table.checkpoint()
        table.check_bounds()
        # A checkpoint is not held up: three rows for each that changed, and some segments.
        assert table.written[-1] <= 3 * count + 5 * SEGMENT_ROWS // 2
    assert sum(table.written[1:]) <= 4 * (table.changes - changes) + LIGHT * len(table.written)


@pytest.mark.parametrize("count", [5, 100, 1_000])
def test_rows_that_come_and_go(count: int) -> None:
    table = Table()
    table.add(10_000)
    table.checkpoint()
    changes = table.changes
    for _ in range(100):
        table.add(count)
        table.remove(count)
        table.checkpoint()
        table.check_bounds()
    assert sum(table.written[1:]) <= 5 * (table.changes - changes) + LIGHT * len(table.written)


def test_a_shrinking_table_leaves_little() -> None:
    table = Table()
    table.add(20_000)
    table.checkpoint()
    while table.row_count:
        table.remove(300)
        table.checkpoint()
        table.check_bounds()
    assert sum(table.written[1:]) <= 6 * 20_000
    table.checkpoint()
    assert table.chain.row_count <= 2 * SEGMENT_ROWS


@settings(max_examples=15)
@given(seed=st.integers(0, 1 << 32))
def test_any_mixture(seed: int) -> None:
    choice = random.Random(seed)
    table = Table(seed)
    table.add(choice.choice((10, 2_000, 8_000)))
    for _ in range(60):
        for change in choice.sample([table.add, table.update, table.remove], choice.randrange(4)):
            change(choice.choice((1, 10, 100, 600)))
        table.checkpoint()
        table.check_bounds()
    levels = 1 + FAN_IN * LEVELS
    assert sum(table.written) <= levels * (table.changes + LIGHT * len(table.written)) + SEGMENT_ROWS


def test_files_of_many_restores_or_of_others_are_renewed_little_by_little() -> None:
    wear = Wear(live_rows=100_000, read_rows=100_000, named_rows=100_000, weight=100_000, file_count=400)
    assert rows_to_renew(wear) == 0
    scattered = Wear(live_rows=100_000, read_rows=100_000, named_rows=100_000, weight=100_000, file_count=900)
    assert rows_to_renew(scattered) == 100_000 // 16
    # One of eight new owners of a table: the files are those of all.
    shared = Wear(live_rows=100_000, read_rows=100_000, named_rows=800_000, weight=800_000, file_count=800)
    assert rows_to_renew(shared) == 100_000 // 16


def test_what_was_renewed_since_the_cut_is_renewed_again() -> None:
    """The files before it are not read for these key groups any more."""
    chain = TableChain(KeyGroupRange(0, 3))
    chain.start()

    def commit(rows_by_group: dict[int, int]) -> SnapshotPlan:
        plan = chain.begin(chain.epoch, 2_000, full=False)
        rows = sum(rows_by_group.values())
        handle = SegmentHandle(f"f{plan.epoch}", "t", min(rows_by_group), max(rows_by_group), rows, rows, "")
        chain.settle(plan)
        chain.finish(plan, [ChainFile(handle, plan.epoch, rows_by_group)])
        chain.committed(plan.checkpoint_id)
        return plan

    with pytest.MonkeyPatch.context() as patch:
        commit({0: 500, 1: 500, 2: 500, 3: 500})
        patch.setattr(segment_chain, "rows_to_renew", lambda wear: 500)
        assert commit({0: 5, 1: 5, 2: 5, 3: 5}).renewed == {0}
        patch.setattr(segment_chain, "rows_to_renew", lambda wear: 0)
        assert commit({2: 10}).renewed == frozenset()
        patch.setattr(segment_chain, "steps_to_merge", len)
        plan = commit({0: 5, 1: 5, 2: 15, 3: 5})
    assert (plan.cut, plan.renewed) == (1, frozenset({0}))
    assert [(file.handle.path, file.handle.key_group_first) for file in chain._files] == [("f1", 1), ("f4", 0)]


def test_a_cut_that_is_gone_does_not_come_back() -> None:
    """Two checkpoints in flight; what the first one has merged the second one cannot take apart."""
    chain = TableChain(KeyGroupRange(0, 0))
    chain.start()

    def written(plan: SnapshotPlan, rows: int) -> None:
        chain.settle(plan)
        handle = SegmentHandle(f"f{plan.epoch}", "t", 0, 0, rows, rows, "")
        chain.finish(plan, [ChainFile(handle, plan.epoch, {0: rows})])

    for rows in (2_000, 3, 3):
        plan = chain.begin(chain.epoch, 2_000, full=False)
        written(plan, rows)
        chain.committed(plan.checkpoint_id)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_chain, "steps_to_merge", len)
        merging = chain.begin(4, 2_000, full=False)
    other = chain.begin(5, 2_000, full=False)
    assert (merging.cut, other.cut) == (1, 3)
    for plan in (merging, other):
        written(plan, 9)
        chain.committed(plan.checkpoint_id)
    # A row of epoch 2 belongs with those of epoch 4 since the first of the two.
    assert [chain.level(epoch) for epoch in (1, 2, 3, 4, 5, 6)] == [1, 5, 5, 5, 5, 6]
