EXPLAIN SELECT l.k, r.v
FROM HOP(TABLE src, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '5' MINUTE) l
JOIN HOP(TABLE src, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '5' MINUTE) r
ON l.window_start = r.window_start AND l.window_end = r.window_end
