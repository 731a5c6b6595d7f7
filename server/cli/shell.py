"""Runs statements and shows what they answer; the same for the prompt, for `-c` and for `-f`."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from server.cli.client import GatewayClient, Page, slots_missing
from server.cli.errors import ConnectionLostError, Position, SessionLostError, ShellError, describe
from server.cli.output import Format, TableWriter, writer
from server.cli.script import Piece, line_and_column, split, substitute

SHARED_CATALOG = "headrace"

SILENCE_S = 3.0
"""A query that shows nothing for so long is looked into."""


@dataclass
class ShellOptions:
    """What flags and backslash commands set. `format` None: a table on a terminal, ndjson elsewhere."""

    format: Format | None = None
    expanded: bool = False
    changes: bool = False
    timing: bool = False
    quiet: bool = False
    limit: int | None = None
    duration_s: float | None = None
    catalog: str = SHARED_CATALOG
    properties: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)


class OutputClosedError(Exception):
    """Nobody reads the output any more, as behind `| head`."""


class Shell:
    """One session and where its results go. Used by one thread."""

    def __init__(self, client: GatewayClient, options: ShellOptions, out: TextIO, err: TextIO) -> None:
        self.client = client
        self.options = options
        self.out = out
        self._first_out = out
        self.err = err
        self.commands: Callable[[Shell, str], None] | None = None
        """Runs a backslash command of a script; set by the owner, since commands run scripts too."""
        self.last_statement = ""
        self._location: tuple[str, str] | None = None
        self._open_pages: Iterator[Page] = iter(())

    # -- the session

    def connect(self) -> None:
        """Opens a session in the wanted catalog. Raises ConnectionLostError."""
        self.client.open(self.options.properties)
        try:
            self.client.configure(f"USE CATALOG `{self.options.catalog}`")
        except SessionLostError:
            raise
        except ShellError as error:
            self.note(f"stays in the gateway's default catalog: {error.message}")
        self._location = None

    @property
    def location(self) -> tuple[str, str]:
        """Current catalog and database: asked for once, and again after USE. Raises ShellError."""
        if self._location is None:
            self._location = (self._single("SHOW CURRENT CATALOG"), self._single("SHOW CURRENT DATABASE"))
        return self._location

    def first_column(self, statement: str) -> list[str]:
        """The first column of a short result, for commands of the shell."""
        operation = self.client.submit(statement)
        try:
            pages = self.client.pages(operation, plain_text=True, pause=time.sleep)
            return [str(row.fields[0]) for page in pages if page is not None for row in page.rows]
        finally:
            self.client.end(operation, at_work=False)

    def _single(self, statement: str) -> str:
        return next(iter(self.first_column(statement)), "")

    # -- texts

    def run_text(self, text: str, name: str = "", *, keep_going: bool = False) -> bool:
        """Runs every statement of a text; False when one failed. `name` is the file's, for error messages."""
        succeeded = True
        for piece in split(text).pieces:
            start = None
            if name:
                line, column = line_and_column(text, piece.start)
                start = Position(name, line, column)
            try:
                self.run_piece(piece)
            except ConnectionLostError:
                raise  # Nothing of the rest could run.
            except ShellError as error:
                self.error(error, start)
                succeeded = False
                if not keep_going:
                    break
        return succeeded

    def run_file(self, path: str, *, keep_going: bool = False) -> bool:
        """Runs a script; `-` is standard input."""
        try:
            text = sys.stdin.read() if path == "-" else Path(path).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ShellError(f"cannot read {path}: {error}") from error
        return self.run_text(text, "stdin" if path == "-" else path, keep_going=keep_going)

    def run_piece(self, piece: Piece) -> None:
        """Runs one statement or backslash command. Raises ShellError."""
        if not piece.is_command:
            self.run_statement(substitute(piece.text, self.options.variables))
        elif self.commands is not None:
            self.commands(self, piece.text)

    # -- statements

    def run_statement(self, statement: str) -> None:
        """Submits a statement and shows its result to its end. Ctrl-C ends the query and goes on to the caller."""
        self.last_statement = statement
        started_s = time.monotonic()
        operation = self._submit(statement)
        at_work = True
        try:
            for page in self._pages(operation, started_s):
                at_work = False
                if page.has_content:
                    self._show(operation, page, started_s)
                else:
                    self._done("OK", started_s)
                break
        finally:
            self.client.end(operation, at_work=at_work)
        if statement.split(None, 1)[0].upper() == "USE":
            self._location = None

    def _submit(self, statement: str) -> str:
        try:
            return self.client.submit(statement)
        except SessionLostError:
            self.note("the session had expired; this is a new one: settings and temporary objects are gone")
            self.connect()
            return self.client.submit(statement)

    def _pages(self, operation: str, started_s: float) -> Iterator[Page]:
        """Pages that are ready; the notices of the first one are shown. One iterator per operation."""
        plain_text = self.row_format is not Format.NDJSON
        self._open_pages = self._ready(self.client.pages(operation, plain_text=plain_text, pause=time.sleep))
        for page in self._open_pages:
            for warning in page.warnings:
                self.note(warning)
            yield page

    def _ready(self, pages: Iterator[Page | None]) -> Iterator[Page]:
        for page in pages:
            if page is not None:
                yield page
            self._check_reader()

    def _show(self, operation: str, first: Page, started_s: float) -> None:
        if first.job_id is not None and not first.is_query and self.interactive_output:
            self._done(f"job {first.job_id}", started_s)
            return
        with_op = first.is_query and not first.insert_only
        if first.is_query and self.interactive_output and self.row_format is Format.TABLE and not self.options.expanded:
            self._show_live(first, with_op, started_s)
            return
        if self.row_format is Format.TABLE and not first.is_query and [c.name for c in first.columns] == ["result"]:
            # EXPLAIN and SHOW CREATE: a text, not a table.
            print("\n".join(str(row.fields[0]).rstrip("\n") for row in first.rows), file=self.out, flush=True)
            return
        rows_out = writer(self.row_format, self.out, expanded=self.options.expanded)
        rows_out.start(first.columns, with_op)
        count = 0
        told = False
        for page in self._limited(first, started_s):
            rows_out.rows(page.rows)
            count += len(page.rows)
            if count == 0 and not told and time.monotonic() - started_s > SILENCE_S:
                told = self._tell_missing_slots(first.job_id)
        rows_out.end()
        self._summary(count, started_s)

    def _tell_missing_slots(self, job_id: str | None) -> bool:
        """Says once why a query shows nothing, when that is why."""
        missing = slots_missing(self.client.job(job_id)) if job_id else 0
        if missing:
            self.note(f"the query waits for {missing} more slots: add TaskManagers, or stop a job (SHOW JOBS)")
        return missing > 0

    def _show_live(self, first: Page, with_op: bool, started_s: float) -> None:
        """Redraws the newest rows until the query ends, then leaves the last of them as a table. What updates its rows
        is shown as the table it comes to, unless the changes are asked for."""
        from rich.console import Console  # Loaded only where something is drawn: scripts start faster.

        from server.cli.live import ROWS_KEPT_MAX, LiveView

        job_id = first.job_id
        console = Console(file=self.out)
        view = LiveView(
            console,
            first.columns,
            lambda: self.client.job(job_id) if job_id else None,
            with_op=with_op,
            fold=not self.options.changes,
        )
        ended_by_itself = False
        try:
            with view:
                for page in self._limited(first, started_s):
                    view.add(page.rows)
            ended_by_itself = True
        finally:
            if ended_by_itself or view.count:
                shown = view.newest(ROWS_KEPT_MAX if ended_by_itself else view.rows_shown_max)
                table = TableWriter(self.out)
                table.start(first.columns, view.with_op)
                table.rows(shown)
                table.end()
                if len(shown) < view.table_size:
                    self.out.write(f"(the last {len(shown)} rows)\n")
                self._summary(view.table_size, started_s)

    def _limited(self, first: Page, started_s: float) -> Iterator[Page]:
        """The pages of a result, cut at --limit rows and after --duration."""
        left = self.options.limit
        deadline_s = None if self.options.duration_s is None else started_s + self.options.duration_s
        page: Page | None = first
        while page is not None:
            if left is not None:
                page.rows[left:] = []
                left -= len(page.rows)
            yield page
            if page.ended or left == 0 or (deadline_s is not None and time.monotonic() >= deadline_s):
                return
            page = next(self._open_pages, None)

    # -- what is said

    def redirect(self, path: str | None) -> None:
        """Results go into a file from now on; None: back to where they went at first. Raises ShellError."""
        if self.out is not self._first_out:
            self.out.close()
            self.out = self._first_out
        if path is not None:
            try:
                self.out = Path(path).expanduser().open("w", encoding="utf-8")
            except OSError as error:
                raise ShellError(f"cannot write {path}: {error.strerror}") from error

    @property
    def interactive_output(self) -> bool:
        return self.out.isatty()

    @property
    def row_format(self) -> Format:
        if self.options.format is not None:
            return self.options.format
        return Format.TABLE if self.interactive_output else Format.NDJSON

    def _done(self, text: str, started_s: float) -> None:
        """The outcome of a statement without rows: on the terminal, or aside so that rows stay rows."""
        if self.options.timing:
            text += f" ({time.monotonic() - started_s:.3f} s)"
        if self.interactive_output:
            print(text, file=self.out, flush=True)
        elif not self.options.quiet:
            print(text, file=self.err, flush=True)

    def _summary(self, count: int, started_s: float) -> None:
        if self.interactive_output:
            seconds = f", {time.monotonic() - started_s:.2f} s" if self.options.timing or count else ""
            print(f"({count} row{'' if count == 1 else 's'}{seconds})\n", file=self.out, flush=True)

    def note(self, text: str) -> None:
        print(f"NOTICE: {text}", file=self.err, flush=True)

    def error(self, error: ShellError, start: Position | None = None) -> None:
        print(describe(error, start), file=self.err, flush=True)

    def _check_reader(self) -> None:
        """Raises OutputClosedError when the output is a pipe that nobody reads, even if no row comes."""
        if self.interactive_output:
            return
        try:
            descriptor = self.out.fileno()
        except (ValueError, OSError):
            return  # Not a file, as in tests.
        poll = select.poll()
        poll.register(descriptor, 0)
        if any(events & select.POLLERR for _, events in poll.poll(0)):
            raise OutputClosedError
