SET 'parallelism.default' = '2';
EXPLAIN INSERT INTO pairs SELECT k, v FROM cdc INTERSECT SELECT k, v FROM more
