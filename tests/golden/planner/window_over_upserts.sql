EXPLAIN INSERT INTO out_t SELECT k, window_start, SUM(v)
FROM TABLE(CUMULATE(TABLE timed_upserts, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '1' MINUTE))
WHERE v > 0
GROUP BY k, window_start, window_end;
