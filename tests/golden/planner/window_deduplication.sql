-- The last row of each window; it is in its window still.
EXPLAIN SELECT window_end, SUM(v) FROM (
  SELECT * FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k ORDER BY ts DESC) AS rn
    FROM CUMULATE(TABLE src, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' HOUR))
  WHERE rn = 1)
GROUP BY window_start, window_end;
