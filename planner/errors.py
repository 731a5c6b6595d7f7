"""Errors that a user's SQL can cause.

A `SqlError` points into the text the user submitted: line and column count from 1, in code points, and the
caret line underlines the whole span, so that the place is found even inside a long script.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable

import msgspec


class SqlState:
    """The SQLSTATE codes in use: classes of ISO/IEC 9075, subclasses as PostgreSQL made them common."""

    SYNTAX_ERROR = "42601"
    UNDEFINED_COLUMN = "42703"
    AMBIGUOUS_COLUMN = "42702"
    DUPLICATE_COLUMN = "42701"
    DUPLICATE_ALIAS = "42712"
    UNDEFINED_OBJECT = "42704"
    UNDEFINED_TABLE = "42P01"
    UNDEFINED_FUNCTION = "42883"
    UNDEFINED_DATABASE = "3D000"
    DUPLICATE_TABLE = "42P07"
    WRONG_OBJECT_TYPE = "42809"
    DATATYPE_MISMATCH = "42804"
    CANNOT_COERCE = "42846"
    GROUPING_ERROR = "42803"
    WINDOWING_ERROR = "42P20"
    INVALID_DEFINITION = "42P16"
    INVALID_PARAMETER = "22023"
    NOT_NULL_VIOLATION = "23502"
    NUMERIC_OUT_OF_RANGE = "22003"
    INVALID_DATETIME = "22007"
    FEATURE_NOT_SUPPORTED = "0A000"
    TOO_COMPLEX = "54001"
    OBJECT_NOT_IN_STATE = "55000"


class Span(msgspec.Struct, frozen=True):
    """Half-open range of code points `[start, end)` of the submitted text."""

    start: int
    end: int


class SqlError(Exception):
    """A statement was refused before anything started.

    sqlstate: five characters, see `SqlState`.
    message: one sentence without position.
    line, column: of the span's first character, from 1, or 0 where no place can be named.
    hint: what to do instead, e.g. the nearest valid name; empty if there is none.
    text: the submitted text the span points into; set by `located`.
    """

    domain = "user"

    def __init__(
        self,
        sqlstate: str,
        message: str,
        *,
        span: Span | None = None,
        hint: str = "",
        text: str | None = None,
    ) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.message = message
        self.span = span
        self.hint = hint
        self.text = text

    @property
    def line(self) -> int:
        return line_and_column(self.text, self.span.start)[0] if self.text is not None and self.span else 0

    @property
    def column(self) -> int:
        return line_and_column(self.text, self.span.start)[1] if self.text is not None and self.span else 0

    def located(self, text: str) -> SqlError:
        """The same error, pointing into `text`; an error that has a text already keeps it."""
        if self.text is None:
            self.text = text
        return self

    def caret(self) -> str:
        """The source line and a line of carets under the span; empty without a place."""
        if self.text is None or self.span is None:
            return ""
        return caret_lines(self.text, self.span)

    def render(self) -> str:
        """What a person reads: message, position, caret and hint, one after the other."""
        place = f" (line {self.line}, column {self.column})" if self.line else ""
        lines = [f"[{self.sqlstate}] {self.message}{place}"]
        caret = self.caret()
        if caret:
            lines.append(caret)
        if self.hint:
            lines.append(f"Hint: {self.hint}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.render()


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Line and column, from 1, in code points, of `offset` in `text`."""
    before = text[:offset]
    line_start = before.rfind("\n") + 1
    return before.count("\n") + 1, offset - line_start + 1


_LINE_LENGTH_MAX = 160
_CONTEXT_LENGTH = 60


def caret_lines(text: str, span: Span) -> str:
    """The line of the span's start and carets below it.

    A span that goes on is cut at the line's end, a long line to the neighbourhood of the span.
    """
    start = min(span.start, len(text))
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start)
    line_end = len(text) if line_end < 0 else line_end
    left, right = line_start, line_end
    if line_end - line_start > _LINE_LENGTH_MAX:
        left = max(line_start, start - _CONTEXT_LENGTH)
        right = min(line_end, start + _CONTEXT_LENGTH)
    before = ("…" if left > line_start else "") + text[left:start]
    after = text[start:right].rstrip("\r") + ("…" if right < line_end else "")
    stop = min(max(span.end, start + 1), max(right, start + 1))
    pad = "".join("\t" if c == "\t" else " " * _display_width(c) for c in before)
    width = sum(_display_width(c) for c in text[start:stop]) or 1
    return f"{before}{after}\n{pad}{'^' * width}"


def _display_width(char: str) -> int:
    """Terminal cells of one code point, so that the caret stands under wide letters too."""
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def nearest_name(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like `name`; one that differs in case only wins."""
    names = list(candidates)
    for candidate in names:
        if candidate.lower() == name.lower():
            return candidate
    by_lower = {candidate.lower(): candidate for candidate in reversed(names)}
    close = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """The hint for an unknown name, or an empty string."""
    near = nearest_name(name, candidates)
    if near is None:
        return ""
    suffix = " Names are case-sensitive." if near.lower() == name.lower() else ""
    return f"Did you mean `{near}`?{suffix}"


def not_supported(feature: str, span: Span | None = None, hint: str = "") -> SqlError:
    """The refusal of something that valid SQL may contain but Headrace does not do."""
    return SqlError(SqlState.FEATURE_NOT_SUPPORTED, f"not supported yet: {feature}", span=span, hint=hint)
