"""What can go wrong for a user of the shell, and how it is shown."""

from __future__ import annotations

from dataclasses import dataclass


class ShellError(Exception):
    """Something the user asked for cannot be done; the message is all there is to say."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConnectionLostError(ShellError):
    """The server cannot be reached, or did not answer."""


class SessionLostError(ShellError):
    """The server does not know the session any more: it expired."""


@dataclass(frozen=True)
class Position:
    """Where a statement begins in a file: name, and line and column of its first character, from 1."""

    name: str
    line: int
    column: int


class StatementError(ShellError):
    """The server refused a statement, or its job failed. `line` 0: no place is known."""

    def __init__(
        self, message: str, hint: str = "", *, code: str = "", line: int = 0, column: int = 0, excerpt: str = ""
    ) -> None:
        super().__init__(message, hint)
        self.code = code
        self.line = line
        self.column = column
        self.excerpt = excerpt


def describe(error: ShellError, start: Position | None = None) -> str:
    """The error as it is printed: what, where with a caret, and what to do. `start` is where the statement stands."""
    lines = []
    if isinstance(error, StatementError):
        code = f" {error.code}" if error.code else ""
        lines.append(f"{_place(error, start)}ERROR{code}: {error.message}")
        if error.excerpt:
            label = f"line {error.line}: "
            source, _, carets = error.excerpt.partition("\n")
            lines.append(label + source)
            if carets:
                lines.append(" " * len(label) + carets)
    else:
        lines.append(f"{_place(None, start)}ERROR: {error.message}")
    if error.hint:
        lines.append(f"HINT: {error.hint}")
    return "\n".join(lines)


def _place(error: StatementError | None, start: Position | None) -> str:
    """`file:line:column: ` of the error itself where it is known, else of its statement."""
    if start is None:
        return ""
    if error is None or not error.line:
        return f"{start.name}:{start.line}:{start.column}: "
    line = start.line + error.line - 1
    column = start.column + error.column - 1 if error.line == 1 else error.column
    return f"{start.name}:{line}:{column}: "
