SET 'parallelism.default' = '2';
EXPLAIN SELECT a.k, b.n FROM src AS a CROSS JOIN (SELECT COUNT(*) AS n FROM more) AS b
