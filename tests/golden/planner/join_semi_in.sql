SET 'parallelism.default' = '2';
EXPLAIN INSERT INTO shown SELECT k, id FROM cdc WHERE k IN (SELECT k FROM src WHERE v > 1)
