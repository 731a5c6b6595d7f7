EXPLAIN WITH w AS (
  SELECT window_start, window_end, v FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '10' SECOND)
  UNION ALL
  SELECT window_start, window_end, v * 2 FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '10' SECOND)
)
SELECT window_start, window_end, SUM(v) AS s FROM w GROUP BY window_start, window_end
