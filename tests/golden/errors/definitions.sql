CREATE TABLE t (a INT, a STRING) WITH ('connector' = 'print')
====
CREATE TABLE t (a INT, PRIMARY KEY (b) NOT ENFORCED) WITH ('connector' = 'print')
====
CREATE TABLE t (a INT, PRIMARY KEY (a)) WITH ('connector' = 'print')
====
CREATE TABLE t (a INT, b AS a + 1, PRIMARY KEY (b) NOT ENFORCED) WITH ('connector' = 'print')
====
CREATE TABLE t (a INT, b AS a + 1, c AS b + 1) WITH ('connector' = 'print')
====
CREATE TABLE t (a INT, WATERMARK FOR a AS a) WITH ('connector' = 'print')
====
CREATE TABLE t (ts TIMESTAMP(6), WATERMARK FOR ts AS ts) WITH ('connector' = 'print')
====
CREATE TABLE t (ts TIMESTAMP(3), WATERMARK FOR tss AS ts) WITH ('connector' = 'print')
====
CREATE TABLE t (ts TIMESTAMP(3), WATERMARK FOR ts AS 5) WITH ('connector' = 'print')
====
CREATE TABLE t (ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECONDD) WITH ('connector' = 'print')
====
CREATE TABLE t (a INT, WATERMARK FOR a AS a, WATERMARK FOR a AS a) WITH ('connector' = 'print')
====
CREATE TABLE t (a INT); SELECT * FROM t
====
CREATE TABLE t (a INT) WITH ('connector' = 'no-such'); SELECT * FROM t
====
SELECT * FROM src /*+ OPTIONS('no-such-option' = '1') */
====
SELECT * FROM log
====
INSERT INTO g VALUES (1)
====
CREATE TABLE g (a INT) WITH ('connector' = 'datagen'); INSERT INTO g VALUES (1)
====
CREATE TABLE m (a INT, b INT METADATA FROM 'ofset') WITH ('connector' = 'kafka'); SELECT * FROM m
====
CREATE TABLE m (a INT, b BIGINT METADATA FROM 'offset') WITH ('connector' = 'kafka'); INSERT INTO m VALUES (1, 2)
====
CREATE VIEW w (a, b) AS SELECT k FROM src
====
CREATE VIEW w AS SELECT k, k FROM src
====
CREATE VIEW w AS SELECT k FROM gone
====
CREATE TABLE once (a INT) WITH ('connector' = 'kafka'); CREATE VIEW w AS SELECT a FROM once; DROP TABLE once; SELECT * FROM w
====
SET 'parallelism.default' = 'many'; SELECT 1
====
SET 'table.local-time-zone' = 'Europe/Berln'; SELECT 1
====
SET 'execution.runtime-mode' = 'batch'; SELECT k FROM src
====
SELECT k FROM src /*+ OPTIONS('scan.parallelism' = '0') */
====
SELECT k FROM src /*+ OPTIONS('scan.watermark.emit.strategy' = 'never') */
