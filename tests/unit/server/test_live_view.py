"""What the live view keeps of a result that updates its rows."""

from __future__ import annotations

import io
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from server.cli.client import Column, Row
from server.cli.folded import FoldedRows
from server.cli.live import LiveView

COLUMNS = [Column("k", "VARCHAR"), Column("n", "BIGINT")]


def rows(*changes: tuple[str, list[object]]) -> list[Row]:
    kinds = {"+I": "INSERT", "-U": "UPDATE_BEFORE", "+U": "UPDATE_AFTER", "-D": "DELETE"}
    return [Row(kinds[op], fields) for op, fields in changes]


def fields(found: list[Row]) -> list[list[object]]:
    return [row.fields for row in found]


def test_an_update_stands_in_the_place_of_what_it_replaces() -> None:
    folded = FoldedRows()
    folded.add(rows(("+I", ["a", 1]), ("+I", ["b", 1]), ("-U", ["a", 1])))
    folded.add(rows(("+U", ["a", 2]), ("+I", ["c", [1, None]]), ("-D", ["b", 1]), ("+I", ["b", 7])))
    assert fields(folded.newest(10)) == [["a", 2], ["c", [1, None]], ["b", 7]]
    folded.add(rows(("-U", ["a", 2]), ("+U", ["a", 3])))
    # Of a table larger than the screen: the rows changed last, in the table's order.
    assert fields(folded.newest(2)) == [["a", 3], ["b", 7]]


def test_what_takes_back_a_row_from_before_the_first_page_is_left_out() -> None:
    folded = FoldedRows()
    folded.add(rows(("-U", ["a", 1]), ("+U", ["a", 2]), ("-D", ["z", 0])))
    assert fields(folded.newest(10)) == [["a", 2]]


def test_a_table_too_large_is_given_up() -> None:
    folded = FoldedRows(rows_max=3)
    folded.add(rows(*(("+I", [str(i), i]) for i in range(4))))
    assert folded.overflowed
    assert len(folded) == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=60))
def test_the_table_is_what_the_changes_come_to(steps: list[tuple[int, bool]]) -> None:
    folded, held = FoldedRows(), Counter[int]()
    for value, removes in steps:
        if removes and held[value]:
            folded.add(rows(("-D", ["x", value])))
            held[value] -= 1
        else:
            folded.add(rows(("+I", ["x", value])))
            held[value] += 1
    assert Counter(row.fields[1] for row in folded.newest(1000)) == +held
    assert len(folded) == held.total()


def screen(*, fold: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, width=80, height=30)
    view = LiveView(console, COLUMNS, lambda: None, with_op=True, fold=fold)
    view.add(rows(("+I", ["a", 1]), ("+I", ["b", 5]), ("-U", ["a", 1]), ("+U", ["a", 2])))
    console.print(view._render())
    return out.getvalue()


def test_the_view_shows_the_table_or_the_changes() -> None:
    table = screen(fold=True)
    assert "2 rows · 4 changes" in table
    assert [line.split() for line in table.splitlines()[1:]] == [["k", "n"], ["a", "2"], ["b", "5"]]
    changes = screen(fold=False)
    assert "4 changes" in changes
    assert [line.split() for line in changes.splitlines()[-1:]] == [["+U", "a", "2"]]
