-- The first rows per key are kept once for all rows of the left side.
EXPLAIN SELECT s.k, t.v FROM src AS s, LATERAL (SELECT v FROM more AS m WHERE m.k = s.k ORDER BY v DESC LIMIT 2) AS t;
