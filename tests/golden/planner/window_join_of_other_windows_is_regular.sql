EXPLAIN SELECT l.k FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '5' SECOND) l
JOIN TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '10' SECOND) r
ON l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end
