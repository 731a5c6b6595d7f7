EXPLAIN SELECT k, id FROM (SELECT a.k, a.v, b.id FROM src AS a JOIN more AS b ON a.k = b.k) WHERE v > 1 AND id < 3
