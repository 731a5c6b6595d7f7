EXPLAIN SELECT l.k, r.v, l.window_start
FROM (SELECT * FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '5' SECOND)) l
LEFT JOIN (SELECT * FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '5' SECOND)) r
ON l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end AND r.v > l.v
