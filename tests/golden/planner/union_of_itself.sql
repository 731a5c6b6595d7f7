SET 'parallelism.default' = '2';
EXPLAIN SELECT k, v FROM plain UNION ALL SELECT k, v FROM plain;
