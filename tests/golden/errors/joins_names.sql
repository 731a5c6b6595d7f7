SELECT k FROM src AS s JOIN more AS m ON s.k = m.k
====
SELECT s.k FROM src AS s JOIN more AS m ON k = m.k
====
SELECT src.k FROM src JOIN src ON src.k = src.k
====
SELECT s.k FROM src AS s, more AS m, plain AS s
====
SELECT 1 FROM src JOIN default_catalog.default_database.src ON TRUE
====
SELECT x.k FROM src AS s JOIN more AS m ON s.k = m.k
====
SELECT s.kk FROM src AS s JOIN more AS m ON s.k = m.k
====
SELECT s.k FROM src AS s JOIN more AS m ON s.k = m.kk
====
SELECT x.* FROM src AS s JOIN more AS m ON s.k = m.k
====
SELECT s.k FROM src AS s JOIN more AS m ON s.k = p.k JOIN plain AS p ON TRUE
====
SELECT s.k FROM src AS s JOIN (more AS m JOIN plain AS p ON s.k = p.k) ON TRUE
====
SELECT s.k FROM src AS s JOIN more AS m USING (note)
====
SELECT s.k FROM src AS s JOIN more AS m USING (k, k)
====
SELECT s.k FROM (src AS s JOIN more AS m ON TRUE) JOIN plain AS p USING (k)
====
SELECT 1 FROM (src AS s JOIN more AS m ON TRUE) NATURAL JOIN plain AS p
====
SELECT k, v FROM src AS s JOIN more AS m USING (k)
====
SELECT s.k FROM src AS s JOIN (SELECT k, v FROM more) AS m (a, b, c) ON TRUE
====
SELECT s.k FROM src AS s JOIN plain AS p ON s.v = p.k
====
SELECT s.k FROM src AS s JOIN more AS m ON s.v
====
SELECT s.k FROM src AS s JOIN more AS m ON COUNT(*) > 1
====
SELECT s.k FROM src AS s JOIN (SELECT ts AS k FROM src) AS m USING (k)
====
SELECT k FROM src AS s JOIN (SELECT k FROM more WHERE more.v = s.v) AS m ON TRUE
====
SELECT s.k FROM src AS s GROUP BY m.k
