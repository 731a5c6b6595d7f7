"""Where a TaskManager's slots keep files: a directory that a killed TaskManager cannot leave behind for good.

Each TaskManager holds a lock on a file in its own directory, and so do its slot processes; whoever starts next in the
same place removes the directories that nobody holds. A directory without that file is never touched.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from pathlib import Path

_log = logging.getLogger(__name__)

PREFIX = "headrace-taskmanager-"
LOCK_NAME = "lock"


class WorkDirectory:
    """`path` is there until `close`. `lock_fd`: child processes that use the directory inherit it."""

    def __init__(self, parent: str = "") -> None:
        """`parent`: "" = the system's temporary directory. Raises OSError."""
        if parent:
            Path(parent).mkdir(parents=True, exist_ok=True)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent or None))
        unlocked = self.path / "lock.new"
        self.lock_fd = os.open(unlocked, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            fcntl.flock(self.lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return  # A file system without locks: without its name nobody takes the directory for an abandoned one.
        # Renamed when it is locked: there is no moment at which it looks abandoned.
        unlocked.rename(self.path / LOCK_NAME)

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock_fd)

    def remove_abandoned(self) -> int:
        """Remove the directories beside this one whose TaskManagers are gone, slots included. How many there were."""
        removed = 0
        for other in sorted(self.path.parent.glob(f"{PREFIX}*")):
            if other != self.path and not other.is_symlink() and _remove_if_abandoned(other):
                _log.info("removed %s: its TaskManager is gone", other)
                removed += 1
        return removed


def _remove_if_abandoned(directory: Path) -> bool:
    try:
        lock_fd = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False  # Not one of ours, or another user's.
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for entry in directory.iterdir():
            if entry.name != LOCK_NAME:
                shutil.rmtree(entry)
        # The lock goes last: what cannot be removed now is tried again at the next start.
        shutil.rmtree(directory)
    except OSError:
        return False
    finally:
        os.close(lock_fd)
    return True
