SET 'parallelism.default' = '4';
EXPLAIN SELECT window_start, COUNT(*) AS n, MAX(c) AS most
FROM TUMBLE(
  TABLE (
    SELECT window_time AS wt, k, COUNT(*) AS c
    FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '10' SECOND)
    GROUP BY window_start, window_end, window_time, k
  ),
  DESCRIPTOR(wt), INTERVAL '1' MINUTE)
GROUP BY window_start, window_end;
