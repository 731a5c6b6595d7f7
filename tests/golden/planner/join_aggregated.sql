SET 'parallelism.default' = '2';
EXPLAIN INSERT INTO totals
SELECT b.k, COUNT(DISTINCT a.note) FROM src AS a LEFT JOIN upserts AS b ON a.v = b.v GROUP BY b.k
