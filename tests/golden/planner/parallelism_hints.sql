SET 'parallelism.default' = '4';
EXPLAIN INSERT INTO out_t /*+ OPTIONS('sink.parallelism' = '2') */ SELECT k, ts, 1 FROM src /*+ OPTIONS('scan.parallelism' = '1') */;
