SET 'parallelism.default' = '4';
SET 'table.optimizer.distinct-agg.split.enabled' = 'true';
SET 'table.optimizer.distinct-agg.split.bucket-num' = '16';
EXPLAIN INSERT INTO totals SELECT k, COUNT(DISTINCT v) FILTER (WHERE note IS NOT NULL) + SUM(v) FROM src GROUP BY k;
