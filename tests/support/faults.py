"""Faults of a machine, for tests: stopped processes, a full or missing disk, a wall clock that jumps."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runtime.clock import SHIFT_FILE

HOUR_MS = 3_600_000
_CAP_SYS_ADMIN = 1 << 21


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """SIGSTOP to these processes now and SIGCONT at the end; who has died meanwhile is left alone."""
    for pid in pids:
        _signal(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # It was killed by who missed its answers.


def can_mount() -> bool:
    """Root in a container mostly may not."""
    status = Path("/proc/self/status").read_text()
    capabilities = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(capabilities, 16) & _CAP_SYS_ADMIN)


class SmallDisk:
    """A file system of a few bytes at `path`. Raises OSError where mounting is not allowed."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self._mount("-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path))

    def __enter__(self) -> SmallDisk:
        return self

    def __exit__(self, *_: object) -> None:
        # Lazily: a process that is just ending may still have a file open.
        subprocess.run(["umount", "-l", str(self.path)], check=True)

    @contextmanager
    def full(self) -> Iterator[None]:
        """Without a free byte, also where others delete what they have, until the end of the block."""
        ballast, enough = self.path / "ballast", threading.Event()

        def fill() -> None:
            with ballast.open("wb", buffering=0) as target:
                while not enough.wait(0.005):
                    try:
                        while True:
                            target.write(b"x" * 4096)
                    except OSError:
                        pass  # Full again.

        filler = threading.Thread(target=fill, name="filler")
        filler.start()
        try:
            yield
        finally:
            enough.set()
            filler.join()
            ballast.unlink()

    def _mount(self, *words: str) -> None:
        done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise OSError(f"mount {' '.join(words)}: {done.stderr.strip()}")


@contextmanager
def gone(directory: Path) -> Iterator[None]:
    """The directory is away, and nothing can be made in its place; then it is back as it was."""
    aside = directory.with_name(directory.name + ".aside")
    directory.rename(aside)
    directory.write_text("not a directory")
    try:
        yield
    finally:
        directory.unlink()
        aside.rename(directory)


class WallClock:
    """The wall clock of processes that are started with `environment`."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "wall-clock-shift-ms"
        self.shift(0)
        self.environment = {SHIFT_FILE: str(self._file)}

    def shift(self, ms: int) -> None:
        """From now on it shows `ms` more than the machine's."""
        partial = self._file.with_suffix(".new")
        partial.write_text(str(ms))
        partial.replace(self._file)
