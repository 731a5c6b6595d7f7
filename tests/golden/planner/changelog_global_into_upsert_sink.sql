SET 'parallelism.default' = '4';
EXPLAIN INSERT INTO totals SELECT 'all', COUNT(*) FROM src;
