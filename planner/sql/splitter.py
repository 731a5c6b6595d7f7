"""Cuts a script into statements without parsing them; strings, comments and statement sets stay whole.

The rules of the dialect: `'…'` with `''` inside, `` `…` `` with doubled backticks, `-- …` to the end of the
line, `/* … */` not nested. A semicolon inside EXECUTE STATEMENT SET BEGIN … END does not end the statement.
"""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from planner.errors import Span


class Unfinished(StrEnum):
    """Why a text does not end where it stops; what a shell shows as its continuation prompt."""

    STATEMENT = "statement"
    STRING = "string"
    IDENTIFIER = "identifier"
    COMMENT = "comment"
    STATEMENT_SET = "statement set"


class StatementText(msgspec.Struct, frozen=True):
    """One statement without semicolon, surrounding blanks and comments; `span` is its place in the script."""

    text: str
    span: Span


class SplitResult(msgspec.Struct, frozen=True):
    """`statements` include a last one without semicolon; `unfinished` is None when nothing is left open.

    `STATEMENT` means text stands after the last semicolon: complete for `-c` and `-f`, a shell waits for `;`.
    """

    statements: tuple[StatementText, ...]
    unfinished: Unfinished | None
    unfinished_at: int | None


_TOKEN = re.compile(
    r"""
    (?P<blank>\s+)
  | (?P<line_comment>--[^\n]*)
  | (?P<comment>/\*(?!\+).*?\*/)
  | (?P<open_comment>/\*(?!\+).*\Z)
  | (?P<hint>/\*\+.*?\*/)
  | (?P<open_hint>/\*\+.*\Z)
  | (?P<string>'(?:[^']|'')*')
  | (?P<open_string>'.*\Z)
  | (?P<identifier>`(?:[^`]|``)*`)
  | (?P<open_identifier>`.*\Z)
  | (?P<word>[^\W\d][\w$]*)
  | (?P<semicolon>;)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)

_OPEN = {
    "open_comment": Unfinished.COMMENT,
    "open_hint": Unfinished.COMMENT,
    "open_string": Unfinished.STRING,
    "open_identifier": Unfinished.IDENTIFIER,
}


class _Collected:
    """The statement being collected: where it stands, its first words, and where in a statement set it is."""

    def __init__(self) -> None:
        self.start: int | None = None
        self.end = 0
        self.words: list[str] = []
        self.is_set = False
        self.is_set_closed = False
        self.at_inner_start = False

    def take(self, start: int, end: int, word: str | None) -> None:
        if self.start is None:
            self.start = start
        self.end = end
        if self.is_set:
            self.is_set_closed = self.is_set_closed or (word == "END" and self.at_inner_start)
            self.at_inner_start = False
        elif len(self.words) < _SET_HEAD_WORDS_MAX:
            self.words.append(word or "")
            self.is_set = self.at_inner_start = tuple(self.words) in _SET_HEADS

    def ends_at_semicolon(self) -> bool:
        return not self.is_set or self.is_set_closed


_SET_HEADS = {
    ("EXECUTE", "STATEMENT", "SET", "BEGIN"),
    ("EXPLAIN", "STATEMENT", "SET", "BEGIN"),
    ("EXPLAIN", "EXECUTE", "STATEMENT", "SET", "BEGIN"),
}
_SET_HEAD_WORDS_MAX = max(len(head) for head in _SET_HEADS)


def split_statements(sql: str) -> SplitResult:
    """See `planner.api.split`."""
    statements: list[StatementText] = []
    current = _Collected()
    unfinished: Unfinished | None = None
    unfinished_at: int | None = None
    for match in _TOKEN.finditer(sql):
        kind = match.lastgroup
        assert kind is not None
        if kind in ("blank", "line_comment", "comment"):
            continue
        if kind in _OPEN:
            unfinished, unfinished_at = _OPEN[kind], match.start()
            if kind == "open_comment":
                continue
        if kind == "semicolon":
            if current.ends_at_semicolon():
                _finish(sql, current, statements)
                current = _Collected()
            else:
                current.end, current.at_inner_start = match.end(), True
            continue
        current.take(match.start(), match.end(), match.group().upper() if kind == "word" else None)
    if current.start is not None and unfinished is None:
        is_open_set = current.is_set and not current.is_set_closed
        unfinished = Unfinished.STATEMENT_SET if is_open_set else Unfinished.STATEMENT
        unfinished_at = current.start
    _finish(sql, current, statements)
    return SplitResult(tuple(statements), unfinished, unfinished_at)


def _finish(sql: str, current: _Collected, statements: list[StatementText]) -> None:
    if current.start is not None:
        statements.append(StatementText(sql[current.start : current.end], Span(current.start, current.end)))
