SELEC 1
====
SELECT FROM src
====
SELECT k, FROM src
====
SELECT k FORM src
====
SELECT k FROM src WHER v > 1
====
SELECT (k FROM src
====
SELECT k FROM src GROUP k
====
SELECT "k" FROM src
====
SELECT 'abc FROM src
====
SELECT `abc FROM src
====
SELECT 1 /* open
====
SELECT CASE WHEN v > 1 THEN 2 FROM src
====
SELECT order FROM src
====
SELECT v == 1 FROM src
====
SELECT CAST(v AS INTT) FROM src
====
SELECT INTERVAL '1' FORTNIGHT
====
SELECT k FROM src LIMIT many
====
CREATE TABEL t (a INT)
====
CREATE TABLE t (a INT b INT)
====
CREATE TABLE t (a INT) WITH (connector = 'kafka')
====
CREATE TABLE t (a INT) WITH ('a' = '1', 'a' = '2')
====
CREATE TABLE t (a INT, WATERMARK FOR a)
====
INSERT src SELECT 1
====
EXECUTE STATEMENT SET BEGIN INSERT INTO log SELECT k, v, 1 FROM src; SELECT 1; END
====
EXECUTE STATEMENT SET BEGIN END
====
SHOW TABELS
====
SET parallelism.default = 4
====
STOP JOB abc
====
DESCRIBE
====
SELECT U&'\00g1'
====
SELECT v FROM src WHERE v IS FALS
====
SELECT v,
  x'0g' FROM src
====
ALTER JOB 'x' SET 'parallelism' = '4'
====
ALTER JOB 'x' WITH SAVEPOINT
====
SHOW SAVEPOINTS
====
DROP SAVEPOINT s
