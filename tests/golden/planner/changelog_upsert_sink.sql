SET 'parallelism.default' = '4';
EXPLAIN INSERT INTO totals SELECT k, COUNT(*) FROM src GROUP BY k;
