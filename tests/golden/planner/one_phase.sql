SET 'parallelism.default' = '4';
SET 'table.optimizer.agg-phase-strategy' = 'ONE_PHASE';
EXPLAIN SELECT k, window_start, SUM(v) FROM TUMBLE(TABLE src, DESCRIPTOR(ts), INTERVAL '10' SECOND) GROUP BY k, window_start, window_end;
