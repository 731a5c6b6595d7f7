"""A pipe whose write end only the parent holds: its EOF means that the parent is gone, and ends this process at once.

So no child outlives a parent that was killed with -9. The parent keeps the write end; the child gets the number of the
inherited read end on its command line.
"""

from __future__ import annotations

import os
import threading

ORPHANED_EXIT_CODE = 97


class Lifeline:
    """The parent's side. `read_fd` is passed to the child (`pass_fds`), then `close_read` is called here."""

    def __init__(self) -> None:
        self.read_fd, self._write_fd = os.pipe()

    def close_read(self) -> None:
        os.close(self.read_fd)

    def close(self) -> None:
        """The child ends, if it has not already."""
        os.close(self._write_fd)


def end_with_parent(read_fd: int) -> None:
    """The child's side: watch the pipe on a daemon thread."""
    threading.Thread(target=_watch, args=(read_fd,), name="lifeline", daemon=True).start()


def _watch(read_fd: int) -> None:
    while os.read(read_fd, 64):
        pass
    os._exit(ORPHANED_EXIT_CODE)
