"""The rows behind `answers/tables.inc`: small enough to check an answer by hand."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

from tests.support.memory_tables.connector import Change, MemoryTable


def _at(seconds: float) -> dt.datetime:
    return dt.datetime(2024, 3, 1, 12) + dt.timedelta(seconds=seconds)


def _bid(seconds: float, auction: int, bidder: str | None, price: str | None, channel: str) -> Change:
    return 0, (auction, bidder, None if price is None else Decimal(price), channel, _at(seconds))


BIDS = [
    [
        _bid(0, 1, "ann", "10.00", "web"),
        _bid(1.5, 2, "bob", "7.50", "app"),
        _bid(4, 1, "cid", "12.25", "web"),
        _bid(3, 1, "ann", "11.00", "app"),
        _bid(9.999, 3, "dee", None, "web"),
        _bid(10, 2, "ann", "8.00", "web"),
        _bid(14, 1, "bob", "12.25", "app"),
        _bid(31, 2, "cid", "9.99", "web"),
    ],
    [
        _bid(2, 3, "ann", "100.00", "app"),
        _bid(6, 3, None, "101.00", "web"),
        _bid(12, 1, "dee", "13.00", "web"),
        _bid(11, 4, "eve", "0.01", "app"),
        _bid(20, 3, "dee", "99.50", "web"),
    ],
    [
        _bid(5, 4, "bob", "0.02", "web"),
        _bid(25, 4, "bob", "0.03", "app"),
        _bid(29.5, 1, "eve", "20.00", "web"),
        _bid(61, 5, "ann", "1.00", "app"),
    ],
]


def _user(kind: int, id_: int, name: str, city: str | None, age: int | None) -> Change:
    return kind, (id_, name, city, age)


USERS = [
    [
        _user(0, 1, "ann", "Rome", 31),
        _user(0, 2, "bob", "Rome", 45),
        _user(0, 3, "cid", "Oslo", 28),
        _user(1, 2, "bob", "Rome", 45),
        _user(2, 2, "bob", "Oslo", 46),
        _user(3, 3, "cid", "Oslo", 28),
        _user(0, 3, "cyd", "Oslo", None),
    ],
    [
        _user(0, 4, "dee", None, 70),
        _user(0, 5, "eve", "Rome", 31),
        _user(0, 6, "fay", "Kyiv", 19),
        _user(3, 6, "fay", "Kyiv", 19),
        _user(1, 4, "dee", None, 70),
        _user(2, 4, "dee", None, 71),
    ],
]

PRICES: list[list[Change]] = [
    [
        (2, ("AAA", 1.5, 100)),
        (2, ("BBB", 2.5, 200)),
        (2, ("AAA", 1.75, 100)),
        (3, ("BBB", None, None)),
        (3, ("ZZZ", None, None)),
        (2, ("BBB", 3.0, 100)),
    ],
    [(2, ("CCC", 9.0, 300)), (2, ("CCC", 9.0, 300)), (2, ("DDD", 0.25, None)), (3, ("DDD", None, None))],
]


def tables() -> dict[str, MemoryTable]:
    return {"bids": MemoryTable(BIDS), "users": MemoryTable(USERS), "prices": MemoryTable(PRICES)}
