EXPLAIN SELECT a.k, b.id FROM src AS a LEFT JOIN more AS b ON a.k = b.k WHERE b.id IS NULL AND a.v > 1
