EXPLAIN SELECT k, v, window_start, rn FROM (
  SELECT l.k, r.v, l.window_start, l.window_end, ROW_NUMBER() OVER (PARTITION BY l.window_start, l.window_end, l.k ORDER BY r.v DESC) AS rn
  FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '5' SECOND) l
  JOIN TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '5' SECOND) r
  ON l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end)
WHERE rn <= 3
