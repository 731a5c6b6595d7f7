EXPLAIN SELECT window_start, window_end, k, SUM(v) AS s
FROM TUMBLE(TABLE more, DESCRIPTOR(proc), INTERVAL '10' SECOND)
WHERE v > 1
GROUP BY window_start, window_end, k
