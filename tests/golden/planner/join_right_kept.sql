EXPLAIN SELECT a.k, b.id FROM src AS a RIGHT JOIN more AS b ON a.k = b.k AND a.v > 1 AND b.v > 2 WHERE b.id < 9
