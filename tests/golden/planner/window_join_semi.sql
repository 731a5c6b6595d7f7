EXPLAIN SELECT l.k, l.v, l.window_start FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '5' SECOND) l
WHERE l.k IN (SELECT r.k FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '5' SECOND) r
  WHERE l.window_start = r.window_start AND l.window_end = r.window_end AND r.v > 3)
