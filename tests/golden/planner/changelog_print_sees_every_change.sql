SET 'parallelism.default' = '4';
SET 'table.optimizer.agg-phase-strategy' = 'TWO_PHASE';
EXPLAIN INSERT INTO shown SELECT k, COUNT(*) FROM src GROUP BY k;
