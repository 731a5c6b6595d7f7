EXPLAIN SELECT window_start, window_end, COUNT(*) AS c
FROM HOP(TABLE src, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)
WHERE window_start >= TIMESTAMP '2024-01-01 00:00:00'
GROUP BY window_start, window_end
