EXPLAIN SELECT ws, we, MAX(c) AS best
FROM (
  SELECT window_start AS ws, window_end AS we, k, COUNT(*) AS c
  FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY window_start, window_end, k
)
WHERE c > 1
GROUP BY ws, we
