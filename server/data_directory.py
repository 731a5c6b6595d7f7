"""One JobManager per data directory: its metadata store has one writer. The kernel drops the lock with the process,
however that ends, so a restart never waits for a stale file."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from server.config import ConfigError

LOCK_FILE = "jobmanager.lock"


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Holds the directory for this process. Raises ConfigError naming the process that has it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ConfigError(f"cannot use the data directory {directory}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(lock, 32, 0).decode(errors="replace").strip()
            raise ConfigError(
                f"the data directory {directory} is in use by another JobManager (process {owner})",
                hint="Stop that cluster first, or give this one a --data-dir of its own.",
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(lock)
