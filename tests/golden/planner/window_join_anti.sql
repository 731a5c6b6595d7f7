EXPLAIN SELECT l.k, l.v, l.window_start FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '5' SECOND) l
WHERE NOT EXISTS (SELECT * FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '5' SECOND) r
  WHERE l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end)
