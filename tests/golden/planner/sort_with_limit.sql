SET 'parallelism.default' = '4';
EXPLAIN SELECT k FROM src ORDER BY v DESC LIMIT 3 OFFSET 2;
