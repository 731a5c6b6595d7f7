"""Whole queries over two small tables: windows, grouping sets, aggregates of aggregates, DISTINCT, UNION ALL.

All rows are on time, so that an answer does not depend on when watermarks travel. `bids` is append-only; `people` is a
changelog in Debezium's form.
"""

from __future__ import annotations

import re

BIDS_COLUMNS = (
    "item INT, bidder STRING, price INT, big DECIMAL(10, 2), ts TIMESTAMP(3), seen TIMESTAMP_LTZ(3), "
    "WATERMARK FOR ts AS ts - INTERVAL '1' HOUR"
)
CLOCK_COLUMNS = "id INT, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts - INTERVAL '1' HOUR"
STOCK_COLUMNS = (
    "id INT, shop STRING, n INT, weight DOUBLE, price DECIMAL(10, 2), ts TIMESTAMP(3), "
    "WATERMARK FOR ts AS ts - INTERVAL '1' HOUR, PRIMARY KEY (id) NOT ENFORCED"
)
PEOPLE_COLUMNS = "id INT, name STRING, city STRING, age INT, PRIMARY KEY (id) NOT ENFORCED"

BIDS: list[tuple[object, ...]] = [
    (5, "ann", 1, "7.00", "1969-12-31T23:59:58.750", "1969-12-31T23:59:58Z"),
    (1, "ann", 10, "1.00", "2024-03-01T12:00:00", "2024-03-01T12:00:00Z"),
    (2, "bob", 7, "2.50", "2024-03-01T12:00:01.500", "2024-03-01T12:00:01Z"),
    (1, "cid", 12, "0.01", "2024-03-01T12:00:04", "2024-03-01T12:00:04Z"),
    (1, "ann", 11, None, "2024-03-01T12:00:03", "2024-03-01T12:00:03Z"),
    (3, None, None, "99999999.99", "2024-03-01T12:00:09.999", "2024-03-01T12:00:10Z"),
    (2, "ann", 8, "99999999.99", "2024-03-01T12:00:10", "2024-03-01T12:00:11Z"),
    (None, "bob", 12, "3.30", "2024-03-01T12:00:14", None),
    (2, "cid", -9, "4.00", "2024-03-01T12:00:31", "2024-03-01T12:00:31Z"),
    (3, "ann", 100, "4.00", "2024-03-01T11:59:59.999", "2024-03-01T11:59:59Z"),
    (3, None, 101, "5.55", "2024-03-01T12:00:06", "2024-03-01T12:00:06Z"),
    (1, "dee", 13, "-1.00", "2024-03-01T12:00:12", "2024-03-01T12:00:12Z"),
    (None, "eve", 0, "0.00", "2024-03-01T12:01:01", "2024-03-01T12:01:01Z"),
]
CLOCK: list[tuple[object, ...]] = [
    (number, text)
    for number, text in enumerate(
        """
        2024-03-09T07:59:59Z 2024-03-10T07:30:00Z 2024-03-10T08:00:00Z 2024-03-10T09:15:00Z 2024-03-10T09:59:59.999Z
        2024-03-10T10:00:00Z 2024-03-10T10:30:00Z 2024-03-10T11:05:00Z 2024-03-11T06:59:59Z 2024-03-11T07:00:00Z
        2024-03-31T00:30:00Z 2024-03-31T00:59:59Z 2024-03-31T01:00:00Z 2024-03-31T02:10:00Z 2024-03-31T22:30:00Z
        2024-10-27T00:30:00Z 2024-10-27T01:10:00Z 2024-10-27T01:50:00Z 2024-10-27T02:20:00Z 2024-10-27T23:30:00Z
        2024-11-03T07:30:00Z 2024-11-03T08:30:00Z 2024-11-03T09:30:00Z 2024-11-03T10:30:00Z 2024-11-04T07:59:59Z
        """.split()
    )
]
"""Instants around the changes of clocks in Los Angeles and Berlin, in order."""

PEOPLE: list[tuple[str, tuple[object, ...] | None, tuple[object, ...] | None]] = [
    ("c", None, (1, "ann", "Rome", 31)),
    ("c", None, (2, "bob", "Rome", 45)),
    ("c", None, (3, "cid", "Oslo", 28)),
    ("u", (2, "bob", "Rome", 45), (2, "bob", "Oslo", 46)),
    ("d", (3, "cid", "Oslo", 28), None),
    ("c", None, (4, "dee", None, None)),
    ("c", None, (5, "eve", "Oslo", 46)),
    ("u", (1, "ann", "Rome", 31), (1, "ann", "Rome", 32)),
    ("c", None, (6, "fay", "Bern", 19)),
    ("d", (6, "fay", "Bern", 19), None),
]
"""Operation, the row before and the row after."""


def _stocked(id_: int, shop: str | None, n: int | None, price: str | None, second: int) -> tuple[object, ...]:
    weight = None if n is None else n / 4
    return (id_, shop, n, weight, price, f"2024-03-01T12:00:{second:02}")


STOCK: list[tuple[str, tuple[object, ...] | None, tuple[object, ...] | None]] = [
    ("c", None, _stocked(1, "Rome", 5, "1.10", 0)),
    ("c", None, _stocked(2, "Rome", 9, "2.00", 4)),
    ("u", _stocked(2, "Rome", 9, "2.00", 4), _stocked(2, "Rome", 3, "2.50", 4)),
    ("c", None, _stocked(3, "Oslo", 7, None, 8)),
    ("d", _stocked(3, "Oslo", 7, None, 8), None),
    ("c", None, _stocked(4, "Oslo", 7, "0.75", 12)),
    ("u", _stocked(1, "Rome", 5, "1.10", 0), _stocked(1, "Bern", 5, "1.10", 17)),
    ("c", None, _stocked(5, "Rome", 5, "99999999.99", 21)),
    ("c", None, _stocked(6, None, None, "5.00", 23)),
    ("u", _stocked(4, "Oslo", 7, "0.75", 12), _stocked(4, "Oslo", None, "0.80", 12)),
    ("c", None, _stocked(7, "Bern", 1, "0.10", 41)),
    ("d", _stocked(7, "Bern", 1, "0.10", 41), None),
    ("c", None, _stocked(8, "Rome", 5, "4.00", 22)),
    ("u", _stocked(5, "Rome", 5, "99999999.99", 21), _stocked(5, "Rome", -8, "3.00", 22)),
]
"""As PEOPLE: rows change, move to another window, and leave windows empty."""

_WINDOWS = {
    "tumble": "TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
    "shifted_tumble": "TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '-3' SECOND)",
    "hop": "HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND)",
    "shifted_hop": "HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND, INTERVAL '2' SECOND)",
    "cumulate": "CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND)",
    "shifted_cumulate": (
        "CUMULATE(TABLE bids, DESCRIPTOR(ts), INTERVAL '20' SECOND, INTERVAL '1' MINUTE, INTERVAL '10' SECOND)"
    ),
}
"""Calls, written `@name` in the queries."""

_OF_EACH_WINDOW = """
SELECT window_start, window_end, window_time, item, @calls FROM @window
GROUP BY window_start, window_end, window_time, item

SELECT window_start, window_end, COUNT(*) AS n FROM @window GROUP BY window_start, window_end

SELECT item, ts, window_start, window_end, window_time FROM @window WHERE price > 10

SELECT window_start, window_end, MAX(s) AS best, COUNT(*) AS n
FROM (
  SELECT window_start, window_end, item, COUNT(*) AS n, SUM(price) AS s FROM @window
  GROUP BY window_start, window_end, item
)
WHERE n > 1 GROUP BY window_start, window_end

SELECT window_start, window_end, item, bidder, COUNT(*) AS n, GROUPING_ID(item, bidder) AS g FROM @window
GROUP BY window_start, window_end, ROLLUP (item, bidder)

WITH small AS (
  SELECT window_time AS wt, item, SUM(price) AS s FROM @window GROUP BY window_start, window_end, window_time, item
)
SELECT window_start, window_end, SUM(s) AS s, COUNT(*) AS n
FROM TUMBLE(TABLE small, DESCRIPTOR(wt), INTERVAL '30' SECOND) GROUP BY window_start, window_end
"""

_SINGLE = """
SELECT window_end, COUNT(*) AS n FROM @hop GROUP BY window_end

SELECT window_start, COUNT(DISTINCT window_end) AS n FROM @cumulate GROUP BY window_start

SELECT DISTINCT window_start, window_end, item FROM @hop

SELECT window_start, window_end, MAX(window_start) AS m FROM @hop
WHERE window_start >= TIMESTAMP '2024-03-01 12:00:00' GROUP BY window_start, window_end

SELECT window_start, window_end, item, COUNT(*) AS n FROM @tumble
GROUP BY GROUPING SETS ((window_start, window_end, item), (window_start, window_end))

WITH w AS (
  SELECT window_start, window_end, price FROM @hop
  UNION ALL
  SELECT window_start, window_end, -price FROM @hop WHERE item = 1
)
SELECT window_start, window_end, SUM(price) AS s, COUNT(*) AS n FROM w GROUP BY window_start, window_end

SELECT window_start, window_end, COUNT(*) FILTER (WHERE price > 10) AS big, COUNT(*) AS n FROM @hop
GROUP BY window_start, window_end HAVING COUNT(*) > 1

SELECT window_start, window_end, FIRST_VALUE(bidder) AS f, LAST_VALUE(bidder) AS l, LISTAGG(bidder) AS t FROM @tumble
GROUP BY window_start, window_end

SELECT item, @calls FROM bids GROUP BY item

SELECT @calls FROM bids

SELECT item, MIN(bidder) AS lo, MAX(bidder) AS hi, SUM(big) AS s, AVG(big) AS a FROM bids GROUP BY item

SELECT item, FIRST_VALUE(bidder) AS f, LAST_VALUE(price) AS l, LISTAGG(bidder, '; ') AS t, LISTAGG(DISTINCT bidder) AS u
FROM bids GROUP BY item

SELECT item, STDDEV_POP(price) AS p, VAR_SAMP(price) AS v, STDDEV_SAMP(big) AS b FROM bids GROUP BY item

SELECT item, COUNT(*) AS n FROM bids GROUP BY item HAVING COUNT(*) > 1 AND SUM(price) > 20

SELECT item + 1 AS i, UPPER(bidder) AS b, COUNT(*) * 2 AS n FROM bids GROUP BY item + 1, UPPER(bidder)

SELECT item, bidder, COUNT(*) AS n, SUM(price) AS s, GROUPING(item) AS g FROM bids GROUP BY CUBE (item, bidder)

SELECT item, bidder, SUM(item) AS s, GROUPING_ID(bidder, item) AS g FROM bids
GROUP BY GROUPING SETS ((item), (bidder), ())

SELECT item, GROUP_ID() AS g, COUNT(*) AS n FROM bids GROUP BY GROUPING SETS ((item), (item), ())

SELECT COUNT(*) AS n, MAX(price) AS m FROM bids GROUP BY GROUPING SETS ((item), ROLLUP (bidder))

SELECT item, COUNT(*) AS n FROM bids GROUP BY CUBE (item) HAVING GROUPING(item) = 1 OR COUNT(*) > 2

SELECT DISTINCT item FROM bids

SELECT DISTINCT item, bidder FROM bids WHERE price > 0

SELECT DISTINCT COUNT(*) AS n FROM bids GROUP BY item

SELECT n, COUNT(*) AS m FROM (SELECT item, COUNT(*) AS n FROM bids GROUP BY item) GROUP BY n

SELECT COUNT(*) AS n, SUM(s) AS s, MIN(s) AS lo, MAX(s) AS hi, AVG(s) AS a
FROM (SELECT bidder, SUM(price) AS s FROM bids GROUP BY bidder)

SELECT item, COUNT(*) AS n FROM bids GROUP BY item UNION ALL SELECT price, COUNT(*) FROM bids GROUP BY price

SELECT city, COUNT(*) AS n, SUM(age) AS s, MIN(age) AS lo, MAX(age) AS hi, AVG(age) AS a FROM people GROUP BY city

SELECT COUNT(*) AS n, COUNT(DISTINCT city) AS c, SUM(DISTINCT age) AS d, STDDEV_POP(age) AS p FROM people

SELECT city, LISTAGG(name) AS l FROM people GROUP BY city

SELECT age, COUNT(*) FILTER (WHERE city = 'Oslo') AS oslo FROM people GROUP BY age

SELECT city, name, COUNT(*) AS n FROM people GROUP BY ROLLUP (city, name)

SELECT DISTINCT city FROM people

SELECT city, age + 1 AS older FROM people WHERE age > 30

SELECT n, COUNT(*) AS m FROM (SELECT city, COUNT(*) AS n FROM people GROUP BY city) GROUP BY n
"""

_IN_LOCAL_TIME = """
SELECT window_start, window_end, window_time, COUNT(*) AS n FROM @day GROUP BY window_start, window_end, window_time

SELECT window_start, window_end, window_time, COUNT(*) AS n FROM @hour GROUP BY window_start, window_end, window_time

SELECT window_start, window_end, window_time, COUNT(*) AS n FROM @hops GROUP BY window_start, window_end, window_time

SELECT window_start, window_end, COUNT(*) AS n FROM @steps GROUP BY window_start, window_end

SELECT id, window_start, window_end, window_time FROM @hops

SELECT window_start, window_end, SUM(n) AS n
FROM (SELECT id, window_start, window_end, COUNT(*) AS n FROM @hops GROUP BY id, window_start, window_end)
GROUP BY window_start, window_end

WITH hours AS (SELECT window_time AS wt, COUNT(*) AS n FROM @hour GROUP BY window_start, window_end, window_time)
SELECT window_start, window_end, SUM(n) AS n FROM TUMBLE(TABLE hours, DESCRIPTOR(wt), INTERVAL '1' DAY)
GROUP BY window_start, window_end
"""
_LOCAL_WINDOWS = {
    "day": "TUMBLE(TABLE clock, DESCRIPTOR(ts), INTERVAL '1' DAY)",
    "hour": "TUMBLE(TABLE clock, DESCRIPTOR(ts), INTERVAL '1' HOUR)",
    "hops": "HOP(TABLE clock, DESCRIPTOR(ts), INTERVAL '30' MINUTE, INTERVAL '90' MINUTE)",
    "steps": "CUMULATE(TABLE clock, DESCRIPTOR(ts), INTERVAL '6' HOUR, INTERVAL '1' DAY)",
}

_MIXED = """
SELECT window_start, window_end, COUNT(DISTINCT bidder) AS a, SUM(DISTINCT price) AS b, COUNT(DISTINCT item)
FILTER (WHERE price > 10) AS c, MIN(bidder) AS d FROM @cumulate GROUP BY window_start, window_end

SELECT item, COUNT(DISTINCT bidder) AS a, COUNT(DISTINCT bidder) FILTER (WHERE price > 10) AS b, SUM(DISTINCT
price) FILTER (WHERE bidder <> 'ann') AS c, COUNT(DISTINCT price) AS d FROM bids GROUP BY item

SELECT city, COUNT(DISTINCT age) AS a, COUNT(DISTINCT name) FILTER (WHERE age > 30) AS b, SUM(DISTINCT age) AS
c, LISTAGG(DISTINCT name, '+') AS d FROM people GROUP BY city

SELECT age, MIN(name) AS a, MAX(name) AS b, FIRST_VALUE(name) AS c, LAST_VALUE(name) AS d FROM people GROUP BY age

SELECT c, LISTAGG(city) AS l, MAX(s) AS m FROM (SELECT city, COUNT(*) AS c, SUM(age) AS s FROM people GROUP BY
city) GROUP BY c

SELECT n, COUNT(*) AS k, SUM(s) AS t FROM (SELECT item, COUNT(*) AS n, SUM(price) AS s FROM bids GROUP BY item)
GROUP BY CUBE (n)

SELECT DISTINCT n FROM (SELECT city, COUNT(*) AS n FROM people GROUP BY city)

SELECT city, COUNT(*) AS n FROM (SELECT city, age FROM people UNION ALL SELECT bidder, price FROM bids) GROUP BY city

SELECT a, b, COUNT(*) AS n FROM (SELECT city AS a, age AS b FROM people WHERE age > 20) GROUP BY GROUPING SETS
((a, b), (b), ()) HAVING COUNT(*) > 1

SELECT window_start, window_end, item, n, COUNT(*) AS k FROM (SELECT window_start, window_end, item, COUNT(*) AS
n FROM @tumble GROUP BY window_start, window_end, item) GROUP BY window_start, window_end, GROUPING SETS
((item), (n))

SELECT COUNT(*) AS n, SUM(n) AS s FROM (SELECT window_start, COUNT(*) AS n FROM @hop GROUP BY window_start)

SELECT CASE WHEN price > 10 THEN 'big' ELSE 'small' END AS size, COUNT(*) AS n, AVG(price) * 2 + MIN(price) AS x
FROM bids GROUP BY CASE WHEN price > 10 THEN 'big' ELSE 'small' END

SELECT window_start, window_end, item, LISTAGG(bidder) AS l, COUNT(DISTINCT bidder) AS d FROM @tumble GROUP BY
window_start, window_end, CUBE (item)

SELECT SUM(price) AS s FROM bids HAVING SUM(price) > 1000

SELECT 1 AS x FROM bids HAVING COUNT(*) > 3

SELECT COUNT(*) AS n, MAX(item) AS m FROM bids GROUP BY ()

SELECT item, ROW(item, bidder) AS r, COUNT(*) AS n FROM bids GROUP BY item, ROW(item, bidder)

SELECT ARRAY[item] AS a, COUNT(*) AS n FROM bids GROUP BY ARRAY[item]
"""

_OF_CHANGES = """
SELECT window_start, window_end, shop, COUNT(*) AS c, SUM(n) AS s, AVG(n) AS a, MIN(n) AS l, MAX(price) AS m,
  COUNT(DISTINCT n) AS d FROM @changed GROUP BY window_start, window_end, shop

SELECT window_start, window_end, COUNT(*) AS c, COUNT(n) AS k, SUM(price) AS s, AVG(price) AS a, MAX(shop) AS m,
  SUM(weight) AS w, AVG(weight) AS v FROM @changed GROUP BY window_start, window_end

SELECT window_end, STDDEV_POP(weight) AS p, VAR_SAMP(weight) AS v, COUNT(*) FILTER (WHERE n > 4) AS c
  FROM @changed GROUP BY window_start, window_end

SELECT window_start, window_end, shop, SUM(n) AS s FROM @changed WHERE n IS NOT NULL
  GROUP BY window_start, window_end, shop HAVING COUNT(*) > 1

SELECT DISTINCT window_start, window_end, shop FROM @changed

SELECT window_start, window_end, shop, GROUPING(shop) AS g, COUNT(*) AS c, MIN(price) AS m
  FROM @changed GROUP BY window_start, window_end, ROLLUP(shop)

SELECT window_start, window_end, COUNT(*) AS c, SUM(s) AS t FROM (
  SELECT window_start, window_end, shop, SUM(n) AS s FROM @changed GROUP BY window_start, window_end, shop)
  GROUP BY window_start, window_end

SELECT window_start, window_end, shop, COUNT(*) AS c, MAX(n) AS m FROM (
  SELECT *, EXTRACT(SECOND FROM window_end) AS e FROM @changed) WHERE e <> 13 GROUP BY window_start, window_end, shop
"""

_CHANGED_ONCE = """
SELECT window_start, window_end, shop, LAST_VALUE(n) AS l, FIRST_VALUE(id) AS f, COUNT(DISTINCT price) AS d
  FROM TABLE(TUMBLE(TABLE stock, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, shop

SELECT window_start, window_end, LISTAGG(shop) AS l, SUM(DISTINCT n) AS s
  FROM TABLE(TUMBLE(TABLE stock, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end

SELECT window_start, window_end, COUNT(*) AS c, SUM(n) AS s FROM TABLE(TUMBLE(
  TABLE stock, DESCRIPTOR(ts), INTERVAL '10' SECOND)) WHERE id <> 8 GROUP BY window_start, window_end
"""

_CHANGED = {
    "tumble": "TABLE(TUMBLE(TABLE stock, DESCRIPTOR(ts), INTERVAL '10' SECOND))",
    "hop": "TABLE(HOP(TABLE stock, DESCRIPTOR(ts), INTERVAL '4' SECOND, INTERVAL '12' SECOND))",
    "cumulate": "TABLE(CUMULATE(TABLE stock, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '20' SECOND))",
}

_CALLS = "COUNT(*) AS n, SUM(price) AS s, AVG(price) AS a, MAX(big) AS m, COUNT(DISTINCT bidder) AS d"


def _expanded(query: str) -> str:
    calls = {**_WINDOWS, **_LOCAL_WINDOWS, "calls": _CALLS}
    return re.sub(r"@(\w+)", lambda found: calls[found[1]], query.strip())


QUERIES = [
    *(
        ("UTC", _expanded(query.replace("@window", f"@{name}")))
        for name in _WINDOWS
        for query in _OF_EACH_WINDOW.strip().split("\n\n")
    ),
    *(("UTC", _expanded(query)) for query in _SINGLE.strip().split("\n\n")),
    *(
        (zone, _expanded(query))
        for zone in ("America/Los_Angeles", "Europe/Berlin")
        for query in _IN_LOCAL_TIME.strip().split("\n\n")
    ),
    *(("UTC", _expanded(query)) for query in _MIXED.strip().split("\n\n")),
    *(
        ("UTC", query.replace("@changed", window).strip())
        for window in _CHANGED.values()
        for query in _OF_CHANGES.strip().split("\n\n")
    ),
    *(("UTC", query.strip()) for query in _CHANGED_ONCE.strip().split("\n\n")),
]
"""`table.local-time-zone` and query."""
