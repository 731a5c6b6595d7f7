"""The small tables that the queries of `definitions_joins.py` and `definitions_ranks.py` are about.

Rows of every table but `ticks` are on time, so that an answer does not depend on which of two tables is read first.
`ticks` is read alone, each row at once followed by its watermark. Tables with changes are in Debezium's form.
"""

from __future__ import annotations

from dataclasses import dataclass

Change = tuple[int, tuple[object, ...]]


@dataclass(frozen=True)
class Table:
    """`changes`: (row kind, values), values as JSON has them; 0 +I, 1 -U, 2 +U, 3 -D."""

    columns: str
    names: tuple[str, ...]
    changes: list[Change]
    changing: bool = False


def _appended(columns: str, names: str, *rows: tuple[object, ...]) -> Table:
    return Table(columns, tuple(names.split()), [(0, row) for row in rows])


def _changing(columns: str, names: str, *changes: Change) -> Table:
    return Table(columns, tuple(names.split()), list(changes), changing=True)


def _at(second: float) -> str:
    return f"2024-03-01T12:00:{second:06.3f}".removesuffix(".000")


_HOUR = "WATERMARK FOR ts AS ts - INTERVAL '1' HOUR"

TABLES = {
    "emp": _appended(
        f"id INT NOT NULL, name STRING, dept INT, boss INT, pay DECIMAL(8, 2), ts TIMESTAMP(3), {_HOUR}",
        "id name dept boss pay ts",
        (1, "ann", 10, None, "100.00", _at(1)),
        (2, "bob", 10, 1, "80.50", _at(2)),
        (3, "cid", 20, 1, None, _at(3.5)),
        (4, "dee", None, 2, "80.50", _at(4)),
        (5, None, 30, 2, "20.00", _at(5)),
        (6, "fay", 20, 9, "120.25", _at(9)),
        (7, "ann", 10, None, "99.99", _at(11)),
        (7, "ann", 10, None, "99.99", _at(12)),
    ),
    "dept": _appended(
        "dept BIGINT, title STRING NOT NULL, budget DECIMAL(10, 1), boss SMALLINT",
        "dept title budget boss",
        (10, "Pumps", "250.0", 1),
        (20, "Pipes", "100.5", 3),
        (20, "Pipes", "100.5", 3),
        (None, "Ghosts", "80.5", 2),
        (40, "Gates", None, None),
    ),
    "nil": _appended("k INT, v STRING", "k v"),
    "item": _changing(
        "id INT, cust STRING, sku STRING, n INT, PRIMARY KEY (id) NOT ENFORCED",
        "id cust sku n",
        (0, (1, "ann", "nut", 4)),
        (0, (2, "bob", "nut", 7)),
        (0, (3, "ann", "bolt", None)),
        (1, (2, "bob", "nut", 7)),
        (2, (2, "cid", "nut", 8)),
        (0, (4, None, "bolt", 2)),
        (0, (5, "dee", None, 2)),
        (3, (1, "ann", "nut", 4)),
        (0, (6, "ann", "cog", 9)),
        (1, (6, "ann", "cog", 9)),
        (2, (6, "ann", "cog", 1)),
        (0, (7, "eve", "cog", 5)),
        (3, (7, "eve", "cog", 5)),
        (0, (8, "bob", "nut", 8)),
    ),
    "cust": _changing(
        "cust STRING, city STRING, level INT, PRIMARY KEY (cust) NOT ENFORCED",
        "cust city level",
        (0, ("ann", "Rome", 1)),
        (0, ("bob", "Oslo", 2)),
        (0, ("cid", None, 2)),
        (1, ("ann", "Rome", 1)),
        (2, ("ann", "Bern", 3)),
        (0, ("fay", "Oslo", None)),
        (3, ("bob", "Oslo", 2)),
        (0, ("dee", "Oslo", 2)),
        (0, ("bob", "Rome", 4)),
    ),
    "loose": _changing(
        "k INT, v STRING",
        "k v",
        (0, (1, "x")),
        (0, (1, "x")),
        (0, (2, "y")),
        (3, (1, "x")),
        (0, (None, "z")),
        (0, (None, None)),
        (0, (None, None)),
        (0, (8, "w")),
        (1, (2, "y")),
        (2, (2, None)),
        (0, (4, "x")),
        (3, (4, "x")),
    ),
    "clicks": _appended(
        f"id INT, usr STRING, ts TIMESTAMP(3), {_HOUR}",
        "id usr ts",
        (1, "ann", _at(1)),
        (2, "bob", _at(3)),
        (4, None, _at(8)),
        (3, "ann", _at(8)),
        (6, "bob", _at(13)),
        (5, "cid", _at(12)),
        (7, "ann", _at(21)),
        (8, "ann", _at(31.5)),
    ),
    "shows": _appended(
        f"id INT, usr STRING, n INT NOT NULL, ts TIMESTAMP(3), {_HOUR}",
        "id usr n ts",
        (1, "ann", 5, _at(0)),
        (2, "bob", 1, _at(5)),
        (3, "ann", 2, _at(7.5)),
        (4, None, 3, _at(8)),
        (5, "ann", 4, _at(9)),
        (6, "bob", 9, _at(18)),
        (7, "eve", 7, _at(22)),
        (8, "ann", 8, _at(31.5)),
        (9, "cid", 0, _at(43)),
    ),
    "trades": _appended(
        f"id INT, cur STRING, amount DECIMAL(6, 2), ts TIMESTAMP(3), {_HOUR}",
        "id cur amount ts",
        (1, "EUR", "1.00", _at(0)),
        (2, "EUR", "2.00", _at(5)),
        (3, "USD", "3.00", _at(6)),
        (4, None, "4.00", _at(7)),
        (5, "EUR", "5.00", _at(12)),
        (7, "USD", "7.00", _at(20)),
        (6, "EUR", "6.00", _at(15)),
        (8, "YEN", "8.00", _at(21)),
        (9, "USD", None, _at(31)),
        (10, "EUR", "10.00", _at(40)),
    ),
    "rates": _changing(
        f"cur STRING, rate DECIMAL(8, 3), ts TIMESTAMP(3), {_HOUR}, PRIMARY KEY (cur) NOT ENFORCED",
        "cur rate ts",
        (0, ("EUR", "1.100", _at(2))),
        (0, ("USD", "0.900", _at(3))),
        (1, ("EUR", "1.100", _at(2))),
        (2, ("EUR", "1.200", _at(12))),
        (1, ("USD", "0.900", _at(3))),
        (2, ("USD", None, _at(25))),
        (3, ("EUR", "1.200", _at(20))),
        (0, ("YEN", "90.000", _at(21))),
        (0, ("EUR", "1.500", _at(39))),
    ),
    "quotes": _appended(
        f"cur STRING, rate DECIMAL(8, 3), ts TIMESTAMP(3), {_HOUR}",
        "cur rate ts",
        ("EUR", "1.100", _at(2)),
        ("EUR", "1.300", _at(14)),
        ("USD", "0.900", _at(3)),
        ("EUR", "1.200", _at(12)),
        ("USD", None, _at(25)),
        (None, "5.000", _at(6)),
    ),
    "ticks": _appended(
        "id INT, sym STRING, px INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2' SECOND",
        "id sym px ts",
        (1, "A", 5, _at(1)),
        (2, "B", 7, _at(2)),
        (3, "A", 9, _at(4)),
        (4, "A", 5, _at(3)),
        (5, None, 1, _at(9)),
        (6, "B", None, _at(8)),
        (7, "A", 4, _at(12.5)),
        (8, "A", 99, _at(9)),
        (9, "B", 8, _at(11)),
        (10, "B", 8, _at(14)),
        (11, "A", 4, _at(14)),
        (12, "A", 1, _at(2)),
        (13, "A", 3, _at(27)),
        (14, "C", 2, _at(26)),
    ),
    "docs": _appended(
        "id INT, tags ARRAY<STRING>, sizes MAP<STRING, INT>, parts ARRAY<ROW<sku STRING, n INT>>, "
        "sure ARRAY<INT NOT NULL> NOT NULL, grid ARRAY<ARRAY<INT>>, r ROW<x INT, y STRING>",
        "id tags sizes parts sure grid r",
        (1, ["a", "b", "a"], {"s": 1, "m": None}, [["nut", 1], ["bolt", None]], [3, 1], [[1, 2], [3]], [1, "one"]),
        (2, [], {}, [], [], [], None),
        (3, None, None, None, [7], None, [None, "three"]),
        (4, [None, "c"], {"l": 9}, [["cog", 5]], [1, 1], [None, [], [4, None]], [4, None]),
    ),
}

VIEWS = {
    "pairs": "SELECT c.id, c.usr, c.ts, s.n FROM clicks c JOIN shows s ON c.usr = s.usr AND "
    "s.ts BETWEEN c.ts - INTERVAL '10' SECOND AND c.ts",
    "last_quote": "SELECT cur, rate, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY cur ORDER BY ts DESC) AS rn "
    "FROM quotes) WHERE rn = 1",
    "valued": "SELECT t.id, t.ts, t.amount * r.rate AS m FROM trades t LEFT JOIN rates FOR SYSTEM_TIME AS OF t.ts AS r "
    "ON t.cur = r.cur",
}
