EXPLAIN SELECT window_start, window_end, window_time, SUM(v) AS s
FROM CUMULATE(
  DATA => TABLE src, TIMECOL => DESCRIPTOR(ts), STEP => INTERVAL '1' HOUR, SIZE => INTERVAL '1' DAY,
  `OFFSET` => INTERVAL '-8' HOUR)
GROUP BY window_start, window_end, window_time
