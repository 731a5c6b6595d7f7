EXPLAIN WITH small AS (
  SELECT k, window_time AS wt, COUNT(*) AS c
  FROM TUMBLE(TABLE more, DESCRIPTOR(proc), INTERVAL '1' SECOND) GROUP BY window_start, window_end, window_time, k
)
SELECT window_start, window_end, SUM(c) AS c FROM HOP(TABLE small, DESCRIPTOR(wt), INTERVAL '5' SECOND, INTERVAL '10' SECOND)
GROUP BY window_start, window_end
