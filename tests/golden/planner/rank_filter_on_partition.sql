-- Rows of other partitions need not be ranked.
EXPLAIN SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS rn FROM src)
WHERE rn <= 3 AND k = 'a' AND v > 1;
