"""Finding files and reading them in runs of whole lines."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
import numpy as np

from connectors.api import Int64Array
from connectors.errors import ConnectorError, ErrorDomain, OptionError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
NEWLINE = ord("\n")


class Position(msgspec.Struct, frozen=True):
    """Where the next line of a file begins: byte offset, and its number (from 1)."""

    offset: int = 0
    line: int = 1


class FileSplit(msgspec.Struct, frozen=True):
    """A file as it was found. Bytes appended later are not read, so reading again gives the same rows."""

    path: str
    size: int
    modified_ms: int


def local_path(option: str) -> str:
    """The path of the `path` option. Raises OptionError for a scheme other than `file:`."""
    if not _SCHEME.match(option):
        return option
    parts = urlsplit(option)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise OptionError(f"only local files can be read, not '{option}'", option="path")
    return unquote(parts.path)


def find_files(path: str, known: frozenset[str] = frozenset()) -> list[FileSplit]:
    """The files of a path that are not `known`: a file, a directory with all below it, or a pattern of such. Names that
    begin with `.` or `_` are left out below a directory, as Flink does. Raises ConnectorError when nothing is there."""
    matches = sorted(glob.glob(path, recursive=True)) if glob.has_magic(path) and not os.path.exists(path) else [path]
    found: list[Path] = []
    for match in map(Path, matches):
        if match.is_dir():
            found.extend(sorted(_below(match)))
        elif match.exists():
            found.append(match)
    if not found and not any(os.path.isdir(match) for match in matches):
        raise ConnectorError(f"there is no file at '{path}'", domain=ErrorDomain.USER, retry=False)
    fresh = (file for file in found if str(file.absolute()) not in known)
    return [split for file in fresh if (split := _described(file)) is not None]


def _below(directory: Path) -> list[Path]:
    found: list[Path] = []
    for entry in directory.iterdir():
        if entry.name.startswith((".", "_")):
            continue
        if entry.is_dir():
            found.extend(_below(entry))
        elif entry.is_file():
            found.append(entry)
    return found


def _described(file: Path) -> FileSplit | None:
    """None: the file is gone since it was found."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return FileSplit(str(file.absolute()), status.st_size, status.st_mtime_ns // 1_000_000)


class LineReader:
    """Reads one file from a position, some whole lines at a time. Where there is a `quote` byte, a line end between two
    of them does not end the line: it is part of a record."""

    def __init__(self, split: FileSplit, position: Position, quote: int | None = None) -> None:
        self.split = split
        self.position = position
        self._quote = quote
        try:
            self._file = open(split.path, "rb")  # noqa: SIM115 - held until close()
        except OSError as problem:
            raise _unreadable(split, problem) from problem
        self._file.seek(position.offset)

    @property
    def done(self) -> bool:
        return self.position.offset >= self.split.size

    def read_lines(self, lines_max: int, bytes_max: int) -> tuple[memoryview, Int64Array]:
        """The next lines, each with its newline: their bytes, and the offsets where they start (and the last ends).
        At least one line unless the file is at its end; the last line need not end with a newline."""
        wanted = min(bytes_max, self.split.size - self.position.offset)
        data = self._read(wanted)
        ends = self._line_ends(data)
        while not len(ends) and self.position.offset + len(data) < self.split.size:
            data += self._read(min(max(bytes_max, len(data)), self.split.size - self.position.offset - len(data)))
            ends = self._line_ends(data)
        if data and self.position.offset + len(data) >= self.split.size and not (len(ends) and ends[-1] == len(data)):
            if not data.endswith(b"\n"):
                data += b"\n"
            # The last line need not end, nor a quote in it.
            ends = np.append(ends, len(data))
        ends = ends[:lines_max]
        offsets = np.concatenate([np.zeros(1, np.int64), ends])
        used = int(offsets[-1])
        self.position = Position(min(self.position.offset + used, self.split.size), self.position.line + len(ends))
        self._file.seek(self.position.offset)
        return memoryview(data)[:used], offsets

    def _line_ends(self, data: bytes) -> Int64Array:
        """Offsets behind the line ends in `data`, which begins with a line."""
        values = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(values == NEWLINE)
        if self._quote is not None:
            quotes = np.flatnonzero(values == self._quote)
            if len(quotes):
                ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
        return ends.astype(np.int64) + 1

    def _read(self, wanted: int) -> bytes:
        try:
            data = self._file.read(wanted)
        except OSError as problem:
            raise _unreadable(self.split, problem) from problem
        if len(data) < wanted:
            raise ConnectorError(
                f"{self.split.path} is shorter than when it was found", domain=ErrorDomain.EXTERNAL, retry=False
            )
        return data

    def close(self) -> None:
        self._file.close()


def _unreadable(split: FileSplit, problem: OSError) -> ConnectorError:
    reason = problem.strerror or str(problem)
    return ConnectorError(f"cannot read {split.path}: {reason}", domain=ErrorDomain.EXTERNAL, retry=True)
