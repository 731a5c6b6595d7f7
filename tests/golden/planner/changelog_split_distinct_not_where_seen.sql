SET 'table.optimizer.distinct-agg.split.enabled' = 'true';
EXPLAIN INSERT INTO shown SELECT k, COUNT(DISTINCT v) FROM src GROUP BY k;
