EXPLAIN SELECT ws, we, COUNT(*) AS n FROM (
  SELECT COALESCE(l.window_start, r.window_start) AS ws, COALESCE(l.window_end, r.window_end) AS we
  FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '5' SECOND) l
  FULL JOIN TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '5' SECOND) r
  ON l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end)
GROUP BY ws, we
