SELECT s.k FROM src AS s JOIN more AS m
====
SELECT s.k FROM src AS s LEFT OUTER JOIN more AS m WHERE s.k = m.k
====
SELECT s.k FROM src AS s CROSS JOIN more AS m ON s.k = m.k
====
SELECT s.k FROM src AS s CROSS JOIN more AS m USING (k)
====
SELECT s.k FROM src AS s NATURAL JOIN more AS m ON s.k = m.k
====
SELECT s.k FROM src AS s JOIN more AS m ON s.k = m.k ON TRUE
====
SELECT s.k FROM src AS s LEFT more AS m ON s.k = m.k
====
SELECT s.k FROM src AS s INNER LEFT JOIN more AS m ON s.k = m.k
====
SELECT s.k FROM src AS s LEFT SEMI JOIN more AS m ON s.k = m.k
====
SELECT s.k FROM src AS s ANTI JOIN more AS m ON s.k = m.k
====
SELECT k FROM src SEMI JOIN more USING (k)
====
SELECT s.k FROM src AS s ASOF JOIN more AS m ON s.k = m.k
====
SELECT s.k FROM src AS s CROSS APPLY more AS m
====
SELECT s.k FROM (src AS s JOIN more AS m ON s.k = m.k) AS both
====
SELECT s.k FROM src AS s, more AS m,
====
SELECT s.k FROM src AS s JOIN (SELECT k FROM more AS m ON s.k = m.k
====
SELECT s.k FROM src AS s JOIN more AS m USING k
====
SELECT s.k FROM src AS s JOIN more AS m USING (s.k)
====
SELECT s.k FROM src AS s JOIN more AS m ON
====
SELECT k FROM src AS s, LATERAL TABLE(split(note)) AS t (word)
====
SELECT k FROM src AS s LEFT JOIN LATERAL split(note) AS t (word) ON TRUE
====
SELECT k FROM src AS s, LATERAL more
====
SELECT t.x FROM plain CROSS JOIN UNNEST(tags, tags) AS t (x, y)
====
SELECT * FROM src FOR SYSTEM_TIME AS OF ts AS s
====
SELECT * FROM src AS s JOIN (SELECT * FROM upserts) FOR SYSTEM_TIME AS OF s.ts AS u ON s.k = u.k
====
SELECT * FROM src AS s JOIN upserts FOR SYSTEM_TIME OF s.ts AS u ON s.k = u.k
====
SELECT s.k FROM src AS s RIGHT JOIN LATERAL (SELECT s.v + 1) AS t (x) ON TRUE
====
SELECT s.k FROM src AS s NATURAL JOIN LATERAL (SELECT s.v + 1) AS t (v)
====
SELECT s.k FROM plain AS s, LATERAL (SELECT x FROM UNNEST(s.tags) AS u (x)) AS t
