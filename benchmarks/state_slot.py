"""Keyed state in a slot of a standalone cluster: is the result exact, and does the process stay within its budget?

One TaskManager, one job: numbers from `datagen`, COUNT and SUM by key, and over those a second aggregation whose last
row says whether every key's result was right. Checkpoints are taken meanwhile. A slot's budget is the TaskManager's
memory divided by its slots.
"""

from __future__ import annotations

import argparse
import re
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.meter import descendants, role_of
from runtime.taskmanager.slot_memory import SlotMemory, divide
from server.demo.cluster import ClusterError, LocalCluster, Session

SPREAD = 48_271
"""A prime: numbers times it, modulo the count of keys, give every key in an order that looks like chance."""
ABOVE_BUDGET_MAX = 1.1
TIMEOUT_S = 600.0
SAMPLE_INTERVAL_S = 0.1

_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)
_ROW = re.compile(r"\+[IU]\[(\d+), (\d+), (\d+), (\d+), (\d+)\]")


class SlotCase(msgspec.Struct, frozen=True):
    """`hot_share` (tenths) of the rows after the first `key_count` go to a twentieth of the keys; 0 = all alike."""

    name: str
    backend: str
    key_count: int
    row_count: int
    process_bytes: int
    slots: int = 2
    hot_tenths: int = 0
    interval_s: int = 5


class PeakResident:
    """The peak of the resident size of the cluster's slot processes, as the kernel has recorded it."""

    def __init__(self, root_pid: int) -> None:
        self._root = root_pid
        self.bytes = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        self._stopping.set()
        self._thread.join()
        return self.bytes

    def _sample(self) -> None:
        while not self._stopping.wait(SAMPLE_INTERVAL_S):
            for pid in descendants(self._root):
                try:
                    if role_of(Path(f"/proc/{pid}/cmdline").read_bytes()) == "slot":
                        found = _PEAK.search(Path(f"/proc/{pid}/status").read_text())
                        self.bytes = max(self.bytes, int(found[1]) * 1024 if found else 0)
                except OSError:
                    continue  # It has just ended.


def measure(case: SlotCase) -> dict[str, float]:
    """Run one case; figures by name. Raises AssertionError when a result is wrong."""
    settings = {
        "state.backend.type": case.backend,
        "parallelism.default": "1",
        "execution.checkpointing.interval": f"{case.interval_s} s",
        # Else each row's own change would be printed.
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "500 ms",
        "table.exec.mini-batch.size": "16384",
    }
    memory = divide(case.process_bytes, case.slots)
    with LocalCluster(taskmanagers=1, slots=case.slots, settings=settings, memory_bytes=case.process_bytes) as cluster:
        session = Session(cluster)
        peak = PeakResident(cluster.pid)
        try:
            for statement in _tables(case):
                session.run(statement)
            began_s = time.perf_counter()
            job_id = session.insert(_query(case))
            session.wait(job_id, TIMEOUT_S)
            spent_s = time.perf_counter() - began_s
            state_bytes = _state_bytes(cluster, job_id)
        finally:
            resident = peak.stop()
            session.close()
        rows = _ROW.findall(cluster.log())
        if not rows:
            raise ClusterError(f"no result was printed:\n{cluster.log_tail()}")
        found = tuple(int(value) for value in rows[-1])
        checkpoints = cluster.get(f"/jobs/{job_id}/checkpoints")["counts"]["completed"]
    expected = _expected(case)
    if found != expected:
        raise AssertionError(f"the result is {found} instead of {expected}")
    return _figures(case, memory, resident, spent_s, state_bytes, checkpoints)


def _state_bytes(cluster: LocalCluster, job_id: str) -> float:
    """What the job's operators held in memory when they last said so."""
    vertices = cluster.get(f"/jobs/{job_id}")["vertices"]
    figures = [figures for vertex in vertices for figures in vertex["operators"].values()]
    return float(sum(each.get("stateBytes", 0) for each in figures))


def _figures(
    case: SlotCase, memory: SlotMemory, resident: int, spent_s: float, state_bytes: float, checkpoints: int
) -> dict[str, float]:
    return {
        "rows/s of wall time": case.row_count / spent_s,
        "seconds": spent_s,
        "checkpoints": checkpoints,
        "budget of the slot MB": memory.slot_bytes / 1e6,
        "  interpreter, libraries MB": memory.base_bytes / 1e6,
        "  network MB": memory.network_bytes / 1e6,
        "  managed (state) MB": memory.managed_bytes / 1e6,
        "  Kafka's queues MB": memory.kafka_bytes / 1e6,
        "  reserve MB": memory.reserve_bytes / 1e6,
        "state in memory at the end MB": state_bytes / 1e6,
        "peak RSS of the slot MB": resident / 1e6,
        "peak RSS / budget": resident / memory.slot_bytes,
    }


def report(case: SlotCase, figures: dict[str, float]) -> None:
    print(f"\nin a slot: {case.name}: {case.key_count:,} keys, {case.row_count:,} rows")
    for name, value in figures.items():
        print(f"  {name:<32} {value:>14,.2f}")
    judged = "reached" if figures["peak RSS / budget"] <= ABOVE_BUDGET_MAX else "missed"
    print(f"  exact                                       yes\n  within budget + 10 %: {judged}", flush=True)


def _tables(case: SlotCase) -> list[str]:
    return [
        f"""CREATE TEMPORARY TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '100000000',
            'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '{case.row_count - 1}')""",
        """CREATE TEMPORARY TABLE results (c1 BIGINT, c2 BIGINT, c3 BIGINT, c4 BIGINT, c5 BIGINT)
           WITH ('connector' = 'print')""",
    ]


def _query(case: SlotCase) -> str:
    count, hot = case.key_count, case.key_count // 20
    key = f"MOD(n * {SPREAD}, {count})"
    if case.hot_tenths:
        key = f"CASE WHEN n >= {count} AND MOD(n, 10) < {case.hot_tenths} THEN MOD(n * {SPREAD}, {hot}) ELSE {key} END"
    return f"""INSERT INTO results
        SELECT COUNT(*), SUM(c), SUM(s), SUM(MOD(k, 1009) * c), SUM(MOD(k, 1009) * CAST(MOD(s, 1000003) AS BIGINT))
        FROM (SELECT k, COUNT(*) AS c, SUM(n) AS s
              FROM (SELECT CAST({key} AS BIGINT) AS k, n FROM numbers) GROUP BY k)"""


def _expected(case: SlotCase) -> tuple[int, ...]:
    """What the last row must be."""
    n = np.arange(case.row_count, dtype=np.int64)
    keys = n * SPREAD % case.key_count
    if case.hot_tenths:
        hot = (n >= case.key_count) & (n % 10 < case.hot_tenths)
        keys[hot] = n[hot] * SPREAD % (case.key_count // 20)
    counts = np.bincount(keys, minlength=case.key_count)
    sums = np.zeros(case.key_count, dtype=np.int64)
    np.add.at(sums, keys, n)
    k = np.flatnonzero(counts)
    c, s = counts[k], sums[k]
    marks = k % 1009
    parts: tuple[Any, ...] = (len(k), c.sum(), s.sum(), (marks * c).sum(), (marks * (s % 1000003)).sum())
    return tuple(int(part) for part in parts)


def cases(scale: float) -> list[SlotCase]:
    """The default budget with five million keys; and managed memory of the least size with ten times its state."""
    count = int(5_000_000 * scale)
    return [
        SlotCase("hashmap, 1 GB a slot", "hashmap", count, count * 3 // 2, 2_000_000_000),
        SlotCase(
            "rocksdb, ten times managed memory, 90 % on a twentieth",
            "rocksdb",
            count * 11 // 10,
            count * 2,
            620_000_000,
            hot_tenths=9,
            interval_s=20,
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.state_slot", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="1 = five million keys")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    for case in cases(options.scale):
        if options.only in case.name:
            report(case, measure(case))


if __name__ == "__main__":
    main()
