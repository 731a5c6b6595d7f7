"""CPU and memory of a tree of processes, from /proc: what the whole cluster used, client threads included."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SAMPLE_INTERVAL_S = 0.05
KAFKA_THREADS = "rdk:"
SETTLED_S = 0.5
SETTLED_SHARE = 0.1
"""A tree of processes has settled when it used less than this share of a core for so long."""
SETTLING_S_MAX = 10.0


@dataclass
class Usage:
    """CPU seconds by role of process, those of Kafka's client threads within them, and the peak of resident memory."""

    cpu_s: dict[str, float] = field(default_factory=dict)
    kafka_client_cpu_s: float = 0.0
    peak_bytes: int = 0
    peak_slot_bytes: int = 0
    cpu_before_s: float = 0.0
    """Of the processes that were there, before the meter started."""

    @property
    def total_cpu_s(self) -> float:
        return sum(self.cpu_s.values())


class Meter:
    """Samples a process and everything below it until stopped. What an ended process used until its last sample counts;
    what was used before the meter started does not."""

    def __init__(self, root_pid: int) -> None:
        self._root = root_pid
        # Keyed by number and start time: numbers are used again.
        self._roles: dict[tuple[int, str], str] = {}
        self._first: dict[tuple[int, str], float] = {}
        self._last: dict[tuple[int, str], float] = {}
        self._threads_first: dict[tuple[int, str], float] = {}
        self._threads_last: dict[tuple[int, str], float] = {}
        self._peak_bytes = self._peak_slot_bytes = 0
        self._sampled_before = False
        self._stop = threading.Event()
        self._sample()
        self._thread = threading.Thread(target=self._run, name="meter", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_INTERVAL_S):
            self._sample()

    def stop(self, *, settled: bool = False) -> Usage:
        """Take the last sample and add up. With `settled` wait first until the processes have nothing left to do, so
        that what a short job leaves to be done behind it counts as it does for a long one."""
        if settled:
            wait_until_settled(self._root)
        self._stop.set()
        self._thread.join()
        self._sample()
        usage = Usage(peak_bytes=self._peak_bytes, peak_slot_bytes=self._peak_slot_bytes)
        usage.cpu_before_s = sum(self._first.values())
        for process, used in self._last.items():
            role = self._roles.get(process, "other")
            usage.cpu_s[role] = usage.cpu_s.get(role, 0.0) + used - self._first[process]
        usage.kafka_client_cpu_s = sum(used - self._threads_first[key] for key, used in self._threads_last.items())
        return usage

    def _sample(self) -> None:
        resident = 0
        for pid in descendants(self._root):
            try:
                stat = _stat(Path(f"/proc/{pid}/stat"))
                command_line = Path(f"/proc/{pid}/cmdline").read_bytes()
                bytes_now = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
                threads = self._kafka_threads(pid)
            except (OSError, IndexError):
                continue  # It has just ended.
            process = (pid, stat[19])
            used = _cpu_s(stat)
            self._first.setdefault(process, used if not self._sampled_before else 0.0)
            self._last[process] = used
            if command_line:  # That of an ended process is empty; that of one before its exec is its parent's.
                self._roles[process] = role_of(command_line)
            for thread, thread_used in threads.items():
                self._threads_first.setdefault(thread, thread_used if not self._sampled_before else 0.0)
                self._threads_last[thread] = thread_used
            resident += bytes_now
            if self._roles.get(process) == "slot":
                self._peak_slot_bytes = max(self._peak_slot_bytes, bytes_now)
        self._peak_bytes = max(self._peak_bytes, resident)
        self._sampled_before = True

    def _kafka_threads(self, pid: int) -> dict[tuple[int, str], float]:
        found = {}
        for task in Path(f"/proc/{pid}/task").iterdir():
            try:
                if (task / "comm").read_text().startswith(KAFKA_THREADS):
                    stat = _stat(task / "stat")
                    found[(int(task.name), stat[19])] = _cpu_s(stat)
            except (OSError, IndexError):
                continue
        return found


def wait_until_settled(root_pid: int) -> None:
    """Until the processes use next to no CPU; gives up after `SETTLING_S_MAX`."""
    give_up_s = time.monotonic() + SETTLING_S_MAX
    used = _tree_cpu_s(root_pid)
    while time.monotonic() < give_up_s:
        time.sleep(SETTLED_S)
        before, used = used, _tree_cpu_s(root_pid)
        if used - before < SETTLED_SHARE * SETTLED_S:
            return


def _tree_cpu_s(root_pid: int) -> float:
    total = 0.0
    for pid in descendants(root_pid):
        try:
            total += _cpu_s(_stat(Path(f"/proc/{pid}/stat")))
        except (OSError, IndexError):
            continue
    return total


def descendants(root_pid: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                children.setdefault(int(_stat(Path(f"/proc/{entry}/stat"))[1]), []).append(int(entry))
            except (OSError, IndexError):
                continue
    found, front = [root_pid], [root_pid]
    while front:
        front = [child for pid in front for child in children.get(pid, [])]
        found.extend(front)
    return found


def role_of(command_line: bytes) -> str:
    """What a process of the cluster is, by its command line."""
    words = command_line.decode(errors="replace").split("\0")
    for word, role in (
        ("runtime.taskmanager.slot", "slot"),
        ("taskmanager", "TaskManager"),
        ("jobmanager", "JobManager"),
    ):
        if word in words:
            return role
    return "launcher"


def _stat(path: Path) -> list[str]:
    """The fields of a stat file from the third on: the second, a name in brackets, may hold anything."""
    return path.read_text().rpartition(")")[2].split()


def _cpu_s(stat: list[str]) -> float:
    return (int(stat[11]) + int(stat[12])) / TICKS_PER_SECOND
