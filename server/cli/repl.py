"""The prompt: history, several lines until `;`, completion by the server, highlighting."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.styles import Style

from server.cli.client import GatewayClient
from server.cli.errors import ShellError
from server.cli.meta import QuitError
from server.cli.script import split
from server.cli.shell import Shell

HEARTBEAT_INTERVAL_S = 60.0

_KEYWORDS = frozenset(
    """ALL ALTER AND AS BEGIN BETWEEN BY CASE CAST CATALOG CREATE CROSS DATABASE DESCRIBE DESCRIPTOR DISTINCT
    DROP ELSE END ENFORCED EXECUTE EXISTS EXPLAIN FALSE FILTER FOR FROM GROUP HAVING IF IN INNER INSERT INTERVAL
    INTO IS JOB JOBS JOIN KEY LEFT LIKE LIMIT METADATA NOT NULL ON OR ORDER OUTER PRIMARY RESET RIGHT SAVEPOINT
    SAVEPOINTS SELECT SET SHOW STATEMENT STOP TABLE TABLES TEMPORARY THEN TRUE TRY_CAST UNION USE VALUES VIEW
    VIEWS VIRTUAL WATERMARK WHEN WHERE WITH""".split()
)
_TOKEN = re.compile(
    r"(?P<comment>--.*|/\*.*?(?:\*/|$))|(?P<string>'(?:[^']|'')*'?)|(?P<quoted>`[^`]*`?)|(?P<number>\b\d[\d.]*(?:E\d+)?\b)"
    r"|(?P<word>[^\W\d][\w$]*)|(?P<other>\s+|.)"
)
_CLASSES = {"comment": "class:comment", "string": "class:string", "number": "class:number", "quoted": "class:quoted"}
_STYLE = Style.from_dict(
    {
        "keyword": "bold",
        "comment": "ansibrightblack",
        "string": "ansigreen",
        "number": "ansicyan",
        "quoted": "ansiyellow",
    }
)
_WORD_AT_END = re.compile(r"[\w.$`]*\Z")


def history_path() -> Path:
    """`$XDG_STATE_HOME/headrace/history`, by default below ~/.local/state."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "headrace" / "history"


def run(shell: Shell) -> None:
    """Reads and runs statements until Ctrl-D or \\q. Ctrl-C ends the statement at hand, never the shell."""
    session = _session(shell)
    stop = threading.Event()
    threading.Thread(target=_keep_alive, args=(shell.client, stop), name="heartbeat", daemon=True).start()
    try:
        while True:
            try:
                text = session.prompt()
            except KeyboardInterrupt:
                continue  # The line is dropped, as in every shell.
            except EOFError:
                return
            try:
                _run(shell, text)
            except KeyboardInterrupt:
                print("Query ended.", file=shell.out, flush=True)
            except QuitError:
                return
    finally:
        stop.set()


def _run(shell: Shell, text: str) -> None:
    try:
        shell.run_text(text)
    except ShellError as error:
        shell.error(error)


def _session(shell: Shell) -> PromptSession[str]:
    path = history_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        history = FileHistory(str(path))
    except OSError:
        history = None  # A read-only home: the shell works, without memory.
    return PromptSession(
        message=lambda: f"{_location(shell)}=> ",
        prompt_continuation=lambda width, line, wraps: " " * width if wraps else "-> ".rjust(width),
        history=history,
        multiline=True,
        key_bindings=_key_bindings(),
        completer=ThreadedCompleter(ServerCompleter(shell)),
        complete_while_typing=False,
        lexer=SqlLexer(),
        style=_STYLE,
        enable_open_in_editor=True,
    )


def _location(shell: Shell) -> str:
    try:
        return ".".join(shell.location)
    except ShellError:
        return "?"  # The server is away; the next statement tells.


def _key_bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def enter(event: KeyPressEvent) -> None:
        """Runs a finished text; else begins a new line."""
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return bindings


def is_complete(text: str) -> bool:
    """Nothing in the text waits for more: every statement has its semicolon, or it is a backslash command."""
    return not text.strip() or split(text).waiting_for == ""


class ServerCompleter(Completer):
    """Asks the server; paths below the current catalog and database are offered by their short names."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        match = _WORD_AT_END.search(before)
        word = match.group() if match is not None else ""
        try:
            candidates = self._shell.client.complete(document.text, document.cursor_position)
        except ShellError:
            return
        prefix = _location(self._shell) + "."
        for candidate in candidates:
            short = candidate.removeprefix(prefix) if not word.startswith(prefix) else candidate
            yield Completion(short, start_position=-len(word))


class SqlLexer(Lexer):
    """Colours of keywords, strings, numbers and comments, line by line."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        lines = document.lines

        def line(number: int) -> StyleAndTextTuples:
            if number >= len(lines):
                return []
            return [(_style_of(match), match.group()) for match in _TOKEN.finditer(lines[number])]

        return line


def _style_of(match: re.Match[str]) -> str:
    kind = match.lastgroup or ""
    if kind == "word":
        return "class:keyword" if match.group().upper() in _KEYWORDS else ""
    return _CLASSES.get(kind, "")


def _keep_alive(client: GatewayClient, stop: threading.Event) -> None:
    """Keeps the session from expiring while the user thinks."""
    while not stop.wait(HEARTBEAT_INTERVAL_S):
        try:
            client.heartbeat()
        except ShellError:
            pass  # The next statement tells.
