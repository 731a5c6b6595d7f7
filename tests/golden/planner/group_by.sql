EXPLAIN SELECT k, COUNT(*) AS c, COUNT(note) AS n, SUM(v) AS s, MIN(v) AS lo, MAX(v) AS hi, AVG(v) AS a
FROM src WHERE v > 0 GROUP BY k HAVING COUNT(*) > 1
