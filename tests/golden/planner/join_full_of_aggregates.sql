SET 'parallelism.default' = '2';
EXPLAIN INSERT INTO pairs
SELECT COALESCE(a.k, b.k), COALESCE(a.n, b.n) FROM
  (SELECT k, COUNT(*) AS n FROM src GROUP BY k) AS a FULL JOIN
  (SELECT k, COUNT(*) AS n FROM more GROUP BY k) AS b ON a.k = b.k
