SET 'table.exec.source.cdc-events-duplicate' = 'true';
EXPLAIN INSERT INTO shown SELECT k, v FROM cdc;
