SET 'parallelism.default' = '4';
EXPLAIN INSERT INTO shown SELECT k, v FROM upserts WHERE v > 3;
