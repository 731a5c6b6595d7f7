"""From records to the texts of their fields, column by column.

Delimiters outside quotes are found over all bytes at once. A record with a quote or an escape where that does not
decide is taken apart on its own, character by character, as Jackson's CSV parser does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.api import Messages
from connectors.arrow import Array, pc, text_array
from connectors.formats.csv.options import CsvOptions

Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_HASH = ord("#")
_RETURN = ord("\r")


class RecordError(Exception):
    """A record that is no CSV."""


class Records:
    """The fields of a run of records. `is_comment` are to be left out; `is_blank` are empty; `errors` are records that
    cannot be taken apart, or have more fields than there are columns."""

    def __init__(self, messages: Messages, column_count: int, options: CsvOptions) -> None:
        self._options = options
        self._data = np.frombuffer(messages.data, np.uint8)
        self._starts: Places = messages.offsets[:-1].astype(np.int64)
        ends = messages.offsets[1:].astype(np.int64) - 1
        filled = ends > self._starts
        self._ends: Places = ends - (filled & (self._data[ends - filled] == _RETURN))
        self.is_blank: Mask = self._ends == self._starts
        self.is_comment: Mask = np.zeros(messages.count, np.bool_)
        if options.allow_comments and messages.count:
            self.is_comment = ~self.is_blank & (self._data[self._starts] == _HASH)
        self.errors: dict[int, str] = {}
        self._delimiters, self._first, self._counts = self._find_delimiters()
        self._odd = self._find_odd()
        self._exact = {row: self._taken_apart(row) for row in np.flatnonzero(self._odd).tolist()}
        skipped = self._odd | self.is_comment | self.is_blank
        for row in np.flatnonzero(~skipped & (self._counts >= column_count)).tolist():
            self.errors[row] = f"it has {self._counts[row] + 1} fields for {column_count} columns"
        for number, texts in self._exact.items():
            if len(texts) > column_count:
                self.errors[number] = f"it has {len(texts)} fields for {column_count} columns"

    def column(self, index: int) -> Array:
        """Texts of one column; NULL where the record has no such field."""
        has = ~self.is_blank & (self._counts >= index)
        before = self._delimiters[np.minimum(self._first + index - 1, len(self._delimiters) - 1)] if index else None
        starts = self._starts if before is None else before + 1
        last = self._counts == index
        behind = self._delimiters[np.minimum(self._first + index, len(self._delimiters) - 1)]
        ends = np.where(last, self._ends, behind)
        starts, ends = np.where(has, starts, 0), np.where(has, ends, 0)
        texts = self._gathered(starts, ends, has)
        if self._exact:
            words = [texts_of[index] if index < len(texts_of) else None for texts_of in self._exact.values()]
            texts = pc.replace_with_mask(texts, pa.array(self._odd), pa.array(words, pa.string()))
        return texts

    def _find_delimiters(self) -> tuple[Places, Places, Places]:
        """Places of delimiters outside quotes, the first of each record, and how many it has."""
        options, count = self._options, len(self._starts)
        places = np.flatnonzero(self._data == ord(options.delimiter)).astype(np.int64)
        rows = np.searchsorted(self._starts, places, side="right") - 1
        if options.quote:
            quotes = np.flatnonzero(self._data == ord(options.quote))
            self._quotes = quotes
            if len(quotes):
                inside = np.searchsorted(quotes, places) - np.searchsorted(quotes, self._starts)[rows]
                places, rows = places[inside % 2 == 0], rows[inside % 2 == 0]
        counts = np.bincount(rows, minlength=count).astype(np.int64)
        # One more place, so that there is always something to point at.
        return np.append(places, 0), np.cumsum(counts) - counts, counts

    def _find_odd(self) -> Mask:
        """Records that are to be taken apart on their own."""
        odd = np.zeros(len(self._starts), np.bool_)
        options = self._options
        if options.escape:
            odd[self._rows_of(np.flatnonzero(self._data == ord(options.escape)))] = True
        if options.quote and len(self._quotes):
            rows = np.unique(self._rows_of(self._quotes))
            self._mark_irregular(rows, odd)
        return odd & ~self.is_comment

    def _mark_irregular(self, rows: Places, odd: Mask) -> None:
        """Among records with quotes: those with a field that holds quotes but is not one quoted text."""
        quote = ord(self._options.quote)
        counts = self._counts[rows] + 1
        numbers = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        owners = np.repeat(rows, counts)
        firsts = self._first[owners] + numbers
        starts = np.where(numbers == 0, self._starts[owners], self._delimiters[firsts - 1] + 1)
        ends = np.where(numbers == self._counts[owners], self._ends[owners], self._delimiters[firsts])
        held = np.searchsorted(self._quotes, ends) - np.searchsorted(self._quotes, starts)
        some = np.flatnonzero(held > 0)
        starts, ends, held, owners = starts[some], ends[some], held[some], owners[some]
        whole = (held >= 2) & (self._data[starts] == quote) & (self._data[np.maximum(ends - 1, 0)] == quote)
        odd[owners[~whole]] = True
        doubled = np.flatnonzero(whole & (held > 2))
        if len(doubled):
            inner = _gather(self._data, starts[doubled] + 1, ends[doubled] - 1)
            rest = pc.replace_substring(inner, bytes([quote, quote]), b"")
            wrong = pc.match_substring(rest, bytes([quote])).to_numpy(zero_copy_only=False)
            odd[owners[doubled[wrong]]] = True

    def _rows_of(self, places: Places) -> Places:
        rows: Places = np.searchsorted(self._starts, places, side="right") - 1
        return rows

    def _gathered(self, starts: Places, ends: Places, has: Mask) -> Array:
        """Texts between the places, quotes taken off; NULL where there is none."""
        doubled = np.zeros(0, np.int64)
        quote = self._options.quote
        if quote and len(self._quotes):
            quoted = (ends > starts) & (self._data[np.minimum(starts, len(self._data) - 1)] == ord(quote)) & ~self._odd
            held = np.searchsorted(self._quotes, ends) - np.searchsorted(self._quotes, starts)
            doubled = np.flatnonzero(quoted & (held > 2))
            starts, ends = starts + quoted, ends - quoted
        texts = _text(_gather(self._data, starts, ends))
        if len(doubled):
            mask = np.zeros(len(starts), np.bool_)
            mask[doubled] = True
            plain = pc.replace_substring(texts.take(pa.array(doubled)), quote * 2, quote)
            texts = pc.replace_with_mask(texts, pa.array(mask), plain)
        if not has.all():
            texts = pc.if_else(pa.array(has), texts, pa.scalar(None, pa.string()))
        return texts

    def _taken_apart(self, row: int) -> Sequence[str]:
        record = bytes(self._data[self._starts[row] : self._ends[row]]).decode(errors="replace")
        try:
            return take_apart(record, self._options)
        except RecordError as error:
            self.errors[row] = str(error)
            return ()


def take_apart(record: str, options: CsvOptions) -> list[str]:
    """The fields of one record, character by character. Raises RecordError."""
    fields: list[str] = []
    place = 0
    while True:
        if options.quote and record[place : place + 1] == options.quote:
            text, place = _quoted_field(record, place + 1, options)
        else:
            text, place = _plain_field(record, place, options)
        fields.append(text)
        if place >= len(record):
            return fields
        place += 1


def _plain_field(record: str, place: int, options: CsvOptions) -> tuple[str, int]:
    text: list[str] = []
    while place < len(record) and record[place] != options.delimiter:
        if record[place] == options.escape and place + 1 < len(record):
            place += 1
            text.append(_unescaped(record[place]))
        else:
            text.append(record[place])
        place += 1
    return "".join(text), place


def _quoted_field(record: str, place: int, options: CsvOptions) -> tuple[str, int]:
    text: list[str] = []
    while True:
        if place >= len(record):
            raise RecordError("a quoted field does not end")
        if record[place] == options.escape and place + 1 < len(record):
            text.append(_unescaped(record[place + 1]))
            place += 2
        elif record[place] != options.quote:
            text.append(record[place])
            place += 1
        elif record[place + 1 : place + 2] == options.quote:
            text.append(options.quote)
            place += 2
        else:
            break
    place += 1
    while place < len(record) and record[place] in " \t" and record[place] != options.delimiter:
        place += 1
    if place < len(record) and record[place] != options.delimiter:
        raise RecordError(f"'{record[place]}' follows the end of a quoted field")
    return "".join(text), place


def _unescaped(character: str) -> str:
    return {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}.get(character, character)


def _gather(data: npt.NDArray[np.uint8], starts: Places, ends: Places) -> Array:
    """The bytes between the places, as a binary array."""
    lengths = ends - starts
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    places = np.arange(int(offsets[-1])) + np.repeat(starts - offsets[:-1], lengths)
    return text_array(offsets, data[places], binary=True)


def _text(values: Array) -> Array:
    """As UTF-8; bytes that are not become U+FFFD."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        words: list[Any] = [None if v is None else v.decode(errors="replace") for v in values.to_pylist()]
        return pa.array(words, pa.string())
