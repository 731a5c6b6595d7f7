SET 'parallelism.default' = '32';
SET 'table.exec.sink.keyed-shuffle' = 'FORCE';
EXPLAIN INSERT INTO out_t SELECT k, window_start, COUNT(*) FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '10' SECOND) WHERE v > 0 GROUP BY k, window_start, window_end;
