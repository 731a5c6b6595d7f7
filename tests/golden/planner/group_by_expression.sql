EXPLAIN SELECT UPPER(k) AS name, MAX(v) - MIN(v) AS width, COUNT(*) + 1 AS c FROM src GROUP BY UPPER(k)
