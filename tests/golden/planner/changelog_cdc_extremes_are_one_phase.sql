SET 'parallelism.default' = '4';
EXPLAIN INSERT INTO totals SELECT k, MAX(v) FROM cdc GROUP BY k;
