SET 'parallelism.default' = '4';
EXPLAIN INSERT INTO claims SELECT k, COUNT(*) FROM src GROUP BY k;
