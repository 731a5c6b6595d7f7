EXPLAIN SELECT r.k, r.v, u.v FROM
  (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM src) AS r
  JOIN upserts AS u ON r.k = u.k WHERE r.n <= 3
