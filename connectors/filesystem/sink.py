"""The `filesystem` connector as a sink: part files, each row in exactly one visible file."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa

from connectors.api import Committable, OwnerState, SinkContext, TableDefinition
from connectors.errors import ConnectorError, ErrorDomain
from connectors.filesystem.options import FileOptions, RollingPolicy, parse_options
from connectors.filesystem.part_files import (
    CommitNote,
    Epoch,
    LineFile,
    PartFile,
    RowFile,
    epoch_of,
    failed,
    name_prefix,
    publish,
    publish_up_to,
    remove_hidden,
    sync_directory,
)
from planner.ir.types import ChangelogMode, DataType

OpenFile = Callable[[Path], RowFile]


class FilesystemSink:
    """A directory of part files."""

    delivery_guarantee = "exactly-once"
    committing = True
    transactional_id_prefix = None
    metadata_types: Mapping[str, DataType] = {}

    def __init__(self, table: TableDefinition) -> None:
        self._table = table
        self._options = parse_options(table)

    @property
    def changelog(self) -> ChangelogMode:
        chosen = self._options.format
        return ChangelogMode.INSERT_ONLY if chosen is None else chosen.changelog(self._options.format_options)

    def prepare(self, namespace: str) -> None:
        _make_directory(self._options)

    def fence(self, namespace: str, owner_count: int) -> None:
        """Hidden files of a job that was ended may be named by its last checkpoint: they stay."""

    def writer(self, context: SinkContext) -> FileWriter:
        options = self._options
        chosen = options.format
        if chosen is None:
            # Half a second of CPU to load: only for those who write Parquet.
            from connectors.filesystem.parquet import ParquetRowFile, parquet_schema

            schema = parquet_schema(self._table.columns)
            compression = options.format_options.get("compression", "snappy")
            return FileWriter(options, context, lambda path: ParquetRowFile(path, schema, compression), whole=True)
        encoder = chosen.encoder(self._table.columns, options.format_options, context.local_time_zone)
        return FileWriter(options, context, lambda path: LineFile(path, encoder), whole=False)


_FINAL_ERRORS = frozenset({errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENOENT, errno.EROFS, errno.ENAMETOOLONG})
"""What does not go away by waiting."""


def _make_directory(options: FileOptions) -> None:
    path = Path(options.path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as problem:
        raise ConnectorError(
            f"'{path}' is a file: a table of files is written into a directory", domain=ErrorDomain.USER, retry=False
        ) from problem
    except OSError as problem:
        if problem.errno in _FINAL_ERRORS:
            raise ConnectorError(
                f"the directory '{path}' cannot be made: {problem.strerror}", domain=ErrorDomain.USER, retry=False
            ) from problem
        raise failed(path, problem) from problem
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConnectorError(f"nothing can be written into '{path}'", domain=ErrorDomain.USER, retry=False)


class FileWriter:
    """`whole`: files are readable as a whole only, so that each checkpoint completes its file. The lock guards what
    task and commit thread share."""

    def __init__(self, options: FileOptions, context: SinkContext, open_file: OpenFile, *, whole: bool) -> None:
        self._options = options
        self._context = context
        self._open_file = open_file
        self._whole = whole
        self._directory = Path(options.path).absolute()
        self._prefix = name_prefix(context.namespace, context.subtask_index)
        self._note = CommitNote(self._directory, self._prefix, context.attempt)
        self._old_notes: list[CommitNote] = []
        self._file: RowFile | None = None
        self._part = PartFile(str(self._directory), "", 0)
        self._roll = RollClock(options.rolling)
        self._complete: list[PartFile] = []
        self._is_listed = False
        self._finishing = False
        self._sequence = 0
        self._records = 0
        self._lock = threading.Lock()
        self._pending: list[Committable] = []
        self._published = 0

    def recover(self, owners: list[OwnerState]) -> dict[int, int]:
        """What the restored checkpoint lists becomes visible; other hidden files of these owners are removed. The
        notes of commits are the markers."""
        _make_directory(self._options)
        markers = {state.owner: self._resolve(state) for state in owners}
        sync_directory(self._directory)
        return markers

    def _resolve(self, state: OwnerState) -> int:
        """The highest checkpoint whose commit had begun before."""
        prefix = name_prefix(self._context.namespace, state.owner)
        note = CommitNote(self._directory, prefix, self._context.attempt)
        if state.owner != self._context.subtask_index:
            self._old_notes.append(note)
        noted = note.read()
        begun = max(noted, state.floor)
        pending = sorted(state.pending, key=lambda each: each.checkpoint_id)
        if pending:
            last = pending[-1]
            note.write(max(begun, last.checkpoint_id))
            for committable in pending:
                for file in epoch_of(committable).complete:
                    publish(file, may_be_taken=committable.checkpoint_id <= begun)
            still_open = epoch_of(last).open
            if still_open is not None:
                publish_up_to(still_open, self._context.attempt, may_be_taken=last.checkpoint_id <= begun)
        remove_hidden(self._directory, prefix)
        return noted

    def write(self, batch: pa.RecordBatch, row_kinds: pa.Int8Array | None) -> None:
        if batch.num_rows == 0:
            return
        try:
            if self._file is None:
                self._begin()
            assert self._file is not None
            self._file.write(batch, row_kinds)
            self._records += batch.num_rows
            if self._roll.is_due(self._file.byte_size):
                self._end()
            self._roll.on_rows()
        except OSError as problem:
            raise failed(self._part.hidden_path, problem) from problem

    def finish(self) -> None:
        """No row will follow: the next checkpoint completes the file."""
        self._finishing = True

    def prepare_commit(self, checkpoint_id: int) -> tuple[Committable, ...]:
        still_open: PartFile | None = None
        try:
            if self._file is not None:
                if self._whole or self._finishing or self._roll.is_due(self._file.byte_size):
                    self._end()
                else:
                    still_open = PartFile(self._part.directory, self._part.name, self._file.sync())
                    self._is_listed = True
        except OSError as problem:
            raise failed(self._part.hidden_path, problem) from problem
        files = (*self._complete, *(() if still_open is None else (still_open,)))
        if files:
            sync_directory(self._directory)
        with self._lock:
            if files:
                self._pending.append(
                    Committable(
                        owner=self._context.subtask_index,
                        checkpoint_id=checkpoint_id,
                        incarnation=self._context.incarnation,
                        data=Epoch(tuple(self._complete), still_open).encode(),
                        record_count=self._records,
                        byte_size=sum(file.byte_size for file in files),
                    )
                )
            self._complete, self._records = [], 0
            return tuple(self._pending)

    def commit(self, checkpoint_id: int) -> None:
        with self._lock:
            due = [each for each in self._pending if each.checkpoint_id <= checkpoint_id]
        files = [file for each in due for file in epoch_of(each).complete]
        if files:
            self._note.write(due[-1].checkpoint_id)
            for file in files:
                publish(file)
            sync_directory(self._directory)
        # What a note says of older checkpoints has no meaning any more.
        for note in self._old_notes if files else [*self._old_notes, self._note]:
            note.remove()
        self._old_notes = []
        with self._lock:
            self._pending = [each for each in self._pending if each.checkpoint_id > checkpoint_id]
            self._published += len(files)
            is_end = self._finishing and not self._pending
        if is_end:
            self._note.remove()

    def checkpoint_wanted(self) -> bool:
        return False

    def gauges(self) -> Mapping[str, float]:
        with self._lock:
            return {"pendingEpochs": float(len(self._pending)), "numFilesCommitted": float(self._published)}

    def close(self) -> None:
        """A file that a checkpoint lists stays: recovery will need it."""
        if self._file is not None:
            self._file.abandon()
            self._file = None
            if not self._is_listed:
                self._part.hidden_path.unlink(missing_ok=True)

    def _begin(self) -> None:
        name = f"{self._prefix}{self._context.attempt}-{self._sequence}.{self._options.format_name}"
        self._sequence += 1
        self._part = PartFile(str(self._directory), name, 0)
        self._is_listed = False
        self._file = self._open_file(self._part.hidden_path)
        self._roll.on_begin()

    def _end(self) -> None:
        assert self._file is not None
        self._complete.append(PartFile(self._part.directory, self._part.name, self._file.finish()))
        self._file = None


class RollClock:
    """Whether the file being written is complete by the policy."""

    def __init__(self, policy: RollingPolicy, now_ms: Callable[[], float] = lambda: time.monotonic() * 1000.0) -> None:
        self._policy = policy
        self._now_ms = now_ms
        self.on_begin()

    def on_begin(self) -> None:
        self._begun_ms = self._last_row_ms = self._checked_ms = self._now_ms()

    def on_rows(self) -> None:
        self._last_row_ms = self._now_ms()

    def is_due(self, byte_size: int) -> bool:
        policy, now_ms = self._policy, self._now_ms()
        if byte_size >= policy.file_size_bytes:
            return True
        if now_ms - self._checked_ms < policy.check_interval_ms:
            return False
        self._checked_ms = now_ms
        return (
            now_ms - self._begun_ms >= policy.rollover_interval_ms
            or now_ms - self._last_row_ms >= policy.inactivity_interval_ms
        )
