"""Cuts texts into statements and fills in variables.

The rules of the dialect: `'…'` with `''` inside, `` `…` `` with doubled backticks, `-- …` to the end of the line,
`/* … */`. A semicolon inside EXECUTE STATEMENT SET BEGIN … END does not end the statement. At the start of a
statement a line that begins with a backslash is a command of the shell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
    (?P<blank>\s+)
  | (?P<comment>--[^\n]*|/\*(?!\+).*?\*/)
  | (?P<open_comment>/\*(?!\+).*\Z)
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
_VARIABLE = re.compile(r"(?<!:):(?:(?P<plain>[A-Za-z_]\w*)|'(?P<text>[A-Za-z_]\w*)'|\"(?P<name>[A-Za-z_]\w*)\")")
_SET_HEADS = (
    ["EXECUTE", "STATEMENT", "SET", "BEGIN"],
    ["EXPLAIN", "STATEMENT", "SET", "BEGIN"],
    ["EXPLAIN", "EXECUTE", "STATEMENT", "SET", "BEGIN"],
)
_SET_HEAD_WORDS_MAX = 5


@dataclass(frozen=True)
class Piece:
    """A statement without its semicolon, or a backslash command; `start` is its offset in the text."""

    text: str
    start: int
    is_command: bool = False


@dataclass(frozen=True)
class Pieces:
    """`waiting_for` says what the text still needs: empty (complete), `;`, `'`, `` ` ``, `*/` or END."""

    pieces: tuple[Piece, ...]
    waiting_for: str


_OPEN = {"open_comment": "*/", "open_string": "'", "open_identifier": "`"}


class _Collected:
    """The statement being collected, and whether a semicolon ends it."""

    def __init__(self) -> None:
        self.start: int | None = None
        self.end = 0
        self.words: list[str] = []
        self.in_set = False
        self.set_closed = False
        self.at_inner_start = False

    def take(self, start: int, end: int, word: str) -> None:
        if self.start is None:
            self.start = start
        self.end = end
        if self.in_set:
            self.set_closed = self.set_closed or (word == "END" and self.at_inner_start)
            self.at_inner_start = False
        elif len(self.words) < _SET_HEAD_WORDS_MAX:
            self.words.append(word)
            self.in_set = self.at_inner_start = self.words in _SET_HEADS


def split(text: str) -> Pieces:
    """The statements and commands of a text, the unfinished last one included. Never raises."""
    pieces: list[Piece] = []
    current = _Collected()
    waiting_for = ""
    position = 0
    while match := _TOKEN.match(text, position):
        position = match.end()
        kind = match.lastgroup or ""
        if kind in ("blank", "comment"):
            continue
        if kind in _OPEN:
            waiting_for = _OPEN[kind]
            if kind == "open_comment":
                continue
        if match.group() == "\\" and current.start is None:
            position = text.find("\n", match.start())
            position = len(text) if position < 0 else position
            pieces.append(Piece(text[match.start() : position].rstrip(), match.start(), is_command=True))
            continue
        if kind == "semicolon":
            if current.in_set and not current.set_closed:
                current.end, current.at_inner_start = match.end(), True
                continue
            if current.start is not None:
                pieces.append(Piece(text[current.start : current.end], current.start))
            current = _Collected()
            continue
        current.take(match.start(), match.end(), match.group().upper() if kind == "word" else "")
    if current.start is not None:
        pieces.append(Piece(text[current.start : current.end], current.start))
        if not waiting_for:
            waiting_for = "END" if current.in_set and not current.set_closed else ";"
    return Pieces(tuple(pieces), waiting_for)


def substitute(statement: str, variables: Mapping[str, str]) -> str:
    """`:name`, `:'name'` (as a string literal) and `:"name"` (as an identifier) replaced; unknown names stay."""
    if not variables or ":" not in statement:
        return statement
    out: list[str] = []
    position = 0
    while position < len(statement):
        variable = _VARIABLE.match(statement, position)
        if variable is not None and (value := _value(variable, variables)) is not None:
            out.append(value)
            position = variable.end()
            continue
        token = _TOKEN.match(statement, position)
        assert token is not None
        out.append(token.group())
        position = token.end()
    return "".join(out)


def _value(match: re.Match[str], variables: Mapping[str, str]) -> str | None:
    name = match["plain"] or match["text"] or match["name"]
    value = variables.get(name)
    if value is None:
        return None
    if match["text"]:
        return "'" + value.replace("'", "''") + "'"
    if match["name"]:
        return "`" + value.replace("`", "``") + "`"
    return value


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Line and column of an offset, from 1."""
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1
