EXPLAIN SELECT window_start, window_end, k, COUNT(*) AS c, AVG(v) AS a
FROM TABLE(HOP(TABLE src, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND))
GROUP BY window_start, window_end, k
