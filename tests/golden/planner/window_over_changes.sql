EXPLAIN INSERT INTO out_t SELECT k, window_start, COUNT(*)
FROM TABLE(TUMBLE(TABLE timed_cdc, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY k, window_start, window_end;
