"""Snapshots of changes: whatever becomes of checkpoints, a restore of a committed one is the state at its barrier."""

from __future__ import annotations

import copy
import math
import random
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.checkpoint.segment_order import merged
from runtime.checkpoint.snapshot import OperatorRestore, SegmentHandle
from runtime.key_groups import hash_columns, key_group
from runtime.state.backends import open_backend
from runtime.state.memory import MemoryStateBackend
from runtime.state.protocol import KeyedStateBackend, KeyedTable, WriteSegments
from runtime.state.rocksdb import table as rocks_table
from tests.support.table_model import ModelTable
from tests.support.window_harness import MAX_PARALLELISM, operator_context
from tests.unit.runtime.state.tables import BACKENDS, DEFAULTS, Pair, Shape, contents
from tests.unit.runtime.state.test_keyed_table import random_shape
from tests.unit.runtime.state.test_memory import SCHEMA, block, reduce

Handles = tuple[SegmentHandle, ...]


@contextmanager
def small_limits(choice: random.Random) -> Iterator[None]:
    """Chains that are worn soon, pieces of a few rows, memory for next to nothing."""
    limits = {
        "runtime.state.segment_merging.SEGMENT_ROWS": choice.choice((3, 30, 30, 200, 262_144)),
        "runtime.state.segment_merging.ROW_BYTES": choice.choice((64, 100_000)),
        "runtime.state.segment_merging.LIGHT": choice.choice((2, 20)),
        "runtime.state.segment_merging.FAN_IN": choice.choice((2, 4)),
        "runtime.state.segment_merging.WORN_ROWS_MIN": choice.choice((0, 10, 1_000)),
        "runtime.state.segment_merging.FILES_MIN": choice.choice((2, 8, 64)),
        "runtime.state.snapshot_writer.SEGMENT_ROWS": choice.choice((5, 50, 262_144)),
        "runtime.state.table_snapshot.CAPTURED_ROWS": choice.choice((3, 16_384)),
        "runtime.state.table_snapshot.PRESERVED_ROWS_MAX": choice.choice((4, 262_144)),
        "runtime.state.change_log.BYTES_MIN": choice.choice((1, 1 << 20, 1 << 20)),
        "runtime.state.rocksdb.spool.MEMORY_BYTES": choice.choice((100, 1 << 20)),
        "runtime.state.rocksdb.spool.ROWS_MIN": choice.choice((5, 1 << 20, 1 << 20)),
    }
    with ExitStack() as stack:
        for name, value in limits.items():
            stack.enter_context(mock.patch(name, value))
        stack.enter_context(mock.patch.object(rocks_table.RocksKeyedTable, "_hot_rows_max", return_value=6))
        yield


class Committed(msgspec.Struct):
    """A checkpoint that can be restored: its files and the rows at its barrier."""

    handles: Handles
    models: list[ModelTable]


class Job:
    """A table in several subtasks, and what a coordinator does to it."""

    def __init__(self, directory: Path, shape: Shape, choice: random.Random) -> None:
        self._directory = directory
        self._shape = shape
        self._choice = choice
        self._checkpoint_id = self._committed_id = 0
        self._now_ms = 1_000
        self._last: Committed | None = None
        self.delta_files = 0
        self._open(1)

    def batches(self, count: int) -> None:
        for _ in range(count):
            pair = self._choice.choice(self._pairs)
            pair.batch(self._choice, self._choice.randrange(1, 25), variety=self._choice.choice((4, 12)))
            if self._shape.ttl_ms:
                self._now_ms += self._choice.choice((0, 0, 20))
                for each in self._pairs:
                    each.now_ms = self._now_ms

    def checkpoint(self) -> None:
        """Committed (a task may hear of that at the next barrier only), or declined, or not even written."""
        self._checkpoint_id += 1
        models = [copy.deepcopy(pair.model) for pair in self._pairs]
        for pair in self._pairs:
            pair.notices.at_barrier(self._checkpoint_id, full=False, committed_id=self._committed_id)
        writes = [pair.backend.capture(self._checkpoint_id) for pair in self._pairs]
        self.batches(self._choice.randrange(3))
        outcome = self._choice.random()
        if outcome < 0.15:
            for write in writes[1:]:
                write()
            _give_up(writes[0])
            return
        handles = tuple(handle for write in writes for handle in write())
        if outcome < 0.35:
            return
        assert all((self._directory / handle.path).exists() for handle in handles)
        self.delta_files += sum(handle.is_delta for handle in handles)
        self._last = Committed(handles, models)
        self._committed_id = self._checkpoint_id
        for pair in self._pairs:
            if self._choice.random() < 0.9:
                pair.notices.committed(self._checkpoint_id)
        if self._choice.random() < 0.5:
            self._sweep()

    def savepoint(self) -> None:
        """Full, and no part of any chain; another job may start from it."""
        self._checkpoint_id += 1
        models = [copy.deepcopy(pair.model) for pair in self._pairs]
        handles: list[SegmentHandle] = []
        for pair in self._pairs:
            pair.notices.at_barrier(self._checkpoint_id, full=True)
            handles += pair.backend.capture(self._checkpoint_id)()
        assert {(handle.is_delta, handle.checkpoint_id) for handle in handles} <= {(False, self._checkpoint_id)}
        if self._choice.random() < 0.3:
            self._last = Committed(tuple(handles), models)
            self.crash()

    def crash(self) -> None:
        """A new start from the last committed checkpoint, at any parallelism, in either backend."""
        for pair in self._pairs:
            pair.close()
        backend = self._shape.backend if self._choice.random() < 0.7 else self._choice.choice(BACKENDS)
        self._shape = msgspec.structs.replace(self._shape, backend=backend)
        self._open(self._choice.choice((1, 1, 2, 3, 5)))
        self.check()

    def check(self) -> None:
        for pair in self._pairs:
            pair.table.settle()
            assert contents(pair.table) == pair.expected()
            pair.table.settle()  # The clock is read once per batch.
            if not self._shape.ttl_ms:
                assert pair.table.row_count == len(pair.model.rows)

    def close(self) -> None:
        for pair in self._pairs:
            pair.close()

    def _open(self, parallelism: int) -> None:
        last = self._last or Committed((), [])
        self._pairs = []
        for subtask in range(parallelism):
            pair = Pair(self._directory, self._shape, last.handles, subtask, parallelism)
            pair.now_ms = self._now_ms
            pair.model = ModelTable(DEFAULTS, self._shape.ttl_ms)
            for model in last.models:
                rows = {name: row for name, row in copy.deepcopy(model.rows).items() if pair.owns(row[0])}
                pair.model.rows.update(rows)
            self._pairs.append(pair)

    def _sweep(self) -> None:
        """Only what the last committed checkpoint names stays."""
        assert self._last is not None
        named = {handle.path for handle in self._last.handles}
        for path in (self._directory / "state").glob("*"):
            if f"state/{path.name}" not in named:
                path.unlink()


def _give_up(write: WriteSegments) -> None:
    with mock.patch("runtime.state.segments.SegmentWriter.write", side_effect=OSError("full")):
        try:
            write()
        except OSError:
            return


def run(backend: str, ttl: bool, seed: int) -> int:
    """How many files of changes the committed checkpoints wrote or named."""
    choice = random.Random(seed)
    shape = random_shape(choice, backend, ttl=ttl)
    with tempfile.TemporaryDirectory() as directory, small_limits(choice):
        job = Job(Path(directory), shape, choice)
        for _ in range(25):
            step = choice.random()
            if step < 0.45:
                job.batches(1)
            elif step < 0.85:
                job.checkpoint()
            elif step < 0.9:
                job.savepoint()
            else:
                job.crash()
        job.check()
        job.crash()
        job.close()
        return job.delta_files


@pytest.mark.parametrize("ttl", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=3)
@given(seed=st.integers(0, 1 << 32))
def test_any_sequence_of_checkpoints_crashes_and_rescales(backend: str, ttl: bool, seed: int) -> None:
    run(backend, ttl, seed)


@pytest.mark.fuzz
@pytest.mark.parametrize("ttl", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=300)
@given(seed=st.integers(0, 1 << 32))
def test_any_sequence_of_checkpoints_long(backend: str, ttl: bool, seed: int) -> None:
    run(backend, ttl, seed)


@pytest.mark.parametrize("backend", BACKENDS)
def test_chains_of_changes_are_what_is_tested(backend: str) -> None:
    assert run(backend, False, 7) + run(backend, False, 8) > 5


def opened(directory: Path, backend: str, handles: Handles = ()) -> tuple[KeyedStateBackend, KeyedTable]:
    restore = OperatorRestore("op", segments=handles) if handles else None
    context = operator_context(directory, restore=restore, settings={"state.backend.type": backend})
    made = open_backend("op", context)
    value = pa.field("v", pa.int64(), nullable=False)
    return made, made.keyed_table("t", pa.schema([("k", pa.int64())]), pa.schema([value]))


def add(table: KeyedTable, keys: range) -> None:
    columns = [pa.array(keys, pa.int64())]
    slots, _ = table.slots(columns, key_group(hash_columns(columns), MAX_PARALLELISM))
    table.touch(slots)
    table.numbers(0)[slots] += 1
    table.settle()


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_what_changed_is_written_and_a_restored_job_goes_on_with_its_chain(tmp_path: Path, backend: str) -> None:
    made, table = opened(tmp_path, backend)
    add(table, range(100_000))
    base = made.capture(1)()
    made.committed(1)
    add(table, range(50))
    delta = made.capture(2)()
    assert delta[: len(base)] == base
    assert [(h.row_count, h.is_delta, h.checkpoint_id) for h in delta[len(base) :]] == [(50, True, 2)]
    made.close()
    again, table = opened(tmp_path, backend, delta)
    assert table.row_count == 100_000
    add(table, range(20, 30))
    third = again.capture(3)()
    assert [handle.path for handle in third[: len(delta)]] == [handle.path for handle in delta]
    assert [handle.row_count for handle in third[len(delta) :]] == [10]
    again.close()


@contextmanager
def small_segments(rows: int) -> Iterator[None]:
    with (
        mock.patch("runtime.state.segment_merging.SEGMENT_ROWS", rows),
        mock.patch("runtime.state.snapshot_writer.SEGMENT_ROWS", rows),
    ):
        yield


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_chain_stays_bounded_and_no_checkpoint_writes_everything(tmp_path: Path, backend: str) -> None:
    with small_segments(8_192):
        made, table = opened(tmp_path, backend)
        add(table, range(100_000))
        written: list[int] = []
        for checkpoint_id in range(1, 60):
            handles = made.capture(checkpoint_id)()
            made.committed(checkpoint_id)
            written.append(sum(h.row_count for h in handles if h.checkpoint_id == checkpoint_id))
            first = checkpoint_id * 3_000 % 97_000
            add(table, range(first, first + 3_000))
            (state,) = made._tables.values()  # type: ignore[attr-defined]
            assert state.chain.row_count <= 2 * 100_000
        made.close()
    assert written[0] == 100_000
    # Three rows for each that changed, and some segments' more.
    assert max(written[1:]) <= 3 * 3_000 + 3 * 8_192
    assert sum(written[1:]) <= 3 * 3_000 * 58
    assert len({handle.path for handle in handles}) < 59


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_growing_table_is_written_a_logarithmic_number_of_times(tmp_path: Path, backend: str) -> None:
    """Also when the job starts again and again, and with rows that go."""
    rows_each, segment_rows, handles, written = 100, 4_096, Handles(), 0
    with small_segments(segment_rows):
        made, table = opened(tmp_path, backend)
        for checkpoint_id in range(1, 101):
            first = checkpoint_id * rows_each
            add(table, range(first, first + rows_each))
            keys = [pa.array([first - 50], pa.int64())]
            table.remove(table.find(keys, key_group(hash_columns(keys), MAX_PARALLELISM)))
            handles = made.capture(checkpoint_id)()
            made.committed(checkpoint_id)
            own = sum(h.row_count for h in handles if h.checkpoint_id == checkpoint_id)
            assert own <= rows_each + segment_rows * 3 // 2
            # Files are half full but for the youngest of each level.
            assert len({h.path for h in handles}) <= 2 * first // segment_rows + 3 * 5
            written += own
            if checkpoint_id % 10 == 0:
                made.close()
                made, table = opened(tmp_path, backend, handles)
                assert table.row_count == 100 * checkpoint_id - checkpoint_id + 1
        made.close()
    assert written <= 3 * 100 * rows_each * math.log(segment_rows / rows_each, 4)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("checkpoints_each", [2, 5])
def test_a_job_that_is_restarted_often_renews_its_chain_as_one_that_runs_on(
    tmp_path: Path, backend: str, checkpoints_each: int
) -> None:
    row_count, segment_rows, choice = 4_000, 200, random.Random(1)
    with small_segments(segment_rows), mock.patch("runtime.state.segment_merging.WORN_ROWS_MIN", 16):
        made, table = opened(tmp_path, backend)
        add(table, range(row_count))
        for checkpoint_id in range(1, 150):
            handles = made.capture(checkpoint_id)()
            made.committed(checkpoint_id)
            (state,) = made._tables.values()  # type: ignore[attr-defined]
            assert state.chain.row_count <= 2 * row_count + 2 * segment_rows
            assert sum({h.path: h.row_count for h in handles}.values()) <= 4 * row_count + segment_rows
            own = sum(h.row_count for h in handles if h.checkpoint_id == checkpoint_id)
            assert own <= 4 * segment_rows or checkpoint_id == 1
            for _ in range(4):
                first = choice.randrange(row_count - 10)
                add(table, range(first, first + 10))
            if checkpoint_id % checkpoints_each == 0:
                made.close()
                made, table = opened(tmp_path, backend, handles)
                assert table.row_count == row_count
        made.close()


def test_the_small_files_of_all_old_subtasks_are_merged_after_a_rescale(tmp_path: Path) -> None:
    shape = Shape("hashmap", (pa.int64(),))
    choice = random.Random(1)
    pairs = [Pair(tmp_path, shape, (), subtask, 4) for subtask in range(4)]
    chains: list[Handles] = [()] * 4
    with mock.patch("runtime.state.segment_merging.SEGMENT_ROWS", 100):
        for checkpoint_id in range(1, 8):
            for index, pair in enumerate(pairs):
                pair.batch(choice, 150 if checkpoint_id == 1 else 4, 400)
                chains[index] = pair.backend.capture(checkpoint_id)()
                pair.backend.committed(checkpoint_id)
        handles = merged(chains)
        one = Pair(tmp_path, shape, handles)
        for pair in pairs:
            one.model.rows.update(pair.model.rows)
        after = one.backend.capture(8)()
        assert len(after) < len(handles) // 2
        again = Pair(tmp_path, shape, after)
    assert contents(again.table) == contents(one.table) == one.expected()
    for pair in (*pairs, one, again):
        pair.close()


def test_dropped_windows_leave_the_chain(tmp_path: Path) -> None:
    context = operator_context(tmp_path)
    backend = MemoryStateBackend("op", context)
    state = backend.window_state("sums", SCHEMA, reduce)
    for checkpoint_id in range(1, 30):
        state.append(checkpoint_id + 5, block((checkpoint_id % 16, checkpoint_id, 1)))
        if checkpoint_id > 5:
            state.keep_rest(checkpoint_id, None)
        handles = backend.capture(checkpoint_id)()
        context.notices.committed(checkpoint_id)
        assert len(handles) < 14
        again = MemoryStateBackend("op", operator_context(tmp_path, restore=OperatorRestore("op", segments=handles)))
        restored = again.window_state("sums", SCHEMA, reduce)
        assert restored.ends() == state.ends()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_time_to_live_frees_memory_disk_and_checkpoints(tmp_path: Path, backend: str) -> None:
    choice = random.Random(3)
    shape = Shape(backend, (pa.int64(),), ttl_ms=100)
    with small_limits(choice), mock.patch("runtime.state.change_log.BYTES_MIN", 1 << 20):
        pair = Pair(tmp_path, shape)
        for _ in range(10):
            pair.batch(choice, 100, variety=1_000)
        rows = pair.table.row_count
        assert rows > 300
        pair.backend.capture(1)()
        pair.backend.committed(1)
        pair.now_ms += 1_000
        for _ in range(3):
            pair.table.settle()
        # Nobody has asked for them: the sweep was there.
        assert pair.table.row_count == 0
        handles = pair.backend.capture(2)()
        pair.backend.committed(2)
        again = Pair(tmp_path, msgspec.structs.replace(shape, ttl_ms=1 << 40), handles)
        assert contents(again.table) == []
        again.close()
        # What is gone leaves the files that a checkpoint names, too.
        assert pair.backend.capture(3)() == ()
        pair.close()
