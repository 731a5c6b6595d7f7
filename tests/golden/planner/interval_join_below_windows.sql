EXPLAIN SELECT window_start, k, COUNT(*) AS n
FROM TUMBLE((SELECT a.k, b.ts FROM src a JOIN src b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' HOUR), DESCRIPTOR(ts), INTERVAL '1' MINUTE)
GROUP BY window_start, window_end, k
