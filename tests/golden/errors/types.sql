SELECT k + 1 FROM src
====
SELECT k = 1 FROM src
====
SELECT v || k FROM src
====
SELECT NOT v FROM src
====
SELECT k FROM src WHERE v
====
SELECT v IN (1, 'a') FROM src
====
SELECT CASE WHEN v > 1 THEN 1 ELSE 'x' END FROM src
====
SELECT UPPER(v) FROM src
====
SELECT SUBSTRING(k) FROM src
====
SELECT CAST(v AS TIMESTAMP(3)) FROM src
====
SELECT CAST(ts AS BIGINT) FROM src
====
SELECT ts - ts FROM src
====
SELECT tags[0] FROM plain
====
SELECT v[1] FROM src
====
SELECT NULL FROM src
====
SELECT DATE '2024-02-30'
====
SELECT TIMESTAMP '2024-01-01 25:00:00'
====
SELECT 123456789012345678901234567890123456789012
====
CREATE TABLE t (a DECIMAL(39, 2)) WITH ('connector' = 'print')
====
CREATE TABLE t (a DECIMAL(5, 6)) WITH ('connector' = 'print')
====
CREATE TABLE t (a TIME(6)) WITH ('connector' = 'print')
====
INSERT INTO log SELECT k, k, 1 FROM src
====
INSERT INTO log SELECT k, v FROM src
====
INSERT INTO log (k, nn) SELECT k, v FROM src
====
INSERT INTO log (n) SELECT v FROM src
====
INSERT INTO log VALUES (NULL, 1, 2)
====
INSERT INTO log (k, k) VALUES ('a', 'b')
====
INSERT INTO more (doubled) VALUES (1)
====
INSERT INTO positive VALUES ('a', 1, TIMESTAMP '2024-01-01 00:00:00')
====
SELECT k FROM src UNION ALL SELECT k, v FROM src
====
SELECT k FROM src UNION ALL SELECT v FROM src
====
VALUES (1, 2), (3)
====
SELECT 1e400
