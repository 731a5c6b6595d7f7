-- A row of the left side without partner counts 0.
EXPLAIN SELECT s.k, t.n FROM src AS s JOIN LATERAL (SELECT COUNT(*) AS n FROM more AS m WHERE m.k = s.k) AS t ON n < 3;
