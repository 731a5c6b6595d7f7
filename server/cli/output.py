"""Rows as text: table, csv, ndjson. Every writer takes pages as they come and keeps none.

NULL stays apart from '' and from the text NULL in each: `<NULL>` in a table, nothing at all (not even quotes) in csv,
null in ndjson. `op` is the kind of change (+I, -U, +U, -D): a column of its own when a result has other changes than
inserts, absent when it has not.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Protocol, TextIO

import orjson

from server.cli.client import Column, Row

OPS = {"INSERT": "+I", "UPDATE_BEFORE": "-U", "UPDATE_AFTER": "+U", "DELETE": "-D"}
NULL_TEXT = "<NULL>"

_WIDTH_MAX = 60
_WIDTH_MIN = 3
_RIGHT_ALIGNED = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL"})


class Format(StrEnum):
    """How rows are written."""

    TABLE = "table"
    CSV = "csv"
    NDJSON = "ndjson"


class RowWriter(Protocol):
    """Writes one result. `start` once, `rows` per page, `end` once."""

    def start(self, columns: Sequence[Column], with_op: bool) -> None: ...

    def rows(self, rows: Sequence[Row]) -> None: ...

    def end(self) -> None: ...


def writer(row_format: Format, out: TextIO, *, expanded: bool = False) -> RowWriter:
    """The writer of a format; flushed after every page."""
    match row_format:
        case Format.CSV:
            return CsvWriter(out)
        case Format.NDJSON:
            return NdjsonWriter(out)
        case Format.TABLE:
            return ExpandedWriter(out) if expanded else TableWriter(out)


class NdjsonWriter:
    """One JSON object per row. The change is under `op`, or `__op` where a column has that name; of columns with equal
    names the later ones get a number: `a`, `a_1`, `a_2`."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._names: list[str] = []
        self._op = ""

    def start(self, columns: Sequence[Column], with_op: bool) -> None:
        self._names = _unique([c.name for c in columns])
        self._op = ("__op" if "op" in self._names else "op") if with_op else ""

    def rows(self, rows: Sequence[Row]) -> None:
        lines = []
        for row in rows:
            value: dict[str, Any] = {self._op: OPS[row.kind]} if self._op else {}
            value.update(zip(self._names, row.fields, strict=True))
            lines.append(orjson.dumps(value).decode())
        if lines:
            self._out.write("\n".join(lines) + "\n")
        self._out.flush()

    def end(self) -> None:
        self._out.flush()


def _unique(names: list[str]) -> list[str]:
    """The names, made different from each other: a key that comes twice would hide a column."""
    found: list[str] = []
    for name in names:
        candidate, number = name, 0
        while candidate in found or (number and candidate in names):
            number += 1
            candidate = f"{name}_{number}"
        found.append(candidate)
    return found


class CsvWriter:
    """RFC 4180 with a header; NULL is an empty field, an empty text is `""`."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._with_op = False

    def start(self, columns: Sequence[Column], with_op: bool) -> None:
        self._with_op = with_op
        header = (["op"] if with_op else []) + [c.name for c in columns]
        self._out.write(",".join(_csv(name) for name in header) + "\n")

    def rows(self, rows: Sequence[Row]) -> None:
        for row in rows:
            fields = [OPS[row.kind], *row.fields] if self._with_op else row.fields
            self._out.write(",".join(_csv(field) for field in fields) + "\n")
        self._out.flush()

    def end(self) -> None:
        self._out.flush()


def _csv(text: str | None) -> str:
    if text is None:
        return ""
    if text == "" or any(c in text for c in ',"\r\n') or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text


class TableWriter:
    """A table in the style of psql. Widths come from the first page; what is longer later widens its own row."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._columns: list[Column] = []
        self._with_op = False
        self._widths: list[int] = []

    def start(self, columns: Sequence[Column], with_op: bool) -> None:
        self._columns = ([Column("op", "VARCHAR")] if with_op else []) + list(columns)
        self._with_op = with_op

    def rows(self, rows: Sequence[Row]) -> None:
        texts = [self._texts(row) for row in rows]
        if not self._widths and texts:
            self._header(texts)
        for row in texts:
            cells = [_cell(text, width, c) for text, width, c in zip(row, self._widths, self._columns, strict=True)]
            self._out.write(" | ".join(cells).rstrip() + "\n")
        self._out.flush()

    def end(self) -> None:
        if not self._widths:
            self._header([])
        self._out.flush()

    def _texts(self, row: Row) -> list[str]:
        fields = [OPS[row.kind], *row.fields] if self._with_op else row.fields
        return [NULL_TEXT if f is None else one_line(str(f)) for f in fields]

    def _header(self, rows: list[list[str]]) -> None:
        names = [c.name for c in self._columns]
        self._widths = [
            min(_WIDTH_MAX, max(_WIDTH_MIN, *(display_width(row[i]) for row in [names, *rows])))
            for i in range(len(names))
        ]
        cells = [n + " " * max(0, w - display_width(n)) for n, w in zip(names, self._widths, strict=True)]
        self._out.write(" | ".join(cells).rstrip() + "\n")
        self._out.write("-+-".join("-" * width for width in self._widths) + "\n")


class ExpandedWriter:
    r"""One line per field, as psql's \x."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._names: list[str] = []
        self._with_op = False
        self._count = 0

    def start(self, columns: Sequence[Column], with_op: bool) -> None:
        self._with_op = with_op
        self._names = (["op"] if with_op else []) + [c.name for c in columns]

    def rows(self, rows: Sequence[Row]) -> None:
        width = max((display_width(n) for n in self._names), default=0)
        for row in rows:
            self._count += 1
            self._out.write(f"-[ RECORD {self._count} ]".ljust(width + 3, "-") + "\n")
            fields = [OPS[row.kind], *row.fields] if self._with_op else row.fields
            for name, field in zip(self._names, fields, strict=True):
                text = NULL_TEXT if field is None else str(field)
                self._out.write(f"{name}{' ' * (width - display_width(name))} | {text}\n")
        self._out.flush()

    def end(self) -> None:
        self._out.flush()


def one_line(text: str) -> str:
    """Control characters made visible: a value must not move the cursor or colour the terminal."""
    return "".join(c if c.isprintable() else _visible(c) for c in text)


def _visible(char: str) -> str:
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return named.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}")


def display_width(text: str) -> int:
    """Terminal cells of a text."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _cell(text: str, width: int, column: Column) -> str:
    pad = " " * max(0, width - display_width(text))
    return pad + text if column.type in _RIGHT_ALIGNED else text + pad
