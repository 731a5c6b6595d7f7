"""Nexmark, the benchmark of an auction site (Tucker, Tufte, Papadimos, Maier: *NEXMark, a benchmark for queries over
data streams*), as queries of ours over the events that the `nexmark` connector makes."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent

QUERIES = tuple(
    sorted((path.stem for path in (_FOLDER / "queries").glob("q*.sql")), key=lambda name: int(name.removeprefix("q")))
)
"""Names of the queries, in the benchmark's order. Of its others q6 needs an aggregate over the last ten rows of a
changing table, q10 to q13 are made of its own parts: files by the hour, sessions, processing time, a file beside."""


def query_text(name: str) -> str:
    """A SELECT over the views `person`, `auction` and `bid`."""
    return (_FOLDER / "queries" / f"{name}.sql").read_text()


def tables_text(source: str) -> str:
    """The statements that make the table `events` and its views; `source` are the options of its connector."""
    return (_FOLDER / "tables.sql").read_text().replace("${SOURCE}", source)
