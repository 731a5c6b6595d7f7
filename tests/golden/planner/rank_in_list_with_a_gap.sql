-- 1 to 4 are kept, the list is asked again.
EXPLAIN SELECT k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS rn FROM src) WHERE rn IN (1, 4);
