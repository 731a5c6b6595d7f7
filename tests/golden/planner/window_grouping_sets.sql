EXPLAIN SELECT window_start, window_end, k, v, COUNT(*) AS c, SUM(v) AS s, GROUPING_ID(k, v) AS g
FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end, GROUPING SETS ((k), (v), ())
