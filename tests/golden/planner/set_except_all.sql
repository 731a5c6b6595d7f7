SET 'parallelism.default' = '2';
EXPLAIN INSERT INTO shown SELECT k, CAST(v AS BIGINT) FROM src EXCEPT ALL SELECT k, v FROM more
