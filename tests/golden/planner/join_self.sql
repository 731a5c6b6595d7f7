SET 'parallelism.default' = '2';
EXPLAIN INSERT INTO shown SELECT a.k, b.id FROM cdc AS a JOIN cdc AS b ON a.id = b.id
