"""Where whole queries over several tables come to another result here than in Flink, and why.

A deviation covers the queries that contain its text. One that no longer occurs fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Aspect = Literal["refused here", "refused there", "fails there", "names", "types", "rows"]
"""`refused here`: Flink answers; `refused there`, `fails there`: we answer."""


@dataclass(frozen=True)
class Deviation:
    text: str
    aspects: frozenset[Aspect]
    reason: str


def _where(text: str, reason: str, *aspects: Aspect) -> Deviation:
    return Deviation(text, frozenset(aspects), reason)


_EMPTY = "an aggregate of nothing has its row from the start (0 or NULL); in Flink not before the first row has come"
_UNTYPED = "a NULL without a type takes that of its place"
_NOT_DISTINCT = "Flink finds no common type of the keys of IS NOT DISTINCT FROM"
_RANKS = "RANK and DENSE_RANK are kept up to date as ROW_NUMBER is"
_PLANNER = "Flink's planner fails on it"
_COLLECT = "COLLECT is not built"
_COUNT = "COUNT as a scalar sub-query is never NULL"
_VERSIONS = "versions that come late count, and a NULL key finds no version; in Flink it finds the NULL key's"

DEVIATIONS = [
    # -- Flink's answer is another ----------------------------------------------------------------------
    _where("SELECT id, dept NOT IN (SELECT k FROM nil)", _EMPTY, "rows"),
    _where("SELECT id, (SELECT COUNT(*) FROM nil) AS m", _EMPTY, "rows", "types"),
    _where("HAVING COUNT(*) > (SELECT COUNT(*) FROM nil) + 1", _EMPTY, "rows"),
    _where("EXISTS (SELECT 1 FROM nil), id IN (SELECT k FROM nil)", _EMPTY, "rows"),
    _where("LATERAL (SELECT MAX(pay)", "an aggregate without GROUP BY has its row also over nothing", "rows"),
    _where("JOIN last_quote FOR SYSTEM_TIME", _VERSIONS, "rows"),
    _where("(SELECT COUNT(*) FROM dept d WHERE d.dept = e.dept) AS n", _COUNT, "types"),
    _where("(SELECT COUNT(*) FROM item i WHERE i.cust = c.cust) AS n", _COUNT, "types"),
    # -- Flink fails, we answer -------------------------------------------------------------------------
    _where("ON e.dept IS NOT DISTINCT FROM d.dept", _NOT_DISTINCT, "refused there"),
    _where("100 / (e.id - 5) > 0", "a division stays behind the conditions before it", "fails there"),
    _where("ORDER BY n DESC, id LIMIT 2 OFFSET 1", "Flink takes back a row that it never gave", "fails there"),
    _where("x.city = c.city ORDER BY n DESC LIMIT 1", _PLANNER, "refused there"),
    _where("e.dept = d.dept ORDER BY id DESC LIMIT 1", _PLANNER, "refused there"),
    _where("CROSS JOIN (SELECT * FROM dept ORDER BY budget LIMIT 2)", _PLANNER, "refused there"),
    _where("SELECT id, RANK() OVER (ORDER BY pay DESC) AS rk FROM emp) WHERE rk <= 3", _RANKS, "refused there"),
    _where("SELECT id, DENSE_RANK() OVER (ORDER BY pay DESC) AS rk FROM emp) WHERE", _RANKS, "refused there"),
    _where("VARCHAR(4)) UNION ALL SELECT NULL", _UNTYPED, "refused there"),
    _where("CAST(NULL AS INT) AS a UNION SELECT NULL", _UNTYPED, "refused there"),
    _where("VALUES (1), (2.5), (NULL)", _UNTYPED, "refused there"),
    _where("VALUES (1, NULL), (2, 'x')", _UNTYPED, "refused there"),
    _where("SELECT DATE '2024-01-01' AS a UNION ALL", "a DATE meets a TIMESTAMP as its midnight", "refused there"),
    # -- we refuse --------------------------------------------------------------------------------------
    _where("COLLECT(n)", _COLLECT, "refused here"),
    _where("COLLECT(cust)", _COLLECT, "refused here"),
    _where("SELECT docs.r.* FROM docs", "a row is not spread by * here", "refused here"),
    _where("ROW_NUMBER() OVER (ORDER BY pay) AS rn FROM emp", "in streams a rank has an upper bound", "refused here"),
]
