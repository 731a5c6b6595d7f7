EXPLAIN SELECT a.k, b.id FROM src AS a FULL JOIN more AS b ON a.k = b.k WHERE a.v > 1
