SET 'parallelism.default' = '4';
EXPLAIN SELECT window_end, COUNT(*), MIN(v), MAX(v) FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end;
