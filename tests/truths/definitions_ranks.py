"""Queries about ranks, deduplication, UNNEST, VALUES and names of columns, and those in batch mode."""

from __future__ import annotations

VALUES = """
VALUES (1, 'a'), (2, 'bcd')

VALUES (1), (2.5), (NULL)

VALUES (CAST(1 AS TINYINT), 1.10), (300, CAST(2 AS DECIMAL(3, 0)))

SELECT * FROM (VALUES (1, NULL), (2, 'x')) AS t (a, b)

SELECT * FROM (VALUES ('a', 1.5), ('bcd', 22.25)) AS t

SELECT a + 1, b || '!', a AS c, -a, a > 1 FROM (VALUES (1, 'x'), (2, 'y')) AS t (a, b)

SELECT 1, 'a', 2.50, TRUE, NULL, DATE '2024-01-01', 1e2

SELECT id, id, name, name FROM emp WHERE id < 3

SELECT e.id, d.dept, e.dept, d.*, e.* FROM emp e JOIN dept d ON e.dept = d.dept WHERE e.id = 1

SELECT COUNT(*), MAX(pay), name FROM emp GROUP BY name

SELECT (SELECT MAX(k) FROM nil), EXISTS (SELECT 1 FROM nil), id IN (SELECT k FROM nil) FROM emp WHERE id = 1

SELECT id AS `EXPR$1`, id + 1, id + 2 FROM emp WHERE id = 1

SELECT * FROM (SELECT id, id + 1, UPPER(name) FROM emp) WHERE id = 2

SELECT t.a, t.b.x, t.b.y FROM (SELECT id AS a, r AS b FROM docs) AS t

SELECT r.x, r.y, r FROM docs

SELECT docs.r.* FROM docs

SELECT CAST(r AS STRING) AS a, CAST(tags AS STRING) AS b, CAST(sizes AS STRING) AS c, CAST(parts AS STRING) AS d
  FROM docs WHERE id <> 1

SELECT ROW(id, name), ARRAY[id, dept], MAP[name, pay] FROM emp WHERE id = 2

SELECT CARDINALITY(tags), tags[1], sizes['s'], parts[1].sku, parts[1].n FROM docs
"""

RANKS = """
SELECT id, dept, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY dept ORDER BY id DESC) AS rn FROM emp) WHERE rn <= 2

SELECT id, dept FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY dept ORDER BY pay DESC, id) AS rn FROM emp)
  WHERE rn <= 2

SELECT * FROM (SELECT id, dept, ROW_NUMBER() OVER (PARTITION BY dept ORDER BY pay, id) AS rn FROM emp)
  WHERE rn BETWEEN 2 AND 3

SELECT id, rn FROM (SELECT id, ROW_NUMBER() OVER (ORDER BY pay DESC, ts) AS rn FROM emp) WHERE rn = 2

SELECT id, rn FROM (SELECT id, ROW_NUMBER() OVER (ORDER BY name, ts) AS rn FROM emp) WHERE rn < 4

SELECT id, rn FROM (SELECT id, ROW_NUMBER() OVER (ORDER BY name DESC, ts) AS rn FROM emp) WHERE rn <= 8

SELECT id, rk FROM (SELECT id, RANK() OVER (ORDER BY pay DESC) AS rk FROM emp) WHERE rk <= 3

SELECT id, rk FROM (SELECT id, DENSE_RANK() OVER (ORDER BY pay DESC) AS rk FROM emp) WHERE rk <= 3

SELECT sku, id, n, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY sku ORDER BY n DESC, id) AS rn FROM item)
  WHERE rn <= 2

SELECT sku, id, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY sku ORDER BY n, id) AS rn FROM item) WHERE rn = 1

SELECT id, n, rn FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY n DESC, id) AS rn FROM item) WHERE rn BETWEEN 2 AND 4

SELECT k, v, rn FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY k, v) AS rn FROM loose) WHERE rn <= 5

SELECT city, s, rn FROM (
  SELECT city, s, ROW_NUMBER() OVER (ORDER BY s DESC, city) AS rn
  FROM (SELECT c.city, SUM(i.n) AS s FROM item i JOIN cust c ON i.cust = c.cust GROUP BY c.city)
) WHERE rn <= 2

SELECT sku, SUM(n) AS s FROM item GROUP BY sku ORDER BY s DESC, sku LIMIT 2

SELECT id, pay FROM emp ORDER BY pay DESC, id LIMIT 3

SELECT id, pay FROM emp ORDER BY pay, ts OFFSET 2 ROWS FETCH NEXT 3 ROWS ONLY

SELECT id, n FROM item ORDER BY n DESC, id LIMIT 2 OFFSET 1

SELECT id, usr, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY usr ORDER BY ts) AS rn FROM clicks) WHERE rn = 1

SELECT id, usr, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY usr ORDER BY ts DESC) AS rn FROM clicks) WHERE rn = 1

SELECT id, sym, px FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY sym ORDER BY ts) AS rn FROM ticks) WHERE rn = 1

SELECT id, sym, px FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY sym ORDER BY ts DESC) AS rn FROM ticks) WHERE rn = 1

SELECT id, px, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY px ORDER BY ts DESC) AS rn FROM ticks) WHERE rn = 1

SELECT COUNT(*) AS n, SUM(px) AS s
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY sym ORDER BY ts DESC) AS rn FROM ticks) WHERE rn = 1

SELECT id, usr FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY usr ORDER BY ts DESC) AS rn FROM clicks)
WHERE rn = 1 AND id > 5

SELECT DISTINCT sku FROM (SELECT sku, ROW_NUMBER() OVER (PARTITION BY cust ORDER BY id) AS rn FROM item) WHERE rn <= 1

SELECT id, usr FROM clicks QUALIFY ROW_NUMBER() OVER (PARTITION BY usr ORDER BY id DESC) = 1

SELECT id, ROW_NUMBER() OVER (ORDER BY pay) AS rn FROM emp
"""

WINDOW_RANKS = """
SELECT * FROM (
  SELECT id, px, window_start, window_end,
    ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY px DESC, id) AS rn
  FROM @ticks) WHERE rn <= 2

SELECT id, sym, window_end FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, sym ORDER BY px, ts) AS rn
  FROM @ticks) WHERE rn <= 1

SELECT id, sym, window_start, rn FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, sym ORDER BY ts) AS rn
  FROM @ticks) WHERE rn = 1

SELECT id, sym, window_time FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, sym ORDER BY ts DESC) AS rn
  FROM @ticks) WHERE rn = 1

SELECT sym, c, s, window_end, rn FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY s DESC, sym) AS rn
  FROM (SELECT window_start, window_end, sym, COUNT(*) AS c, SUM(px) AS s FROM @ticks
    GROUP BY window_start, window_end, sym)) WHERE rn <= 2

SELECT id, window_end, rn FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY px, id) AS rn
  FROM @ticks) WHERE rn BETWEEN 2 AND 3
"""

UNNEST = """
SELECT id, t FROM docs CROSS JOIN UNNEST(tags) AS u (t)

SELECT id, t FROM docs, UNNEST(tags) AS u (t)

SELECT id, t FROM docs LEFT JOIN UNNEST(tags) AS u (t) ON TRUE

SELECT id, t, o FROM docs CROSS JOIN UNNEST(tags) WITH ORDINALITY AS u (t, o)

SELECT id, t, o FROM docs LEFT JOIN UNNEST(tags) WITH ORDINALITY AS u (t, o) ON TRUE

SELECT id, k, v FROM docs CROSS JOIN UNNEST(sizes) AS u (k, v)

SELECT id, k, v FROM docs LEFT JOIN UNNEST(sizes) AS u (k, v) ON TRUE

SELECT id, sku, n FROM docs CROSS JOIN UNNEST(parts)

SELECT id, sku, n, o FROM docs CROSS JOIN UNNEST(parts) WITH ORDINALITY AS u (sku, n, o)

SELECT id, u.* FROM docs LEFT JOIN UNNEST(parts) AS u ON TRUE

SELECT id, s FROM docs CROSS JOIN UNNEST(sure) AS u (s)

SELECT id, s FROM docs LEFT JOIN UNNEST(sure) AS u (s) ON TRUE

SELECT id, a, e FROM docs CROSS JOIN UNNEST(grid) AS u (a) CROSS JOIN UNNEST(a) AS w (e)

SELECT * FROM UNNEST(ARRAY[1, 2, NULL]) AS u (x)

SELECT * FROM UNNEST(ARRAY['a', 'bcd'])

SELECT * FROM UNNEST(ARRAY[ROW(1, 'a'), ROW(2, 'b')]) WITH ORDINALITY

SELECT * FROM UNNEST(MAP['a', 1, 'b', 2]) AS u (k, v)

SELECT sku, t FROM (SELECT sku, COLLECT(n) AS c FROM item GROUP BY sku) CROSS JOIN UNNEST(c) AS u (t)

SELECT sku, t FROM (SELECT sku, COLLECT(cust) AS c FROM item GROUP BY sku) LEFT JOIN UNNEST(c) AS u (t) ON TRUE

SELECT t, COUNT(*) AS n FROM docs CROSS JOIN UNNEST(tags) AS u (t) GROUP BY t

SELECT id FROM docs WHERE 'a' IN (SELECT t FROM UNNEST(tags) AS u (t))

SELECT e.id, t FROM emp e CROSS JOIN UNNEST(ARRAY[e.dept, e.boss]) AS u (t) WHERE e.id < 4

SELECT id, t FROM docs LEFT JOIN UNNEST(tags) AS u (t) ON t = 'a'
"""

ORDERED = """
SELECT id, pay FROM emp ORDER BY pay, ts

SELECT id, pay FROM emp ORDER BY pay DESC NULLS LAST, ts DESC

SELECT id, name FROM emp ORDER BY name NULLS LAST, ts LIMIT 4

SELECT id, name FROM emp ORDER BY name, ts OFFSET 3

SELECT id FROM emp ORDER BY ts DESC FETCH FIRST 2 ROWS ONLY

SELECT id FROM emp ORDER BY ts FETCH FIRST ROW ONLY

SELECT id FROM emp ORDER BY ts OFFSET 6 ROWS FETCH NEXT 9 ROWS ONLY

SELECT dept, COUNT(*) AS n FROM emp GROUP BY dept ORDER BY n DESC, dept

SELECT dept FROM emp UNION SELECT dept FROM dept ORDER BY dept DESC

SELECT DISTINCT dept FROM emp ORDER BY 1

SELECT e.id, d.title FROM emp e LEFT JOIN dept d ON e.dept = d.dept ORDER BY e.ts, title

SELECT d.title, d.dept FROM dept d ORDER BY dept + boss, title DESC

SELECT id FROM emp ORDER BY ts LIMIT 0
"""

BATCH = """
SELECT id, RANK() OVER (ORDER BY pay DESC) AS r, DENSE_RANK() OVER (ORDER BY pay DESC) AS d FROM emp

SELECT id, dept, RANK() OVER (PARTITION BY dept ORDER BY pay) AS r FROM emp

SELECT id, rk FROM (SELECT id, RANK() OVER (PARTITION BY dept ORDER BY pay DESC) AS rk FROM emp) WHERE rk = 1

SELECT id, rk FROM (SELECT id, DENSE_RANK() OVER (ORDER BY pay) AS rk FROM emp) WHERE rk BETWEEN 2 AND 3

SELECT id, ROW_NUMBER() OVER (PARTITION BY dept ORDER BY ts DESC) AS rn FROM emp

SELECT dept FROM emp INTERSECT ALL SELECT dept FROM dept

SELECT dept FROM emp EXCEPT ALL SELECT dept FROM dept

SELECT dept FROM emp EXCEPT SELECT dept FROM dept

SELECT pay FROM emp INTERSECT SELECT budget FROM dept

SELECT id FROM emp WHERE dept NOT IN (SELECT dept FROM dept)

SELECT id, dept IN (SELECT dept FROM dept) AS b FROM emp

SELECT e.name, d.title FROM emp e FULL JOIN dept d ON e.dept = d.dept AND e.pay < d.budget

SELECT * FROM emp NATURAL FULL JOIN dept

SELECT id, (SELECT title FROM dept) AS m FROM emp

SELECT id, (SELECT COUNT(*) FROM dept d WHERE d.dept = e.dept) AS n FROM emp e

SELECT id, t, o FROM docs LEFT JOIN UNNEST(tags) WITH ORDINALITY AS u (t, o) ON TRUE

SELECT COUNT(*) AS n FROM (SELECT id FROM emp LIMIT 3)

SELECT COUNT(*) AS n FROM emp CROSS JOIN (SELECT * FROM dept ORDER BY budget LIMIT 2) AS d
"""
