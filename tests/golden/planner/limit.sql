SET 'parallelism.default' = '4';
EXPLAIN SELECT v, k FROM src WHERE v > 0 LIMIT 10 OFFSET 5;
