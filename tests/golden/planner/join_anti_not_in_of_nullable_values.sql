SET 'parallelism.default' = '2';
EXPLAIN INSERT INTO shown SELECT k, v FROM src WHERE k NOT IN (SELECT k FROM more)
