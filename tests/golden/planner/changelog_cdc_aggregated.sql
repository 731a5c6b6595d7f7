SET 'parallelism.default' = '4';
EXPLAIN INSERT INTO totals SELECT k, SUM(v) FROM cdc GROUP BY k;
