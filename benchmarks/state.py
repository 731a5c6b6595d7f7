"""Keyed state by itself: rows per CPU second, bytes, snapshots and restores of both backends, checked for exactness.

`python -m benchmarks.state` runs each case in a process of its own, so that its resident size is the case's alone. The
work is that of COUNT and SUM by key: per batch of 16,384 rows the slots of the keys, two additions in place, settle.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from runtime.checkpoint.files import LocalFiles
from runtime.checkpoint.snapshot import OperatorRestore
from runtime.ids import AttemptId, JobId
from runtime.key_groups import hash_columns, key_group
from runtime.operators.protocol import KeyGroupRange, OperatorContext
from runtime.state.backends import open_backend
from runtime.state.protocol import KeyedStateBackend, KeyedTable
from runtime.taskmanager.process_memory import resident_bytes

BATCH_ROWS = 16_384
MAX_PARALLELISM = 128
VALUES = pa.schema([pa.field("count", pa.int64(), nullable=False), pa.field("sum", pa.int64(), nullable=False)])
HASHMAP_BYTES_PER_ROW = 60
"""About what a row of a BIGINT key takes in memory: how large a state on disk is in terms of managed memory."""


class Case(msgspec.Struct, frozen=True):
    """`hot_share` of the rows go to a twentieth of the keys; 0 = all keys alike."""

    name: str
    backend: str
    key: str
    key_count: int
    row_count: int
    managed_bytes: int = 0
    hot_share: float = 0.0


def cases(scale: float) -> list[Case]:
    count = int(5_000_000 * scale)
    managed = count * HASHMAP_BYTES_PER_ROW // 10
    return [
        Case("hashmap, BIGINT", "hashmap", "int", count, count),
        Case("hashmap, STRING", "hashmap", "string", count // 5, count // 5),
        Case("rocksdb, 10 x memory, 90 % on a twentieth", "rocksdb", "int", count, count // 2, managed, 0.9),
        Case("rocksdb, 10 x memory, uniform", "rocksdb", "int", count, count // 10, managed),
    ]


class PeakMemory:
    """Resident bytes above what the process had, sampled by a thread."""

    def __init__(self) -> None:
        self.base = resident_bytes()
        self.peak = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        self._stopping.set()
        self._thread.join()
        return self.peak

    def _sample(self) -> None:
        while not self._stopping.wait(0.02):
            self.peak = max(self.peak, resident_bytes() - self.base)


class Run:
    """One case: fill, update, snapshot while updating, restore, compare."""

    def __init__(self, case: Case, directory: Path) -> None:
        self._case = case
        self._directory = directory
        self._random = np.random.default_rng(1)
        self._numbers = self._random.permutation(case.key_count) * 7_919 + 13
        # Touched now, so that they do not count as the state's memory.
        self._counts = np.full(case.key_count, 0, dtype=np.int64)
        self._sums = np.full(case.key_count, 0, dtype=np.int64)
        self._slowest_ms = 0.0

    def run(self) -> dict[str, float]:
        case = self._case
        # Before the memory is measured: libraries of the backend, once.
        open_backend("warm", self._context(None)).close()
        memory = PeakMemory()
        backend, table = self._open(None)
        result: dict[str, float] = {}
        firsts = range(0, case.key_count, BATCH_ROWS)
        result["fill rows/s"] = self._feed(
            table, (np.arange(first, min(first + BATCH_ROWS, case.key_count)) for first in firsts)
        )
        if case.hot_share:
            # Until the hot keys are in memory.
            self._feed(table, self._draw(case.key_count))
        self._slowest_ms = 0.0
        result["update rows/s"] = self._feed(table, self._draw(case.row_count))
        result["slowest batch ms"] = self._slowest_ms
        result["state MB"] = backend.byte_size / 1e6
        result["peak RSS MB"] = memory.stop() / 1e6
        result["managed MB"] = case.managed_bytes / 1e6
        started = time.perf_counter()
        write = backend.capture(1)
        result["snapshot, stall ms"] = (time.perf_counter() - started) * 1e3
        expected = self._counts.copy(), self._sums.copy()
        handles: list[Any] = []
        self._slowest_ms = 0.0
        writer = threading.Thread(target=lambda: handles.extend(write()))
        started_cpu = time.process_time()
        writer.start()
        updates = 0
        while writer.is_alive():
            for rows in self._draw(BATCH_ROWS):
                self._add(table, rows)
                updates += 1
        writer.join()
        result["snapshot + updates, CPU s"] = time.process_time() - started_cpu
        result["updates meanwhile"] = updates * BATCH_ROWS
        result["slowest batch meanwhile ms"] = self._slowest_ms
        result["snapshot MB"] = sum(handle.byte_size for handle in handles) / 1e6
        self._check(table, self._counts, self._sums)
        backend.close()
        started_cpu = time.process_time()
        backend, table = self._open(OperatorRestore("op", segments=tuple(handles)))
        result["restore, CPU s"] = time.process_time() - started_cpu
        self._check(table, *expected)
        backend.close()
        return result

    def _context(self, restore: OperatorRestore | None) -> OperatorContext:
        return OperatorContext(
            attempt=AttemptId(JobId("0" * 32), 1 if restore is None else 2, 1, 0, 1),
            parallelism=1,
            max_parallelism=MAX_PARALLELISM,
            key_groups=KeyGroupRange(0, MAX_PARALLELISM - 1),
            settings={"state.backend.type": self._case.backend},
            files=LocalFiles(str(self._directory)),
            restore=restore,
            managed_bytes=self._case.managed_bytes,
            wall_clock_ms=lambda: 0,
        )

    def _open(self, restore: OperatorRestore | None) -> tuple[KeyedStateBackend, KeyedTable]:
        backend = open_backend("op", self._context(restore))
        kind = pa.int64() if self._case.key == "int" else pa.string()
        return backend, backend.keyed_table("rows", pa.schema([("key", kind)]), VALUES)

    def _draw(self, row_count: int) -> Iterator[Any]:
        """Batches of ids of existing keys."""
        case = self._case
        for _ in range(max(1, row_count // BATCH_ROWS)):
            ids = self._random.integers(0, case.key_count, BATCH_ROWS)
            if case.hot_share:
                hot = self._random.random(BATCH_ROWS) < case.hot_share
                ids[hot] %= case.key_count // 20
            yield ids

    def _feed(self, table: KeyedTable, batches: Iterator[Any]) -> float:
        """Rows per second of this thread's CPU."""
        spent, row_count = 0.0, 0
        for ids in batches:
            spent += self._add(table, ids)
            row_count += len(ids)
        return row_count / spent

    def _add(self, table: KeyedTable, ids: Any) -> float:
        """One batch. CPU seconds of the state's work, without making the keys."""
        numbers = pa.array(self._numbers[ids])
        keys: list[Any] = [numbers]
        if self._case.key == "string":
            keys = [pa.array([f"user-{number}-{number % 10_007}" for number in numbers.to_pylist()])]
        started, started_cpu = time.perf_counter(), time.thread_time()
        slots, _ = table.slots(keys, key_group(hash_columns(keys), MAX_PARALLELISM))
        table.touch(slots)
        np.add.at(table.numbers(0), slots, 1)
        np.add.at(table.numbers(1), slots, numbers.to_numpy())
        table.settle()
        spent = time.thread_time() - started_cpu
        self._slowest_ms = max(self._slowest_ms, (time.perf_counter() - started) * 1e3)
        np.add.at(self._counts, ids, 1)
        np.add.at(self._sums, ids, self._numbers[ids])
        return spent

    def _check(self, table: KeyedTable, counts: Any, sums: Any) -> None:
        """Every key is there once with its count and sum."""
        if table.row_count != self._case.key_count:
            raise AssertionError(f"{table.row_count} rows instead of {self._case.key_count}")
        order = np.argsort(self._numbers)
        ordered = self._numbers[order]
        seen = 0
        for slots in table.all_slots():
            (keys,) = table.keys(slots)
            if self._case.key == "string":
                found: list[int] = [int(str(key).split("-")[1]) for key in keys.to_pylist()]
                keys = pa.array(found)
            ids = order[np.searchsorted(ordered, keys.to_numpy())]
            if not np.array_equal(table.numbers(0)[slots], counts[ids]):
                raise AssertionError("a count is wrong")
            if not np.array_equal(table.numbers(1)[slots], sums[ids]):
                raise AssertionError("a sum is wrong")
            seen += len(slots)
        if seen != self._case.key_count:
            raise AssertionError(f"{seen} rows read instead of {self._case.key_count}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.state", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="1 = five million keys")
    parser.add_argument("--case", help="run one case in this process (used by the program itself)")
    options = parser.parse_args()
    if options.case is not None:
        case = msgspec.json.decode(options.case, type=Case)
        pa.set_cpu_count(1)
        with tempfile.TemporaryDirectory(prefix="headrace-bench-state-") as directory:
            print(msgspec.json.encode(Run(case, Path(directory)).run()).decode())
        return
    for case in cases(options.scale):
        print(f"\n{case.name}: {case.key_count:,} keys, {case.row_count:,} updates")
        command = [sys.executable, "-m", "benchmarks.state", "--case", msgspec.json.encode(case).decode()]
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        for name, value in msgspec.json.decode(answer).items():
            print(f"  {name:<28} {value:>14,.1f}")
        print("  exact                                   yes")


if __name__ == "__main__":
    main()
