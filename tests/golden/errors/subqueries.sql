SELECT k, (SELECT k, v FROM more) FROM src
====
SELECT k FROM src WHERE v IN (SELECT k, v FROM more)
====
SELECT k FROM src WHERE (k, v) IN (SELECT k FROM more)
====
SELECT k FROM src WHERE v IN (SELECT k FROM more)
====
SELECT k FROM src WHERE EXISTS (SELECT 1 FROM more WHERE more.k = src.kk)
====
SELECT k FROM src WHERE EXISTS (SELECT 1 FROM more WHERE more.kk = src.k)
====
SELECT k, SUM((SELECT MAX(v) FROM more)) FROM TABLE(TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY k, window_start, window_end
====
SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE (SELECT * FROM src WHERE k IN (SELECT k FROM more)), DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end
====
SELECT k FROM src GROUP BY k, (SELECT MAX(v) FROM more)
====
SELECT k FROM src AS a JOIN more AS b ON a.k = b.k AND a.v IN (SELECT v FROM more)
====
SELECT k, COUNT(*) FROM src GROUP BY k HAVING EXISTS (SELECT 1 FROM more WHERE more.v = src.v)
====
SELECT k FROM src WHERE tags = ANY (1, 2)
====
SELECT k FROM plain WHERE tags > ANY (SELECT tags FROM plain)
====
SELECT k FROM src WHERE v > ANY (SELECT k, v FROM more)
====
SELECT k, (SELECT NULL FROM more) FROM src
====
SELECT k FROM src WHERE EXISTS (SELECT window_start FROM TABLE(TUMBLE(TABLE more, DESCRIPTOR(at), INTERVAL '1' HOUR)) WHERE k = src.k GROUP BY window_start, window_end)
====
SELECT k FROM src WHERE v IN ()
====
SELECT k FROM src WHERE EXISTS SELECT 1 FROM more
====
SELECT k FROM src WHERE (k, v) IN ((1, 2, 3))
====
VALUES (1, (SELECT MAX(v) FROM src))
====
SELECT COALESCE(SELECT v FROM more, 1) FROM src
====
CREATE TABLE c (a INT, b AS (SELECT 1)) WITH ('connector' = 'print')
====
SELECT k FROM src WHERE v > ALL (1, 2)
====
SELECT k FROM src WHERE v <> ALL (1, 2)
====
SELECT a.k FROM src AS a LEFT JOIN more AS b ON a.k = b.k AND EXISTS (SELECT 1 FROM plain)
