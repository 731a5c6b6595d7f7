"""The table that a changelog comes to, kept while it is read."""

from __future__ import annotations

from collections.abc import Sequence

from server.cli.client import Row

ROWS_FOLDED_MAX = 20_000
"""A larger table is not kept: its changes are shown instead."""


class FoldedRows:
    """A row that replaces one stands in its place, so that a table of groups does not jump about."""

    def __init__(self, rows_max: int = ROWS_FOLDED_MAX) -> None:
        self._rows_max = rows_max
        self._rows: dict[int, Row] = {}
        self._places: dict[str, list[int]] = {}
        self._changed: dict[int, None] = {}
        """Places, those changed last at the end."""
        self._vacant: int | None = None
        """Where the row stood that was taken back by the change just before."""
        self._next_place = 0
        self.overflowed = False

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if self.overflowed:
                return
            if row.kind in ("INSERT", "UPDATE_AFTER"):
                self._put(row)
            else:
                self._take_back(row)

    def newest(self, count: int) -> list[Row]:
        """At most so many rows: those changed last, in the table's order."""
        if len(self._rows) <= count:
            places = list(self._rows)
        else:
            places = list(self._changed)[-count:]
        return [self._rows[place] for place in sorted(places)]

    def _put(self, row: Row) -> None:
        place, self._vacant = self._vacant, None
        if place is None or row.kind == "INSERT":
            place = self._next_place
            self._next_place += 1
        self._rows[place] = row
        self._places.setdefault(_identity(row), []).append(place)
        self._changed[place] = None
        if len(self._rows) > self._rows_max:
            self.overflowed = True
            for kept in (self._rows, self._places, self._changed):
                kept.clear()

    def _take_back(self, row: Row) -> None:
        identity = _identity(row)
        places = self._places.get(identity)
        if not places:
            return  # Its row came before reading began.
        place = places.pop()
        if not places:
            del self._places[identity]
        del self._rows[place], self._changed[place]
        self._vacant = place if row.kind == "UPDATE_BEFORE" else None


def _identity(row: Row) -> str:
    """Fields may be lists and maps."""
    return repr(row.fields)
