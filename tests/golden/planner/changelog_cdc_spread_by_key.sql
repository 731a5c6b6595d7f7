SET 'parallelism.default' = '4';
EXPLAIN INSERT INTO shown SELECT k, v + 1 FROM cdc /*+ OPTIONS('scan.parallelism' = '1') */;
