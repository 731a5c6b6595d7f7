"""The shapes of queries over several tables that random runs are made of.

Tables `l`, `m`, `o` have columns `id` (unique), `k` (any type that can be a key), `n` and `q` (small INT), `p` (any
type) and the event time `ts`. `r` has versions: `k`, `ts` (unique per `k`) and `n`. In a text, `{lw}`, `{mw}` are the
tables in windows, and the other names in braces are what `random_words` draws.
"""

from __future__ import annotations

import random

import msgspec


class Shape(msgspec.Struct, frozen=True):
    """`sql`: for both sides; `oracle`: what DuckDB is asked, if that differs. `tables`: those it reads. `appended`:
    those of them that take inserts only. `batch`: whether it may run in batch mode as well."""

    sql: str
    oracle: str = ""
    tables: str = "lm"
    appended: str = ""
    batch: bool = True


def random_words(choose: random.Random) -> dict[str, str]:
    """What stands for the names in braces: residual predicates, comparisons, bounds."""
    low, high = sorted((choose.randrange(-6, 7), choose.randrange(-6, 7)))
    first = choose.choice((1, 1, 1, 2, 3))
    return {
        "kind": choose.choice(("INNER", "LEFT", "RIGHT", "FULL")),
        "kind2": choose.choice(("INNER", "LEFT", "RIGHT", "FULL")),
        "outer": choose.choice(("INNER", "LEFT")),
        "eq": choose.choice(("=", "=", "IS NOT DISTINCT FROM")),
        "and": choose.choice(
            (
                "",
                "",
                " AND l.n < m.n",
                " AND l.n <> m.n",
                " AND m.n > 2",
                " AND l.n < 4",
                " AND l.q + m.n > 3",
                " AND COALESCE(m.n, l.q) = l.n",
                " AND (l.n = 1 OR m.n > 2)",
            )
        ),
        "where": choose.choice(("", "", " WHERE l.n > 1", " WHERE m.n IS NULL", " WHERE l.q <> 2 OR m.q = 1")),
        "mine": choose.choice(("", "", " WHERE l.n > 1", " WHERE l.id % 3 <> 1", " WHERE l.k IS NOT NULL")),
        "compare": choose.choice(("<", "<=", ">", ">=", "<>")),
        "order": choose.choice(("ASC NULLS FIRST", "DESC NULLS LAST", "ASC NULLS LAST", "DESC NULLS FIRST")),
        "low": str(low),
        "high": str(high),
        "first": str(first),
        "last": str(first + choose.choice((0, 0, 1, 4))),
        "limit": str(choose.choice((1, 3, 10))),
        "skip": choose.choice(("", "", " OFFSET 1", " OFFSET 4")),
        "rank": choose.choice(("RANK", "DENSE_RANK")),
        "all": choose.choice(("", " ALL")),
        "set": choose.choice(("UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL")),
        "time": choose.choice(("ASC", "DESC")),
    }


_BY_K = "{kind} JOIN m ON l.k {eq} m.k{and}"
_BETWEEN = "m.ts BETWEEN l.ts + INTERVAL '{low}' SECOND AND l.ts + INTERVAL '{high}' SECOND"
_SAME_WINDOW = "l.window_start = m.window_start AND l.window_end = m.window_end"
_TWO = "SELECT l.id AS a, l.n AS b, m.id AS c, m.p AS d"
_LATEST = "(SELECT MAX(h.ts) FROM r h WHERE h.k = l.k AND h.ts <= l.ts)"


def _ranked(function: str, keys: str, order: str, source: str, shown: str, which: str) -> str:
    over = f"{function}() OVER ({keys}ORDER BY {order})"
    return f"SELECT {shown} FROM (SELECT *, {over} AS rn FROM {source}) AS x WHERE {which}"


def _regular() -> dict[str, Shape]:
    found = {
        f"{kind.lower()} join": Shape(f"{_TWO} FROM l {kind} JOIN m ON l.k {{eq}} m.k{{and}}")
        for kind in ("INNER", "LEFT", "RIGHT", "FULL")
    }
    three = "SELECT l.id AS a, m.id AS b, o.id AS c FROM l"
    sums = "SELECT k, COUNT(*) AS c, MAX(n) AS h FROM"
    return found | {
        "join with WHERE": Shape(f"{_TWO} FROM l {_BY_K}{{where}}"),
        "join by two columns": Shape(f"{_TWO} FROM l {{kind}} JOIN m ON l.k = m.k AND l.n = m.n"),
        "join by the primary key": Shape(f"{_TWO} FROM l {{kind}} JOIN m ON l.id = m.id{{and}}"),
        "join of primary key and another": Shape(f"{_TWO} FROM l {{kind}} JOIN m ON l.id = m.n{{and}}"),
        "join without a key": Shape(f"{_TWO} FROM l JOIN m ON l.n {{compare}} m.n AND l.id % 5 = 0"),
        "left join without a key": Shape(f"{_TWO} FROM l LEFT JOIN m ON l.n {{compare}} m.n AND m.id % 5 = 0"),
        "join USING": Shape("SELECT k, l.id AS a, m.n AS b FROM l {kind} JOIN m USING (k){mine}"),
        "self join": Shape(
            "SELECT l.id AS a, x.id AS b, x.p AS c FROM l {kind} JOIN l AS x ON l.k {eq} x.k AND l.n < x.n", tables="l"
        ),
        "comma join": Shape(f"{_TWO} FROM l, m WHERE l.k = m.k AND l.n {{compare}} m.n"),
        "cross join with an aggregate": Shape(
            "SELECT l.id, l.n, s.c FROM l CROSS JOIN (SELECT COUNT(*) AS c FROM m) AS s"
        ),
        "three-way join": Shape(f"{three} JOIN m ON l.k = m.k JOIN o ON l.k = o.k AND m.n >= o.n", tables="lmo"),
        "mixed outer joins": Shape(
            f"{three} {{kind}} JOIN m ON l.k = m.k AND l.n = m.n"
            " {kind2} JOIN o ON l.id = o.id AND COALESCE(m.n, 1) < 4",
            tables="lmo",
        ),
        "outer join of a join": Shape(
            "SELECT l.id AS a, x.i AS b, x.j AS c FROM l {kind} JOIN"
            " (SELECT m.k AS k, m.id AS i, o.id AS j FROM m {kind2} JOIN o ON m.id = o.n) AS x ON l.k {eq} x.k",
            tables="lmo",
        ),
        "join over aggregates": Shape(
            f"SELECT x.k AS a, x.c AS b, y.k AS c, y.h AS d FROM ({sums} l GROUP BY k) AS x"
            f" {{kind}} JOIN ({sums} m GROUP BY k) AS y ON x.k {{eq}} y.k AND x.c {{compare}} y.c"
        ),
        "join with an aggregate": Shape(
            f"SELECT l.id, l.n, s.c FROM l {{kind}} JOIN ({sums} m GROUP BY k) AS s ON l.k = s.k"
        ),
        "join over DISTINCT": Shape(
            "SELECT l.id, s.n FROM l {kind} JOIN (SELECT DISTINCT k, n FROM m) AS s ON l.k = s.k"
        ),
        "aggregate over a join": Shape(
            "SELECT l.k, COUNT(*) AS a, SUM(m.n) AS b, MIN(m.q) AS c, COUNT(DISTINCT l.n) AS d"
            f" FROM l {_BY_K} GROUP BY l.k"
        ),
        "global aggregate over a join": Shape(f"SELECT COUNT(*) AS a, SUM(m.n) AS b, MAX(l.q) AS c FROM l {_BY_K}"),
        "HAVING over a join": Shape(
            f"SELECT m.n AS a, COUNT(l.id) AS b FROM l {_BY_K} GROUP BY m.n HAVING COUNT(*) < 9"
        ),
        "DISTINCT over a join": Shape(f"SELECT DISTINCT l.k, m.n FROM l {_BY_K}"),
    }


def _subqueries() -> dict[str, Shape]:
    return {
        "IN": Shape("SELECT id, n FROM l WHERE k IN (SELECT k FROM m)"),
        "IN, correlated": Shape("SELECT id, p FROM l WHERE k IN (SELECT k FROM m WHERE m.n {compare} l.n)"),
        "NOT IN": Shape("SELECT id FROM l WHERE n NOT IN (SELECT q FROM m WHERE n > 3)"),
        "NOT IN without NULL": Shape(
            "SELECT id, k FROM l WHERE n NOT IN (SELECT n FROM m WHERE n IS NOT NULL AND n > 2)"
        ),
        "NOT IN, correlated": Shape("SELECT id FROM l WHERE n NOT IN (SELECT q FROM m WHERE m.k = l.k)"),
        "EXISTS": Shape("SELECT id, n FROM l WHERE EXISTS (SELECT 1 FROM m WHERE m.k = l.k{and})"),
        "NOT EXISTS": Shape("SELECT id, n FROM l WHERE NOT EXISTS (SELECT 1 FROM m WHERE m.k {eq} l.k{and})"),
        "EXISTS alone": Shape("SELECT id, p FROM l WHERE EXISTS (SELECT 1 FROM m WHERE n > 4)"),
        "EXISTS under OR": Shape("SELECT id FROM l WHERE l.n > 3 OR EXISTS (SELECT 1 FROM m WHERE m.k = l.k)"),
        "IN as a value": Shape("SELECT id, n IN (SELECT q FROM m) AS x, k IN (SELECT k FROM m) AS y FROM l"),
        "scalar": Shape("SELECT id, n, (SELECT MAX(n) FROM m) AS x FROM l"),
        "scalar, correlated": Shape("SELECT id, n, (SELECT MAX(n) FROM m WHERE m.k = l.k) AS x FROM l"),
        "scalar COUNT, correlated": Shape(
            "SELECT id, (SELECT COUNT(*) FROM m WHERE m.k = l.k AND m.n > l.n) AS x FROM l"
        ),
        "scalar in WHERE": Shape("SELECT id FROM l WHERE n = (SELECT MAX(n) FROM m WHERE m.k = l.k)"),
        "ANY": Shape("SELECT id, n {compare} ANY (SELECT q FROM m WHERE m.k = l.k) AS x FROM l"),
        "ALL": Shape("SELECT id, n {compare} ALL (SELECT q FROM m WHERE m.n > 2) AS x FROM l"),
        "LATERAL": Shape("SELECT l.id, s.c FROM l, LATERAL (SELECT COUNT(*) AS c FROM m WHERE m.k = l.k) AS s"),
        "LATERAL Top-N": Shape(
            "SELECT l.id, s.id AS i, s.n FROM l {outer} JOIN LATERAL (SELECT id, n FROM m WHERE m.k = l.k"
            " ORDER BY n {order}, id LIMIT 2) AS s ON TRUE"
        ),
        "semi join of a join": Shape(f"{_TWO} FROM l {_BY_K} WHERE l.n IN (SELECT q FROM o)", tables="lmo"),
        "EXISTS over an aggregate": Shape(
            "SELECT id FROM l WHERE k IN (SELECT k FROM m GROUP BY k HAVING COUNT(*) > 2)"
        ),
    }


def _timed() -> dict[str, Shape]:
    found: dict[str, Shape] = {}
    for kind in ("INNER", "LEFT", "RIGHT", "FULL"):
        found[f"{kind.lower()} interval join"] = Shape(
            f"{_TWO} FROM l {kind} JOIN m ON l.k {{eq}} m.k AND {_BETWEEN}{{and}}", appended="lm", batch=False
        )
        found[f"{kind.lower()} window join"] = Shape(
            f"{_TWO} FROM {{lw}} l {kind} JOIN {{mw}} m ON l.k {{eq}} m.k AND {_SAME_WINDOW}{{and}}",
            appended="lm",
            batch=False,
        )
    windowed = "SELECT l.id AS a, l.window_start AS s, l.window_end AS e"
    counts = "SELECT k, window_start, window_end, COUNT(*) AS c FROM"
    tumble = "SELECT t, n FROM (SELECT l.ts AS t, m.n AS n FROM l JOIN m ON l.k = m.k AND " + _BETWEEN + ") AS x"
    return found | {
        "interval join without a key": Shape(
            f"{_TWO} FROM l {{kind}} JOIN m ON {_BETWEEN}{{and}}", appended="lm", batch=False
        ),
        "semi window join": Shape(
            f"{windowed} FROM {{lw}} l WHERE EXISTS (SELECT 1 FROM {{mw}} m WHERE m.k = l.k AND {_SAME_WINDOW}{{and}})",
            appended="lm",
            batch=False,
        ),
        "anti window join": Shape(
            f"{windowed} FROM {{lw}} l WHERE NOT EXISTS"
            f" (SELECT 1 FROM {{mw}} m WHERE m.k = l.k AND {_SAME_WINDOW}{{and}})",
            appended="lm",
            batch=False,
        ),
        "interval join, window aggregate": Shape(
            f"SELECT window_start AS s, COUNT(*) AS c, SUM(n) AS n FROM TUMBLE(({tumble}), DESCRIPTOR(t),"
            " INTERVAL '4' SECOND) GROUP BY window_start, window_end",
            f"SELECT time_bucket(INTERVAL 4 SECOND, t) AS s, COUNT(*), SUM(n) FROM ({tumble}) GROUP BY 1",
            appended="lm",
            batch=False,
        ),
        "interval join of interval join": Shape(
            "SELECT x.a, x.b, o.id AS c FROM"
            " (SELECT l.k AS k, l.id AS a, m.id AS b, l.ts AS t FROM l {kind} JOIN m ON l.k = m.k"
            f" AND {_BETWEEN}) AS x {{kind2}} JOIN o ON x.k = o.k AND o.ts BETWEEN x.t - INTERVAL '3' SECOND AND x.t",
            tables="lmo",
            appended="lmo",
            batch=False,
        ),
        "window join of aggregates": Shape(
            "SELECT a.k AS a, a.c AS b, b.k AS c, b.c AS d, COALESCE(a.window_start, b.window_start) AS s"
            f" FROM ({counts} {{lw}} l GROUP BY k, window_start, window_end) AS a"
            f" {{kind}} JOIN ({counts} {{mw}} m GROUP BY k, window_start, window_end)"
            " AS b ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end",
            appended="lm",
            batch=False,
        ),
        "window join, window Top-N": Shape(
            _ranked(
                "ROW_NUMBER",
                "PARTITION BY s, e ",
                "n {order}, a, c",
                f"(SELECT l.id AS a, m.id AS c, m.n AS n, l.window_start AS s, l.window_end AS e FROM {{lw}} l"
                f" JOIN {{mw}} m ON l.k = m.k AND {_SAME_WINDOW})",
                "a, c, e, rn",
                "rn <= 3",
            ),
            appended="lm",
            batch=False,
        ),
    }


def _temporal() -> dict[str, Shape]:
    version = "FOR SYSTEM_TIME AS OF l.ts AS m ON l.k = m.k"
    latest = f"r AS m ON l.k = m.k AND m.ts = {_LATEST}"
    return {
        "temporal join": Shape(
            f"SELECT l.id, l.n AS a, m.n AS b FROM l {{outer}} JOIN r {version}{{and}}",
            f"SELECT l.id, l.n, m.n FROM l {{outer}} JOIN {latest}{{and}}",
            tables="lr",
            appended="l",
            batch=False,
        ),
        "temporal join with a deduplicated view": Shape(
            f"SELECT l.id, l.n AS a, m.n AS b FROM l {{outer}} JOIN newest {version}{{and}}",
            f"SELECT l.id, l.n, m.n FROM l {{outer}} JOIN {latest}{{and}}",
            tables="lr",
            appended="lr",
            batch=False,
        ),
        "temporal join, aggregate": Shape(
            f"SELECT l.k, COUNT(*) AS c, SUM(m.n) AS s FROM l {{outer}} JOIN r {version} GROUP BY l.k",
            f"SELECT l.k, COUNT(*), SUM(m.n) FROM l {{outer}} JOIN {latest} GROUP BY l.k",
            tables="lr",
            appended="l",
            batch=False,
        ),
    }


def _ranks() -> dict[str, Shape]:
    by_k, order = "PARTITION BY k ", "n {order}, id"
    which = "rn BETWEEN {first} AND {last}"
    sums = "(SELECT k, COUNT(*) AS c, SUM(n) AS s FROM l GROUP BY k)"
    joined = f"(SELECT l.id AS id, m.id AS i, l.k AS k, m.n AS n FROM l {_BY_K})"
    return {
        "Top-N with rank": Shape(_ranked("ROW_NUMBER", by_k, order, "l", "id, k, n, rn", which), tables="l"),
        "Top-N": Shape(_ranked("ROW_NUMBER", by_k, order, "l", "id, k, p", which), tables="l"),
        "Top-N of all": Shape(_ranked("ROW_NUMBER", "", order, "l{mine}", "id, n, rn", which), tables="l"),
        "RANK with rank": Shape(_ranked("{rank}", by_k, "n {order}", "l", "id, k, n, rn", which), tables="l"),
        "RANK": Shape(_ranked("{rank}", by_k, "n {order}, q DESC NULLS LAST", "l", "id, n, q", which), tables="l"),
        "Top-N over an aggregate": Shape(
            _ranked("ROW_NUMBER", "", "c {order}, s {order}, k {order}", sums, "k, c, rn", "rn <= {last}"), tables="l"
        ),
        "RANK over an aggregate": Shape(
            _ranked("{rank}", "", "c {order}", sums, "k, c, s", "rn <= {last}"), tables="l"
        ),
        "Top-N over a join": Shape(
            _ranked("ROW_NUMBER", by_k, "n {order}, id {order}, i {order}", joined, "k, id, i, n", which)
        ),
        "Top-N with rank over a join": Shape(
            _ranked("ROW_NUMBER", "", "n {order}, id {order}, i {order}", joined, "id, i, rn", "rn <= {last}")
        ),
        "join, aggregate, Top-N": Shape(
            _ranked(
                "ROW_NUMBER",
                "PARTITION BY c ",
                "s {order}, n {order}",
                f"(SELECT m.n AS n, COUNT(*) AS c, SUM(l.q) AS s FROM l {_BY_K} GROUP BY m.n)",
                "n, c, s, rn",
                "rn <= {last}",
            )
        ),
        "join of Top-Ns": Shape(
            "SELECT x.id AS a, y.id AS b, x.n FROM ("
            + _ranked("ROW_NUMBER", by_k, order, "l", "id, k, n", "rn <= 2")
            + ") AS x {kind} JOIN ("
            + _ranked("ROW_NUMBER", by_k, order, "m", "id, k, n", "rn = 1")
            + ") AS y ON x.k = y.k"
        ),
        "aggregate over Top-N": Shape(
            "SELECT n, COUNT(*) AS c FROM ("
            + _ranked("ROW_NUMBER", by_k, order, "l", "n, k", which)
            + ") AS y GROUP BY n",
            tables="l",
        ),
        "Top-N of Top-N": Shape(
            _ranked(
                "ROW_NUMBER",
                "",
                "n {order}, id",
                "(" + _ranked("ROW_NUMBER", by_k, order, "l", "id, n", "rn = 1") + ")",
                "id, n, rn",
                "rn <= 3",
            ),
            tables="l",
        ),
        "QUALIFY": Shape(
            "SELECT id, k, n FROM l QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY n {order}, id) <= {last}",
            tables="l",
        ),
        "ORDER BY LIMIT": Shape("SELECT id, n, p FROM l{mine} ORDER BY n {order}, id LIMIT {limit}{skip}", tables="l"),
        "ORDER BY LIMIT over a join": Shape(
            f"{_TWO} FROM l {_BY_K} ORDER BY l.n {{order}}, a {{order}}, c {{order}} LIMIT {{limit}}{{skip}}"
        ),
        "ORDER BY LIMIT in a sub-query": Shape(
            "SELECT x.id, m.id AS i FROM (SELECT id, k FROM l ORDER BY n {order}, id LIMIT {limit}{skip}) AS x"
            " JOIN m ON x.k = m.k"
        ),
    }


def _ranks_in_time() -> dict[str, Shape]:
    # Several rows may have the first or last time of a key: they are equal in what is shown.
    last = _ranked("ROW_NUMBER", "PARTITION BY k ", "ts {time}", "l", "k, ts", "rn = 1")
    window = "PARTITION BY window_start, window_end, k "
    which = "rn BETWEEN {first} AND {last}"
    return {
        "deduplication": Shape(last, tables="l", appended="l", batch=False),
        "deduplication, aggregate": Shape(
            "SELECT ts, COUNT(*) AS c FROM (" + last + ") AS y GROUP BY ts", tables="l", appended="l", batch=False
        ),
        "deduplication, join": Shape(
            "SELECT x.k AS a, x.ts AS b, m.id AS c FROM (" + last + ") AS x {kind} JOIN m ON x.k = m.k",
            appended="l",
            batch=False,
        ),
        "window Top-N": Shape(
            _ranked("ROW_NUMBER", window, "n {order}, id", "{lw}", "id, n, window_end, rn", which),
            tables="l",
            appended="l",
            batch=False,
        ),
        "window RANK": Shape(
            _ranked(
                "{rank}", "PARTITION BY window_start, window_end ", "n {order}", "{lw}", "id, n, window_end", which
            ),
            tables="l",
            appended="l",
            batch=False,
        ),
        "window deduplication": Shape(
            _ranked("ROW_NUMBER", window, "ts {time}", "{lw}", "k, ts, window_end", "rn = 1"),
            tables="l",
            appended="l",
            batch=False,
        ),
        "window aggregate, window Top-N": Shape(
            _ranked(
                "ROW_NUMBER",
                "PARTITION BY window_start, window_end ",
                "c {order}, k {order}",
                "(SELECT k, window_start, window_end, COUNT(*) AS c FROM {lw} w GROUP BY k, window_start, window_end)",
                "k, c, window_end, rn",
                "rn <= {last}",
            ),
            tables="l",
            appended="l",
            batch=False,
        ),
    }


def _sets() -> dict[str, Shape]:
    one, two, three = (f"SELECT {t}.k, {t}.n FROM {t}" for t in "lmo")
    return {
        "UNION": Shape(f"{one}{{mine}} UNION{{all}} {two}"),
        "INTERSECT": Shape(f"{one}{{mine}} INTERSECT{{all}} {two}"),
        "EXCEPT": Shape(f"{one}{{mine}} EXCEPT{{all}} {two}"),
        "set operations": Shape(f"({one} {{set}} {two}) EXCEPT{{all}} {three}", tables="lmo"),
        "set operation over joins": Shape(
            f"SELECT l.n AS a, m.q AS b FROM l {_BY_K} {{set}} SELECT o.n, o.q FROM o", tables="lmo"
        ),
        "set operation over aggregates": Shape(
            "SELECT k, COUNT(*) AS c FROM l GROUP BY k {set} SELECT k, COUNT(*) FROM m GROUP BY k"
        ),
        "aggregate over a set operation": Shape(f"SELECT n, COUNT(*) AS c FROM ({one} {{set}} {two}) AS x GROUP BY n"),
        "join over a set operation": Shape(
            f"SELECT x.k, x.n, o.id FROM ({one} {{set}} {two}) AS x {{kind}} JOIN o ON x.k = o.k", tables="lmo"
        ),
        "Top-N over a set operation": Shape(
            _ranked("ROW_NUMBER", "", "n {order}, k {order}", f"({one} {{set}} {two})", "k, n", "rn <= {last}")
        ),
        "UNNEST": Shape("SELECT l.id, x FROM l CROSS JOIN UNNEST(ARRAY[n, q, n + q]) AS e (x){mine}", tables="l"),
        "UNNEST WITH ORDINALITY": Shape(
            "SELECT l.id, x, i FROM l CROSS JOIN UNNEST(ARRAY[n, q]) WITH ORDINALITY AS e (x, i)",
            "SELECT id, UNNEST([n, q]), UNNEST([1, 2]) FROM l",
            tables="l",
        ),
        "LEFT JOIN UNNEST": Shape(
            "SELECT l.id, x FROM l LEFT JOIN UNNEST(ARRAY[n, q]) AS e (x) ON x > 2",
            "SELECT l.id, x FROM l LEFT JOIN (SELECT id, UNNEST([n, q]) AS x FROM l) AS e ON e.id = l.id AND x > 2",
            tables="l",
        ),
        "UNNEST, aggregate": Shape(
            "SELECT x, COUNT(*) AS c FROM l CROSS JOIN UNNEST(ARRAY[n, q]) AS e (x) GROUP BY x", tables="l"
        ),
        "UNNEST over a join": Shape(
            f"SELECT l.id, m.id AS i, x FROM l {_BY_K} CROSS JOIN UNNEST(ARRAY[l.n, m.n]) AS e (x)"
        ),
    }


SHAPES: dict[str, Shape] = {
    **_regular(),
    **_subqueries(),
    **_timed(),
    **_temporal(),
    **_ranks(),
    **_ranks_in_time(),
    **_sets(),
}
