"""Whole queries over several small tables: joins, sub-queries, set operations; and all that are asked together."""

from __future__ import annotations

from tests.truths.definitions_ranks import BATCH, ORDERED, RANKS, UNNEST, VALUES, WINDOW_RANKS

_JOINS = """
SELECT * FROM emp JOIN dept ON emp.dept = dept.dept

SELECT * FROM emp LEFT JOIN dept ON emp.dept = dept.dept

SELECT * FROM emp RIGHT JOIN dept ON emp.dept = dept.dept

SELECT * FROM emp FULL JOIN dept ON emp.dept = dept.dept

SELECT e.name, d.title FROM emp e LEFT JOIN dept d ON e.dept = d.dept AND e.pay > d.budget

SELECT e.name, d.title, d.budget FROM emp e FULL JOIN dept d ON e.dept = d.dept AND e.pay < d.budget AND e.boss = 1

SELECT e.name, d.title FROM emp e RIGHT JOIN dept d ON e.dept = d.dept AND e.name <> 'ann' WHERE d.title <> 'Gates'

SELECT e.name, d.title FROM emp e LEFT JOIN dept d ON e.dept = d.dept WHERE d.title IS NULL

SELECT e.name, d.title FROM emp e LEFT JOIN dept d ON e.dept = d.dept WHERE d.budget > 90 OR e.dept IS NULL

SELECT e.name, d.title FROM emp e JOIN dept d ON e.dept IS NOT DISTINCT FROM d.dept

SELECT e.name, d.title FROM emp e FULL JOIN dept d ON e.dept IS NOT DISTINCT FROM d.dept AND e.id < 6

SELECT e.name, d.title FROM emp e JOIN dept d ON e.dept = d.dept OR (e.dept IS NULL AND d.dept IS NULL)

SELECT e.name, d.title FROM emp e JOIN dept d ON e.pay = d.budget

SELECT e.id, d.title FROM emp e JOIN dept d ON e.pay < d.budget AND e.id > 4

SELECT e.id, d.title FROM emp e LEFT JOIN dept d ON e.pay > d.budget

SELECT e.id, d.title FROM emp e CROSS JOIN dept d WHERE e.id IN (3, 5)

SELECT e.id, d.title, n.v FROM emp e, dept d, nil n

SELECT e.id, n.k, n.v FROM emp e LEFT JOIN nil n ON TRUE

SELECT n.*, e.id FROM nil n RIGHT JOIN emp e ON n.k = e.id

SELECT e.id, n.v FROM emp e FULL JOIN nil n ON e.id = n.k

SELECT * FROM emp JOIN dept USING (dept)

SELECT dept, name, title FROM emp LEFT JOIN dept USING (dept)

SELECT dept, name, title FROM emp RIGHT JOIN dept USING (dept)

SELECT dept, name, title FROM emp FULL JOIN dept USING (dept)

SELECT * FROM emp FULL JOIN dept USING (dept, boss)

SELECT * FROM emp NATURAL JOIN dept

SELECT * FROM emp NATURAL LEFT JOIN dept

SELECT * FROM emp NATURAL FULL JOIN dept

SELECT emp.dept, dept.dept, dept.boss FROM emp RIGHT JOIN dept USING (dept)

SELECT * FROM item JOIN cust USING (cust)

SELECT * FROM item LEFT JOIN cust USING (cust)

SELECT * FROM item FULL JOIN cust USING (cust)

SELECT * FROM item NATURAL RIGHT JOIN cust

SELECT i.id, c.city FROM item i LEFT JOIN cust c ON i.cust = c.cust AND i.n >= c.level

SELECT i.id, c.city FROM item i RIGHT JOIN cust c ON i.cust = c.cust AND i.sku <> 'nut'

SELECT i.id, c.city FROM item i FULL JOIN cust c ON i.cust = c.cust AND i.n > 1 AND c.level > 2

SELECT i.sku, c.city, e.pay FROM item i JOIN cust c ON i.cust = c.cust LEFT JOIN emp e ON e.name = c.cust AND e.id < 7

SELECT a.id, b.id FROM item a JOIN item b ON a.cust = b.cust AND a.id < b.id

SELECT a.k, a.v, b.k AS bk, b.v AS bv FROM loose a FULL JOIN loose b ON a.k = b.k AND a.v = b.v

SELECT a.v, b.n FROM loose a LEFT JOIN item b ON a.k = b.id

SELECT a.v, COUNT(*) AS n FROM loose a FULL JOIN item b ON a.k = b.n GROUP BY a.v

SELECT x.id, y.name, z.name FROM emp x LEFT JOIN emp y ON x.boss = y.id LEFT JOIN emp z ON y.boss = z.id

SELECT x.id, t.title, t.name FROM emp x LEFT JOIN (dept d JOIN emp y ON d.boss = y.id) AS t ON x.dept = t.dept

SELECT x.id, d.title, y.name FROM emp x LEFT JOIN (dept d JOIN emp y ON d.boss = y.id) ON x.dept = d.dept

SELECT c.city, SUM(i.n) AS s, COUNT(i.id) AS k, COUNT(*) AS n FROM cust c LEFT JOIN item i
  ON c.cust = i.cust GROUP BY c.city

SELECT e.id, d.title FROM emp e JOIN dept d ON CAST(e.dept AS STRING) = CAST(d.dept AS STRING)

SELECT e.id, v.w FROM emp e JOIN (VALUES (10, 'ten'), (20, 'twenty'), (CAST(NULL AS INT), 'nil')) AS v (k, w)
  ON e.dept = v.k

SELECT COALESCE(e.dept, d.dept) AS k, e.pay + d.budget AS p, e.pay * d.budget AS m FROM emp e FULL JOIN dept d
  ON e.dept = d.dept

SELECT e.id, e.pay FROM emp e JOIN dept d ON e.dept = d.dept AND 100 / (e.id - 5) > 0

SELECT id, CASE WHEN title IS NULL THEN 'none' ELSE title END AS t FROM emp NATURAL
  LEFT JOIN (SELECT dept, title FROM dept) AS d

SELECT * FROM emp e JOIN dept d ON e.dept = d.title

SELECT name, dept FROM emp, dept

SELECT e.id FROM emp e JOIN dept d

SELECT * FROM emp JOIN dept USING (nothing)
"""

_SUBQUERIES = """
SELECT id FROM emp WHERE dept IN (SELECT dept FROM dept)

SELECT id FROM emp WHERE dept NOT IN (SELECT dept FROM dept)

SELECT id FROM emp WHERE dept NOT IN (SELECT dept FROM dept WHERE dept IS NOT NULL)

SELECT id FROM emp WHERE dept NOT IN (SELECT k FROM nil)

SELECT id FROM emp WHERE dept IN (SELECT k FROM nil)

SELECT id, dept FROM emp WHERE (dept, boss) IN (SELECT dept, boss FROM dept)

SELECT id, dept FROM emp WHERE (dept, boss) NOT IN (SELECT dept, boss FROM dept WHERE budget > 0)

SELECT id, dept FROM emp WHERE (dept, boss) NOT IN (SELECT CAST(10 AS BIGINT), 1 FROM dept)

SELECT name FROM emp e WHERE EXISTS (SELECT 1 FROM dept d WHERE d.dept = e.dept)

SELECT name FROM emp e WHERE NOT EXISTS (SELECT * FROM dept d WHERE d.dept = e.dept)

SELECT id FROM emp WHERE EXISTS (SELECT * FROM nil)

SELECT id FROM emp WHERE NOT EXISTS (SELECT * FROM nil)

SELECT id FROM emp e WHERE EXISTS (SELECT * FROM dept d WHERE d.budget < e.pay AND d.dept = e.dept)

SELECT id FROM emp e WHERE NOT EXISTS (SELECT * FROM dept d WHERE d.budget < e.pay)

SELECT id FROM emp e WHERE dept IN (SELECT d.dept FROM dept d WHERE d.boss = e.boss)

SELECT id FROM emp e WHERE dept NOT IN (SELECT d.dept FROM dept d WHERE d.boss = e.boss)

SELECT id, cust FROM item WHERE cust IN (SELECT cust FROM cust WHERE level > 1)

SELECT id, cust FROM item WHERE cust NOT IN (SELECT cust FROM cust WHERE city = 'Rome')

SELECT id, cust FROM item i WHERE NOT EXISTS (SELECT 1 FROM cust c WHERE c.cust = i.cust AND c.level >= i.n)

SELECT cust FROM cust c WHERE EXISTS (SELECT 1 FROM item i WHERE i.cust = c.cust AND i.n > 1) OR level IS NULL

SELECT id FROM item WHERE n NOT IN (SELECT k FROM loose)

SELECT id FROM item WHERE n NOT IN (SELECT k FROM loose WHERE v IS NOT NULL)

SELECT k, v FROM loose WHERE k NOT IN (SELECT n FROM item WHERE sku = 'nut')

SELECT id FROM emp WHERE NOT (dept IN (SELECT dept FROM dept))

SELECT id, dept IN (SELECT dept FROM dept) AS b FROM emp

SELECT id, dept IN (SELECT dept FROM dept WHERE dept IS NOT NULL) AS b FROM emp

SELECT id, dept NOT IN (SELECT k FROM nil) AS b FROM emp

SELECT id, EXISTS (SELECT 1 FROM dept d WHERE d.dept = e.dept) AS b FROM emp e

SELECT id FROM emp WHERE dept IN (SELECT dept FROM dept WHERE dept IS NOT NULL) OR id = 4

SELECT id, CASE WHEN dept IN (SELECT dept FROM dept) THEN 'y' ELSE 'n' END AS c FROM emp

SELECT id, (SELECT MAX(budget) FROM dept) AS m FROM emp

SELECT id, (SELECT v FROM nil) AS m FROM emp

SELECT id, (SELECT COUNT(*) FROM nil) AS m FROM emp

SELECT id, (SELECT title FROM dept) AS m FROM emp

SELECT id, (SELECT title FROM dept WHERE boss = 1) AS m FROM emp

SELECT id FROM emp WHERE pay > (SELECT AVG(pay) FROM emp)

SELECT id FROM emp WHERE pay > (SELECT MIN(pay) FROM emp WHERE id > 100)

SELECT id, (SELECT d.title FROM dept d WHERE d.boss = e.id) AS t FROM emp e

SELECT id, (SELECT MAX(d.budget) FROM dept d WHERE d.dept = e.dept) AS b FROM emp e

SELECT id, (SELECT COUNT(*) FROM dept d WHERE d.dept = e.dept) AS n FROM emp e

SELECT id, (SELECT SUM(n) FROM item i WHERE i.cust = e.name) AS s FROM emp e

SELECT id FROM emp e WHERE pay = (SELECT MAX(x.pay) FROM emp x WHERE x.dept = e.dept)

SELECT id FROM emp e WHERE 1 < (SELECT COUNT(*) FROM dept d WHERE d.dept = e.dept)

SELECT id FROM emp e WHERE 0 = (SELECT COUNT(*) FROM dept d WHERE d.dept = e.dept)

SELECT dept, COUNT(*) AS n FROM emp GROUP BY dept HAVING COUNT(*) > (SELECT COUNT(*) FROM nil) + 1

SELECT dept, COUNT(*) AS n FROM emp GROUP BY dept HAVING dept IN (SELECT dept FROM dept WHERE budget > 200)

SELECT cust, (SELECT COUNT(*) FROM item i WHERE i.cust = c.cust) AS n FROM cust c

SELECT id FROM emp WHERE pay > ALL (SELECT budget FROM dept WHERE budget < 100)

SELECT id FROM emp WHERE pay >= SOME (SELECT budget FROM dept)

SELECT id FROM emp WHERE dept = ANY (SELECT dept FROM dept)

SELECT id FROM emp WHERE dept <> ALL (SELECT dept FROM dept WHERE dept > 0)

SELECT id FROM emp WHERE dept IN (SELECT dept, boss FROM dept)

SELECT id, (SELECT title, boss FROM dept) AS t FROM emp

SELECT d.title, t.name, t.pay FROM dept d, LATERAL (SELECT name, pay FROM emp e WHERE e.dept = d.dept) AS t

SELECT d.title, t.m FROM dept d, LATERAL (SELECT MAX(pay) AS m FROM emp e WHERE e.dept = d.dept) AS t

SELECT c.city, t.sku, t.n FROM (SELECT DISTINCT city FROM cust) c,
  LATERAL (SELECT sku, n FROM item i JOIN cust x ON i.cust = x.cust WHERE x.city = c.city ORDER BY n DESC LIMIT 1) AS t

SELECT d.title, t.id FROM dept d, LATERAL (SELECT id FROM emp e WHERE e.dept = d.dept ORDER BY id DESC LIMIT 1) AS t

SELECT d.title, t.name FROM dept d LEFT JOIN LATERAL (SELECT name FROM emp e WHERE e.dept = d.dept) AS t ON TRUE

SELECT d.title, t.n FROM dept d LEFT JOIN LATERAL (SELECT COUNT(*) AS n FROM emp e WHERE e.dept = d.dept) AS t ON TRUE
"""

_SETS = """
SELECT dept FROM emp UNION SELECT dept FROM dept

SELECT dept FROM emp UNION ALL SELECT dept FROM dept

SELECT dept FROM emp INTERSECT SELECT dept FROM dept

SELECT dept FROM emp INTERSECT ALL SELECT dept FROM dept

SELECT dept FROM emp EXCEPT SELECT dept FROM dept

SELECT dept FROM emp EXCEPT ALL SELECT dept FROM dept

SELECT dept FROM dept EXCEPT ALL SELECT dept FROM emp

SELECT boss, dept FROM emp UNION SELECT boss, dept FROM dept

SELECT pay FROM emp UNION SELECT budget FROM dept

SELECT pay FROM emp INTERSECT SELECT budget FROM dept

SELECT id, pay FROM emp EXCEPT SELECT boss, budget FROM dept

SELECT name AS a FROM emp UNION SELECT title FROM dept

SELECT name FROM emp UNION ALL SELECT sku FROM item UNION ALL SELECT cust FROM cust

SELECT cust FROM item INTERSECT SELECT cust FROM cust

SELECT cust FROM item EXCEPT SELECT cust FROM cust

SELECT cust FROM cust EXCEPT ALL SELECT cust FROM item

SELECT cust FROM item INTERSECT ALL SELECT cust FROM cust

SELECT k, v FROM loose INTERSECT ALL SELECT k, v FROM loose

SELECT k, v FROM loose EXCEPT ALL SELECT k, v FROM loose WHERE v IS NULL

SELECT k, v FROM loose EXCEPT SELECT k, v FROM loose WHERE v = 'x'

SELECT v FROM loose UNION SELECT name FROM emp EXCEPT SELECT cust FROM cust

SELECT v FROM loose UNION (SELECT name FROM emp INTERSECT SELECT cust FROM cust)

SELECT v FROM loose UNION SELECT name FROM emp INTERSECT SELECT cust FROM cust

SELECT 1 AS a, 'x' AS b UNION SELECT 2, 'longer'

SELECT CAST(1.5 AS DECIMAL(5, 1)) AS a UNION ALL SELECT CAST(2.25 AS DECIMAL(4, 2)) UNION ALL SELECT 3

SELECT CAST(1 AS TINYINT) AS a UNION ALL SELECT CAST(2.5 AS DOUBLE) UNION ALL SELECT CAST(0.5 AS FLOAT)

SELECT CAST(1 AS BIGINT) AS a UNION ALL SELECT CAST(2.25 AS DECIMAL(4, 2))

SELECT CAST(7 AS BIGINT) AS a UNION ALL SELECT CAST(1.5 AS FLOAT)

SELECT CAST('a' AS CHAR(3)) AS a UNION ALL SELECT CAST('bcde' AS VARCHAR(4)) UNION ALL SELECT NULL

SELECT CAST(NULL AS INT) AS a UNION SELECT NULL

SELECT DATE '2024-01-01' AS a UNION ALL SELECT TIMESTAMP '2024-01-02 03:04:05.678'

SELECT ARRAY[1, 2] AS a UNION SELECT ARRAY[3, NULL]

SELECT id FROM emp UNION SELECT id, name FROM emp

SELECT id FROM emp UNION SELECT name FROM emp

SELECT ts FROM clicks UNION ALL SELECT ts FROM shows

SELECT n, COUNT(*) AS c FROM (SELECT cust AS n FROM item UNION SELECT cust FROM cust) GROUP BY n
"""

_ON_TIME = """
SELECT c.id, s.id AS sid, s.n FROM clicks c @kind JOIN shows s
  ON c.usr = s.usr AND s.ts BETWEEN c.ts - INTERVAL '3' SECOND AND c.ts + INTERVAL '2' SECOND

SELECT c.id, c.usr, s.id AS sid, c.ts, s.ts AS sts FROM clicks c @kind JOIN shows s
  ON c.usr = s.usr AND c.ts > s.ts - INTERVAL '8' SECOND AND c.ts <= s.ts AND s.n > 1

SELECT c.id, s.id AS sid, c.window_start AS cw, s.window_start AS sw FROM @clicks c @kind JOIN @shows s
  ON c.usr = s.usr AND c.window_start = s.window_start AND c.window_end = s.window_end

SELECT c.id, s.usr, s.n, c.window_end AS ce, s.window_end AS se FROM @clicks c @kind JOIN @shows s
  ON c.window_start = s.window_start AND c.window_end = s.window_end AND c.usr = s.usr AND c.id <> s.n
"""

_IN_TIME = """
SELECT c.id, s.id FROM clicks c, shows s WHERE c.usr = s.usr AND c.ts = s.ts

SELECT c.id, c.usr, c.ts, s.n FROM clicks c JOIN shows s
  ON c.usr = s.usr AND s.ts BETWEEN c.ts - INTERVAL '10' SECOND AND c.ts

SELECT * FROM @clicks c JOIN @shows s ON c.window_start = s.window_start AND c.window_end = s.window_end
  AND c.usr = s.usr

SELECT id, usr, window_end FROM @clicks c WHERE usr IN (
  SELECT usr FROM @shows s WHERE s.window_start = c.window_start AND s.window_end = c.window_end)

SELECT id, usr, window_end FROM @clicks c WHERE usr NOT IN (
  SELECT usr FROM @shows s WHERE s.window_start = c.window_start AND s.window_end = c.window_end)

SELECT id, usr, window_end FROM @clicks c WHERE EXISTS (
  SELECT usr FROM @shows s WHERE s.usr = c.usr AND s.window_start = c.window_start AND s.window_end = c.window_end)

SELECT id, usr, window_end FROM @clicks c WHERE NOT EXISTS (
  SELECT usr FROM @shows s WHERE s.usr = c.usr AND s.window_start = c.window_start AND s.window_end = c.window_end)

SELECT c.usr, c.n, s.n AS m, c.window_end FROM (
  SELECT usr, COUNT(*) AS n, window_start, window_end FROM @clicks GROUP BY usr, window_start, window_end) c
JOIN (SELECT usr, SUM(n) AS n, window_start, window_end FROM @shows GROUP BY usr, window_start, window_end) s
ON c.usr = s.usr AND c.window_start = s.window_start AND c.window_end = s.window_end

SELECT window_start, window_end, COUNT(*) AS n FROM TUMBLE(TABLE pairs, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end

SELECT t.id, t.cur, r.rate, r.ts AS since FROM trades t JOIN rates FOR SYSTEM_TIME AS OF t.ts AS r ON t.cur = r.cur

SELECT t.id, t.cur, r.rate, r.ts AS since FROM trades t LEFT JOIN rates FOR SYSTEM_TIME AS OF t.ts AS r ON t.cur = r.cur

SELECT * FROM trades t LEFT JOIN rates FOR SYSTEM_TIME AS OF t.ts AS r ON t.cur = r.cur

SELECT t.id, r.rate FROM trades t LEFT JOIN rates FOR SYSTEM_TIME AS OF t.ts r ON t.cur = r.cur AND t.amount > r.rate

SELECT t.id, t.amount * r.rate AS m FROM trades t JOIN rates FOR SYSTEM_TIME AS OF t.ts AS r ON t.cur = r.cur
  WHERE r.rate IS NOT NULL

SELECT t.id, r.rate FROM trades t JOIN last_quote FOR SYSTEM_TIME AS OF t.ts AS r ON t.cur = r.cur

SELECT t.id, r.rate FROM trades t LEFT JOIN last_quote FOR SYSTEM_TIME AS OF t.ts AS r ON t.cur = r.cur

SELECT window_end, SUM(m) AS m, COUNT(*) AS n FROM TUMBLE(TABLE valued, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end

SELECT t.id, r.rate FROM trades t RIGHT JOIN rates FOR SYSTEM_TIME AS OF t.ts AS r ON t.cur = r.cur

SELECT t.id, r.rate FROM trades t JOIN rates FOR SYSTEM_TIME AS OF t.ts AS r ON t.amount = r.rate

SELECT c.id, s.id AS sid FROM clicks c JOIN shows s ON s.ts BETWEEN c.ts - INTERVAL '1' SECOND AND c.ts

SELECT c.id, s.id AS sid FROM clicks c JOIN shows s ON c.usr = s.usr AND s.ts > c.ts
"""

_WINDOWS = {
    "ticks": (
        "TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
        "HOP(TABLE ticks, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND)",
        "CUMULATE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)",
    ),
    "clicks": ("TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND)",),
    "shows": ("TUMBLE(TABLE shows, DESCRIPTOR(ts), INTERVAL '10' SECOND)",),
}


def _listed(text: str) -> list[str]:
    return text.strip().split("\n\n")


def _windowed(query: str, shape: int = 0) -> str:
    for name, shapes in _WINDOWS.items():
        query = query.replace(f"@{name}", shapes[shape % len(shapes)])
    return query


_STREAMING = [
    *(query for part in (_JOINS, _SUBQUERIES, _SETS, VALUES, RANKS, UNNEST) for query in _listed(part)),
    *(_windowed(query, shape) for shape in range(3) for query in _listed(WINDOW_RANKS)),
    *(
        _windowed(query.replace("@kind", kind))
        for kind in ("INNER", "LEFT", "RIGHT", "FULL")
        for query in _listed(_ON_TIME)
    ),
    *(_windowed(query) for query in _listed(_IN_TIME)),
]
QUERIES = [
    *(("streaming", query) for query in _STREAMING),
    *(("ordered", query) for query in _listed(ORDERED)),
    *(("batch", query) for query in _listed(BATCH)),
]
"""Mode and query. `ordered`: in batch mode, and the order of rows counts."""
