"""Snapshots of keyed state: how long they hold up the task, how much they write, how long a restore takes.

`python -m benchmarks.state_snapshots` runs each case in a process of its own. *stalls*: COUNT and SUM by key over five
million keys, 200,000 updates a second in batches of 8,192 rows, a checkpoint every five seconds, the first of them
full; a stall is what a batch takes beyond the median of batches without a snapshot. Beside it, for busy machines, stand
what is left without the time for which the thread was ready to run and had no core, and the CPU time of the batches.
*rescale*: two million keys in four subtasks, changed between checkpoints, restored in eight and then in three, every
row compared. *amounts*: what 200 checkpoints write of a table that grows to two million rows, and of one of as many of
which 5,000 are updated between two checkpoints.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runtime.checkpoint.files import LocalFiles
from runtime.checkpoint.notices import CheckpointNotices
from runtime.checkpoint.segment_order import merged
from runtime.checkpoint.snapshot import OperatorRestore, SegmentHandle
from runtime.ids import AttemptId, JobId
from runtime.key_groups import hash_columns, key_group, key_group_range
from runtime.operators.protocol import KeyGroupRange, OperatorContext
from runtime.state.backends import open_backend
from runtime.state.protocol import KeyedStateBackend, KeyedTable
from runtime.taskmanager.process_memory import GarbageCollection, resident_bytes

BATCH_ROWS = 8_192
ROWS_PER_S = 200_000
INTERVAL_S = 5.0
MAX_PARALLELISM = 128
MANAGED_SHARE = 10
ROW_BYTES = 64
VALUES = pa.schema([pa.field("count", pa.int64(), nullable=False), pa.field("sum", pa.int64(), nullable=False)])

Ints = npt.NDArray[np.int64]
Chains = list[tuple[SegmentHandle, ...]]
"""Of each subtask, its files in their order."""


class Case(msgspec.Struct, frozen=True):
    """`hot_share` of the updates go to a twentieth of the keys."""

    kind: str
    backend: str
    key_count: int
    checkpoints: int = 4
    hot_share: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.backend}"


class CountedFiles(LocalFiles):
    """Counts how often each file is opened to be read."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.opened: Counter[str] = Counter()

    def open(self, path: str) -> pa.NativeFile:
        self.opened[path] += 1
        return super().open(path)


class Subtask:
    """A backend with one table."""

    def __init__(
        self,
        case: Case,
        directory: Path,
        generation: int,
        index: int,
        parallelism: int,
        handles: tuple[SegmentHandle, ...],
    ) -> None:
        first, last = key_group_range(index, parallelism, MAX_PARALLELISM)
        self.notices = CheckpointNotices()
        self.files = CountedFiles(str(directory))
        managed = case.key_count * ROW_BYTES // MANAGED_SHARE if case.backend == "rocksdb" else 0
        context = OperatorContext(
            attempt=AttemptId(JobId("0" * 32), generation, 1, index, 1),
            parallelism=parallelism,
            max_parallelism=MAX_PARALLELISM,
            key_groups=KeyGroupRange(first, last),
            settings={"state.backend.type": case.backend},
            files=self.files,
            restore=OperatorRestore("op", segments=handles) if handles else None,
            managed_bytes=managed // parallelism,
            wall_clock_ms=lambda: 0,
            notices=self.notices,
        )
        self.owned = context.key_groups
        self.backend: KeyedStateBackend = open_backend("op", context)
        self.table: KeyedTable = self.backend.keyed_table("rows", pa.schema([("key", pa.int64())]), VALUES)

    def add(self, numbers: Ints) -> None:
        """One batch of COUNT and SUM by key."""
        keys: list[Any] = [pa.array(numbers)]
        slots, _ = self.table.slots(keys, key_group(hash_columns(keys), MAX_PARALLELISM))
        self.table.touch(slots)
        np.add.at(self.table.numbers(0), slots, 1)
        np.add.at(self.table.numbers(1), slots, numbers)
        self.table.settle()

    def check(self, numbers: Ints, counts: Ints) -> int:
        """Every row is as it should be: how many there are. `numbers` ascend."""
        seen = 0
        for slots in self.table.all_slots():
            found = self.table.keys(slots)[0].to_numpy()
            expected = counts[np.searchsorted(numbers, found)]
            if not np.array_equal(self.table.numbers(0)[slots], expected):
                raise AssertionError("a count is wrong")
            if not np.array_equal(self.table.numbers(1)[slots], expected * found):
                raise AssertionError("a sum is wrong")
            seen += len(slots)
        return seen


def waited_ms() -> float:
    """For how long this thread has been ready to run without a core."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e6


class Stalls:
    """The paced updates of one subtask with a checkpoint every few seconds."""

    def __init__(self, case: Case, directory: Path) -> None:
        self._case = case
        self._directory = directory
        self._random = np.random.default_rng(1)
        self._numbers: Ints = np.sort(self._random.permutation(case.key_count * 3)[: case.key_count])
        self._order = self._random.permutation(case.key_count)
        self._counts: Ints = np.full(case.key_count, 0, dtype=np.int64)
        self._cpu_ms: list[float] = []

    def run(self) -> dict[str, float]:
        case = self._case
        # As in a slot: no automatic collection.
        collection = GarbageCollection()
        collection.freeze()
        base = resident_bytes()
        subtask = Subtask(case, self._directory, 1, 0, 1, ())
        fill_ms = [
            self._batch(subtask, self._order[first : first + BATCH_ROWS])
            for first in range(0, case.key_count, BATCH_ROWS)
        ]
        result = {
            "fill, batch p99 ms": float(np.percentile(fill_ms, 99)),
            "fill, batch max ms": max(fill_ms),
            "fill, batch max CPU ms": max(self._cpu_ms),
            "state MB": subtask.backend.byte_size / 1e6,
        }
        self._cpu_ms.clear()
        quiet = [self._batch(subtask, self._draw()) for _ in range(100)]
        usual = float(np.median(quiet))
        result["batch without snapshot, median ms"] = usual
        result["batch without snapshot, p99 ms"] = float(np.percentile(quiet, 99))
        result["batch without snapshot, p99 CPU ms"] = float(np.percentile(self._cpu_ms, 99))
        self._cpu_ms.clear()
        stalls: list[float] = []
        self._waits: list[float] = []
        peak = 0
        handles: tuple[SegmentHandle, ...] = ()
        for checkpoint_id in range(1, case.checkpoints + 1):
            handles, opened_ms, batches, written_s, peak_bytes = self._interval(subtask, checkpoint_id)
            peak = max(peak, peak_bytes)
            stalls += [ms - usual for ms in batches]
            result[f"snapshot {checkpoint_id}, ms to open it"] = opened_ms
            written = sum(h.byte_size for h in handles if h.checkpoint_id == checkpoint_id)
            name = "full" if checkpoint_id == 1 else f"incremental {checkpoint_id - 1}"
            result[f"snapshot {name}, MB written"] = written / 1e6
            result[f"snapshot {name}, s"] = written_s
        result["snapshots, MB named by the last"] = sum(handle.byte_size for handle in handles) / 1e6
        for percent in (50, 99):
            result[f"stall p{percent} ms"] = max(0.0, float(np.percentile(stalls, percent)))
        result["stall max ms"] = max(stalls)
        own = np.maximum(0.0, np.array(stalls) - np.array(self._waits))
        for percent in (50, 99, 100):
            result[f"stall p{percent} ms, with a core"] = float(np.percentile(own, percent))
        result["batch with snapshots, p99 CPU ms"] = float(np.percentile(self._cpu_ms, 99))
        result["batch with snapshots, max CPU ms"] = max(self._cpu_ms)
        result["peak RSS MB"] = (peak - base) / 1e6
        expected = self._at_barrier
        subtask.backend.close()
        del subtask
        started, started_cpu = time.perf_counter(), time.process_time()
        again = Subtask(case, self._directory, 2, 0, 1, handles)
        result["restore s"] = time.perf_counter() - started
        result["restore CPU s"] = time.process_time() - started_cpu
        result["files opened more than once"] = sum(count > 1 for count in again.files.opened.values())
        if again.check(self._numbers, expected) != case.key_count:
            raise AssertionError("rows are missing")
        again.backend.close()
        return result

    def _interval(self, subtask: Subtask, checkpoint_id: int) -> tuple[Any, float, list[float], float, int]:
        """From one barrier to the next: files, ms of opening the snapshot, ms of each batch while it was written,
        seconds until it was, and the largest resident size."""
        next_s = time.perf_counter()
        end_s = next_s + INTERVAL_S
        self._at_barrier = self._counts.copy()
        started = time.perf_counter()
        write = subtask.backend.capture(checkpoint_id)
        opened_ms = (time.perf_counter() - started) * 1e3
        handles: list[SegmentHandle] = []
        writer = threading.Thread(target=lambda: handles.extend(write()))
        started = time.perf_counter()
        writer.start()
        batches: list[float] = []
        peak, written_s = 0, 0.0
        while written_s == 0.0 or time.perf_counter() < end_s:
            waited_before_ms = waited_ms()
            milliseconds = self._batch(subtask, self._draw())
            if written_s == 0.0:
                batches.append(milliseconds)
                self._waits.append(waited_ms() - waited_before_ms)
                if not writer.is_alive():
                    written_s = time.perf_counter() - started
                    subtask.notices.committed(checkpoint_id)
            peak = max(peak, resident_bytes())
            next_s += BATCH_ROWS / ROWS_PER_S
            time.sleep(max(0.0, next_s - time.perf_counter()))
        return tuple(handles), opened_ms, batches, written_s, peak

    def _draw(self) -> Ints:
        ids = self._random.integers(0, self._case.key_count, BATCH_ROWS)
        if self._case.hot_share:
            hot = self._random.random(BATCH_ROWS) < self._case.hot_share
            ids[hot] %= self._case.key_count // 20
        return ids

    def _batch(self, subtask: Subtask, ids: Ints) -> float:
        """Milliseconds of one batch."""
        numbers = self._numbers[ids]
        started, started_cpu = time.perf_counter(), time.thread_time()
        subtask.add(numbers)
        self._cpu_ms.append((time.thread_time() - started_cpu) * 1e3)
        spent_ms = (time.perf_counter() - started) * 1e3
        np.add.at(self._counts, ids, 1)
        return spent_ms


class Rescale:
    """Four subtasks, then eight, then three, with changes and checkpoints between."""

    def __init__(self, case: Case, directory: Path) -> None:
        self._case = case
        self._directory = directory
        self._random = np.random.default_rng(2)
        self._numbers: Ints = np.arange(case.key_count, dtype=np.int64) * 7
        keys: list[Any] = [pa.array(self._numbers)]
        self._groups = key_group(hash_columns(keys), MAX_PARALLELISM)
        self._counts: Ints = np.zeros(case.key_count, dtype=np.int64)
        self._checkpoint_id = 0

    def run(self) -> dict[str, float]:
        result: dict[str, float] = {}
        chains: Chains = []
        for generation, parallelism in enumerate((4, 8, 3), start=1):
            started, started_cpu = time.perf_counter(), time.process_time()
            subtasks = [self._open(generation, index, parallelism, chains) for index in range(parallelism)]
            if chains:
                label = f"to {parallelism}"
                result[f"{label}: restore of all s"] = time.perf_counter() - started
                result[f"{label}: restore of all CPU s"] = time.process_time() - started_cpu
                opened = [count for subtask in subtasks for count in subtask.files.opened.values()]
                result[f"{label}: files named"] = len({handle.path for chain in chains for handle in chain})
                result[f"{label}: files read per new owner, mean"] = len(opened) / parallelism
                result[f"{label}: reads of one file per owner, max"] = max(opened)
                self._check(subtasks)
            self._update(subtasks, np.arange(self._case.key_count) if generation == 1 else self._some())
            chains = self._checkpoint(subtasks)
            for _ in range(2):
                self._update(subtasks, self._some())
                chains = self._checkpoint(subtasks)
            handles = [handle for chain in chains for handle in chain]
            written = sum(h.byte_size for h in handles if h.checkpoint_id == self._checkpoint_id)
            result[f"at {parallelism}: last checkpoint, MB written"] = written / 1e6
            result[f"at {parallelism}: last checkpoint, MB named"] = (
                sum({h.path: h.byte_size for h in handles}.values()) / 1e6
            )
            self._check(subtasks)
            for subtask in subtasks:
                subtask.backend.close()
        return result

    def _open(self, generation: int, index: int, parallelism: int, chains: Chains) -> Subtask:
        first, last = key_group_range(index, parallelism, MAX_PARALLELISM)
        touched = [[h for h in chain if h.key_group_first <= last and first <= h.key_group_last] for chain in chains]
        return Subtask(self._case, self._directory, generation, index, parallelism, merged(touched))

    def _some(self) -> Ints:
        return self._random.integers(0, self._case.key_count, self._case.key_count // 20)

    def _update(self, subtasks: list[Subtask], ids: Ints) -> None:
        for subtask in subtasks:
            groups = self._groups[ids]
            own = ids[(groups >= subtask.owned.first) & (groups <= subtask.owned.last)]
            for first in range(0, len(own), BATCH_ROWS):
                subtask.add(self._numbers[own[first : first + BATCH_ROWS]])
        np.add.at(self._counts, ids, 1)

    def _checkpoint(self, subtasks: list[Subtask]) -> Chains:
        self._checkpoint_id += 1
        chains = [s.backend.capture(self._checkpoint_id)() for s in subtasks]
        for subtask in subtasks:
            subtask.notices.committed(self._checkpoint_id)
        return chains

    def _check(self, subtasks: list[Subtask]) -> None:
        if sum(subtask.check(self._numbers, self._counts) for subtask in subtasks) != self._case.key_count:
            raise AssertionError("rows are missing")


class Amounts:
    """Many checkpoints of which each has little that is new."""

    def __init__(self, case: Case, directory: Path) -> None:
        self._case = case
        self._directory = directory
        self._random = np.random.default_rng(3)
        self._numbers: Ints = np.arange(case.key_count, dtype=np.int64) * 7
        self._counts: Ints = np.zeros(case.key_count, dtype=np.int64)
        self._written_mb: list[float] = []
        self._written_s: list[float] = []

    def run(self) -> dict[str, float]:
        case = self._case
        subtask = Subtask(case, self._directory, 1, 0, 1, ())
        each = case.key_count // case.checkpoints
        if case.kind == "amounts in place":
            each //= 2
            self._add(subtask, np.arange(case.key_count))
            self._checkpoint(subtask, 0)
            self._written_mb.clear()
        handles: tuple[SegmentHandle, ...] = ()
        for checkpoint_id in range(1, case.checkpoints + 1):
            if case.kind == "amounts in place":
                self._add(subtask, self._random.integers(0, case.key_count, each))
            else:
                self._add(subtask, np.arange((checkpoint_id - 1) * each, checkpoint_id * each))
            handles = self._checkpoint(subtask, checkpoint_id)
        subtask.backend.close()
        started = time.perf_counter()
        again = Subtask(case, self._directory, 2, 0, 1, handles)
        restored_s = time.perf_counter() - started
        if again.check(self._numbers, self._counts) != case.key_count:
            raise AssertionError("rows are missing")
        again.backend.close()
        return {
            "rows new in each checkpoint": each,
            "all checkpoints, MB written": sum(self._written_mb),
            "last 50, MB written, mean": float(np.mean(self._written_mb[-50:])),
            "largest, MB written": max(self._written_mb),
            "longest, s": max(self._written_s[-case.checkpoints :]),
            "files named by the last": len({handle.path for handle in handles}),
            "MB named by the last": sum({handle.path: handle.byte_size for handle in handles}.values()) / 1e6,
            "restore s": restored_s,
        }

    def _add(self, subtask: Subtask, ids: Ints) -> None:
        for first in range(0, len(ids), BATCH_ROWS):
            subtask.add(self._numbers[ids[first : first + BATCH_ROWS]])
        np.add.at(self._counts, ids, 1)

    def _checkpoint(self, subtask: Subtask, checkpoint_id: int) -> tuple[SegmentHandle, ...]:
        started = time.perf_counter()
        handles = subtask.backend.capture(checkpoint_id)()
        self._written_s.append(time.perf_counter() - started)
        subtask.notices.committed(checkpoint_id)
        self._written_mb.append(sum(h.byte_size for h in handles if h.checkpoint_id == checkpoint_id) / 1e6)
        return handles


def cases(scale: float) -> list[Case]:
    return [
        Case("stalls", "hashmap", int(5_000_000 * scale)),
        Case("stalls", "rocksdb", int(5_000_000 * scale), hot_share=0.9),
        Case("rescale", "hashmap", int(2_000_000 * scale)),
        Case("rescale", "rocksdb", int(2_000_000 * scale)),
        Case("amounts growing", "hashmap", int(2_000_000 * scale), checkpoints=200),
        Case("amounts in place", "hashmap", int(2_000_000 * scale), checkpoints=200),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.state_snapshots", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="1 = five million keys")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--case", help="run one case in this process (used by the program itself)")
    options = parser.parse_args()
    if options.case is not None:
        case = msgspec.json.decode(options.case, type=Case)
        pa.set_cpu_count(1)
        with tempfile.TemporaryDirectory(prefix="headrace-bench-state-") as directory:
            kinds: dict[str, type[Stalls | Rescale | Amounts]] = {"stalls": Stalls, "rescale": Rescale}
            print(msgspec.json.encode(kinds.get(case.kind, Amounts)(case, Path(directory)).run()).decode())
        return
    for case in cases(options.scale):
        if options.only not in case.name:
            continue
        print(f"\n{case.name}: {case.key_count:,} keys", flush=True)
        command = [sys.executable, "-m", "benchmarks.state_snapshots", "--case", msgspec.json.encode(case).decode()]
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        for name, value in msgspec.json.decode(answer).items():
            print(f"  {name:<44} {value:>12,.1f}")
        print(f"  {'exact':<44} {'yes':>12}")


if __name__ == "__main__":
    main()
