"""Memory of the slot process: resident size, and when the garbage collector runs.

The collector never runs by itself in a slot: its passes over thousands of fresh objects cost more than the work they
interrupt. It runs at barriers, when the batch before is released, and when the process has grown by a fifth. What is
there at the first barrier, the job's own modules and operators, stays for as long as the process: later passes leave
it out.
"""

from __future__ import annotations

import gc
import os
import threading
import time

_GROWTH = 1.2
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Resident set size of this process."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES


class GarbageCollection:
    """Thread-safe. `pause_ms` is the longest of the last pass."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._checkpoint_id = 0
        self._resident_bytes = 0
        self.pause_ms = 0.0

    def freeze(self) -> None:
        """Everything loaded by now is here to stay; from now on passes happen only where this class makes them."""
        gc.collect()
        gc.freeze()
        gc.disable()
        self._resident_bytes = resident_bytes()

    def at_barrier(self, checkpoint_id: int) -> None:
        """One pass per checkpoint, whichever task of the slot is first."""
        with self._lock:
            if checkpoint_id <= self._checkpoint_id:
                return
            is_first, self._checkpoint_id = not self._checkpoint_id, checkpoint_id
            self._collect()
            if is_first:
                gc.freeze()

    def at_report(self) -> int:
        """A pass if the process has grown by a fifth since the last one. Returns the resident bytes."""
        size = resident_bytes()
        if self._resident_bytes and size > self._resident_bytes * _GROWTH:
            with self._lock:
                self._collect()
            size = resident_bytes()
        return size

    def _collect(self) -> None:
        started_s = time.monotonic()
        gc.collect()
        self.pause_ms = (time.monotonic() - started_s) * 1000.0
        self._resident_bytes = resident_bytes()
