SET 'parallelism.default' = '4';
SET 'table.exec.mini-batch.enabled' = 'true';
SET 'table.exec.mini-batch.allow-latency' = '2 s';
SET 'table.exec.mini-batch.size' = '5000';
SET 'table.exec.state.ttl' = '1 d';
EXPLAIN INSERT INTO shown SELECT k, COUNT(v) FROM src GROUP BY k;
