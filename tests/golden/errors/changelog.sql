INSERT INTO appended SELECT k, COUNT(*) FROM src GROUP BY k
====
INSERT INTO appended SELECT k, v FROM cdc WHERE v > 0
====
INSERT INTO appended SELECT DISTINCT k, v FROM cdc
====
EXECUTE STATEMENT SET BEGIN
  INSERT INTO totals SELECT k, COUNT(*) FROM src GROUP BY k;
  INSERT INTO appended SELECT k, COUNT(*) FROM src GROUP BY k;
END
====
CREATE TABLE keyless (k STRING, n BIGINT) WITH ('connector' = 'upsert-kafka', 'topic' = 't');
INSERT INTO keyless SELECT k, COUNT(*) FROM src GROUP BY k
====
CREATE TABLE keyless (k STRING, n BIGINT) WITH ('connector' = 'upsert-kafka', 'topic' = 't');
SELECT * FROM keyless
====
SET 'table.exec.source.cdc-events-duplicate' = 'true';
SELECT * FROM cdc_without_key
====
SET 'execution.runtime-mode' = 'batch';
SELECT k FROM cdc
====
SET 'table.exec.sink.require-on-conflict' = 'true';
INSERT INTO claims SELECT k, COUNT(*) FROM src GROUP BY k
====
INSERT INTO shown SELECT k, v FROM src ON CONFLICT DO NOTHING
====
INSERT INTO out_t SELECT k, ts, v FROM src ON CONFLICT DO DEDUPLICATE
====
SET 'parallelism.default' = '4';
INSERT INTO shown SELECT k, v FROM cdc_without_key /*+ OPTIONS('scan.parallelism' = '2') */
====
SET 'parallelism.default' = '4';
INSERT INTO shown /*+ OPTIONS('sink.parallelism' = '2') */ SELECT k, COUNT(*) FROM src GROUP BY k
====
SET 'table.exec.mini-batch.enabled' = 'true';
SELECT k FROM src
====
SET 'table.exec.mini-batch.enabled' = 'true';
SET 'table.exec.mini-batch.allow-latency' = '1 s';
SELECT k FROM src
====
SET 'table.optimizer.distinct-agg.split.bucket-num' = '0';
SELECT k FROM src
====
SET 'table.optimizer.non-deterministic-update.strategy' = 'TRY_RESOLVE';
INSERT INTO shown SELECT UUID(), COUNT(*) FROM src GROUP BY k
====
SELECT /*+ STATE_TTL('other' = '1 d') */ k, COUNT(*) FROM src GROUP BY k
====
SELECT /*+ STATE_TTL('src' = 'long') */ k, COUNT(*) FROM src GROUP BY k
====
SELECT /*+ STATE_TTL('src' = '1 d') */ k FROM src
====
SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE timed_cdc, DESCRIPTOR(p), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end
