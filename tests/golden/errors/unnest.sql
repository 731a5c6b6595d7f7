SELECT x FROM plain CROSS JOIN UNNEST(v) AS t (x)
====
SELECT x FROM plain CROSS JOIN UNNEST(tag) AS t (x)
====
SELECT x FROM plain CROSS JOIN UNNEST(tags) AS t (x, y)
====
SELECT a FROM plain CROSS JOIN UNNEST(props) AS t (a)
====
SELECT a FROM plain CROSS JOIN UNNEST(props) WITH ORDINALITY AS t (a, b)
====
SELECT a FROM plain CROSS JOIN UNNEST(props) AS t (a, a)
====
SELECT x FROM plain CROSS JOIN UNNEST(tags) AS plain (x)
====
SELECT x FROM plain RIGHT JOIN UNNEST(tags) AS t (x) ON TRUE
====
SELECT x FROM plain FULL OUTER JOIN UNNEST(tags) AS t (x) ON TRUE
====
SELECT x FROM plain NATURAL JOIN UNNEST(tags) AS t (k)
====
SELECT x FROM plain JOIN UNNEST(tags) AS t (k) USING (k)
====
SELECT x FROM UNNEST(tags) AS t (x)
====
SELECT x FROM UNNEST(tags) AS t (x), plain
====
SELECT x FROM plain LEFT JOIN UNNEST(tags) AS t (x) ON x
====
SELECT x FROM plain CROSS JOIN UNNEST(MAX(tags)) AS t (x)
====
SELECT UNNEST(tags) FROM plain
====
INSERT INTO appended SELECT k, x FROM (SELECT k, COUNT(*) AS n FROM src GROUP BY k) CROSS JOIN UNNEST(ARRAY[n]) AS t (x)
