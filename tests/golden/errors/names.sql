SELECT kk FROM src
====
SELECT V FROM src
====
SELECT s.v FROM src
====
SELECT src.vv FROM src
====
SELECT r.y.q FROM plain
====
SELECT k.x FROM plain
====
SELECT v FROM srcc
====
SELECT v FROM default_databas.src
====
SELECT v FROM other_catalog.default_database.src
====
SELECT a FROM (SELECT k AS a, v AS a FROM src)
====
SELECT x.* FROM src AS s
====
SELECT `größe`,
       数量,
       wrong_name
FROM (SELECT k AS `größe`, v AS `数量` FROM src)
====
SELECT UPPR(k) FROM src
====
SELECT no_such_function(k) FROM src
====
INSERT INTO lgo SELECT k, v, 1 FROM src
====
SELECT hello
====
WITH a AS (SELECT k FROM src) SELECT v FROM a
====
SELECT key_name FROM positiv
====
SELECT k, v * 2 AS twice FROM src WHERE twice > 4
====
SELECT k, SUM(v) AS total FROM src GROUP BY k HAVING total + 1 > 4
====
SELECT k + 1 AS next FROM src GROUP BY next + 1
====
SELECT k, SUM(v) AS total, total + 1 FROM src GROUP BY k
====
SELECT k AS c, v AS c FROM src ORDER BY c LIMIT 2
