"""Work that must not hold up a task's thread: encoding snapshots, committing sinks."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

Job = Callable[[], None]


class HelperThread:
    """Runs jobs one at a time, in order. The thread starts with the first job; jobs handle their own errors."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, job: Job) -> None:
        """From any one thread at a time; after `close` jobs are dropped."""
        if self._closed:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def close(self, *, run_waiting: bool = False) -> None:
        """Let the current job end (and with `run_waiting` those behind it), drop the rest, join the thread."""
        self._closed = True
        if self._thread is None:
            return
        if not run_waiting:
            while not self._jobs.empty():
                try:
                    self._jobs.get_nowait()
                except queue.Empty:
                    break
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
